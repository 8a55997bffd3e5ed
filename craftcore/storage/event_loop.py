"""The bridge from a thread to coroutines: asyncio and trio behind one small protocol.

anyio has no portable future, and its Event costs 5 µs more than a native one. Its call from a thread waits for an
answer, and the writer must not wait. So this module, and no other, calls the two loops directly.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

import anyio

from craftcore.errors import InvalidInput

ELSEWHERE = "the engine runs on another event loop; nothing was written. Emit on its own, or with a Producer"


T = TypeVar("T")


class Loop(Protocol):
    """The event loop the writer answers to."""

    def create_waiter(self) -> Any:
        """Create an object that one coroutine can wait on once. Raises InvalidInput on another event loop."""

    async def wait(self, waiter: Any) -> None:
        """Wait until it is woken."""

    def wake(self, waiter: Any) -> None:
        """Wake it; on the loop's own thread only. Waking twice is harmless."""

    def call_soon(self, fn: Callable[[], None]) -> None:
        """Run `fn` on the loop's thread; from any thread. Silently nothing once the loop is closed."""

    def time(self) -> float:
        """Return the seconds on the clock of the loop, also outside of a task; on the loop's own thread only."""

    def is_current(self) -> bool:
        """Return whether the caller runs on this event loop, and not on another one or in a thread without one."""

    def get_current_task(self) -> object:
        """Return the task that runs. It costs a tenth of what anyio's costs, which describes it, too."""

    async def run_alone(self, fn: Callable[[], Coroutine[Any, Any, T]], on_cancel: Callable[[], None]) -> T:
        """Await `fn()` in a task that no other code knows, to its end. When the caller is cancelled meanwhile,
        `on_cancel` is called, and that is raised afterwards."""

    def is_cancelled_from_outside(self) -> bool:
        """Return whether `cancel` of this task was called, and not taken back."""

    async def forget_cancel(self) -> None:
        """Take back a cancellation of this task that came from outside and was not delivered yet."""


class AsyncioLoop:
    """asyncio: a native future each."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def create_waiter(self) -> asyncio.Future[None]:
        if not self.is_current():
            raise InvalidInput(ELSEWHERE)
        return self._loop.create_future()

    async def wait(self, waiter: asyncio.Future[None]) -> None:
        await waiter

    def wake(self, waiter: asyncio.Future[None]) -> None:
        if not waiter.done():
            waiter.set_result(None)

    def call_soon(self, fn: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(fn)
        except RuntimeError:  # the loop is closed, and no caller waits for the answer any more
            if not self._loop.is_closed():
                raise

    def time(self) -> float:
        return self._loop.time()

    def is_current(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:  # no asyncio loop is running
            return False

    def get_current_task(self) -> object:
        return asyncio.current_task()

    async def run_alone(self, fn: Callable[[], Coroutine[Any, Any, T]], on_cancel: Callable[[], None]) -> T:
        apart = self._loop.create_task(fn())
        try:
            await asyncio.wait([apart])
        except asyncio.CancelledError as error:
            on_cancel()
            cancelled = error
            with anyio.CancelScope(shield=True):
                while not apart.done():
                    try:
                        await asyncio.wait([apart])
                    except asyncio.CancelledError as again:  # no scope reaches it here
                        cancelled = again
            apart.cancelled() or apart.exception()  # it is on record, and the caller has ended
            raise cancelled from None
        return apart.result()

    def is_cancelled_from_outside(self) -> bool:
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0

    async def forget_cancel(self) -> None:
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            return
        while task.cancelling():
            task.uncancel()
        try:
            await asyncio.sleep(0)  # where it would be raised
        except asyncio.CancelledError:
            pass  # was it an engine that stops, its scope raises it again at the next await


class TrioLoop:
    """trio: an event each."""

    def __init__(self) -> None:
        import trio

        self._trio = trio
        self._token = trio.lowlevel.current_trio_token()

    def create_waiter(self) -> Any:
        if not self.is_current():
            raise InvalidInput(ELSEWHERE)
        return self._trio.Event()

    async def wait(self, waiter: Any) -> None:
        await waiter.wait()

    def wake(self, waiter: Any) -> None:
        waiter.set()

    def call_soon(self, fn: Callable[[], None]) -> None:
        try:
            self._token.run_sync_soon(fn)
        except self._trio.RunFinishedError:
            return

    def time(self) -> float:
        now: float = self._trio.current_time()
        return now

    def is_current(self) -> bool:
        try:
            return self._trio.lowlevel.current_trio_token() is self._token
        except RuntimeError:  # no trio loop is running
            return False

    def get_current_task(self) -> object:
        return self._trio.lowlevel.current_task()

    async def run_alone(self, fn: Callable[[], Coroutine[Any, Any, T]], on_cancel: Callable[[], None]) -> T:
        return await fn()  # a task of trio is cancelled by its scopes only

    def is_cancelled_from_outside(self) -> bool:
        return False

    async def forget_cancel(self) -> None:
        return  # a task of trio is cancelled by its scopes only


def forget_loop() -> None:
    """Take the event loop out of the context variables, for code in another thread: it may run a loop of its own."""
    if (sniffio := sys.modules.get("sniffio")) is not None:  # anyio notes the loop there, where it is installed
        sniffio.current_async_library_cvar.set(None)


def get_current_loop() -> Loop:
    """Return the loop this coroutine runs on."""
    try:
        return AsyncioLoop()
    except RuntimeError:  # no asyncio loop is running
        return TrioLoop()
