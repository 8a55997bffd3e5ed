"""The types that can be made from JSON: those of msgspec, unions of classes without tags, and those of pydantic."""

from __future__ import annotations

import collections.abc
import dataclasses
import typing
from collections.abc import Iterator
from contextlib import suppress
from types import UnionType
from typing import Any, ClassVar, NamedTuple

import msgspec
import msgspec.inspect

from craftcore.errors import InvalidInput
from craftcore.serialization.canonical import canonicalize
from craftcore.serialization.decode import decode
from craftcore.serialization.encode import encode
from craftcore.serialization.kept_by_type import keep_by_type
from craftcore.serialization.plain import SCALARS
from craftcore.serialization.pydantic_adapter import Adapter, get_adapter

_ANYTHING = (object, typing.NoReturn, typing.Never)
"""Annotations that say nothing of a value."""


def readable_type(hint: Any, where: str) -> Any:
    """Return the same type, or one that makes its values in its place. `decode` reads with it.

    Raises TypeError for what JSON cannot become, with the path to it, from `where` on.
    """
    reader = _find_reader(hint)
    if isinstance(reader, _Refused):
        raise TypeError(f"{_find_place(hint, where)}: {reader.reason}")
    return reader


def require_type(hint: Any, where: str) -> Any:
    """Return what `readable_type` does, for a type that a caller names. Raises InvalidInput for what JSON cannot
    become."""
    try:
        return readable_type(hint, where)
    except TypeError as error:
        raise InvalidInput(str(error)) from error


def decode_as(text: str, hint: Any, where: str) -> Any:
    """Return the value of a text, as a type that a caller names. Raises InvalidInput as `decode` and `require_type`
    do."""
    return decode(text, require_type(hint, where), where)


def is_read_by_msgspec(reader: Any) -> bool:
    """Return whether msgspec alone makes the values of a readable type, and of those within it."""
    looked = _look(reader)
    return isinstance(looked, _Readable) and not looked.has_adapter


class _Refused(NamedTuple):
    reason: str
    is_custom: bool = False
    """msgspec asked for a class within that pydantic does not read either."""


class _Readable(NamedTuple):
    has_adapter: bool
    has_object: bool


@keep_by_type()
def _look(kind: Any) -> _Readable | _Refused:
    """Return whether `decode` reads a type as it is, however deep what it cannot read lies."""
    try:
        waiting, seen = [msgspec.inspect.type_info(kind)], set()
    except Exception as error:  # a name that is not defined, a union without tags
        return _Refused(f"msgspec: {error}")
    has_adapter = has_object = False
    while waiting:
        info: Any = waiting.pop()
        if isinstance(info, tuple):
            waiting.extend(info)
        elif isinstance(info, msgspec.Struct) and id(info) not in seen:
            seen.add(id(info))
            made: Any = getattr(info, "cls", None)
            if hasattr(made, "__pydantic_validator__") and not hasattr(made, "model_validate"):
                return _Refused(f"{_type_text(made)} is a dataclass of pydantic")
            if isinstance(info, msgspec.inspect.CustomType):
                if info.cls is object:
                    has_object = True
                    continue
                is_ours = isinstance(info.cls, _Reader)
                if not is_ours and not hasattr(info.cls, "model_validate"):
                    try:
                        get_adapter(info.cls)
                    except TypeError as error:
                        return _Refused(f"{_type_text(info.cls)} is not a type that JSON can become ({error})", True)
                    is_ours = True
                has_adapter = has_adapter or is_ours
            waiting.extend(getattr(info, field) for field in info.__struct_fields__ if field not in ("default", "cls"))
    return _Readable(has_adapter, has_object)


@keep_by_type(in_order=True)
def _find_reader(hint: Any) -> Any:
    """Return the type to read with, or _Refused. The first member of a union that fits counts."""
    if hint in _ANYTHING or isinstance(hint, typing.TypeVar):
        return Any
    if _has_pydantic_terms(hint):
        with suppress(TypeError):
            return _Reader(_type_text(hint), (Adapted,), {"adapter": get_adapter(hint)})
    looked = _look(hint)
    if isinstance(looked, _Readable):
        is_rebuilt = looked.has_object or _has_terms_within(hint)  # Any has a JSON Schema, and object has none
        return (_rebuild(hint) or hint) if is_rebuilt else hint
    if (rebuilt := _rebuild(hint)) is not None:
        return rebuilt
    try:
        adapter = get_adapter(hint)
    except TypeError as error:
        if typing.get_origin(hint) is typing.Annotated:
            return _find_reader(typing.get_args(hint)[0])
        return looked if looked.is_custom else _Refused(f"{looked.reason}; {error}")
    return _Reader(_type_text(hint), (Adapted,), {"adapter": adapter})


def _has_pydantic_terms(hint: Any) -> bool:
    """Return whether an annotation has terms that only pydantic knows, such as a Field or a Discriminator."""
    if typing.get_origin(hint) is not typing.Annotated:
        return False
    modules = (type(term).__module__.partition(".")[0] for term in hint.__metadata__)
    return any(module in ("pydantic", "pydantic_core", "annotated_types") for module in modules)


def _has_terms_within(hint: Any) -> bool:
    """Return whether a part of a type, such as the items of a list, has terms that only pydantic knows."""
    return any(_has_pydantic_terms(part) or _has_terms_within(part) for part in typing.get_args(hint))


def _rebuild(hint: Any) -> Any:
    """Return a union, or a generic type such as a list, of readers of its parts; None where there is no such type."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if not parts or origin is typing.Literal or origin is typing.Annotated:
        return None  # what is annotated may say to pydantic which of a union it is
    readers = [part if part is ... else _find_reader(part) for part in parts]
    if any(isinstance(reader, _Refused) for reader in readers):
        return None
    if origin in (typing.Union, UnionType):
        union: Any = typing.Union[tuple(readers)]  # noqa: UP007 - made at run time
        if not isinstance(_look(union), _Refused):
            return union
        return _Reader(_type_text(hint), (Either,), {"members": tuple(readers)})
    if origin is collections.abc.Iterable:
        origin = list
    try:
        rebuilt = origin[tuple(readers)]
    except TypeError:
        return None
    return None if isinstance(_look(rebuilt), _Refused) else rebuilt


class _Reader(type):
    """The class of types that msgspec asks as it asks a pydantic model: `model_validate` returns a value of another."""

    def __instancecheck__(cls, value: object) -> bool:
        return True  # `model_validate` made it


class Adapted(metaclass=_Reader):
    """A type that pydantic reads."""

    adapter: ClassVar[Adapter]

    @classmethod
    def model_validate(cls, value: Any) -> Any:
        """Return the value as that type. Raises pydantic's ValidationError."""
        return cls.adapter.read(canonicalize(value))

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the type."""
        return cls.adapter.schema()


class Either(metaclass=_Reader):
    """A union that msgspec does not read: of several classes whose JSON has no tag. The text decides which it is."""

    members: ClassVar[tuple[Any, ...]] = ()

    @classmethod
    def model_validate(cls, value: Any) -> Any:
        """Return the value as the one type that writes the same text again; else as the first that loses no key.

        Raises ValueError when none fits, or several do.
        """
        text = canonicalize(value)
        fitting = [(made, encode(made, "value")) for made in cls._convert_members(text)]
        exact = [made for made, again in fitting if again == text]
        if any(type(made) in SCALARS for made in exact):
            return value  # a text that is a moment, too, is a text
        if len({type(made) for made in exact}) > 1:
            names = " and ".join(sorted(type(made).__name__ for made in exact))
            raise ValueError(f"fits {names}: give each a tag, as in class {type(exact[0]).__name__}(Struct, tag=True)")
        if exact:
            return exact[0]
        for made, again in fitting:
            if _keys(value) <= _keys(decode(again)):
                return made
        raise ValueError(f"is not one of {cls.__name__}")

    @classmethod
    def _convert_members(cls, text: str) -> list[Any]:
        made = []
        for member in cls.members:
            try:
                made.append(decode(text, member))
            except InvalidInput:
                continue
        return made


def _keys(value: Any) -> set[str]:
    return set(value) if isinstance(value, dict) else set()


# Where in a type the part is that cannot be read


def _find_place(hint: Any, where: str, above: tuple[Any, ...] = ()) -> str:
    for step, part in _list_parts(hint):
        if isinstance(_look(part), _Refused) and not any(part is one for one in above):
            return _find_place(part, where + step, (*above, part))
    return where


def _list_parts(hint: Any) -> Iterator[tuple[str, Any]]:
    for part in typing.get_args(hint):
        if part is not ... and typing.get_origin(hint) not in (typing.Literal, typing.Annotated):
            yield "" if typing.get_origin(hint) in (typing.Union, UnionType) else "[...]", part
    is_open = isinstance(hint, type) and (
        dataclasses.is_dataclass(hint) or issubclass(hint, msgspec.Struct) or hasattr(hint, "__total__")
    )
    if is_open or hasattr(hint, "_fields"):
        try:
            hints = typing.get_type_hints(hint, include_extras=True)
        except Exception:  # an annotation is an expression, and may raise anything
            return
        yield from ((f".{name}", part) for name, part in hints.items())


def _type_text(hint: Any) -> str:
    if typing.get_origin(hint) in (typing.Union, UnionType):
        return " | ".join(_type_text(part) for part in typing.get_args(hint))
    return str(getattr(hint, "__name__", hint))
