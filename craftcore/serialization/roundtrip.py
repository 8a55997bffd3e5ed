"""A value as its text, and as that text brings it back: what is returned first equals what is returned later."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from craftcore.errors import InvalidInput
from craftcore.serialization.decode import decode
from craftcore.serialization.encode import encode
from craftcore.serialization.plain import SCALARS
from craftcore.serialization.readable_types import is_read_by_msgspec
from craftcore.serialization.untrusted import type_name


def encode_roundtrip(value: Any, type_: Any, where: str) -> tuple[str, Any]:
    """Return the canonical text of a value, and the value as that text brings it back.

    Raises InvalidInput as `encode` and `decode` do, and for a value that would come back as one of another class.
    """
    text = encode(value, where)
    kind = type(value)
    has_surrogates = kind is str and "\\ud" in text  # the two halves of a pair come back as one character
    if not has_surrogates and kind in SCALARS and (type_ is Any or type_ is kind):
        return text, value
    back = decode(text, type_, where)
    if type_ is not Any and not is_read_by_msgspec(type_):
        _refuse_other_class(value, back, where)
    return text, back


def encode_as(value: Any, type_: Any, where: str) -> str:
    """Return the canonical text of a value that is read as this type later.

    Raises InvalidInput as `encode` does, and for a value that would come back as one of another class. A value that
    does not fit the type at all is refused where it is read.
    """
    text = encode(value, where)
    if type_ is not Any and type(value) not in SCALARS and not is_read_by_msgspec(type_):
        try:
            back = decode(text, type_, where)
        except InvalidInput:
            return text
        _refuse_other_class(value, back, where)
    return text


def _refuse_other_class(value: Any, back: Any, where: str) -> None:
    """Refuse an object that comes back as one of another class: a union took the wrong member.

    One that comes back as a dict is where the annotation says no class.
    """
    if isinstance(value, list | tuple) and isinstance(back, list | tuple):
        for index, (part, part_back) in enumerate(zip(value, back, strict=False)):
            _refuse_other_class(part, part_back, f"{where}[{index}]")
    elif isinstance(value, dict) and isinstance(back, dict):
        for key in value.keys() & back.keys():
            _refuse_other_class(value[key], back[key], f"{where}[{key!r:.80}]")
    elif (parts := _list_fields(value)) and (parts_back := _list_fields(back)):
        if not isinstance(value, type(back)):
            raise InvalidInput(
                f"{where}: {type_name(value)} comes back from its JSON as {type_name(back)}. Give the types of the "
                "union what tells them apart: a field with a Literal, or a tag"
            )
        for name in parts & parts_back:
            _refuse_other_class(getattr(value, name, None), getattr(back, name, None), f"{where}.{name}")


def _list_fields(value: Any) -> frozenset[str]:
    """Return the names of the fields of an object of a class of the user's; none for any other value."""
    kind = type(value)
    if issubclass(kind, msgspec.Struct):
        return frozenset(kind.__struct_fields__)
    if dataclasses.is_dataclass(kind):
        return frozenset(field.name for field in dataclasses.fields(kind))
    if hasattr(kind, "__attrs_attrs__"):
        return frozenset(field.name for field in kind.__attrs_attrs__)
    return frozenset(getattr(kind, "model_fields", ()))
