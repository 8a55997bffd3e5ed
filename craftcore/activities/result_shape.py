"""The shape of an action's result: what a decision has to bring when the action happened unseen.

It is the JSON Schema of the declared type, kept with the activity: the process that decides need not have the app.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sized
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain, repeat
from typing import Any
from uuid import UUID

from craftcore.errors import InvalidInput
from craftcore.serialization.canonical import canonicalize
from craftcore.serialization.untrusted import safe_repr

SHAPE_MAX = 4_000
"""Characters of a shape that is kept. A larger one says only that something is needed."""

DEPTH_MAX = 20

WORDS = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}

FORMATS = {
    "date-time": datetime, "date": date, "time": time, "duration": timedelta, "uuid": UUID, "decimal": Decimal,
}  # fmt: skip

Schema = Mapping[str, Any]


def shape_of(result_type: Any) -> str | None:
    """Return the shape of a declared result type. None when it needs none: nothing is declared, or None is a result."""
    import msgspec  # commands that read import no types

    from craftcore.serialization.decode import decode

    if result_type is Any:
        return None
    try:
        decode("null", result_type)
        return None
    except InvalidInput:
        pass
    try:
        made = getattr(result_type, "model_json_schema", None)
        schema = msgspec.json.schema(result_type) if made is None else made()
        # Of a moment the schema says only that it is text.
        names = [name for name, kind in FORMATS.items() if kind is result_type]
        text = canonicalize({**schema, "format": names[0]} if names else schema)
    except Exception:  # a type of the user's own that describes itself in no such way
        return "{}"
    return text if len(text) <= SHAPE_MAX else "{}"


def is_result_needed(shape: str | None) -> bool:
    """Return whether a decision has to bring the result. An object without fixed fields can be empty."""
    return shape is not None and not _is_free_object(json.loads(shape))


def describe_required(shape: str | None) -> str | None:
    """Return the result that a decision has to bring, in words; None: it brings none."""
    return describe_shape(shape) if shape is not None and is_result_needed(shape) else None


def describe_shape(shape: str) -> str:
    """Return `text`, or `JSON: an object with id (text) and amount (a whole number)`"""
    schema = json.loads(shape)
    words = _describe(schema, schema, 0)
    return words if schema.get("type") == "string" else f"JSON: {words}"


def read_result(shape: str | None, reference: str | None, action: str) -> str | None:
    """Return the result that a reference is, as canonical JSON. Raises InvalidInput when the action needs another.

    Text is the result as it is, or the provider_ref of an object without fixed fields. Anything else is JSON.
    """
    if shape is None:
        return None if reference is None else canonicalize(reference)
    schema = json.loads(shape)
    value = reference if reference is None or schema.get("type") == "string" else _parse(reference)
    named = {} if reference is None else {"provider_ref": reference}
    for meant in (value, reference, named if _is_free_object(schema) else None):
        if meant is not None and has_shape(schema, meant):
            with suppress(ValueError):  # a number beyond any float
                return canonicalize(meant)
    given = "none was given" if reference is None else f"{safe_repr(reference):.100} is not that"
    raise InvalidInput(
        f"the task needs the result of {action}: give it as the reference ({describe_shape(shape)}); {given}"
    )


def _parse(reference: str) -> Any:
    try:
        return json.loads(reference)
    except ValueError:
        return None


def has_shape(schema: Schema, value: Any, root: Schema | None = None, depth: int = 0) -> bool:
    """Return whether a JSON value has a shape, as far as types, fields, choices and limits tell."""
    root = schema if root is None else root
    schema = _resolve(schema, root)
    if depth > DEPTH_MAX:
        return True
    if (choices := schema.get("anyOf")) is not None:
        return any(has_shape(choice, value, root, depth + 1) for choice in choices)
    if "enum" in schema and value not in schema["enum"]:
        return False
    match schema.get("type"):
        case "string":
            return isinstance(value, str) and _has_length(schema, value, "Length") and _has_format(schema, value)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool) and _is_within(schema, value)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool) and _is_within(schema, value)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "array":
            firsts, rest = schema.get("prefixItems", ()), schema.get("items")
            others = rest if isinstance(rest, dict) else {}
            return (
                isinstance(value, list)
                and _has_length(schema, value, "Items")
                and all(
                    has_shape(shape, one, root, depth + 1)
                    for shape, one in zip(chain(firsts, repeat(others)), value, strict=False)
                )
            )
        case "object":
            fields, rest = schema.get("properties", {}), schema.get("additionalProperties")
            others = rest if isinstance(rest, dict) else {}
            return (
                isinstance(value, dict)
                and all(name in value for name in schema.get("required", ()))
                and (rest is not False or "patternProperties" in schema or value.keys() <= fields.keys())
                and all(has_shape(fields.get(name, others), one, root, depth + 1) for name, one in value.items())
            )
    return True


def _has_format(schema: Schema, text: str) -> bool:
    if (pattern := schema.get("pattern")) is not None:
        with suppress(re.error):  # a pattern of another dialect
            if re.search(pattern, text) is None:
                return False
    kind = bytes if schema.get("contentEncoding") == "base64" else FORMATS.get(str(schema.get("format")))
    if kind is None:
        return True
    from craftcore.serialization.decode import decode

    try:
        decode(json.dumps(text), kind)
    except InvalidInput:
        return False
    return True


def _has_length(schema: Schema, value: Sized, of: str) -> bool:
    """Return whether text or a list is as long as its limits of this name allow."""
    return bool(schema.get(f"min{of}", 0) <= len(value) <= schema.get(f"max{of}", math.inf))


def _is_within(schema: Schema, value: float) -> bool:
    """Return whether a number is within its limits."""
    least, most = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    below, above = schema.get("exclusiveMinimum", -math.inf), schema.get("exclusiveMaximum", math.inf)
    return bool(least <= value <= most and below < value < above)


def make_sample(shape: str, text: str) -> Any:
    """Return a value of a shape, with this text where it is text. Raises InvalidInput where none can be made up."""
    schema = json.loads(shape)
    return _sample(schema, schema, text, 0)


def _sample(schema: Schema, root: Schema, text: str, depth: int) -> Any:
    schema = _resolve(schema, root)
    if depth > DEPTH_MAX:
        raise InvalidInput("its result has no end")
    for choice in schema.get("anyOf", ()):
        return _sample(choice, root, text, depth + 1)
    if schema.get("enum"):
        return schema["enum"][0]
    match schema.get("type"):
        case "string" if not schema.keys() & {"format", "pattern", "contentEncoding"}:
            return text
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "null":
            return None
        case "array" if not schema.get("minItems"):
            return []
        case "object":
            fields = schema.get("properties", {})
            return {name: _sample(fields.get(name, {}), root, text, depth + 1) for name in schema.get("required", ())}
    raise InvalidInput("no value of its type can be made up")


def _resolve(schema: Schema, root: Schema) -> Schema:
    """Return what a reference within the schema names."""
    name = schema.get("$ref")
    if name is None:
        return schema
    found: Schema = root.get("$defs", {}).get(str(name).rpartition("/")[2], {})
    return found


def _is_free_object(schema: Schema) -> bool:
    resolved = _resolve(schema, schema)
    return resolved.get("type") == "object" and not resolved.get("required")


def _describe(schema: Schema, root: Schema, depth: int) -> str:
    schema = _resolve(schema, root)
    if "enum" in schema:
        return f"one of {', '.join(json.dumps(one) for one in schema['enum'])}"
    kind = schema.get("type")
    if kind == "array":
        return "a list"
    if kind != "object":
        return WORDS.get(str(kind), "the value that it returned")
    required = schema.get("required", ())
    if depth or not required:
        return "an object"
    fields = schema.get("properties", {})
    return f"an object with {', '.join(f'{name} ({_describe(fields.get(name, {}), root, 1)})' for name in required)}"
