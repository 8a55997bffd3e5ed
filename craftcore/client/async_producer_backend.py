"""The calls of a process beside the daemon that has an event loop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread

from craftcore.client.producer_backend import ProducerBackend
from craftcore.errors import CraftcoreError
from craftcore.results.handle import WITH_A_DAEMON, timeout_error
from craftcore.storage.event_loop import get_current_loop
from craftcore.tasks.work_store import WorkResult

R = TypeVar("R")


class AsyncProducerBackend(ProducerBackend):
    """The calls of a ProducerBackend, for asyncio or trio. Each transaction runs in a worker thread; waiting for
    results takes one thread for all callers."""

    async def run(self, call: Callable[[], R]) -> R:
        return await anyio.to_thread.run_sync(call)

    async def wait(self, id: str, limit: float | None) -> WorkResult:
        found = await self.run(partial(self.watch.look, id))
        return found or await self._wait_for_watch(id, limit)

    async def _wait_for_watch(self, id: str, limit: float | None) -> WorkResult:
        loop = get_current_loop()
        waiter = loop.create_waiter()
        answers: list[WorkResult | CraftcoreError] = []

        def on_ended(answer: WorkResult | CraftcoreError) -> None:
            answers.append(answer)
            with suppress(RuntimeError):  # the event loop has ended, and its caller with it
                loop.call_soon(lambda: loop.wake(waiter))

        withdraw = self.watch.add(id, on_ended)
        try:
            with anyio.move_on_after(limit):
                await loop.wait(waiter)
        finally:
            withdraw()
        if not answers:
            raise timeout_error(id, limit, WITH_A_DAEMON)
        if isinstance(answers[0], CraftcoreError):
            raise answers[0]
        return answers[0]

    async def pause(self, length: float) -> None:
        await anyio.sleep(length)
