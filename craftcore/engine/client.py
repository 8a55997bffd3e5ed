"""The calls of a program to a running engine: emit, cancel, answer, signal and read.

Each is one commit on the writer, and the loop that acts on it is woken once it is on disk.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, TypeVar

import anyio

from craftcore.engine.attempt import CURRENT
from craftcore.engine.consumer import Consumer
from craftcore.engine.events import EngineEvents
from craftcore.engine.feeder import Feeder
from craftcore.errors import OutcomeUnknown
from craftcore.failpoints import Failpoint, hit
from craftcore.registry.registry import Registry
from craftcore.results.engine_waits import ResultWaits
from craftcore.results.follow import follow_in_engine
from craftcore.results.handle import EmittedHandle, Handle, KnownHandle, timeout_seconds
from craftcore.results.own_work import refuse_own_wait
from craftcore.results.result_value import require_result, result_type
from craftcore.schedules.calls import Schedules
from craftcore.schedules.runtime import RuntimeSchedules, find_made
from craftcore.serialization.arguments import Duration
from craftcore.services import Services
from craftcore.storage.transaction import Transaction
from craftcore.storage.writer import Writer
from craftcore.tasks.all_work import CancelledWork
from craftcore.tasks.model import Question, Task
from craftcore.tasks.work_store import WorkFilter, WorkUpdate
from craftcore.triggers.model import Emitted, NewTrigger, Trigger, TriggerSpec, TriggerStatus
from craftcore.triggers.start_holds import HoldTarget, release

T = TypeVar("T")


class EngineClient:
    """Calls of a program, made from the engine's own loop.

    `accept(spec)` returns the row of a spec. It raises InvalidInput for one that the app could only fail.
    """

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
        self._app = app
        self._accept = accept
        self._results = results
        self._services = services
        self._triggers = services.triggers
        self._tasks = services.tasks
        self._cancel_all = services.cancel_all
        self._writer = writer
        self._feeder = feeder
        self._events = events
        self.schedules = Schedules(schedule_rules, self)
        self._emit_rows = services.triggers.emit_rows
        self._consumer = consumer

    async def emit(self, spec: TriggerSpec) -> EmittedHandle[Any]:
        """Accept one trigger; it is on disk when this returns. Raises InvalidInput on another event loop."""
        row = self._accept(spec)
        self._writer.require_loop()
        try:
            if (maker_id := self._find_maker()) is not None:
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

    async def emit_many(self, specs: list[TriggerSpec]) -> list[EmittedHandle[Any]]:
        """Accept many in one commit: all, or none."""
        rows = [self._accept(spec) for spec in specs]
        try:
            return await self._emit_together(rows, self._find_maker())
        except OutcomeUnknown as error:
            again = [replace(spec, id=row.id) for spec, row in zip(specs, rows, strict=True)]
            raise error.from_timeout(again) from error

    async def _emit_together(self, rows: list[NewTrigger], maker_id: str | None) -> list[EmittedHandle[Any]]:
        emitted = await self._writer.commit(self._services.emit_for, rows, maker_id)
        hit(Failpoint.EMIT_COMMITTED)
        if emitted:
            self._feeder.notify_due(min(answer.due_at for answer in emitted))
        return [EmittedHandle(self, answer) for answer in emitted]

    def _find_maker(self) -> str | None:
        """Return the id of the task or trigger whose code calls this. None for other code, and for a file that was not
        restored: only there it counts."""
        run = None if self._services.restored.is_out_of_question else CURRENT.get()
        if run is None:
            return None
        return run.claim.id if run.entry is None else run.entry.task.id

    async def cancel(self, trigger_id: str, reason: str = "cancelled") -> None:
        """Cancel a trigger; a running one at its next await."""
        await self._writer.commit(self._triggers.cancel, trigger_id, reason)
        self._events.on_changed()  # an occurrence may have waited for it

    async def cancel_all(self, reason: str, *, with_schedules: bool) -> CancelledWork:
        """Cancel every live trigger and task and, unless they are to stay, every schedule; running code at its next
        await."""
        work = await self._writer.commit(self._cancel_all, reason, with_schedules=with_schedules)
        self._run_shielded()
        return work

    async def signal(
        self,
        task_id: str | None,
        event: str,
        payload: Any = None,
        *,
        sent_by: str | None = None,
        start: TriggerSpec | None = None,
    ) -> bool:
        """Tell a live task, or one that is started for it, that something happened; whether it waited for just that."""
        row = None if start is None else self._accept(start)
        waited = await self._writer.commit(
            self._services.signal, task_id, event, payload, sent_by=sent_by, start=row, maker_id=self._find_maker()
        )
        self._run_shielded()
        return waited

    async def answer(
        self, question_id: str, choice: str, *, note: str | None, reference: str | None, answered_by: str
    ) -> None:
        """Answer a question, once."""
        await self._writer.commit(
            self._tasks.answer, question_id, choice, note=note, reference=reference, answered_by=answered_by
        )
        self._run_shielded()

    async def cancel_task(self, task_id: str, reason: str = "cancelled") -> None:
        """Cancel a live task; running code at its next await."""
        await self._writer.commit(self._tasks.cancel, task_id, reason)
        self._run_shielded()

    async def stop_turn(self, task_id: str) -> None:
        """Stop the turn of a live task, and keep the task."""
        await self._writer.commit(self._tasks.stop_turn, task_id)
        self._run_shielded()

    async def retry_task(self, task_id: str) -> None:
        """Let a FAILED task try its last turn again."""
        await self._writer.commit(self._tasks.retry, task_id)
        self._run_shielded()

    async def hold(self, target: HoldTarget, reason: str | None) -> bool:
        """Keep a target from starting until it is released."""
        is_new = await self._writer.commit(self._services.hold, target, "the app", reason)
        self._events.on_changed()
        return is_new

    async def release(self, target: HoldTarget) -> bool:
        """Let a target start again; whether it was held."""
        reasons = await self._writer.commit(release, target)
        self._events.on_changed()
        return bool(reasons)

    async def task(self, task_id: str) -> Task | None:
        """Return the current row of a task; None when there is none."""
        return await self._writer.commit(self._tasks.find, task_id)

    async def result_of(self, id: str, type: Any, timeout: Duration | None) -> Any:
        """Wait for the end of the work, and return its result as `type`; None: as its workflow's return type."""
        limit = timeout_seconds(timeout)
        refuse_own_wait(self._services.database.real_path, limit, "result")
        end = await self._results.wait(id, limit)
        declared = self._app.workflows.get(end.workflow or "")
        if type is None and declared is not None:
            type = result_type(declared.fn)
        return require_result(end, type)

    async def state_of(self, id: str) -> Task | Trigger:
        """Return the task of this id, or the trigger while it has created none. Raises NotFound."""
        return await self._writer.commit(self._services.state_of_work, id)

    async def cancel_work(self, id: str) -> None:
        """Cancel the task of this id, or the trigger that has created none."""
        await self._writer.commit(self._services.cancel_work, id)
        self._run_shielded()

    async def find_work(self, those: WorkFilter, limit: int) -> list[Handle[Any]]:
        """Return the newest work that matches, read beside the writer."""
        ids = await anyio.to_thread.run_sync(self._services.find_work, those, limit)
        return [KnownHandle(id, self) for id in ids]

    async def questions(self, limit: int) -> list[Question]:
        """Return what waits for an answer, asked longest ago first."""
        return await self._writer.commit(self._tasks.questions, limit)

    def _run_shielded(self) -> None:
        hit(Failpoint.ANSWER_COMMITTED)
        self._events.on_changed()

    # The database of `schedules`

    async def write(self, name: str, kind: Any, call: Callable[..., T], *args: Any) -> T:
        """Commit `call(tx, *args)`, and wake the scheduler."""
        maker_id = self._find_maker()

        def write(tx: Transaction) -> T:
            result = call(tx, *args)
            if maker_id is not None and (made := find_made(result, tx.now)) is not None:
                self._services.restored.mark(tx, maker_id, made[1], kind=made[0])
            return result

        result: T = await self._writer.commit(write)
        self._run_shielded()
        return result

    async def read(self, call: Callable[..., T], *args: Any) -> T:
        """Return `call(reader, *args)`, read beside the writer."""
        return await anyio.to_thread.run_sync(self._services.read, call, *args)

    def follow_work(self, id: str) -> AsyncIterator[WorkUpdate]:
        """Yield the work as it is, and after each change, until its end."""
        refuse_own_wait(self._services.database.real_path, None, "events")
        return follow_in_engine(self._services, self._results, id)
