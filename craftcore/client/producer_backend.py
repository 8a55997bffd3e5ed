"""The calls of a process beside the daemon, which opens the file for itself and rings the daemon's doorbell."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from craftcore.client.file_backend import FileBackend
from craftcore.config import Config
from craftcore.errors import OutcomeUnknown
from craftcore.failpoints import Failpoint, hit
from craftcore.results.database_watch import LOOK_SECONDS, ResultWatch
from craftcore.results.handle import EmittedHandle, timeout_seconds
from craftcore.results.own_work import refuse_own_wait
from craftcore.schedules.calls import Schedules
from craftcore.schedules.runtime import RuntimeSchedules
from craftcore.serialization.arguments import Duration
from craftcore.services import Services
from craftcore.storage.change_counter import ChangeCounter
from craftcore.storage.doorbell_client import EVERYTHING, TRIGGERS, DoorbellSender
from craftcore.storage.transaction import Reader, Transaction, get_single_result
from craftcore.tasks.stream_chunks import StreamChunk
from craftcore.tasks.work_store import WorkResult, WorkUpdate
from craftcore.triggers.model import NewTrigger, TriggerSpec
from craftcore.triggers.workflow_store import refuse_unknown

P = ParamSpec("P")
R = TypeVar("R")


class ProducerBackend(FileBackend):
    """Writes into a database that a daemon runs, now or later. Each call blocks its thread and never suspends, so
    `run_here` runs it without an event loop. May be shared by threads."""

    holder = "a producer"

    def __init__(self, path: Path, config: Config) -> None:
        super().__init__(Services(path, config))
        self.services.prepare()
        rules = RuntimeSchedules(
            self.services.schedules, self.services.clock, lambda tx, spec: refuse_unknown(tx, [spec.workflow])
        )
        self.schedules = Schedules(rules, self)
        self.watch = ResultWatch(self.services)
        self._bell = DoorbellSender()

    def close(self) -> None:
        """Close the database and the socket of the doorbell."""
        self.services.close()
        self._bell.close()

    async def run(self, call: Callable[[], R]) -> R:
        """Return `call()`, which blocks its thread."""
        return call()

    async def commit(self, rule: Callable[Concatenate[Transaction, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await self.run(partial(self._commit, Failpoint.ANSWER_COMMITTED, EVERYTHING, rule, *args, **kwargs))

    async def look(self, rule: Callable[Concatenate[Reader, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await self.run(partial(self._read, rule, *args, **kwargs))

    async def read(self, call: Callable[..., R], *args: Any) -> R:
        return await self.run(partial(self._read, call, *args))

    def accept(self, spec: TriggerSpec) -> NewTrigger:
        return self.services.triggers.accept(spec)

    async def emit(self, spec: TriggerSpec) -> EmittedHandle[Any]:
        return get_single_result(await self.emit_many([spec]))

    async def emit_many(self, specs: Sequence[TriggerSpec]) -> list[EmittedHandle[Any]]:
        rows = [self.accept(spec) for spec in specs]
        try:
            emitted = await self.run(partial(self._commit, Failpoint.EMIT_COMMITTED, TRIGGERS, self._emit_rows, rows))
        except OutcomeUnknown as error:
            again = [replace(spec, id=row.id) for spec, row in zip(specs, rows, strict=True)]
            raise error.from_timeout(again[0] if len(again) == 1 else again) from error
        return [EmittedHandle(self, answer) for answer in emitted]

    def _emit_rows(self, tx: Transaction, rows: Sequence[NewTrigger]) -> Any:
        refuse_unknown(tx, (row.workflow for row in rows))
        return self.services.triggers.emit_together(tx, rows)

    def signal_or_start(
        self, tx: Transaction, /, task_id: str | None, event: str, payload: Any, **details: Any
    ) -> bool:
        if details["start"] is not None:
            refuse_unknown(tx, [details["start"].workflow])
        return super().signal_or_start(tx, task_id, event, payload, **details)

    async def transaction(self, fn: Callable[..., R], args: tuple[Any, ...]) -> R:
        return await self.run(partial(self.services.user_database.commit, fn, args))

    async def result_of(self, id: str, type: Any, timeout: Duration | None) -> Any:
        from craftcore.results.result_value import require_result  # its library is not needed to emit

        limit = timeout_seconds(timeout)
        refuse_own_wait(self.services.database.real_path, limit, "result")
        end = await self.wait(id, limit)
        return require_result(end, self.choose_type(end, type))

    def choose_type(self, end: WorkResult, type: Any) -> Any:
        """Return the type of a result for which the caller gave this one; None: plain JSON values."""
        return type

    async def follow_work(self, id: str) -> AsyncGenerator[WorkUpdate, None]:
        refuse_own_wait(self.services.database.real_path, None, "events")
        view = _OutsideView(self.services, id)
        try:
            while True:
                if (update := await self.run(view.look)) is not None:
                    yield update
                    if update.is_over:
                        return
                await self.pause(LOOK_SECONDS)
        finally:
            view.close()

    async def follow_stream(self, id: str, name: str, after: int) -> AsyncGenerator[StreamChunk, None]:
        refuse_own_wait(self.services.database.real_path, None, "stream")
        counter = ChangeCounter(self.services.database)
        try:
            await self.run(counter.has_changed)  # the first look is of now
            while True:
                view = await self.run(partial(self.services.look_at_stream, id, name, after))
                for chunk in view.chunks:
                    yield chunk
                    after = chunk.number
                if view.is_over:
                    return
                while not view.chunks and not await self.run(counter.has_changed):
                    await self.pause(LOOK_SECONDS)
        finally:
            counter.close()

    async def wait(self, id: str, limit: float | None) -> WorkResult:
        """Wait for the end of the work. `limit` in seconds; None: without one."""
        return self.watch.wait(id, limit)

    async def pause(self, length: float) -> None:
        time.sleep(length)  # noqa: ASYNC251 - no event loop runs this

    def _commit(self, committed: Failpoint, bell: bytes, rule: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        with self.services.transaction() as tx:
            result = rule(tx, *args, **kwargs)
        hit(committed)
        self._bell.ring(self.services.database.real_path, bell)
        return result

    def _read(self, call: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        return self.services.read(partial(call, **kwargs), *args)


class _OutsideView:
    """The work as another process sees it: read after a change of the database only."""

    def __init__(self, services: Services, id: str) -> None:
        self.services = services
        self._id = id
        self._counter = ChangeCounter(services.database)
        self._last: WorkUpdate | None = None

    def look(self) -> WorkUpdate | None:
        """Return the work as it is now; None when nothing of it is new since the last look."""
        if not self._counter.has_changed():
            return None
        before, self._last = self._last, self.services.update_of_work(self._id)
        return None if self._last == before else self._last

    def close(self) -> None:
        """Close the change counter."""
        self._counter.close()
