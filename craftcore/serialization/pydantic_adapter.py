"""The types that pydantic reads and writes, and msgspec does not. It is imported when such a type is met.

craftcore does not depend on it. Where it is not installed, these types are refused.
"""

from __future__ import annotations

import collections.abc
import inspect
import typing
from typing import Any

from craftcore.serialization.canonical import canonicalize
from craftcore.serialization.kept_by_type import keep_by_type

CONFIG = {"val_json_bytes": "base64", "ser_json_bytes": "base64"}
"""Bytes are base64 in our JSON, as msgspec has them; in that of pydantic they are UTF-8."""

_READ_ONCE = (collections.abc.Iterable, collections.abc.Generator)
"""pydantic makes an iterator of them."""


class Adapter:
    """Reads and writes values of one type. Raises TypeError for a type that pydantic does not know, or without it.

    pydantic refuses a configuration for a class; inside a tuple of one item the class takes it over.
    """

    def __init__(self, kind: Any) -> None:
        if (typing.get_origin(kind) or kind) in _READ_ONCE:
            raise TypeError("it is read once: name a list")
        try:
            from pydantic import PydanticSchemaGenerationError, TypeAdapter
        except ImportError as error:
            raise TypeError("pydantic, which may read it, is not installed") from error
        try:
            self._adapter = TypeAdapter(tuple[kind], config=CONFIG)  # type: ignore[arg-type]
            self._adapter.rebuild(raise_errors=True)
        except PydanticSchemaGenerationError as error:
            raise TypeError("pydantic does not read it either") from error
        except Exception as error:  # a type of the user's describes itself, and may raise anything
            raise TypeError(f"pydantic: {str(error).partition(chr(10))[0]:.200}") from error
        known = inspect.signature(self._adapter.validate_json).parameters
        self._names: dict[str, Any] = {name: True for name in ("by_alias", "by_name") if "by_name" in known}

    def read(self, text: str) -> Any:
        """Return the value of a JSON text. Raises ValueError with the path to what does not fit, or what a type of the
        user's raises."""
        from pydantic import ValidationError

        try:
            return self._adapter.validate_json(f"[{text}]", **self._names)[0]
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            steps = first["loc"][1:]
            place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
            raise ValueError(f"{place.removeprefix('.')}: {first['msg']}" if place else first["msg"]) from error

    def write(self, value: Any) -> Any:
        """Return a value in parts of JSON. Raises what pydantic raises for one that is not, and ValueError for one that
        would come back as another, such as a secret that is written as stars."""
        [written] = self._adapter.dump_python((value,), mode="json", round_trip=True)
        if self.read(canonicalize(written)) != value:
            raise ValueError("pydantic reads another value back")
        return written

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the type."""
        whole = self._adapter.json_schema()
        return {**whole["prefixItems"][0], "$defs": whole.get("$defs", {})}


@keep_by_type(in_order=True)
def _make_adapter(kind: Any) -> Adapter | TypeError:
    """Return an adapter, or why there is none."""
    try:
        return Adapter(kind)
    except TypeError as error:
        return error.with_traceback(None)


def get_adapter(kind: Any) -> Adapter:
    """Return the adapter of a type. Raises TypeError as Adapter does."""
    made = _make_adapter(kind)
    if isinstance(made, TypeError):
        raise made
    return made
