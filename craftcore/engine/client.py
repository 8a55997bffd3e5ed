"""The calls of a program to the engine that runs in its own process.

Each is one commit on the writer, and the loop that acts on it is woken once it is on disk.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, TypeVar

import anyio

from craftcore.client.file_backend import FileBackend
from craftcore.engine.attempt import CURRENT
from craftcore.engine.consumer import Consumer
from craftcore.engine.events import EngineEvents
from craftcore.engine.feeder import Feeder
from craftcore.engine.turn.context import current
from craftcore.errors import InvalidInput, OutcomeUnknown
from craftcore.failpoints import Failpoint, hit
from craftcore.registry.registry import Registry
from craftcore.results.engine_waits import SPACING_SECONDS, ResultWaits
from craftcore.results.handle import EmittedHandle, timeout_seconds
from craftcore.results.own_work import refuse_own_wait
from craftcore.results.result_value import require_result
from craftcore.schedules.calls import Schedules
from craftcore.schedules.runtime import RuntimeSchedules, find_made
from craftcore.serialization.arguments import Duration
from craftcore.services import Services
from craftcore.storage.transaction import Reader, Transaction
from craftcore.storage.writer import Writer
from craftcore.tasks.stream_chunks import StreamChunk
from craftcore.tasks.work_store import WorkUpdate
from craftcore.triggers.model import Emitted, NewTrigger, TriggerSpec, TriggerStatus

P = ParamSpec("P")
R = TypeVar("R")


class EngineClient(FileBackend):
    """Calls of a program, made from the engine's own loop.

    `accept(spec)` returns the row of a spec. It raises InvalidInput for one that the app could only fail.
    """

    holder = "the app"

    def __init__(
        self,
        app: Registry,
        services: Services,
        writer: Writer,
        accept: Callable[[TriggerSpec], NewTrigger],
        feeder: Feeder,
        consumer: Consumer,
        results: ResultWaits,
        schedule_rules: RuntimeSchedules,
        events: EngineEvents,
    ) -> None:
        super().__init__(services)
        self._app = app
        self._accept = accept
        self._results = results
        self._writer = writer
        self._feeder = feeder
        self._consumer = consumer
        self._events = events
        self.schedules = Schedules(schedule_rules, self)
        self._emit_rows = services.triggers.emit_rows

    async def commit(self, rule: Callable[Concatenate[Transaction, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        result = await self._writer.commit(rule, *args, **kwargs)
        hit(Failpoint.ANSWER_COMMITTED)
        self._events.on_changed()
        return result

    async def look(self, rule: Callable[Concatenate[Reader, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._writer.commit(rule, *args, **kwargs)

    async def read(self, call: Callable[..., R], *args: Any) -> R:
        return await anyio.to_thread.run_sync(self.services.read, call, *args)

    def accept(self, spec: TriggerSpec) -> NewTrigger:
        return self._accept(spec)

    async def emit(self, spec: TriggerSpec) -> EmittedHandle[Any]:
        """Accept one trigger; it is on disk when this returns. Raises InvalidInput on another event loop."""
        row = self._accept(spec)
        self._writer.require_loop()
        try:
            if (maker_id := self.find_maker()) is not None:
                [handle] = await self._emit_together([row], maker_id)
                return handle
            if await self._consumer.emit(row):
                claimed = Emitted(id=row.id, created=True, status=TriggerStatus.CLAIMED, due_at=row.due_at)
                return EmittedHandle(self, claimed)
            emitted: NewTrigger | Emitted = await self._writer.commit_batched(self._emit_rows, row)
        except OutcomeUnknown as error:
            raise error.from_timeout(replace(spec, id=row.id)) from error
        hit(Failpoint.EMIT_COMMITTED)
        self._feeder.notify_due(emitted.due_at)
        return EmittedHandle(self, emitted)

    async def emit_many(self, specs: Sequence[TriggerSpec]) -> list[EmittedHandle[Any]]:
        """Accept many in one commit: all, or none."""
        rows = [self._accept(spec) for spec in specs]
        try:
            return await self._emit_together(rows, self.find_maker())
        except OutcomeUnknown as error:
            again = [replace(spec, id=row.id) for spec, row in zip(specs, rows, strict=True)]
            raise error.from_timeout(again) from error

    async def _emit_together(self, rows: list[NewTrigger], maker_id: str | None) -> list[EmittedHandle[Any]]:
        emitted = await self._writer.commit(self.services.emit_for, rows, maker_id)
        hit(Failpoint.EMIT_COMMITTED)
        if emitted:
            self._feeder.notify_due(min(answer.due_at for answer in emitted))
        return [EmittedHandle(self, answer) for answer in emitted]

    def find_maker(self) -> str | None:
        """Return the id of the task or trigger whose code calls this. None for other code, and for a file that was not
        restored: only there it counts."""
        attempt = None if self.services.restored.is_out_of_question else CURRENT.get()
        if attempt is None:
            return None
        return attempt.claim.id if attempt.entry is None else attempt.entry.task.id

    async def write(self, name: str, kind: Any, call: Callable[..., R], *args: Any) -> R:
        """Commit a call on schedules, and mark what restored work has made."""
        maker_id = self.find_maker()

        def write(tx: Transaction) -> R:
            result = call(tx, *args)
            if maker_id is not None and (made := find_made(result, tx.now)) is not None:
                self.services.restored.mark(tx, maker_id, made[1], kind=made[0])
            return result

        return await self.commit(write)

    async def transaction(self, fn: Callable[..., R], args: tuple[Any, ...]) -> R:
        """Commit what a function writes to the user's own tables. Raises InvalidInput in a turn and on another loop."""
        if current() is not None:
            raise InvalidInput("in a turn, tables are written by ctx.transaction, which is recorded and not repeated")
        self._writer.require_loop()
        return await self._writer.commit_user_sql(fn, args, _return_result)

    async def result_of(self, id: str, type: Any, timeout: Duration | None) -> Any:
        """Wait for the end of the work, and return its result as `type`; None: as its workflow's return type."""
        limit = timeout_seconds(timeout)
        refuse_own_wait(self.services.database.real_path, limit, "result")
        end = await self._results.wait(id, limit)
        declared = self._app.workflows.get(end.workflow or "")
        if type is None and declared is not None:
            type = declared.result_type
        return require_result(end, type)

    async def follow_work(self, id: str) -> AsyncGenerator[WorkUpdate, None]:
        """Yield the work as it is, then after each change, until its end. Nothing is read while nothing changes.

        Raises NotFound when no row of it is left, StillWaiting when the engine ends first.
        """
        refuse_own_wait(self.services.database.real_path, None, "events")
        last = None
        while True:
            change = self._results.next_change()
            update = await anyio.to_thread.run_sync(self.services.update_of_work, id)
            if update != last:
                yield (last := update)
            if update.is_over:
                return
            await change()
            await anyio.sleep(SPACING_SECONDS)

    async def follow_stream(self, id: str, name: str, after: int) -> AsyncGenerator[StreamChunk, None]:
        """Yield the chunks of a stream after a number, until the work has ended. Nothing is read while nothing changes.

        Raises NotFound when no row of it is left, StillWaiting when the engine ends first.
        """
        refuse_own_wait(self.services.database.real_path, None, "stream")
        while True:
            change = self._results.next_change()
            view = await anyio.to_thread.run_sync(self.services.look_at_stream, id, name, after)
            for chunk in view.chunks:
                yield chunk
                after = chunk.number
            if view.is_over:
                return
            if not view.chunks:
                await change()
                await anyio.sleep(SPACING_SECONDS)


def _return_result(_tx: Transaction, result: R) -> R:
    return result
