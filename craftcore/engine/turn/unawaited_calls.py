"""Calls of `ctx` that are not awaited: without `await` they do nothing, and the attempt that ends so fails."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from functools import wraps
from inspect import CORO_CREATED, getcoroutinestate
from traceback import walk_stack
from types import CodeType
from typing import Any, NamedTuple, TypeVar, cast

from craftcore.engine.failure import PLACE_LIMIT
from craftcore.serialization.annotations import AWAITABLE
from craftcore.serialization.untrusted import truncate_text

KEPT = 64
"""Calls that are remembered before those that have begun are forgotten."""


class Made(NamedTuple):
    """One call, and the line it was made on."""

    coroutine: Coroutine[Any, Any, Any]
    name: str
    code: CodeType
    line: int

    @property
    def has_begun(self) -> bool:
        """Something awaited it: the workflow, or a task that was made of it."""
        return getcoroutinestate(self.coroutine) != CORO_CREATED

    @property
    def place(self) -> str:
        """Return where it was made: `/srv/agent/app.py:81 in report`."""
        return truncate_text(f"{self.code.co_filename}:{self.line} in {self.code.co_name}", PLACE_LIMIT)


class Left(NamedTuple):
    """A call that the workflow left behind when it returned, and the place where it was made."""

    name: str
    place: str

    @property
    def describe(self) -> str:
        """The message to the author."""
        return f"{self.name}(…) at {self.place} was not awaited, so it did nothing. Write: await {self.name}(…)"


class CallsMade:
    """The calls of one entry of a turn, as far as they have not begun."""

    def __init__(self) -> None:
        self._made: list[Made] = []
        self._limit = KEPT

    def add(self, made: Made) -> None:
        self._made.append(made)
        if len(self._made) > self._limit:
            self._made = [one for one in self._made if not one.has_begun]
            self._limit = KEPT + len(self._made)

    def describe_caller(self) -> str:
        """Return the call whose code calls this, and its place, for a message."""
        running = {id(frame) for frame, _line in walk_stack(None)}
        for one in self._made:
            if id(getattr(one.coroutine, "cr_frame", None)) in running:
                return f"{one.name}(…) at {one.place}"
        return "a call of ctx"

    def close(self) -> list[Left]:
        """Return the calls that have not begun, the first first. They never will."""
        left = []
        for one in self._made:
            if not one.has_begun:
                left.append(Left(one.name, one.place))
                one.coroutine.close()  # else Python warns of it once more, on stderr
        return left


F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])


def track_await(name: str) -> Callable[[F], F]:
    """Remember each call of a method in `self._calls_made` until it begins.

    The method returns the same coroutine, of which a task can be made.
    """

    def decorate(fn: F) -> F:
        @wraps(fn)
        def call(self: Any, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
            coroutine = fn(self, *args, **kwargs)
            caller = sys._getframe(1)
            self._calls_made.add(Made(coroutine, name, caller.f_code, caller.f_lineno))
            return coroutine

        setattr(call, AWAITABLE, True)
        return cast(F, call)

    return decorate
