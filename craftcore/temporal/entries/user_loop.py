"""The event loop of the user's code, in its own thread. Code that blocks it blocks no poll and no heartbeat."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

T = TypeVar("T")
V = TypeVar("V")

END_SECONDS = 5.0
"""How long a worker waits for the end of the thread. Code that blocks the thread for good must not keep the worker."""


class UserLoop(Generic[V]):
    """Runs coroutines on a loop of its own while `async with` lasts.

    `opening` opens what the coroutines work with. It is entered and left on that loop, too.
    """

    def __init__(self, opening: Callable[[], AbstractAsyncContextManager[V]]) -> None:
        self._opening = opening
        self._opened: Future[V] = Future()
        self._thread = threading.Thread(target=self._run, name="craftcore-user", daemon=True)
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event
        self._asked_at: float | None = None
        """When the loop was asked whether it runs. None: it has answered."""

    @property
    def opened(self) -> V:
        """The value that `opening` made."""
        return self._opened.result()

    async def __aenter__(self) -> UserLoop[V]:
        self._thread.start()
        await asyncio.wrap_future(self._opened)
        return self

    async def __aexit__(self, *_exit: object) -> None:
        self.call_soon(self._stopping.set)
        await asyncio.to_thread(self._thread.join, END_SECONDS)

    def start(self, code: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop. Return the future of its result."""
        return asyncio.run_coroutine_threadsafe(code, self._loop)

    def call_soon(self, fn: Callable[[], object]) -> None:
        """Call a function on the loop, as soon as the user's code does not block it."""
        self._loop.call_soon_threadsafe(fn)

    def measure_silence(self) -> float:
        """Return for how many seconds the loop has not answered. Ask it again when it has."""
        asked_at = self._asked_at  # the loop's thread may answer at any time
        if asked_at is None:
            asked_at = self._asked_at = time.monotonic()
            self.call_soon(self._answer)
        return time.monotonic() - asked_at

    def _answer(self) -> None:
        self._asked_at = None

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            try:
                runner.run(self._serve())
            except BaseException as error:
                if self._opened.done():
                    raise
                self._opened.set_exception(error)

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        async with self._opening() as opened:
            self._opened.set_result(opened)
            await self._stopping.wait()
