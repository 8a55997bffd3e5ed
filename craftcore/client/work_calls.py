"""The public calls on the work of an app. Each is defined here, once, for every kind of caller."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, Unpack

from craftcore.activities.model import Decision
from craftcore.client.backend import Backend
from craftcore.errors import InvalidInput
from craftcore.results.handle import EmittedHandle, Handle, KnownHandle
from craftcore.schedules.calls import Schedules
from craftcore.serialization.arguments import require_member, require_whole_number
from craftcore.serialization.texts import text_of
from craftcore.tasks.all_work import CancelledWork
from craftcore.tasks.model import Question, Task, TaskStatus
from craftcore.tasks.session_message import SessionMessage, decode_messages
from craftcore.tasks.work_store import FIND_MAX, WorkFilter
from craftcore.triggers.model import EmitOptions, Trigger, TriggerSpec
from craftcore.triggers.start_holds import hold_target

T = TypeVar("T")


class WorkCalls(ABC):
    """The calls of a program on the work of an app. `make_blocking` makes blocking calls of them.

    A cluster lacks some (`Backend.lacks`): they raise InvalidInput, with the advice. On a cluster each call raises
    ClusterUnavailable while nothing answers, and PermissionRefused.
    """

    @property
    @abstractmethod
    def _backend(self) -> Backend:
        """Return the backend of the caller. Raises InvalidInput while there is none."""

    async def emit(
        self, workflow: str | None, payload: Mapping[str, Any] | None = None, **options: Unpack[EmitOptions]
    ) -> EmittedHandle[Any]:
        """Accept a trigger: it is on disk when this returns. The options are those of TriggerSpec.

        `await handle.result()` waits for what becomes of it.
        Raises InvalidInput (PayloadTooLarge, UnknownWorkflow, DuplicateTrigger): nothing was written;
        StorageFull: nothing was written, try again later; OutcomeUnknown: emit its `spec` again after a restart.
        A cancelled caller does not know whether it was accepted: an `id` or a `dedup_key` lets it emit again.
        """
        spec = TriggerSpec(workflow=workflow, payload={} if payload is None else payload, **options)
        return await self._backend.emit(spec)

    async def emit_many(self, specs: Iterable[TriggerSpec]) -> list[EmittedHandle[Any]]:
        """Accept many in one commit: all or, when one is refused, none.

        A cluster starts them one after the other. The first refusal ends that; its `details` have `emitted`, how many
        were started before.
        """
        return await self._backend.emit_many(list(specs))

    def handle(self, id: str) -> Handle[Any]:
        """Return the handle of emitted work by its id. Nothing is read until one of its methods is called."""
        return KnownHandle(id, self._backend)

    async def find(
        self,
        *,
        workflow: str | None = None,
        session_id: str | None = None,
        dedup_key: str | None = None,
        status: str | None = None,
        limit: int = 100,
    ) -> list[Handle[Any]]:
        """Return the newest work that matches all that is given, newest first.

        `status`: that of the task, or of a trigger that has created none. `limit`: up to 10,000. Found is what
        retention has not deleted; a cluster may lag by a second. Raises InvalidInput for a status or a limit that there
        is not.
        """
        backend = self._backend
        require_whole_number("limit", limit, 1, FIND_MAX, InvalidInput)
        ids = await backend.find_ids(WorkFilter(workflow, session_id, dedup_key, status), limit)
        return [KnownHandle(id, backend) for id in ids]

    @property
    def schedules(self) -> Schedules:
        """The schedules at run time: add, edit, pause, resume, remove, run_now, skip_next, list, get, history and
        preview. Raises InvalidInput while the app does not run."""
        return self._backend.schedules

    async def transaction(self, fn: Callable[..., T], /, *args: Any) -> T:
        """Run a plain `fn(tx, *args)` that reads and writes tables of your own in this file, in one commit; it is on
        disk when this returns its result. For code outside of turns: nothing is recorded, and nothing done again.

        Its rules are those of `ctx.transaction`: it reads every table, changes only yours, and has one second. The
        parameters of `tx.run` and the others are None, numbers, text and bytes.

        Raises OutcomeUnknown: it may be written. All else leaves nothing written: what `fn` raises, TransactionTimeout,
        StorageFull, StorageBusy, and InvalidInput. InvalidInput is for SQL that is not allowed, an async `fn`, a call
        in a turn or in such a function, and an App on a foreign event loop.
        """
        return await self._backend.transaction(fn, args)

    async def cancel(self, trigger_id: str) -> None:
        """Cancel a trigger; running code is cancelled at its next await. Raises NotFound or StateRefused."""
        await self._backend.cancel(trigger_id)

    async def cancel_all(self, reason: str = "cancelled", *, with_schedules: bool = True) -> CancelledWork:
        """Cancel all work in one commit: every live trigger and task, and every schedule. Nothing of it comes back at a
        restart. Running code is cancelled at its next await, that of the caller too, if it is a workflow.

        A schedule of an operator is removed. One that code or a settings file declares is paused. Messages that no task
        has read are left unread. `with_schedules` False: schedules stay as they are. Work that is emitted afterwards
        runs. Raises StorageFull: nothing was cancelled.
        """
        return await self._backend.cancel_all(reason, with_schedules=with_schedules)

    async def signal(
        self,
        task_id: str | None,
        event: str,
        payload: Any = None,
        *,
        sent_by: str | None = None,
        start: TriggerSpec | None = None,
    ) -> bool:
        """Tell a live task that something happened; it is on disk when this returns. True when it waited for just that;
        otherwise it is kept until the task does, also before its first turn.

        `start`: emitted in the same commit when there is no such live task; the signal goes to the task that it starts.
        With `task_id` None its dedup key says whether one lives.
        Raises InvalidInput or PayloadTooLarge; NotFound; StateRefused when the task has ended or its mailbox is full.
        """
        return await self._backend.signal(task_id, event, payload, sent_by=sent_by, start=start)

    async def answer(
        self, question_id: str, choice: Any, *, note: str | None = None, reference: str | None = None, answered_by: str
    ) -> None:
        """Answer a question, once: with an option, or any text where it has none; with an instance of its form, or a
        dict or the JSON text of the fields. `reference`: the provider's, of an irreversible action that happened.

        Raises NotFound; InvalidInput for a text that is not an option, and for fields that do not fit the form, naming
        each; StateRefused: too late. On a cluster it needs a worker, and raises StillWaiting without one.
        """
        text = choice if isinstance(choice, str) else text_of(choice, "answer")
        await self._backend.answer(question_id, text, note=note, reference=reference, answered_by=answered_by)

    async def decide(
        self,
        activity_key: str,
        decision: Decision | str,
        *,
        note: str | None = None,
        reference: str | None = None,
        decided_by: str,
    ) -> None:
        """Decide whether an irreversible action in doubt happened. `reference`: the provider's, if it happened.

        Raises NotFound; InvalidInput for another decision or a reference that cannot be one; StateRefused when it is in
        no doubt. On a cluster it needs a worker, and raises StillWaiting without one.
        """
        parsed = require_member("decision", decision, Decision, InvalidInput)
        await self._backend.decide(activity_key, parsed, note=note, reference=reference, decided_by=decided_by)

    async def cancel_task(self, task_id: str) -> None:
        """Cancel a live task; running code is cancelled at its next await. Raises NotFound or StateRefused."""
        await self._backend.cancel_task(task_id)

    async def stop_turn(self, task_id: str) -> None:
        """Stop the turn of a live task, and keep the task: it waits for what begins its next turn, such as a message,
        with the state that this one found. Running code is cancelled at its next await.

        Raises NotFound; StateRefused: it has ended, no turn has begun, or nothing could begin another.
        """
        await self._backend.stop_turn(task_id)

    async def retry_task(self, task_id: str) -> None:
        """Let a FAILED task try its last turn again. Raises NotFound or StateRefused."""
        await self._backend.retry_task(task_id)

    async def hold(
        self,
        *,
        workflow: str | None = None,
        source: str | None = None,
        schedule: str | None = None,
        reason: str | None = None,
    ) -> bool:
        """Keep work from starting until `release`: a workflow, a source or a schedule; none of them: everything.

        Triggers are accepted, and due ones wait; a running attempt goes on to its end. A restart keeps the hold. False
        when it is held already. Raises UnknownWorkflow, NotFound for a schedule, InvalidInput for more than one target,
        StateRefused when there are 100 holds.
        """
        return await self._backend.hold(hold_target(workflow, source, schedule), reason)

    async def release(
        self, *, workflow: str | None = None, source: str | None = None, schedule: str | None = None
    ) -> bool:
        """Let held work start again; without a target, all of it, and that of safe mode. False when nothing was
        held."""
        return await self._backend.release(hold_target(workflow, source, schedule))

    async def task(self, task_id: str) -> Task | None:
        """Return the current row of a task; None when there is none: the first turn of what was just emitted has not
        begun."""
        return await self._backend.task(task_id)

    async def tasks(
        self, *, status: str | None = None, workflow: str | None = None, session_id: str | None = None, limit: int = 100
    ) -> list[Task]:
        """Return the newest tasks that match all that is given, newest first. One whose row is damaged is left out.

        `status`: of a task. `limit`: up to 10,000. A cluster reads the history of each. Raises InvalidInput for a
        status or a limit that there is not.
        """
        require_whole_number("limit", limit, 1, FIND_MAX, InvalidInput)
        known = None if status is None else require_member("status", status, TaskStatus, InvalidInput)
        return await self._backend.tasks(known, workflow, session_id, limit)

    async def questions(self, limit: int = 100) -> list[Question]:
        """Return what waits for an answer, asked longest ago first. A cluster may lag by a second."""
        return await self._backend.questions(limit)

    async def history(
        self, session_id: str, *, limit: int = 100, after: int = 0, before: int | None = None, type: Any = Any
    ) -> list[SessionMessage]:
        """Return the newest messages that turns of a session appended with `ctx.history`, the oldest of them first.

        `limit`: up to 10,000. `after`, `before`: only those with higher, or lower, numbers. `type`: of each message.
        `session_id` is the id of the task where a task has no session. Nothing was appended: an empty list. A damaged
        row is left out. Raises InvalidInput for a message that does not fit `type`, and for a limit that there is not.
        """
        require_whole_number("limit", limit, 1, FIND_MAX, InvalidInput)
        return decode_messages(await self._backend.history(session_id, limit, after, before), type)

    async def forget_history(self, session_id: str) -> int:
        """Remove all messages of a session, and return their number. A turn that runs appends its own when it ends.

        Records, payloads and states of its tasks keep what they hold, until retention removes them.
        """
        return await self._backend.forget_history(session_id)

    async def dead_letters(self, limit: int = 100) -> list[Trigger]:
        """Return the triggers whose attempts are spent, the last one first. One whose row is damaged is left out.
        `limit`: up to 10,000."""
        require_whole_number("limit", limit, 1, FIND_MAX, InvalidInput)
        return await self._backend.dead_letters(limit)

    async def requeue(self, trigger_id: str) -> None:
        """Give a DEAD or FAILED trigger all its attempts again, due now. Completed parts are not done again. Raises
        NotFound or StateRefused."""
        await self._backend.requeue(trigger_id)
