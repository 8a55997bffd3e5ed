"""User code: plain functions run in threads, and workflows in context variables of their own.

A thread cannot be cancelled. The workers that run attempts are few and live long. A task for each attempt would isolate
a workflow, too. It costs ten times as much, and the scope that cancels an attempt ends at its task.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import copy_context
from threading import Lock
from types import CoroutineType, coroutine
from typing import Any, TypeVar

import anyio
import anyio.lowlevel

from craftcore import forks
from craftcore.engine.attempt import CURRENT, Attempt
from craftcore.engine.failure import is_only
from craftcore.engine.workers.thread_pool import ThreadPool
from craftcore.serialization.untrusted import is_awaitable, safe_isinstance
from craftcore.storage.event_loop import Loop, forget_loop, get_current_loop


class PlainCall:
    """A call of a plain function, and what came of it. It runs in a copy of the caller's context variables, as code of
    `attempt`; None: of the caller."""

    def __init__(self, fn: Callable[[], Any], attempt: Attempt | None = None) -> None:
        self._fn = fn
        self._context = copy_context()
        if attempt is not None:
            self._context.run(CURRENT.set, attempt)
        self._gate = Lock()
        self._has_begun = self._is_withdrawn = False
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Run it, unless it was withdrawn. Raises nothing: a GeneratorExit would close all that waits for it."""
        with self._gate:
            if self._is_withdrawn:
                return
            self._has_begun = True
        began_in = forks.generation
        try:
            try:
                result = self._context.run(self._fn)
            finally:
                forks.require_not_forked(began_in)
            self._result = result
        except BaseException as error:
            self._error = error

    def run_in_other_thread(self) -> None:
        """Run it in another thread, where no event loop runs."""
        self._context.run(forget_loop)
        self.run()

    def withdraw(self) -> bool:
        """Keep it from running. Return False when it has begun."""
        with self._gate:
            self._is_withdrawn = not self._has_begun
            return self._is_withdrawn

    def take(self) -> Any:
        """Return what it returned. Raises what it raised."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._result

    def discard(self) -> None:
        """Close a coroutine that it returned and that nothing awaits."""
        if safe_isinstance(self._result, CoroutineType):
            self._result.close()


async def run_inline(fn: Callable[[], Any]) -> Any:
    """Run a plain function on the thread of the loop, which waits for it. Await what it returns, if that is
    awaitable."""
    call = PlainCall(fn)
    call.run()
    result = call.take()
    return await result if is_awaitable(result) else result


async def run_in_thread(attempt: Attempt, fn: Callable[[], Any], threads: ThreadPool) -> Any:
    """Run a plain function as `call_in_thread` does. Await what it returns on the loop, if that is awaitable."""
    result = await call_in_thread(attempt, fn, threads)
    return await result if is_awaitable(result) else result


async def await_result(result: Awaitable[Any]) -> Any:
    """Await what a plain function returned, as a coroutine."""
    return await result


async def call_in_thread(attempt: Attempt, fn: Callable[[], Any], threads: ThreadPool) -> Any:
    """Return what a plain function returns in a thread. Its slot stays taken until it returns, also when it is
    cancelled, so that it never runs twice at once. Only a shutdown leaves it behind. One that had not begun when it
    was cancelled never does."""
    await anyio.lowlevel.checkpoint_if_cancelled()
    loop = get_current_loop()
    call, waiter, has_ended = PlainCall(fn, attempt), loop.create_waiter(), False

    def on_end() -> None:
        nonlocal has_ended
        has_ended = True
        loop.wake(waiter)

    threads.submit(call.run_in_other_thread, on_end)
    try:
        await loop.wait(waiter)
    except anyio.get_cancelled_exc_class():
        if not (call.withdraw() or has_ended or attempt.stopped_by == "shutdown"):
            waiter = loop.create_waiter()
            await _wait_for_end(attempt, loop, waiter)
        call.discard()
        raise
    return call.take()


async def _wait_for_end(attempt: Attempt, loop: Loop, waiter: Any) -> None:
    """Wait for a call that was cancelled, until it ends or the engine stops."""

    def release_frames() -> None:
        loop.wake(waiter)

    attempt.on_shutdown.append(release_frames)
    try:
        with anyio.CancelScope(shield=True):
            await loop.wait(waiter)
    finally:
        attempt.on_shutdown.remove(release_frames)


T = TypeVar("T")

IGNORED_MAX = 1000
"""Awaits of its code that may be cancelled at its end, since it may have much to close. Code that catches every
cancellation and goes on is then unwound by an exception that it does not catch."""

BLOCKED_SECONDS = 0.1
"""Seconds after which code that holds the loop past its deadline has blocked it, also when it awaits something after
that."""


class ForcedUnwind(BaseException):
    """Thrown into code that is over, instead of a cancellation."""


@coroutine
def run_in_own_context(workflow: Coroutine[Any, Any, T], attempt: Attempt, deadline: float) -> Generator[Any, Any, T]:
    """Await a coroutine so that what it sets in context variables is gone when it ends. Note in `attempt` how often it
    was cancelled at its end, and whether it blocked the loop past `deadline` (time of the loop, inf: none).

    A cancel scope cannot detect a blocked loop: its timer does not fire meanwhile. Code that waits in a shielded scope
    while its deadline passes does not block, so only the time between two awaits counts.
    """
    is_timed = deadline < math.inf
    resumed_at = 0.0
    context = copy_context()
    context.run(CURRENT.set, attempt)
    within = context.run
    step, value = workflow.send, None
    forced: BaseException | None = None
    began_in = forks.generation
    while True:
        forks.require_not_forked(began_in)  # a task beside it may have forked
        if is_timed:
            resumed_at = anyio.current_time()
        try:
            try:
                yielded = within(step, value)
            finally:
                forks.require_not_forked(began_in)
            if is_timed and resumed_at < deadline <= (now := anyio.current_time()):
                attempt.blocked_loop = attempt.blocked_loop or now - resumed_at >= BLOCKED_SECONDS
        except StopIteration as end:
            if is_timed and resumed_at < deadline <= anyio.current_time():
                attempt.blocked_loop = True
            result: T = end.value
            return result
        except BaseException as error:
            if forced is not None and (
                safe_isinstance(error, ForcedUnwind) or is_only(error, (ForcedUnwind, type(forced)))
            ):
                raise forced from None
            raise
        try:
            value = yield yielded
            step = workflow.send
            raised = None if value is None else getattr(value, "error", None)  # trio sends what is to be raised
        except BaseException as error:
            step, value, raised = workflow.throw, error, error
        if raised is not None and attempt.is_over and isinstance(raised, anyio.get_cancelled_exc_class()):
            attempt.cancels_ignored += 1
            if attempt.cancels_ignored > IGNORED_MAX:
                forced, step, value = raised, workflow.throw, ForcedUnwind("it is over")
