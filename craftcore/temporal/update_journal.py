"""The journal of one entry of a turn on a cluster: updates of the task's workflow, fenced by the entry's number."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from craftcore.activities.model import Activity, Decision, NewIntent, StartedCall
from craftcore.errors import (
    CraftcoreError,
    IdempotencyConflict,
    InvalidInput,
    LeaseLost,
    NotFound,
    PayloadTooLarge,
    StateRefused,
)
from craftcore.schedules.runtime import RuntimeSchedules
from craftcore.serialization.encode import encode
from craftcore.tasks.activity_events import ActEnd, NewAct
from craftcore.tasks.model import NewQuestion, NewTask, Task
from craftcore.tasks.turn_event_store import NewEvent, StreamRow
from craftcore.temporal.ids import workflow_id_of_key, workflow_id_of_task
from craftcore.temporal.workflow.messages import (
    LEASE_LOST,
    Intent,
    JournalAnswer,
    JournalBatch,
    JournalCall,
    Outcome,
    TaskStart,
)
from craftcore.triggers.model import Claim, Emitted, NewTrigger, TriggerStatus

T = TypeVar("T")

RETRY_SECONDS = 0.5
"""How often a cluster that cannot be reached is asked again."""

CALLS_MAX = 100
"""Calls in one update."""

RECORD_MAX_BYTES = 1_500_000
"""Bytes of one record: the server takes 2 MB in one payload."""

ERRORS: dict[str, type[CraftcoreError]] = {
    error("").name: error for error in (IdempotencyConflict, NotFound, StateRefused, LeaseLost)
}


class TemporalJournal:
    """The journal of one entry. One update is on its way; what comes meanwhile shares the next one."""

    def __init__(self, handle: WorkflowHandle[Any, Any], token: int, start: TaskStart) -> None:
        self._handle = handle
        self._token = token
        self._start = start
        self._sent = 0
        self._waiting: list[tuple[JournalCall, asyncio.Future[JournalAnswer]]] = []
        self._sender: asyncio.Task[None] | None = None
        self._acts: dict[int, str] = {}
        """The keys of the activities that this entry has begun, by seq."""

    async def record(self, event: NewEvent) -> None:
        await self._commit(JournalCall(kind="record", text=event.payload_json, memo=event.memo))

    async def emit(self, row: NewTrigger, event_of: Callable[[Emitted], NewEvent], child: NewTask | None) -> Emitted:
        if row.session_id is not None or row.workflow is None or row.task_id not in (None, row.id):
            raise InvalidInput("on a cluster, emit names a workflow, and no session_id and no task_id")
        workflow_id = row.id if row.dedup_key is None else workflow_id_of_key(row.dedup_key)
        draft = event_of(make_emitted(row, "@ID@", "@CREATED@"))  # type: ignore[arg-type]
        start = start_of(row, self._start.heartbeat_timeout)
        if child is not None:
            start = start_of(
                row, self._start.heartbeat_timeout, self._handle.id, ends_with_parent=bool(child.ends_with_parent)
            )
        answer = await self._commit(
            JournalCall(
                kind="emit",
                text=draft.payload_json,
                memo=draft.memo,
                workflow_id=workflow_id,
                is_keyed_forever=row.dedup_scope == "ever",
                start=start,
            )
        )
        return make_emitted(row, answer.task_id, answer.created)

    async def signal(
        self, task_id: str, event: str, payload: Any, *, sent_by: str, event_of: Callable[[bool], tuple[NewEvent, T]]
    ) -> T:
        record, answer = event_of(False)  # the cluster does not say whether the task waited for it
        call = JournalCall(
            kind="signal",
            text=record.payload_json,
            memo=record.memo,
            workflow_id=workflow_id_of_task(task_id),
            event=event,
            payload_json=encode(payload, "payload"),
            by=sent_by,
        )
        await self._commit(call)
        return answer

    # Irreversible actions

    async def begin(self, act: NewAct) -> StartedCall | Activity:
        new = act.intent
        intent = Intent(
            key=new.key,
            action=new.action,
            policy=new.policy,
            args_hash=new.args_hash,
            request_json=new.request_json,
            ends_at=act.ends_at,
            again_calls=None if act.again is None else act.again.calls,
        )
        answer = await self._commit(JournalCall(kind="begin", intent=intent))
        assert answer.activity is not None, act
        self._acts[answer.activity.seq] = new.key
        return answer.activity.last_call if answer.is_begun else answer.activity

    async def find_intent(self, intent: NewIntent) -> StartedCall | None:
        found = await self.look(intent.key)
        if found is None or found.status != "INTENT" or found.execution_seq != intent.execution_seq:
            return None
        self._acts[found.seq] = intent.key
        return found.last_call

    async def wait_until_marked(self, begun: StartedCall) -> None:
        """Return at once: the intent is in the history, which has the mark."""

    async def settle(self, end: ActEnd, gives_up: Callable[[], bool]) -> None:
        outcome = Outcome(**end.ending._asdict())
        call = JournalCall(kind="settle", key=self._acts[end.begun.seq], calls=end.begun.calls, outcome=outcome)
        await self._commit(call)

    async def decide(
        self, activity: Activity, decision: Decision, decided_by: str, reference: str | None, event: NewEvent
    ) -> Activity:
        answer = await self._commit(
            JournalCall(
                kind="decide",
                key=activity.key,
                calls=activity.calls,
                decision=decision,
                by=decided_by,
                reference=reference,
            )
        )
        assert answer.activity is not None, activity
        return answer.activity

    async def look(self, key: str) -> Activity | None:
        return (await self._commit(JournalCall(kind="look", key=key))).activity

    async def list_numbered(self, task: Task) -> Sequence[Activity]:
        view = await self._handle.query("view", result_type=None)
        acts = [Activity(**one) for one in view["activities"]]
        return [one for one in acts if one.key.startswith(f"activity:{task.id}:{task.turn}.")]

    # What is told of a turn

    async def stream(self, task_id: str, limit: int) -> Sequence[StreamRow]:
        raise InvalidInput("ctx.events has no answer on a cluster: the history of the workflow has the events")

    async def set_progress(self, claim: Claim, task: Task, progress_json: str) -> None:
        await self._commit(JournalCall(kind="progress", text=progress_json))

    async def ask_stalled(self, claim: Claim, task: Task, asked: NewQuestion) -> None:
        """Ask nothing: a worker of a cluster has no watch for stalled turns."""

    # The update

    async def _commit(self, call: JournalCall) -> JournalAnswer:
        """Return the answer once the call is in the history, also when the caller is cancelled meanwhile."""
        if (size := len(call.text) + len(call.outcome.result_json or "" if call.outcome else "")) > RECORD_MAX_BYTES:
            raise PayloadTooLarge(f"a record has {size:,} bytes; on a cluster the limit is {RECORD_MAX_BYTES:,}")
        answered: asyncio.Future[JournalAnswer] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, answered))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_all())
        try:
            answer = await asyncio.shield(answered)
        except asyncio.CancelledError:
            while not answered.done():
                await asyncio.wait({answered})
            raise
        if answer.error is not None:
            _raise(answer)
        return answer

    async def _send_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:CALLS_MAX], self._waiting[CALLS_MAX:]
            self._sent += 1
            answers = await self._send([call for call, _ in batch], f"{self._token}.{self._sent}")
            for (_, answered), answer in zip(batch, answers, strict=True):
                if not answered.done():
                    answered.set_result(answer)

    async def _send(self, calls: list[JournalCall], id: str) -> list[JournalAnswer]:
        """Return the answers of the workflow, whose commit they are. It is sent until there is an answer."""
        while True:
            try:
                answers: list[JournalAnswer] = await self._handle.execute_update(
                    "journal",
                    JournalBatch(token=self._token, calls=calls),
                    id=id,
                    result_type=list[JournalAnswer],
                )
                return answers
            except WorkflowUpdateFailedError as error:
                lost = isinstance(error.cause, ApplicationError) and error.cause.type == LEASE_LOST
                if not lost:
                    raise
                return await self._send_outcomes(calls, id)
            except WorkflowUpdateRPCTimeoutOrCancelledError:
                pass
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:  # the workflow has ended
                    return [_LOST] * len(calls)
            await asyncio.sleep(RETRY_SECONDS)

    async def _send_outcomes(self, calls: list[JournalCall], id: str) -> list[JournalAnswer]:
        """Send, of the calls of a lost entry, those that say what has happened: they are accepted."""
        outcomes = [call for call in calls if call.kind == "settle"]
        if outcomes and len(outcomes) < len(calls):
            await self._send(outcomes, f"{id}.settle")
        return [_LOST] * len(calls)


_LOST = JournalAnswer(error=LEASE_LOST, message="the turn is over; nothing was written")


class NoTables:
    """The tables of a turn on a cluster: there are none."""

    @property
    def schedules(self) -> RuntimeSchedules:
        raise InvalidInput("ctx.schedules is not there on a cluster: it writes rows of a database")

    async def write_user(
        self, fn: Callable[..., Any], args: tuple[Any, ...], event_of: Callable[[Any], tuple[NewEvent, T]]
    ) -> T:
        raise InvalidInput(
            "ctx.transaction is not there on a cluster: write to your own database in a ctx.step, under ctx.task_id"
        )

    async def write_own(
        self, call: Callable[..., Any], args: tuple[Any, ...], event_of: Callable[[Any], tuple[NewEvent, T]]
    ) -> T:
        raise InvalidInput("ctx.schedules is not there on a cluster: it writes rows of a database")

    async def read(self, call: Callable[..., T], *args: Any) -> T:
        raise InvalidInput("ctx.schedules is not there on a cluster: it reads rows of a database")


def start_of(
    row: NewTrigger, heartbeat_timeout: float, parent: str | None = None, *, ends_with_parent: bool = False
) -> TaskStart:
    """Return what a workflow is started with."""
    assert row.workflow is not None, row
    return TaskStart(
        workflow=row.workflow,
        payload_json=row.payload_json,
        source=row.source,
        due_at=row.due_at,
        description=row.description,
        max_attempts=row.max_attempts,
        parent=parent,
        ends_with_parent=ends_with_parent,
        heartbeat_timeout=heartbeat_timeout,
    )


def make_emitted(row: NewTrigger, id: str, created: bool) -> Emitted:
    return Emitted(id=id, created=created, status=TriggerStatus.PENDING, due_at=row.due_at)


def _raise(answer: JournalAnswer) -> NoReturn:
    raise ERRORS.get(answer.error or "", StateRefused)(answer.message)
