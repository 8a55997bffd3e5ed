"""The waits of tasks beside the turn's own: collected until nothing of the turn is in flight.

A turn that was unwound for the first of them would cut its other tasks off: a step would run again, a call be paid
again. So such a wait is parked. Calls that run end first, and the turn is suspended once, for all that is parked.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from dataclasses import replace
from typing import NoReturn

import anyio
import anyio.lowlevel

from craftcore.tasks.model import NewWait

REST_PASSES = 25
"""Passes of the event loop in which no task begins or ends a call before the turn is suspended. Code between two calls
takes a few: it makes tasks, and hands values from one to another."""


class RunningCall:
    """A step, an act or another call of `ctx` that is not over, as a context manager.

    It is busy, unless it has calls inside: then it counts as waiting for those.
    """

    __slots__ = ("_above", "_inside", "_is_busy", "_is_open", "_token", "_waits")

    def __init__(self, waits: ParkedWaits, *, is_busy: bool = True) -> None:
        self._waits = waits
        self._is_busy = is_busy
        self._is_open = True
        self._inside = 0
        self._above: RunningCall | None = None
        self._token: Token[RunningCall | None]

    def __enter__(self) -> None:
        above = _CALL.get()
        while above is not None and not above._is_open:  # a task that has outlived the call that started it
            above = above._above
        if above is not None and above._waits is self._waits:
            self._above = above
            above._add_inside(1)
        self._token = _CALL.set(self)
        self._waits.count_busy(int(self._is_busy))

    def __exit__(self, *_: object) -> None:
        _CALL.reset(self._token)
        self._is_open = False
        self._waits.count_busy(-int(self._is_busy and not self._inside))
        if self._above is not None:
            self._above._add_inside(-1)

    def _add_inside(self, change: int) -> None:
        was_busy = not self._inside
        self._inside += change
        if self._is_busy and self._is_open:
            self._waits.count_busy(int(not self._inside) - int(was_busy))


_CALL: ContextVar[RunningCall | None] = ContextVar("running_call", default=None)


class ParkedWaits:
    """The waits of the tasks beside the turn's own, and the number of its busy calls.

    `refuse_when_over` raises once the turn is suspended or over, `suspend_with` suspends it.
    """

    __slots__ = ("_busy", "_changed", "_changes", "_parked", "_refuse_when_over", "_suspend_with")

    def __init__(self, refuse_when_over: Callable[[], None], suspend_with: Callable[[NewWait], NoReturn]) -> None:
        self._refuse_when_over = refuse_when_over
        self._suspend_with = suspend_with
        self._busy = 0
        self._changes = 0
        self._changed: anyio.Event | None = None
        self._parked: list[NewWait] = []

    def count_busy(self, change: int) -> None:
        """Count a call that has begun or ended."""
        self._busy += change
        self._changes += 1
        if self._changed is not None:
            self.look_again()

    def look_again(self) -> None:
        """Let the parked tasks see what has changed."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def collect(self, wait: NewWait) -> NewWait:
        """Return a wait, with what the other tasks wait for beside it."""
        if not self._parked:
            return wait
        first, *beside = {one.identity: one for one in (wait, *self._parked)}.values()
        return replace(first, beside=tuple(beside)) if beside else first

    async def suspend_when_idle(self, wait: NewWait) -> NoReturn:
        """Suspend the turn for this wait and all others that are parked, once no call is busy."""
        with RunningCall(self, is_busy=False):
            self._parked.append(wait)
            try:
                while True:
                    await self._wait_until_quiet()
                    self._suspend_with(self.collect(self._parked[0]))
            finally:
                self._parked = [one for one in self._parked if one is not wait]

    async def _wait_until_quiet(self) -> None:
        """Return when no call is busy, and none begins or ends for a while. Raises Suspend or StateRefused once the
        turn is suspended or over."""
        rested, changes = 0, self._changes
        while rested < REST_PASSES:
            self._refuse_when_over()
            if self._busy:
                self._changed = self._changed or anyio.Event()
                await self._changed.wait()
            else:
                await anyio.lowlevel.checkpoint()
            if changes != self._changes:
                rested, changes = 0, self._changes
            else:
                rested += 1
        self._refuse_when_over()
