"""User code: plain functions run in threads, and workflows in context variables of their own.

A thread cannot be cancelled. The workers that drive the runs are few and live long. A task for each run would isolate
a workflow, too; it costs ten times as much, and the scope that cancels a run ends at its task.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Generator
from contextvars import copy_context
from threading import Lock
from types import CoroutineType, coroutine
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from craftcore import forks
from craftcore.engine.attempt import CURRENT, Attempt
from craftcore.engine.failure import is_only
from craftcore.errors import ErrorCode
from craftcore.outcome_exceptions import Fail
from craftcore.serialization.untrusted import safe_isinstance
from craftcore.storage.event_loop import get_current_loop


async def run_in_thread(run: Attempt, call: Callable[[], Any], limiter: anyio.CapacityLimiter) -> Any:
    """Run a plain function in a thread. Its slot stays taken until it returns, also when it is cancelled, so that it
    never runs twice at once. Only a shutdown leaves it behind. One that had not begun when it was cancelled never
    does."""
    loop = get_current_loop()
    returned = loop.create_waiter()
    begun = withdrawn = False
    raised: list[BaseException] = []
    gate = Lock()

    def call_and_tell() -> Any:
        nonlocal begun
        with gate:
            if withdrawn:
                return None
            begun = True
        began_in = forks.generation
        try:
            try:
                result = call()
            finally:
                forks.require_not_forked(began_in)
            if safe_isinstance(result, CoroutineType):
                result.close()
                raise Fail(ErrorCode.INTERNAL_AGENT_ERROR, "a plain function returned a coroutine: nothing ran")
            return result
        except BaseException as error:  # by hand: a GeneratorExit from a future would close all that waits for it
            raised.append(error)
            return None
        finally:
            loop.call_soon(lambda: loop.wake(returned))

    def release_frames() -> None:
        loop.wake(returned)

    try:
        result = await anyio.to_thread.run_sync(call_and_tell, abandon_on_cancel=True, limiter=limiter)
    except anyio.get_cancelled_exc_class():
        with gate:
            withdrawn = not begun
        if begun and run.stopped_by != "shutdown":
            run.on_shutdown.append(release_frames)
            try:
                with anyio.CancelScope(shield=True):
                    await loop.wait(returned)
            finally:
                run.on_shutdown.remove(release_frames)
        raise
    if raised:
        raise raised.pop()
    return result


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
def run_in_own_context(workflow: Coroutine[Any, Any, T], run: Attempt, deadline: float) -> Generator[Any, Any, T]:
    """Await a coroutine so that what it sets in context variables is gone when it ends. Note in `run` how often it was
    cancelled at its end, and whether it blocked the loop past `deadline` (time of the loop, inf: none).

    A cancel scope cannot detect a blocked loop: its timer does not fire meanwhile. Code that waits in a shielded scope
    while its deadline passes does not block, so only the time between two awaits counts.
    """
    is_timed = deadline < math.inf
    resumed_at = 0.0
    context = copy_context()
    context.run(CURRENT.set, run)
    within = context.run
    step, value = workflow.send, None
    told: BaseException | None = None
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
                run.blocked_loop = run.blocked_loop or now - resumed_at >= BLOCKED_SECONDS
        except StopIteration as end:
            if is_timed and resumed_at < deadline <= anyio.current_time():
                run.blocked_loop = True
            result: T = end.value
            return result
        except BaseException as error:
            if told is not None and (
                safe_isinstance(error, ForcedUnwind) or is_only(error, (ForcedUnwind, type(told)))
            ):
                raise told from None
            raise
        try:
            value = yield yielded
            step = workflow.send
            raised = None if value is None else getattr(value, "error", None)  # trio sends what is to be raised
        except BaseException as error:
            step, value, raised = workflow.throw, error, error
        if raised is not None and run.is_over and isinstance(raised, anyio.get_cancelled_exc_class()):
            run.told_over += 1
            if run.told_over > IGNORED_MAX:
                told, step, value = raised, workflow.throw, ForcedUnwind("it is over")
