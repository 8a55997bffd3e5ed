"""The journal of one entry of a turn on a cluster: updates of the task's workflow, fenced by the entry's number."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from craftcore.activities.model import Activity, Decision, NewIntent, StartedCall
from craftcore.client.backend import Capability
from craftcore.errors import CraftcoreError, IdempotencyConflict, InvalidInput, LeaseLost, NotFound, StateRefused
from craftcore.log import get_logger
from craftcore.serialization.encode import encode
from craftcore.tasks.activity_events import ActEnd, NewAct
from craftcore.tasks.model import NewQuestion, NewTask, Task, Wait
from craftcore.tasks.turn_event_store import NewEvent, StreamRow
from craftcore.temporal.addressee import Addressee
from craftcore.temporal.cluster_lacks import LACKS
from craftcore.temporal.emission import find_target, is_kept_forever, make_answer, make_emitted, start_of
from craftcore.temporal.entries.open_entry import OpenEntry
from craftcore.temporal.entries.update_sender import UpdateSender
from craftcore.temporal.ids import workflow_id_of_task
from craftcore.temporal.workflow.journal_messages import DRAFT_ID, Intent, JournalAnswer, JournalCall, Outcome
from craftcore.temporal.workflow.messages import TaskStart
from craftcore.triggers.model import Claim, Emitted, NewTrigger

T = TypeVar("T")

log = get_logger(__name__)

IT_MAY_BE_DOUBLED = "the action was done, and its task had gone on without it: look whether it happened twice"


ERRORS: dict[str, type[CraftcoreError]] = {
    error("").name: error for error in (IdempotencyConflict, NotFound, StateRefused, LeaseLost)
}


class TemporalJournal:
    """The journal of one entry. One update is on its way; what comes meanwhile shares the next one."""

    def __init__(
        self,
        entry: OpenEntry,
        start: TaskStart,
        on_rollover: Callable[[], None] = lambda: None,
        look_for: Callable[[str, str], Awaitable[Addressee]] | None = None,
    ) -> None:
        self._entry = entry
        self._updates = UpdateSender(entry)
        self._on_rollover = on_rollover
        """Suspends the turn, by an exception, so that it goes on in the next run of its workflow."""
        self._look_for = look_for
        """Looks for a task that is signalled, and whether it waits for that. None: no task is looked for."""
        self._start = start
        self._known: set[str] | None = None
        """The keys of the activities that the task had when this entry asked first."""
        self._acts: dict[int, str] = {}
        """The keys of the activities that this entry has begun, by seq."""

    def require_lease(self) -> None:
        if self._entry.has_lost_lease():
            raise LeaseLost("no heartbeat was acknowledged in time; nothing is called any more")

    async def record(self, event: NewEvent) -> None:
        await self._commit(JournalCall(kind="record", event_type=event.type, text=event.payload_json, memo=event.memo))

    async def note_route(self, workflow: str, agents: Sequence[str]) -> None:
        """Note which workflow was chosen for the task, and its fallback. (): as it declares."""
        await self._commit(JournalCall(kind="route", text=workflow, agents=list(agents)))

    async def fall_back(self, agents: Sequence[str], agent: str) -> bool:
        """Let the turn go on with this agent, also after a crash or a wait. Return False once an irreversible action of
        the task has begun."""
        try:
            await self._commit(JournalCall(kind="fall_back", text=agent, agents=list(agents)))
        except StateRefused:
            return False
        return True

    async def emit(
        self,
        row: NewTrigger,
        event_of: Callable[[Emitted], NewEvent],
        child: NewTask | None,
        *,
        id_may_be_used: bool = False,
    ) -> Emitted:
        workflow_id = find_target(row, is_child=row.task_id == row.id)
        draft = event_of(make_emitted(row, DRAFT_ID, created=True))
        held = event_of(make_emitted(row, DRAFT_ID, created=False))
        start = start_of(row, self._start.heartbeat_timeout)
        if child is not None:
            start = start_of(
                row,
                self._start.heartbeat_timeout,
                self._entry.workflow_id,
                ends_with_parent=bool(child.ends_with_parent),
            )
        start = replace(start, gate_check=self._start.gate_check, gate_idle=self._start.gate_idle)
        answer = await self._commit(
            JournalCall(
                kind="emit",
                event_type=draft.type,
                text=draft.payload_json,
                memo=draft.memo,
                workflow_id=workflow_id,
                is_keyed_forever=is_kept_forever(row),
                refuses_duplicate=row.on_duplicate == "error",
                held_text=held.payload_json,
                start=start,
            )
        )
        return make_answer(row, answer.task_id, created=answer.created)

    async def signal(
        self, task_id: str, event: str, payload: Any, *, sent_by: str, event_of: Callable[[bool], tuple[NewEvent, T]]
    ) -> T:
        call = JournalCall(
            kind="signal",
            workflow_id=workflow_id_of_task(task_id),
            event=event,
            payload_json=encode(payload, "payload"),
            by=sent_by,
        )
        tried = ""
        while True:
            seen = Addressee() if self._look_for is None else await self._look_for(task_id, event)  # a moment earlier
            record, answer = event_of(seen.waits)
            try:
                await self._commit(replace(call, text=record.payload_json, memo=record.memo, run_id=seen.run_id))
                return answer
            except NotFound:
                if seen.run_id in ("", tried):  # else it has gone on in its next run meanwhile
                    raise
                tried = seen.run_id

    async def reply(
        self, task: Task, waits: Sequence[Wait], reply_json: str, event: NewEvent, *, is_first_agent: bool
    ) -> None:
        raise InvalidInput(LACKS[Capability.REPLY], capability=Capability.REPLY.value)

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
            result_shape=new.result_shape,
        )
        if self._known is not None:
            self._known.add(new.key)
        answer = await self._commit(JournalCall(kind="begin", intent=intent))
        activity = answer.activity or await self._read_act(new.key)
        assert activity is not None, act
        self._acts[activity.seq] = new.key
        return activity.last_call if answer.is_begun else activity

    async def find_intent(self, intent: NewIntent) -> StartedCall | None:
        found = await self._read_act(intent.key)
        if found is None or found.status != "INTENT" or found.execution_seq != intent.execution_seq:
            return None
        self._acts[found.seq] = intent.key
        return found.last_call

    async def wait_until_marked(self, begun: StartedCall) -> None:
        """Return at once: the intent is in the history, which has the mark."""

    async def settle(self, end: ActEnd, gives_up: Callable[[], bool]) -> None:
        outcome = Outcome(**end.ending._asdict())
        call = JournalCall(kind="settle", key=self._acts[end.begun.seq], calls=end.begun.calls, outcome=outcome)
        answer = await self._updates.send(call)
        if answer.is_late:
            log.error(
                "activity.done_late", activity=call.key, provider_ref=outcome.provider_ref, note=IT_MAY_BE_DOUBLED
            )
        self._go_on_after(call, answer)

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
        decided = answer.activity or await self._read_act(activity.key)
        assert decided is not None, activity
        return decided

    async def look(self, key: str) -> Activity | None:
        if key not in await self._known_keys():
            return None
        return await self._read_act(key)

    async def _read_act(self, key: str) -> Activity | None:
        found: Activity | None = await self._updates.query("act", [key], Activity | None)
        return found

    async def list_act_keys(self, task: Task) -> Iterable[str]:
        return list(await self._known_keys())

    async def list_of_turn(self, task: Task, beside: Container[str]) -> Sequence[Activity]:
        found = [await self.look(key) for key in list(await self._known_keys()) if key not in beside]
        mine = [one for one in found if one is not None and one.turn == task.turn]
        return sorted(mine, key=lambda one: one.seq)

    async def _known_keys(self) -> set[str]:
        """Return the keys of all activities of the task: only its own entries begin one."""
        if self._known is None:
            self._known = set(await self._updates.query("act_keys", [], list[str]))
        return self._known

    # The events and the progress of a turn

    async def stream(self, task_id: str, limit: int) -> Sequence[StreamRow]:
        raise InvalidInput("ctx.events has no answer on a cluster: the history of the workflow has the events")

    async def set_progress(self, claim: Claim, task: Task, progress_json: str) -> None:
        await self._commit(JournalCall(kind="progress", text=progress_json))

    async def ask_stalled(self, claim: Claim, task: Task, asked: NewQuestion) -> None:
        """Ask nothing: a worker of a cluster has no watch for stalled turns."""

    async def _commit(self, call: JournalCall) -> JournalAnswer:
        """Return the answer once the call is in the history. Raises what the workflow refused, and PayloadTooLarge."""
        answer = await self._updates.send(call)
        self._go_on_after(call, answer)
        return answer

    def _go_on_after(self, call: JournalCall, answer: JournalAnswer) -> None:
        if answer.error is not None:
            raise ERRORS.get(answer.error, StateRefused)(answer.message)
        if answer.rolls_over and call.kind != "begin":  # what has begun is called, and has its end
            self._on_rollover()
