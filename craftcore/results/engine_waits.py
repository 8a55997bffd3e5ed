"""Callers in the engine's process that wait for the end of emitted work. Nothing is read while nothing changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio

from craftcore.errors import CraftcoreError, StillWaiting, StorageError
from craftcore.results.handle import timeout_error
from craftcore.services import Services
from craftcore.storage.event_loop import Loop
from craftcore.tasks.work_store import WorkResult

SPACING_SECONDS = 0.02
"""The least time between two reads: changes of a busy engine are looked up together."""


class ResultWaits:
    """The callers that wait, by the id of their work. All of it is called on the loop's thread."""

    def __init__(self, services: Services, loop: Loop) -> None:
        self._services = services
        self._loop = loop
        self._waiting: defaultdict[str, list[Caller]] = defaultdict(list)
        self._changed: Any = loop.create_waiter()
        self._followers: list[Any] = []
        self._is_over = False

    def note_change(self) -> None:
        """Note that work may have ended: after each commit, and when the doorbell rings."""
        if self._waiting:
            self._loop.wake(self._changed)
        if self._followers:
            self._wake_followers()

    def next_change(self) -> Callable[[], Awaitable[None]]:
        """Return the wait for the next change after this call. The wait raises StillWaiting when the engine ends."""
        if self._is_over:
            raise _engine_stopped()
        waiter = self._loop.create_waiter()
        self._followers.append(waiter)

        async def wait() -> None:
            try:
                await self._loop.wait(waiter)
            finally:
                if waiter in self._followers:
                    self._followers.remove(waiter)
            if self._is_over:
                raise _engine_stopped()

        return wait

    def _wake_followers(self) -> None:
        followers, self._followers = self._followers, []
        for waiter in followers:
            self._loop.wake(waiter)

    async def wait(self, id: str, timeout: float | None) -> WorkResult:
        """Wait for the end of this work, and return it. `timeout` in seconds; None: no limit.

        Raises TimeoutError, StillWaiting when the engine ends first, NotFound, or the StorageError of a read.
        """
        if self._is_over:
            raise _engine_stopped()
        if timeout is not None and (end := await self._look([id])):
            return _require_end(end[id])  # with a timeout of 0, too
        if self._is_over:
            raise _engine_stopped()
        waiting = Caller(self._loop.create_waiter())
        self._waiting[id].append(waiting)
        self.note_change()
        try:
            with anyio.move_on_after(timeout):
                await self._loop.wait(waiting.waiter)
        finally:
            self._forget(id, waiting)
        if waiting.answer is None:
            raise timeout_error(id, timeout, "it goes on")
        return _require_end(waiting.answer)

    async def serve(self) -> None:
        """Read the ends of work after changes, and hand them to their callers; until cancelled."""
        while True:
            await self._loop.wait(self._changed)
            self._changed = self._loop.create_waiter()
            ids = list(self._waiting)
            if not ids:
                continue
            for id, answer in (await self._look(ids)).items():
                self._answer(id, answer)
            await anyio.sleep(SPACING_SECONDS)

    async def _look(self, ids: list[str]) -> Mapping[str, WorkResult | CraftcoreError]:
        """Return the ends of those of these that have ended, or the error for which they cannot be known."""
        try:
            return await anyio.to_thread.run_sync(self._services.find_ends_of_work, ids)
        except StorageError as error:
            return dict.fromkeys(ids, error)
        except (RuntimeError, OSError, MemoryError) as error:  # the machine gives no thread, for example
            refused = CraftcoreError(f"cannot wait for results: {error!r}. The work goes on; ask again later")
            return dict.fromkeys(ids, refused)

    def close(self) -> None:
        """Answer every caller that still waits: the engine ends."""
        self._is_over = True
        for id in list(self._waiting):
            self._answer(id, _engine_stopped())
        self._wake_followers()

    def _answer(self, id: str, answer: WorkResult | CraftcoreError) -> None:
        for waiting in self._waiting.get(id, ()):
            if waiting.answer is None:
                waiting.answer = answer
                self._loop.wake(waiting.waiter)

    def _forget(self, id: str, waiting: Caller) -> None:
        self._waiting[id].remove(waiting)
        if not self._waiting[id]:
            del self._waiting[id]


class Caller:
    """One caller, and its answer; None until the work has ended."""

    __slots__ = ("answer", "waiter")

    def __init__(self, waiter: Any) -> None:
        self.waiter = waiter
        self.answer: WorkResult | CraftcoreError | None = None


def _require_end(answer: WorkResult | CraftcoreError) -> WorkResult:
    if isinstance(answer, CraftcoreError):
        raise answer
    return answer


def _engine_stopped() -> StillWaiting:
    return StillWaiting("the engine has stopped; the work goes on when it runs again")
