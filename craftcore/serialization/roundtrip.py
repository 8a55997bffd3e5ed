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


def encode_roundtrip(value: Any, type_: Any, where: str) -> tuple[str, Any]:
    """Return the canonical text of a value, and the value as that text will bring it back: what is returned the first
    time equals what is returned from the record. Raises InvalidInput as `encode` and `decode` do, and for a value that
    would come back as one of another class."""
    text = encode(value, where)
    kind = type(value)
    is_the_same = kind is not str or "\\ud" not in text  # two halves of a surrogate pair come back as one character
    if is_the_same and kind in SCALARS and (type_ is Any or type_ is kind):
        return text, value
    back = decode(text, type_, where)
    if type_ is not Any and not is_read_by_msgspec(type_):
        _refuse_loss(value, back, where)
        if encode(back, where) != text:
            raise InvalidInput(f"{where}: {kind.__name__} comes back from its JSON with another one")
    return text, back


def _refuse_loss(value: Any, back: Any, where: str) -> None:
    """Refuse a value that comes back as one of a class that it is not of: a union took the wrong member."""
    if isinstance(value, list | tuple) and isinstance(back, list | tuple):
        for index, (part, part_back) in enumerate(zip(value, back, strict=False)):
            _refuse_loss(part, part_back, f"{where}[{index}]")
    elif isinstance(value, dict) and isinstance(back, dict):
        for key in value.keys() & back.keys():
            _refuse_loss(value[key], back[key], f"{where}[{key!r:.80}]")
    elif not isinstance(value, type(back)) and not _is_equal(value, back):
        raise InvalidInput(
            f"{where}: {type(value).__name__} comes back from its JSON as {type(back).__name__}. Give the types of the "
            "union what tells them apart: a field with a Literal, or a tag"
        )
    else:
        parts_back = _parts_of(back)
        for name, part in _parts_of(value).items():
            if name in parts_back:
                _refuse_loss(part, parts_back[name], f"{where}.{name}")


def _parts_of(value: Any) -> dict[str, Any]:
    if isinstance(value, msgspec.Struct):
        names: Any = value.__struct_fields__
    elif dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    else:
        return dict(value.__dict__) if hasattr(type(value), "model_dump") and hasattr(value, "__dict__") else {}
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def _is_equal(value: Any, back: Any) -> bool:
    try:
        return bool(value == back)
    except Exception:  # a comparison of the user's may raise anything
        return False
