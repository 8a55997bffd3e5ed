"""The end of the event loop under a running engine: by code of a workflow, a broken loop, or the host program.

asyncio lets any code cancel any task, stop the loop, or raise SystemExit through it. Each of these calls `cancel` on
every task that is left, so one task waits for that call. trio needs none.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from traceback import walk_stack
from types import FrameType
from typing import Any, NamedTuple

from craftcore.engine.attempt import CURRENT, Attempt
from craftcore.engine.failure import format_places


class LoopEnd(NamedTuple):
    """`attempt`: whose code cancels every task; None: no workflow's. `was_broken`: the loop ended before its main task.
    `where`: the places of code outside of craftcore in that call, outermost first."""

    attempt: Attempt | None
    was_broken: bool
    where: list[str]


@asynccontextmanager
async def loop_end(on_end: Callable[[LoopEnd], None]) -> AsyncIterator[None]:
    """Call `on_end` when every task of this asyncio loop is cancelled while the block runs, before any of them
    notices. Scopes of anyio cancel nothing else than what they hold. Nothing on trio."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        yield
        return
    main = _main_task()
    tripwire = _Tripwire(
        lambda: on_end(LoopEnd(CURRENT.get(), _was_broken(main), format_places(reversed(list(walk_stack(None)))))), loop
    )
    task = loop.create_task(_wait(tripwire), name="craftcore-loop-end")
    try:
        await asyncio.sleep(0)  # it waits from now on
        yield
    finally:
        if not tripwire.done():
            tripwire.set_result(None)
        del task


class _Tripwire(asyncio.Future[None]):
    def __init__(self, on_cancel: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._on_cancel = on_cancel

    def cancel(self, msg: Any | None = None) -> bool:
        """Note a cancellation. The caller is cancelling tasks: an error here would leave later tasks uncancelled."""
        if not self.done():
            try:
                self._on_cancel()
            except Exception as error:
                context = {"message": "craftcore could not note the end of its event loop", "exception": error}
                self.get_loop().call_exception_handler(context)
        return super().cancel(msg)


async def _wait(tripwire: asyncio.Future[None]) -> None:
    await tripwire


def _was_broken(main: asyncio.Future[Any] | None) -> bool:
    """Return whether the loop's runner cancels what is left although the main task has not ended."""
    cleans_up = any(frame.f_code.co_name == "_cancel_all_tasks" for frame in _frames())
    return cleans_up and main is not None and not main.done()


def _main_task() -> asyncio.Future[Any] | None:
    """Return what the loop runs until it is complete; None where that cannot be seen."""
    for frame in _frames():
        if frame.f_code.co_name == "run_until_complete" and isinstance(
            main := frame.f_locals.get("future"), asyncio.Future
        ):
            return main
        if frame.f_code.co_name == "run" and isinstance(main := frame.f_locals.get("task"), asyncio.Task):
            return main
    return None


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back
