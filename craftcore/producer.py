"""Emitting, and speaking to tasks, from any other process, synchronously: a script, a web handler, a cron job."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, Unpack

from craftcore.config import Config, config_of
from craftcore.errors import OutcomeUnknown
from craftcore.failpoints import Failpoint, hit
from craftcore.results.database_watch import ResultWatch
from craftcore.results.handle import (
    BlockingHandle,
    EmittedBlockingHandle,
    KnownBlockingHandle,
    timeout_seconds,
)
from craftcore.results.own_work import refuse_own_wait
from craftcore.schedules.calls import BlockingSchedules
from craftcore.schedules.runtime import RuntimeSchedules
from craftcore.serialization.arguments import Duration
from craftcore.services import Services
from craftcore.storage.doorbell_client import EVERYTHING, TRIGGERS, DoorbellSender
from craftcore.storage.transaction import get_single_result
from craftcore.tasks.all_work import CancelledWork
from craftcore.tasks.model import Task
from craftcore.tasks.work_store import WorkFilter, WorkUpdate
from craftcore.triggers.model import EmitOptions, Trigger, TriggerSpec
from craftcore.triggers.start_holds import hold_target, release
from craftcore.triggers.workflow_store import refuse_unknown

T = TypeVar("T")


class ProducedWork:
    """The calls behind the handles of a producer, and the database of its schedules."""

    def __init__(self, core: Services) -> None:
        self._core = core
        self.watch = ResultWatch(core)
        self._bell = DoorbellSender()

    def result_of(self, id: str, type: Any, timeout: Duration | None) -> Any:
        """Wait for the end, and return the result as `type`; None: as plain JSON values."""
        from craftcore.results.result_value import require_result  # its library is not needed to emit

        limit = timeout_seconds(timeout)
        self.refuse_own_wait(limit, "result")
        return require_result(self.watch.wait(id, limit), type)

    def state_of(self, id: str) -> Task | Trigger:
        """Return the task, or the trigger that has created none."""
        return self.read(self._core.state_of_work, id)

    def cancel_work(self, id: str) -> None:
        """Cancel the work, and let the daemon know."""
        self.write("cancel", None, self._core.cancel_work, id)

    def follow_work(self, id: str) -> Iterator[WorkUpdate]:
        """Yield the work as it is, and after each change, until its end."""
        from craftcore.results.follow import follow_blocking  # nobody follows to emit

        self.refuse_own_wait(None, "events")
        return follow_blocking(self._core, id)

    def follow_from_loop(self, id: str) -> AsyncIterator[WorkUpdate]:
        """Yield the same on an event loop."""
        from craftcore.results.follow import follow_from_outside

        self.refuse_own_wait(None, "events")
        return follow_from_outside(self._core, id)

    def refuse_own_wait(self, timeout: float | None, call: str) -> None:
        """Raise InvalidInput in the code of a workflow that the daemon of this database runs."""
        refuse_own_wait(self._core.database.real_path, timeout, call)

    def write(self, name: str, kind: Any, call: Callable[..., T], *args: Any) -> T:
        """Commit `call(tx, *args)`, and let the daemon know."""
        with self._core.transaction() as tx:
            result = call(tx, *args)
        self.announce_change()
        return result

    def read(self, call: Callable[..., T], *args: Any) -> T:
        """Return `call(reader, *args)`."""
        return self._core.read(call, *args)

    def announce_change(self) -> None:
        """Let the daemon know of a commit that may concern tasks and schedules."""
        hit(Failpoint.ANSWER_COMMITTED)
        self.ring(EVERYTHING)

    def ring(self, what: bytes) -> None:
        """Ring the doorbell of the daemon."""
        self._bell.ring(self._core.database.real_path, what)

    def close(self) -> None:
        """Close the socket."""
        self._bell.close()


class Producer:
    """Writes into a database that a daemon runs, now or later. May be shared by threads.

    `schedules` has the calls on schedules.

        with Producer("agent.db") as producer:
            greeting = producer.emit("greet", {"name": "Ada"})
            print(greeting.result(timeout=60))
            producer.signal(task_id, "approved", {"by": "Ada"})

    The file is made when it is missing. Raises a StorageError when it cannot be opened.
    """

    def __init__(self, path: str | Path, *, config: Config | str | Path | None = None) -> None:
        self._core = Services(Path(path), config_of(config))
        self._core.prepare()
        self.work = ProducedWork(self._core)
        rules = RuntimeSchedules(
            self._core.schedules, self._core.clock, lambda tx, spec: refuse_unknown(tx, [spec.workflow])
        )
        self.schedules = BlockingSchedules(rules, self.work)

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def emit(
        self, workflow: str | None, payload: Mapping[str, Any] | None = None, **options: Unpack[EmitOptions]
    ) -> EmittedBlockingHandle[Any]:
        """Accept a trigger: it is on disk when this returns. Arguments and errors are those of App.emit, and
        UnknownWorkflow when the last daemon on this database declared other names only."""
        spec = TriggerSpec(workflow=workflow, payload={} if payload is None else payload, **options)
        return get_single_result(self.emit_many([spec]))

    def emit_many(self, specs: Iterable[TriggerSpec]) -> list[EmittedBlockingHandle[Any]]:
        """Accept many in one commit: all or, when one is refused, none."""
        given = list(specs)
        rows = [self._core.triggers.accept(spec) for spec in given]
        try:
            with self._core.transaction() as tx:
                refuse_unknown(tx, (row.workflow for row in rows))
                answers = self._core.triggers.emit_together(tx, rows)
        except OutcomeUnknown as error:
            again = [replace(spec, id=row.id) for spec, row in zip(given, rows, strict=True)]
            raise error.from_timeout(again[0] if len(again) == 1 else again) from error
        hit(Failpoint.EMIT_COMMITTED)
        self.work.ring(TRIGGERS)
        return [EmittedBlockingHandle(self.work, answer) for answer in answers]

    def handle(self, id: str) -> BlockingHandle[Any]:
        """Return the handle of emitted work by its id. Nothing is read until one of its methods is called."""
        return KnownBlockingHandle(id, self.work)

    def find(
        self,
        *,
        workflow: str | None = None,
        session_id: str | None = None,
        dedup_key: str | None = None,
        status: str | None = None,
        limit: int = 100,
    ) -> list[BlockingHandle[Any]]:
        """Return the newest work that matches all that is given, newest first. The arguments are those of App.find."""
        ids = self._core.find_work(WorkFilter(workflow, session_id, dedup_key, status), limit)
        return [self.handle(id) for id in ids]

    def signal(
        self,
        task_id: str | None,
        event: str,
        payload: Any = None,
        *,
        sent_by: str | None = None,
        start: TriggerSpec | None = None,
    ) -> bool:
        """Tell a live task that something happened; it is on disk when this returns. Arguments and errors are those of
        App.signal."""
        row = None if start is None else self._core.triggers.accept(start)
        with self._core.transaction() as tx:
            if row is not None:
                refuse_unknown(tx, [row.workflow])
            waited = self._core.signal(tx, task_id, event, payload, sent_by=sent_by, start=row)
        self.work.announce_change()
        return waited

    def answer(
        self,
        question_id: str,
        choice: str,
        *,
        note: str | None = None,
        reference: str | None = None,
        answered_by: str,
    ) -> None:
        """Answer a question, once. `reference`: the provider's, of an irreversible action that happened.

        Raises NotFound; InvalidInput for a text that is not an option; StateRefused: too late.
        """
        with self._core.transaction() as tx:
            self._core.tasks.answer(tx, question_id, choice, note=note, reference=reference, answered_by=answered_by)
        self.work.announce_change()

    def cancel_task(self, task_id: str) -> None:
        """Cancel a live task; running code is cancelled at its next await. Raises NotFound or StateRefused."""
        with self._core.transaction() as tx:
            self._core.tasks.cancel(tx, task_id)
        self.work.announce_change()

    def stop_turn(self, task_id: str) -> None:
        """Stop the turn of a live task, and keep the task: it waits for what begins its next turn, such as a message,
        with the state that this one found. Running code is cancelled at its next await.

        Raises NotFound; StateRefused: it has ended, no turn has begun, or nothing could begin another.
        """
        with self._core.transaction() as tx:
            self._core.tasks.stop_turn(tx, task_id)
        self.work.announce_change()

    def cancel_all(self, reason: str = "cancelled", *, with_schedules: bool = True) -> CancelledWork:
        """Cancel all work in one commit: every live trigger and task, and every schedule. Nothing of it comes back at a
        restart. Running code is cancelled at its next await.

        A schedule of an operator is removed. One that code or a settings file declares is paused. Messages that no task
        has read are left unread. `with_schedules` False: schedules stay as they are.
        """
        with self._core.transaction() as tx:
            cancelled = self._core.cancel_all(tx, reason, with_schedules=with_schedules)
        self.work.announce_change()
        return cancelled

    def hold(
        self,
        *,
        workflow: str | None = None,
        source: str | None = None,
        schedule: str | None = None,
        reason: str | None = None,
    ) -> bool:
        """Keep work from starting until `release`. Arguments and errors are those of App.hold."""
        target = hold_target(workflow, source, schedule)
        return self.work.write("hold", None, self._core.hold, target, "a producer", reason)

    def release(self, *, workflow: str | None = None, source: str | None = None, schedule: str | None = None) -> bool:
        """Let held work start again, as App.release does."""
        return bool(self.work.write("release", None, release, hold_target(workflow, source, schedule)))

    def close(self) -> None:
        """Close the database."""
        self._core.close()
        self.work.close()
