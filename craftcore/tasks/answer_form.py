"""The form of a question: its fields, as a restricted JSON Schema, and the check of an answer. Pure.

A form is an object of text, numbers, whole numbers, booleans and choices, as an MCP elicitation has it. Any process can
check an answer with it: the class of the form is needed only where its workflow runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from craftcore.errors import InvalidInput, UnreadableRow
from craftcore.serialization.canonical import canonicalize

FIELDS_MAX = 50
FORM_MAX_BYTES = 32 << 10
ANSWER_MAX_BYTES = 64 << 10

_FORMATS: dict[str, Any] = {
    "date": date, "date-time": datetime, "time": time, "duration": timedelta, "uuid": UUID, "decimal": Decimal
}  # fmt: skip
_WORDS = ("title", "description", "default")
_RULES = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "boolean": (),
}
_SAID = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}
_YES = {"true": True, "yes": True, "false": False, "no": False}


def restrict_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the form of a JSON Schema. Raises ValueError for one that a person cannot fill in, field by field."""
    parts = schema.get("$defs", {})
    whole = _resolve(schema, parts)
    given = whole.get("properties")
    if whole.get("type") != "object" or not given:
        raise ValueError("it is not a class with fields")
    if len(given) > FIELDS_MAX:
        raise ValueError(f"it has {len(given)} fields; allowed: at most {FIELDS_MAX}")
    required = [name for name in given if name in whole.get("required", ())]
    properties = {}
    for name, part in given.items():
        field, takes_none = _restrict_field(name, _resolve(part, parts), parts)
        if takes_none and name in required:
            raise ValueError(f"{name} may be None: give it a default")
        properties[name] = field
    words = {word: whole[word] for word in ("title", "description") if isinstance(whole.get(word), str)}
    return {**words, "type": "object", "properties": properties, "required": required}


def _resolve(part: Mapping[str, Any], parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without its reference. Words beside the reference count."""
    reference = part.get("$ref")
    if not isinstance(reference, str):
        return dict(part)
    found = parts.get(reference.removeprefix("#/$defs/"), {})
    return {**_resolve(found, parts), **{name: value for name, value in part.items() if name != "$ref"}}


def _restrict_field(name: str, part: dict[str, Any], parts: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the schema of a field, and whether it takes None."""
    takes_none = False
    members = part.get("anyOf")
    if isinstance(members, list):
        values = [member for member in members if member.get("type") != "null"]
        takes_none = len(values) < len(members)
        if len(values) != 1:
            raise ValueError(f"{name} may be of several types: a field of a form has one")
        part = {**_resolve(values[0], parts), **{word: part[word] for word in _WORDS if word in part}}
    choices = part.get("enum", [part["const"]] if "const" in part else None)
    words = {word: part[word] for word in _WORDS if part.get(word) is not None}
    if choices is not None:
        if not choices or not all(isinstance(choice, str) for choice in choices):
            raise ValueError(f"{name} is a choice of {choices!r:.80}: the choices of a form are text")
        return {**words, "type": "string", "enum": choices}, takes_none
    kind = part.get("type")
    if kind not in _RULES:
        raise ValueError(f"{name} is not text, a number, true or false, a date, or a choice of texts")
    return {**words, "type": kind, **{rule: part[rule] for rule in _RULES[kind] if rule in part}}, takes_none


def check_form(form_json: str) -> None:
    """Raise ValueError for the text of a row that is not a form."""
    form = json.loads(form_json)
    if not isinstance(form, dict) or restrict_schema(form) != form:
        raise UnreadableRow(f"form_json {form_json:.80} is not a form")


def read_answer(form_json: str, text: str) -> str:
    """Return an answer, a JSON text, as canonical JSON that fits the form. Raises InvalidInput, which names each field
    that does not, and why; `fields` in its details has the same."""
    if len(text) > ANSWER_MAX_BYTES:
        raise InvalidInput(f"the answer has {len(text):,} bytes; the limit is {ANSWER_MAX_BYTES:,}")
    form = json.loads(form_json)
    try:
        given = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise InvalidInput(f"the answer is not JSON of the form: give an object of its fields: {describe_form(form)}")
    properties, required = form["properties"], form["required"]
    given = {name: value for name, value in given.items() if value is not None or name not in properties}
    wrong = {
        name: f"is not a field; the fields are {', '.join(properties)}" for name in given if name not in properties
    }
    for name, field in properties.items():
        if name in given:
            if (mistake := _find_mistake(field, given[name])) is not None:
                wrong[name] = mistake
        elif name in required:
            wrong[name] = "is missing"
    if wrong:
        said = "; ".join(f"{name:.80} {mistake}" for name, mistake in wrong.items())
        raise InvalidInput(f"the answer does not fit the form: {said}; nothing was written", fields=wrong)
    return canonicalize(given)


def read_fields(form_json: str, given: Iterable[str]) -> str:
    """Return the JSON text of an answer that is given field by field, as `name=value`. Raises InvalidInput for what is
    not of that shape, and for a field that is given twice; `read_answer` checks the rest."""
    properties = json.loads(form_json)["properties"]
    values: dict[str, Any] = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals:
            raise InvalidInput(f"{one!r:.80} is not NAME=VALUE")
        if name in values:
            raise InvalidInput(f"field {name:.80} is given twice")
        values[name] = _read_value(properties.get(name, {}).get("type", "string"), text)
    return canonicalize(values)


def describe_form(form: Mapping[str, Any]) -> str:
    """Return `street (text), count (a whole number, 1 to 9; default 1)`: the fields for people."""
    return ", ".join(
        f"{name} ({describe_field(field)}{'' if name in form['required'] else _describe_default(field)})"
        for name, field in form["properties"].items()
    )


def describe_field(field: Mapping[str, Any]) -> str:
    """Return which values a field takes."""
    if "enum" in field:
        return " or ".join(field["enum"])
    said = "a " + field["format"] if field.get("format") in _FORMATS else _SAID[field["type"]]
    least, most = field.get("minimum"), field.get("maximum")
    if least is not None and most is not None:
        return f"{said}, {least} to {most}"
    return said + ("" if least is None else f", {least} or more") + ("" if most is None else f", at most {most}")


def _describe_default(field: Mapping[str, Any]) -> str:
    return f"; default {field['default']}" if "default" in field else "; may be left out"


def _read_value(kind: str, text: str) -> Any:
    """Return the value of a field that was given as text; the text where it cannot be one."""
    if kind == "boolean":
        return _YES.get(text.lower(), text)
    try:
        return int(text) if kind == "integer" else float(text) if kind == "number" else text
    except ValueError:
        return text


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _find_mistake(field: Mapping[str, Any], value: Any) -> str | None:
    """Return why a value does not fit a field; None: it does."""
    if "enum" in field:
        return None if value in field["enum"] else f"must be one of {', '.join(field['enum'])}"
    kind = field["type"]
    is_fit = {
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool),
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "number": isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf"),
    }[kind]
    if not is_fit:
        return f"must be {_SAID[kind]}"
    return _find_text_mistake(field, value) if kind == "string" else _find_bound(field, value)


def _find_text_mistake(field: Mapping[str, Any], text: str) -> str | None:
    if len(text) < field.get("minLength", 0):
        return f"must have at least {field['minLength']} characters"
    if "maxLength" in field and len(text) > field["maxLength"]:
        return f"must have at most {field['maxLength']} characters"
    if "pattern" in field and re.search(field["pattern"], text) is None:
        return f"must match {field['pattern']}"
    if (meant := _FORMATS.get(field.get("format", ""))) is not None:
        import msgspec  # when it is needed: a reading command must not pay for it

        try:
            msgspec.convert(text, meant)
        except ValueError:
            return f"must be a {field['format']}"
    return None


def _find_bound(field: Mapping[str, Any], value: float) -> str | None:
    if "minimum" in field and value < field["minimum"]:
        return f"must be {field['minimum']} or more"
    if "maximum" in field and value > field["maximum"]:
        return f"must be at most {field['maximum']}"
    if "exclusiveMinimum" in field and value <= field["exclusiveMinimum"]:
        return f"must be more than {field['exclusiveMinimum']}"
    if "exclusiveMaximum" in field and value >= field["exclusiveMaximum"]:
        return f"must be less than {field['exclusiveMaximum']}"
    if "multipleOf" in field and value % field["multipleOf"]:
        return f"must be a multiple of {field['multipleOf']}"
    return None
