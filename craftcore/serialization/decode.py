"""Values of the user's own types out of JSON text, as annotations say. `encode.py` makes the text."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Awaitable, Callable, Coroutine
from functools import lru_cache, partial
from types import FunctionType, SimpleNamespace, UnionType
from typing import Any, ClassVar

import msgspec
import msgspec.inspect

from craftcore.errors import InvalidInput
from craftcore.serialization.canonical import canonicalize
from craftcore.serialization.encode import SCALARS, SHOWN, describe, describe_error, encode, options_of
from craftcore.serialization.type_descriptions import describe_type

AWAITABLE = "_craftcore_awaitable"
"""The mark of a plain function that returns a coroutine."""

_UNFIT = re.compile(r"(.*) - at (`key` in )?`\$([^`]*)`", re.DOTALL)


def decode(text: str, type_: Any = Any, where: str = "value") -> Any:
    """Return the value of a text, as that type. Raises InvalidInput with the path to what does not fit."""
    try:
        if type_ is not Any:
            describe_type(type_)
        return msgspec.json.decode(text, type=type_, dec_hook=decode_custom)
    except msgspec.MsgspecError as error:
        message = describe(str, error)
        if unfit := _UNFIT.fullmatch(message):
            message, key, path = unfit.groups()
            where = f"a key of {where}{path}" if key else where + path
        raise InvalidInput(f"{where}: {message:.{SHOWN}}") from error
    except BaseException as error:  # a type of the user's checks itself, and may raise anything
        raise InvalidInput(f"{where}: {describe_error(error)}") from error


def encode_roundtrip(value: Any, type_: Any, where: str) -> tuple[str, Any]:
    """Return the canonical text of a value, and the value as that text will bring it back: what is returned the first
    time equals what is returned from the record. Raises InvalidInput as `encode` and `decode` do."""
    text = encode(value, where)
    kind = type(value)
    is_the_same = kind is not str or "\\ud" not in text  # two halves of a surrogate pair come back as one character
    if is_the_same and kind in SCALARS and (type_ is Any or type_ is kind):
        return text, value
    return text, decode(text, type_, where)


def return_type(fn: Callable[..., Any]) -> Any:
    """Return the annotated type of what a function returns. Any when it has none, or one that JSON cannot become.

    A class returns itself.
    """
    fn = unbind(fn)
    fn = getattr(fn, "__func__", fn)  # one entry for a method, and none that keeps its object alive
    try:
        if isinstance(fn, FunctionType) and "return" not in fn.__annotations__:
            return Any  # and no entry that keeps a closure alive
        return _return_type(fn)
    except Exception:  # it cannot be hashed
        return _return_type.__wrapped__(fn)


def is_async(fn: Callable[..., Any]) -> bool:
    """Return whether calling it gives something to await, for certain."""
    fn = unbind(fn)
    if isinstance(fn, type):
        return False  # a call makes an object of it
    if getattr(fn, AWAITABLE, False) is True:  # a mock has every attribute
        return True
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


def may_return_awaitable(fn: Callable[..., Any]) -> bool:
    """Return whether it is async, wraps an async function, or is annotated to return something to await."""
    within, seen = fn, set[int]()
    while id(within) not in seen:
        seen.add(id(within))
        if is_async(within):
            return True
        within = getattr(unbind(within), "__wrapped__", within)
    try:
        return typing.get_origin(return_hint(fn)) in (Awaitable, Coroutine)
    except Exception:  # an annotation is an expression, and may raise anything
        return False


def unbind(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of a partial; any other is its own."""
    while isinstance(fn, partial):
        fn = fn.func
    return fn


def find_annotated_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function whose annotations say what a call takes: that of a partial, or the method of an object."""
    fn = unbind(fn)
    if isinstance(fn, type) or inspect.isroutine(fn) or hasattr(fn, "__wrapped__"):
        return fn
    method: Callable[..., Any] = type(fn).__call__
    return method


def require_readable(kind: Any) -> None:
    """Raise TypeError for a type that neither msgspec nor `convert` can make from JSON, however deep it lies."""
    try:
        waiting, seen = [msgspec.inspect.type_info(kind)], set()
    except NameError as error:
        raise TypeError(str(error)) from error
    while waiting:
        info: Any = waiting.pop()
        if isinstance(info, tuple):
            waiting.extend(info)
        elif isinstance(info, msgspec.Struct) and id(info) not in seen:
            seen.add(id(info))
            if isinstance(info, msgspec.inspect.CustomType) and not hasattr(info.cls, "model_validate"):
                raise TypeError(f"{info.cls.__name__} is not a type that JSON can become")
            waiting.extend(getattr(info, field) for field in info.__struct_fields__ if field not in ("default", "cls"))


def decode_custom(kind: Any, value: Any) -> Any:
    """Return what msgspec asks for types that it does not know: a pydantic model makes itself, out of names or aliases.

    It is given JSON again where it can read it: a strict model takes the text of a moment from nothing else.
    """
    if not hasattr(kind, "model_validate"):
        return value  # msgspec refuses it, if it is not of that type
    names = {"by_alias": True, "by_name": True} if "by_name" in options_of(kind, "model_validate") else {}
    if hasattr(kind, "model_validate_json"):
        return kind.model_validate_json(canonicalize(value), **names)
    return kind.model_validate(value, **names)


class _AnyOfThem(type):
    def __instancecheck__(cls, value: object) -> bool:
        return True  # `model_validate` made it


class Either(metaclass=_AnyOfThem):
    """A union that msgspec does not read: of several classes whose JSON has no tag. The text decides which it is.

    msgspec asks it as it asks a pydantic model.
    """

    members: ClassVar[tuple[Any, ...]] = ()

    @classmethod
    def model_validate(cls, value: Any) -> Any:
        """Return the value as the one type that writes the same text again; else as the first that loses no key.

        Raises ValueError when none fits, or several do.
        """
        text = canonicalize(value)
        fitting = [(made, encode(made, "value")) for made in cls._convert_members(text)]
        exact = [made for made, again in fitting if again == text]
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


@lru_cache(maxsize=1024)
def readable_type(hint: Any) -> Any:
    """Return the same type, or one that reads its unions. Raises TypeError for what JSON cannot become."""
    try:
        require_readable(hint)
    except TypeError:
        origin, parts = typing.get_origin(hint), typing.get_args(hint)
        if not parts:
            raise
        if origin in (typing.Union, UnionType):
            return _union_reader(tuple(readable_type(part) for part in parts))
        if origin is typing.Annotated:
            return readable_type(parts[0])
        rebuilt = origin[tuple(part if part is ... else readable_type(part) for part in parts)]
        require_readable(rebuilt)
        return rebuilt
    return hint


def _union_reader(members: tuple[Any, ...]) -> type[Either]:
    name = " | ".join(getattr(member, "__name__", str(member)) for member in members)
    return typing.cast("type[Either]", _AnyOfThem(name, (Either,), {"members": members}))


def _keys(value: Any) -> set[str]:
    return set(value) if isinstance(value, dict) else set()


@lru_cache(maxsize=1024)
def _return_type(fn: Any) -> Any:
    try:
        return readable_type(fn if isinstance(fn, type) else unwrap_awaitable(return_hint(fn)))
    except Exception:  # an annotation is an expression, and may raise anything
        return Any


def unwrap_awaitable(hint: Any) -> Any:
    """Return X of an `Awaitable[X]` or a `Coroutine[…, X]`, any other type as it is."""
    return typing.get_args(hint)[-1] if typing.get_origin(hint) in (Awaitable, Coroutine) else hint


def return_hint(fn: Any) -> Any:
    """Return the annotation of what a function returns; Any when it has none. Raises what evaluating it raises.

    It is evaluated alone: a parameter may be of a type that only the checker imports.
    """
    fn = unbind(fn)
    for annotated in (fn, type(fn).__call__):
        annotations = getattr(annotated, "__annotations__", {})
        if "return" in annotations:
            shim = SimpleNamespace(__annotations__={"return": annotations["return"]})
            names = getattr(inspect.unwrap(annotated), "__globals__", {})
            return typing.get_type_hints(shim, globalns=names, include_extras=True)["return"]
    return Any
