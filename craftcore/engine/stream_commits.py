"""Group commits of streams: what all turns have written is one commit, at most every tenth of a second."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Any

import anyio

from craftcore.engine.durable_commit import DurableCommits
from craftcore.engine.turn.stream_buffer import StreamBuffer
from craftcore.errors import RowInvalid, StateRefused
from craftcore.failpoints import Failpoint, hit
from craftcore.log import get_logger
from craftcore.serialization.untrusted import safe_repr
from craftcore.storage.event_loop import Loop
from craftcore.storage.transaction import Transaction
from craftcore.tasks.model import Task
from craftcore.tasks.stream_chunks import OpenStream, StreamWrites
from craftcore.tasks.stream_recorder import StreamRecorder
from craftcore.triggers.model import Claim

log = get_logger(__name__)

GROUP_SECONDS = 0.1
"""How long a chunk waits for others. The end of a step or a turn does not wait for it."""

LOOK_SECONDS = 1.0
"""How often a thread that waits for the loop looks whether the engine has ended."""


class StreamCommits:
    """The streams of the turns of one engine. One loop commits: what a turn writes is on disk in its order."""

    def __init__(self, commits: DurableCommits, recorder: StreamRecorder, loop: Loop) -> None:
        self._commits = commits
        self._recorder = recorder
        self._loop = loop
        self._scheduled: dict[StreamBuffer, None] = {}
        self._wanted: Any = loop.create_waiter()
        self._hurried: Any = loop.create_waiter()
        self._calls: deque[tuple[Callable[[], Awaitable[None]], Future[None]]] = deque()
        self._called: Any = loop.create_waiter()
        self._committed = anyio.Event()
        self._is_over = False

    async def open(self, claim: Claim, task: Task, name: str) -> OpenStream:
        found: OpenStream = await self._commits.commit(self._recorder.open, claim, task, name)
        return found

    def schedule(self, buffer: StreamBuffer) -> None:
        self._scheduled[buffer] = None
        self._loop.wake(self._wanted)

    async def save(self, buffer: StreamBuffer) -> None:
        while not buffer.is_saved and not self._is_over:
            self._loop.wake(self._hurried)
            await self._committed.wait()
        if not buffer.is_saved:
            raise StateRefused("the engine has stopped: the last chunks were not written")

    def call(self, write: Callable[[], Awaitable[None]]) -> None:
        answer: Future[None] = Future()

        def queue() -> None:
            self._calls.append((write, answer))
            self._loop.wake(self._called)

        self._loop.call_soon(queue)
        while True:
            try:
                return answer.result(LOOK_SECONDS)
            except TimeoutError:
                if answer.done():
                    raise
                if self._is_over:
                    raise StateRefused("the engine has stopped: the chunk was not written") from None

    async def serve(self) -> None:
        """Commit what is written, until cancelled."""
        try:
            while True:
                await self._loop.wait(self._wanted)
                with anyio.move_on_after(GROUP_SECONDS):
                    await self._loop.wait(self._hurried)
                self._wanted, self._hurried = self._loop.create_waiter(), self._loop.create_waiter()
                await self._commit_scheduled()
                hit(Failpoint.STREAM_COMMITTED)
        finally:
            self._is_over = True
            self._committed.set()

    async def serve_threads(self) -> None:
        """Write what plain functions in threads write, until cancelled."""
        while True:
            await self._loop.wait(self._called)
            self._called = self._loop.create_waiter()
            while self._calls:
                write, answer = self._calls.popleft()
                try:
                    await write()
                except Exception as error:
                    answer.set_exception(error)
                except BaseException as error:
                    answer.set_exception(error)
                    if isinstance(error, anyio.get_cancelled_exc_class()):
                        raise
                else:
                    answer.set_result(None)

    async def _commit_scheduled(self) -> None:
        buffers, self._scheduled = list(self._scheduled), {}
        taken = [buffer.take() for buffer in buffers]
        for buffer, error in zip(buffers, await self._commit(taken), strict=True):
            buffer.end(error)
        committed, self._committed = self._committed, anyio.Event()
        committed.set()

    async def _commit(self, taken: list[StreamWrites]) -> Sequence[Exception | None]:
        """Commit all in one transaction; one by one when that fails. Return the error of each, or None."""
        try:
            errors: Sequence[Exception | None] = await self._commits.commit(self._write_all, taken)
        except (RowInvalid, ValueError, OverflowError) as error:
            if len(taken) > 1:
                return [one for turn in taken for one in await self._commit([turn])]
            log.error("stream.not_written", trigger=taken[0].claim.id, reason=safe_repr(error))
            return [error]
        return errors

    def _write_all(self, tx: Transaction, taken: list[StreamWrites]) -> Sequence[Exception | None]:
        return self._recorder.write_all(tx, taken)
