"""Values of the user's own types as canonical JSON text. `decode.py` brings them back.

    dataclass, msgspec Struct, pydantic model          an object of its fields
    list, tuple, named tuple                           an array
    set, frozenset                                     an array in one order, whichever the set is in
    enum                                               its value
    datetime, date, time, timedelta, UUID, Decimal     text
    bytes                                              base64
    any other that pydantic knows, if it is installed  as pydantic has it: a path, an IP address, …

A key is text, a whole number, or what becomes one of them (enum, date, UUID): `dict[int, X]` brings it back, Any
leaves it text. A float, a bool or None cannot be a key: JSON would write them as text, which cannot be read back as
before.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from types import NoneType
from typing import Any

import msgspec

from craftcore.errors import InvalidInput
from craftcore.serialization.canonical import canonicalize, canonicalize_tree
from craftcore.serialization.plain import SCALARS, is_plain
from craftcore.serialization.pydantic_adapter import get_adapter
from craftcore.serialization.untrusted import is_text, type_name

MAX_DEPTH = 64
SHOWN = 400
"""Characters of a value's own text that a message shows."""

_SOUND = SCALARS - {NoneType}
_ARRAYS = (list, tuple, set, frozenset)
_HALF = re.compile(r"\\ud").search
_Hook = Callable[[Any], Any]
"""Makes parts of JSON out of one value that msgspec does not know."""


def encode(value: Any, where: str, *, with_pydantic: bool = True) -> str:
    """Return the canonical text of a value. Raises InvalidInput with the path, from `where` on, to what is not JSON.

    `with_pydantic` False refuses what only `pydantic_adapter` writes, also where pydantic is installed.
    """
    plain = value
    if not is_plain(value, MAX_DEPTH):
        plain = _build(value, where, _encode_unknown if with_pydantic else _encode_known)
    try:
        text = canonicalize_tree(plain)
        if "\\" in text and _HALF(text):  # that is how ASCII writes an emoji, but half of one is no character
            msgspec.json.decode(text)
    except Exception as error:
        _refuse_part(plain, where)
        raise InvalidInput(f"{where} is not JSON ({describe_error(error)})") from error
    return text


def _build(value: Any, where: str, hook: _Hook) -> Any:
    """Return the value in dicts, lists and scalars: at the speed of msgspec, and by a walk where that cannot do it or
    say why.

    msgspec sorts a set by `<`, which between sets says nothing about order: what may have been a set of sets is walked.
    """
    try:
        built = msgspec.to_builtins(value, enc_hook=hook, order="deterministic")
        if is_plain(built, MAX_DEPTH, rows=False):
            return built
    except BaseException:
        pass  # the walk finds it again, and where it is
    return _walk(value, where, (), hook)


def _walk(value: Any, where: str, above: tuple[int, ...], hook: _Hook) -> Any:
    """Return the value in parts of JSON. `above` has the ids of the values that contain it."""
    if type(value) in SCALARS:
        return value
    if id(value) in above:
        raise InvalidInput(f"{where:.{SHOWN}} holds itself")
    try:
        opened = _open_value(value, hook)
        if type(opened) in SCALARS:
            return opened
        if len(above) == MAX_DEPTH:
            raise InvalidInput(f"{where:.{SHOWN}} is deeper than {MAX_DEPTH} levels")
        above = (*above, id(value))
        if isinstance(opened, dict):
            return _walk_dict(opened, where, above, hook)
        if isinstance(opened, set | frozenset):
            return _sorted_items(_walk(part, f"{where}[...]", above, hook) for part in opened)
        return [_walk(part, f"{where}[{index}]", above, hook) for index, part in enumerate(opened)]
    except _Unknown as error:
        raise InvalidInput(f"{where}: {type_name(value)} is not JSON") from error
    except BaseException as error:  # a type of the user's tells its parts itself, and may raise anything
        if type(error) is InvalidInput:  # of a part, with the path to it
            raise
        raise InvalidInput(f"{where}: {type_name(value)} is not JSON ({describe_error(error)})") from error


def _walk_dict(value: dict[Any, Any], where: str, above: tuple[int, ...], hook: _Hook) -> dict[str, Any]:
    walked: dict[str, Any] = {}
    for key, part in value.items():
        name = _key_text(key, where, hook)
        if name in walked:
            raise InvalidInput(f"{where}: two keys become {json.dumps(name):.80}")
        walked[name] = _walk(part, _path_text(where, name), above, hook)
    return walked


def _key_text(key: Any, where: str, hook: _Hook) -> str:
    try:
        name = msgspec.to_builtins(key, enc_hook=hook)
        if type(name) in (str, int):
            return str(name)
    except BaseException:
        pass  # said below
    raise InvalidInput(f"{where}: key {describe(repr, key):.80} is not text")


def _open_value(value: Any, hook: _Hook) -> Any:
    """Return one level of a value: a scalar, or a dict, list, tuple or set whose parts are not opened yet."""
    kind = type(value)
    if isinstance(value, dict | list | tuple | set | frozenset):
        return value
    if issubclass(kind, msgspec.Struct):
        return _open_struct(value)
    if dataclasses.is_dataclass(kind):
        return _set_fields(value, (field.name for field in dataclasses.fields(kind)))
    return msgspec.to_builtins(value, enc_hook=hook)


def _open_struct(value: msgspec.Struct) -> Any:
    config = value.__struct_config__
    if config.array_like:
        parts = [getattr(value, field) for field in value.__struct_fields__]
        return parts if config.tag is None else [config.tag, *parts]
    names = dict(zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True))
    opened = {names[field]: part for field, part in _set_fields(value, names).items()}
    return opened if config.tag_field is None else {config.tag_field: config.tag, **opened}


def _set_fields(value: Any, fields: Iterable[str]) -> dict[str, Any]:
    """Return the fields that hold something."""
    parts = ((field, getattr(value, field, msgspec.UNSET)) for field in fields)
    return {field: part for field, part in parts if part is not msgspec.UNSET}


class _Unknown(TypeError):
    """Nothing can make JSON of it."""


def _encode_known(value: Any) -> Any:
    """Return what msgspec asks for types that it does not know: pydantic models, and heirs of text and numbers."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if hasattr(type(value), "model_dump"):
        return _dump_pydantic(value)
    raise _Unknown(type_name(value))


def _encode_unknown(value: Any) -> Any:
    """Return what msgspec asks for types that it does not know: also one that pydantic writes."""
    try:
        return _encode_known(value)
    except _Unknown:
        pass
    try:
        return _repair_dump(get_adapter(type(value)).write(value), value)
    except Exception as error:  # pydantic does not know its type, or cannot write it
        raise _Unknown(type_name(value)) from error


def _dump_pydantic(model: Any) -> Any:
    """Return the dump of a pydantic model that `convert` reads back. It has the field names, or the aliases where the
    model takes only those, and no computed fields."""
    kind: Any = type(model)
    wanted = {"round_trip": True, "by_alias": "by_name" not in options_of(kind, "model_validate")}
    known = options_of(kind, "model_dump")
    return _repair_dump(
        model.model_dump(mode="json", **{name: wanted[name] for name in wanted if name in known}), model
    )


def _repair_dump(dumped: Any, original: Any) -> Any:
    """Return a dump without what would give one model two texts, or another value: sets are in whatever order, and a
    NaN whose field is untyped is null. It is put back, to be refused as any other."""
    if dumped is None:
        return original if isinstance(original, float) and not math.isfinite(original) else None
    if hasattr(original, "__pydantic_root_model__"):
        original = original.root if original.__pydantic_root_model__ else original
    if isinstance(dumped, dict):
        if isinstance(original, dict):  # in one order, but the keys have become text
            parts = dict(zip(dumped, original.values(), strict=False))
        else:
            parts = getattr(original, "__dict__", {}) | (getattr(original, "__pydantic_extra__", None) or {})
        return {
            name: part if type(part) in _SOUND else _repair_dump(part, parts.get(name)) for name, part in dumped.items()
        }
    if isinstance(dumped, list) and isinstance(original, _ARRAYS) and len(dumped) == len(original):
        pairs = zip(dumped, original, strict=True)
        mended = [part if type(part) in _SOUND else _repair_dump(part, of) for part, of in pairs]
        return _sorted_items(mended) if isinstance(original, set | frozenset) else mended
    return dumped


@lru_cache(maxsize=1024)
def options_of(kind: Any, method: str) -> frozenset[str]:
    """Return the names of what a method of a type takes."""
    return frozenset(inspect.signature(getattr(kind, method)).parameters)


def _sorted_items(items: Iterable[Any]) -> list[Any]:
    items = list(items)
    try:
        return sorted(items, key=canonicalize)
    except ValueError:
        return items  # one of them is refused in a moment, with its path


def _refuse_part(value: Any, where: str) -> None:
    """Raise InvalidInput for the first number or text of a plain value that is not JSON's."""
    if isinstance(value, dict):
        for name, part in value.items():
            if not is_text(name):
                raise InvalidInput(
                    f"{where}: key {json.dumps(name):.80} holds a lone surrogate, which is not a character"
                )
            _refuse_part(part, _path_text(where, name))
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            _refuse_part(part, f"{where}[{index}]")
    elif isinstance(value, str):
        if not is_text(value):
            raise InvalidInput(f"{where} holds a lone surrogate, which is not a character")
    elif isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(f"{where} is {'NaN' if math.isnan(value) else 'infinite'}")
    elif isinstance(value, int):
        try:
            int.__repr__(value)
        except ValueError as error:
            raise InvalidInput(f"{where} has thousands of digits") from error


def _path_text(where: str, name: str) -> str:
    return f"{where}.{name:.80}" if name.isidentifier() else f"{where}[{json.dumps(name[:80])}]"


def describe_error(error: BaseException) -> str:
    """Return the type of an error and its own words, in one line that can be stored."""
    return f"{type_name(error)}: {describe(str, error):.{SHOWN}}"


def describe(tell: Callable[[Any], str], value: Any) -> str:
    """Return what `str` or `repr` tells of it, in one line that can be stored, or the name of its type."""
    try:
        text = " ".join(tell(value).split())
    except BaseException:  # somebody's __repr__ is broken, or it is too deep for it
        text = ""
    return (text or type_name(value)).encode(errors="replace").decode()
