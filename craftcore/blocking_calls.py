"""Blocking calls made from awaitable ones, so that each call is defined once."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V")


class Run(Protocol):
    """Runs a coroutine to its end, and blocks its thread meanwhile."""

    def __call__(self, call: Coroutine[Any, Any, R], /) -> R: ...


class BlockingCalls:
    """The base of a class whose calls are those of `awaitable`, each run by `run`."""

    _awaitable: Any
    _run: Run


def run_here(call: Coroutine[Any, Any, R], /) -> R:
    """Run a coroutine that blocks its thread where others would suspend. It needs no event loop."""
    try:
        call.send(None)
    except StopIteration as end:
        result: R = end.value
        return result
    call.close()
    raise AssertionError(f"{call} suspends, and no event loop runs it")


def iterate(run: Run, items: AsyncGenerator[R, None]) -> Iterator[R]:
    """Yield the items, and block the thread until the next one."""
    try:
        while True:
            try:
                item = run(_take_next(items))
            except StopAsyncIteration:
                return
            yield item
    finally:
        run(items.aclose())


@overload
def make_blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]: ...


@overload
def make_blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], convert: Callable[[Any, R], V]
) -> Callable[Concatenate[Any, P], V]: ...


def make_blocking(method: Callable[..., Coroutine[Any, Any, Any]], convert: Callable[..., Any] | None = None) -> Any:
    """Return the method of a `BlockingCalls` class that runs this one of its awaitable.

    `convert(self, result)` makes the result that the blocking caller gets; None: the same result.
    """

    @wraps(method)
    def call(self: BlockingCalls, /, *args: Any, **kwargs: Any) -> Any:
        result = self._run(method(self._awaitable, *args, **kwargs))
        return result if convert is None else convert(self, result)

    if convert is not None:
        returned = inspect.signature(convert).return_annotation
        call.__signature__ = inspect.signature(method).replace(return_annotation=returned)  # type: ignore[attr-defined]
    return call


async def _take_next(items: AsyncGenerator[R, None]) -> R:
    return await anext(items)
