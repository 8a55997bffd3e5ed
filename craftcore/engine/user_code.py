"""Plain functions of user code run in threads. A thread cannot be cancelled."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from types import CoroutineType
from typing import Any

import anyio
import anyio.to_thread

from craftcore import forks
from craftcore.engine.attempt import Run
from craftcore.errors import ErrorCode, Fail
from craftcore.serialization.untrusted import is_a
from craftcore.storage.event_loop import current_loop


async def in_thread(run: Run, call: Callable[[], Any], limiter: anyio.CapacityLimiter) -> Any:
    """Run a plain function in a thread. What holds its place waits until it returns, also when it is cancelled, so that
    it never runs twice at once. Only a shutdown leaves it behind. One that had not begun when it was cancelled never
    does."""
    loop = current_loop()
    returned = loop.waiter()
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
            if is_a(result, CoroutineType):
                result.close()
                raise Fail(ErrorCode.INTERNAL_AGENT_ERROR, "a plain function returned a coroutine: nothing ran")
            return result
        except BaseException as error:  # by hand: a GeneratorExit from a future would close all that waits for it
            raised.append(error)
            return None
        finally:
            loop.call_soon(lambda: loop.wake(returned))

    def let_go() -> None:
        loop.wake(returned)

    try:
        result = await anyio.to_thread.run_sync(call_and_tell, abandon_on_cancel=True, limiter=limiter)
    except anyio.get_cancelled_exc_class():
        with gate:
            withdrawn = not begun
        if begun and run.stopped_by != "shutdown":
            run.on_shutdown.append(let_go)
            try:
                with anyio.CancelScope(shield=True):
                    await loop.wait(returned)
            finally:
                run.on_shutdown.remove(let_go)
        raise
    if raised:
        raise raised.pop()
    return result
