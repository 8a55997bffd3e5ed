"""The annotations of a function: the type of its result, and whether a call of it is awaited."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple

from craftcore.serialization.encode import describe_error
from craftcore.serialization.kept_by_type import keep_by_type
from craftcore.serialization.readable_types import readable_type

AWAITABLE = "_craftcore_awaitable"
"""The mark of a plain function that returns a coroutine."""

RESULT = "its result"
"""Where the path to an unreadable part of a result begins."""


def return_type(fn: Callable[..., Any]) -> Any:
    """Return the type that a function is annotated to return, or one that makes its values. Any when it has none.

    A class returns itself. Raises TypeError for an annotation that cannot be evaluated, and for a type that JSON cannot
    become: an annotation is honoured, or refused.
    """
    fn = unbind(fn)
    owner = getattr(fn, "__self__", None)
    fn = getattr(fn, "__func__", fn)  # one entry for a method, and none that keeps its object alive
    if isinstance(fn, FunctionType) and "return" not in fn.__annotations__:
        return Any  # and no entry that keeps a closure alive
    found = _return_type(fn)
    if isinstance(found, _Refused):
        raise TypeError(found.reason)
    if found is typing.Self:
        return readable_type(owner if isinstance(owner, type) else type(owner), RESULT)
    return found


class _Refused(NamedTuple):
    reason: str


@keep_by_type()
def _return_type(fn: Any) -> Any:
    """Return the type, or why there is none."""
    try:
        hint = fn if isinstance(fn, type) else unwrap_awaitable(return_hint(fn))
        if hint is typing.Self:
            return hint
    except Exception as error:  # an annotation is an expression, and may raise anything
        return _Refused(f"{RESULT}: its annotation cannot be evaluated ({describe_error(error)})")
    try:
        return readable_type(hint, RESULT)
    except TypeError as error:
        return _Refused(str(error))


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


def unwrap_awaitable(hint: Any) -> Any:
    """Return X of an `Awaitable[X]` or a `Coroutine[…, X]`, any other type as it is."""
    return typing.get_args(hint)[-1] if typing.get_origin(hint) in (Awaitable, Coroutine) else hint


def return_hint(fn: Any) -> Any:
    """Return the annotation of what a function returns; Any when it has none. Raises what evaluating it raises.

    It is evaluated alone: a parameter may be of a type that only the checker imports.
    """
    fn = unbind(fn)
    for annotated in (fn, type(fn).__call__):
        annotations = getattr(annotated, "__annotations__", None)
        if isinstance(annotations, dict) and "return" in annotations:  # a mock has every attribute
            shim = SimpleNamespace(__annotations__={"return": annotations["return"]})
            names = getattr(inspect.unwrap(annotated), "__globals__", {})
            return typing.get_type_hints(shim, globalns=names, include_extras=True)["return"]
    return Any
