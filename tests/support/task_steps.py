"""Single steps of a task, each in its own transaction, in the order of an engine of one epoch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from craftcore.executions.model import EventType
from craftcore.executions.recorder import AttemptInfo, Record, Recorder, Routed
from craftcore.serialization.canonical import canonicalize
from craftcore.storage.transaction import Transaction, get_single_result
from craftcore.tasks.model import (
    CONTINUED,
    Entry,
    NewQuestion,
    NewTask,
    NewWait,
    QuestionKind,
    Task,
    WaitKind,
    entry_text,
)
from craftcore.tasks.outcomes import Continues, Move, Returned, Suspends
from craftcore.tasks.turn_end import Followed, TurnEnd
from craftcore.tasks.turn_event_store import NewEvent
from craftcore.tasks.turn_start import StaleTurn, TurnStart
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.model import Claim
from craftcore.triggers.settlement import Cancelled, Continued, Outcome, Succeeded, Suspended, is_cancellation
from tests.support.fakes import VirtualCore, a_trigger
from tests.support.trigger_steps import HOPELESS, claim_all, emit

RECORDER = Recorder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A turn whose code is running."""

    claim: Claim
    entry: Entry
    record: Record

    @property
    def task(self) -> Task:
        return self.entry.task


def enter(
    core: VirtualCore, claim: Claim, *, epoch: int = 1, is_task: bool = True, deadline: float | None = None
) -> Running | StaleTurn | None:
    """Start a claim and enter its turn, in one commit."""

    def start(tx: Transaction) -> Running | StaleTurn | None:
        started = get_single_result(core.claims.start_all(tx, [claim])).claim
        [entry] = core.turn_starter.enter_all(tx, [TurnStart(started, claim.workflow or "greet", is_task, deadline)])
        if not isinstance(entry, Entry):
            return entry
        routed = Routed(entry.task.workflow, "explicit workflow")
        attempt = AttemptInfo(started, routed, entry.task.id, entry.task.turn, entry_text(entry))
        [record] = RECORDER.open_all(tx, epoch, [attempt])
        return Running(claim=started, entry=entry, record=record)

    return core.do(start)


def enter_next(core: VirtualCore, *, epoch: int = 1, deadline: float | None = None) -> Running:
    """Claim the only due trigger, and enter its turn."""
    [claim] = claim_all(core, epoch=epoch)
    running = enter(core, claim, epoch=epoch, deadline=deadline)
    assert isinstance(running, Running), running
    return running


def begin(core: VirtualCore, *, epoch: int = 1, deadline: float | None = None, **trigger: Any) -> Running:
    """Create a task and enter its first turn."""
    emitted = emit(core, **trigger)
    [claim] = [claim for claim in claim_all(core, epoch=epoch) if claim.id == emitted.id]
    running = enter(core, claim, epoch=epoch, deadline=deadline)
    assert isinstance(running, Running), running
    return running


def begin_child(core: VirtualCore, parent: Running, *, deadline: float | None = None, **trigger: Any) -> Running:
    """Create a child task and enter its first turn."""
    child_id = emit_child(core, parent, **trigger)
    [claim] = [claim for claim in claim_all(core) if claim.id == child_id]
    running = enter(core, claim, deadline=deadline)
    assert isinstance(running, Running), running
    return running


def emit_child(core: VirtualCore, parent: Running, **trigger: Any) -> str:
    """Create a child task that has not started, and return its id."""
    child_id = core.clock.new_id()
    row = core.triggers.accept(a_trigger(id=child_id, task_id=child_id, **trigger))
    child = NewTask(child_id, row.workflow or "", row.session_id, None, parent.task.id, child_id, None, None)
    event = event_of(parent, f"child:{child_id}", canonicalize({"id": child_id}))
    event = event._replace(type=EventType.CHILD_STARTED)
    core.do(core.turn_recorder.emit_recorded, row, lambda _: event, child)
    return child_id


def end_turn(
    core: VirtualCore,
    running: Running,
    outcome: Outcome,
    move: Move | None = None,
    *,
    steps: int = 0,
    claim_next: bool = False,
    policy: RetryPolicy | None = None,
) -> Followed:
    """Settle the trigger of a turn and its outcome, in one commit."""

    def settle(tx: Transaction) -> Followed:
        settlement = core.claims.settle(tx, running.claim, outcome, policy or RetryPolicy())
        kept_move = None if is_cancellation(settlement) else move
        end = TurnEnd(running.entry, settlement, kept_move, steps, claim_next, False)
        [followed] = core.turns.settle_all(tx, 1, [end])
        return followed

    return core.do(settle)


def suspend(core: VirtualCore, running: Running, wait: NewWait) -> Followed:
    return end_turn(core, running, Suspended(reason=wait.name), Suspends(wait=wait))


def go_on(core: VirtualCore, running: Running, state: Any = None, wait: NewWait | None = None, **how: Any) -> Followed:
    """End the turn with Continue(state). The next turn follows at once, or after a wait."""
    outcome = Continued() if wait is None else Suspended(reason="continues later")
    return end_turn(core, running, outcome, Continues(state_json=canonicalize(state), wait=wait), **how)


def finish(core: VirtualCore, running: Running, result: Any = None) -> Followed:
    return end_turn(core, running, Succeeded(), Returned(result_json=canonicalize(result)))


def fail(core: VirtualCore, running: Running, outcome: Outcome = HOPELESS, **how: Any) -> Followed:
    return end_turn(core, running, outcome, **how)


def unwind(core: VirtualCore, running: Running) -> Followed:
    """End the turn as cancelled."""
    return end_turn(core, running, Cancelled())


def complete(core: VirtualCore, running: Running, name: str = "step:fetch", result: Any = None) -> None:
    """Record a completed step of the turn."""
    payload = {"args": "", "key": None, "latency_ms": 1.0, "name": name, "result": result}
    core.do(core.turn_recorder.record, event_of(running, name, canonicalize(payload)))


def event_of(running: Running, memo: str | None, payload_json: str = "{}") -> NewEvent:
    claim, task = running.claim, running.task
    return NewEvent(
        claim.seq,
        claim.lease_token,
        running.record.seq,
        task.seq,
        task.turn,
        EventType.STEP_COMPLETED,
        payload_json,
        memo,
    )


# Waits


def a_sleep(until: float, name: str = "sleep#1") -> NewWait:
    return NewWait(name=name, kind=WaitKind.TIMER, due_at=until)


def for_event(event: str, *, until: float | None = None, name: str = "wait_for#1") -> NewWait:
    return NewWait(name=name, kind=WaitKind.EVENT, event=event, due_at=until)


def on_event(event: str, *, until: float | None = None) -> NewWait:
    """Return the wait of Continue(on=…)."""
    return for_event(event, until=until, name=CONTINUED)


def for_child(child_id: str, *, until: float | None = None) -> NewWait:
    return NewWait(name=f"child/{child_id}", kind=WaitKind.CHILD, event=child_id, due_at=until)


def a_question(
    *,
    until: float | None = None,
    options: tuple[str, ...] | None = ("send", "hold"),
    default: str | None = None,
    by_message: bool = False,
    kind: QuestionKind = QuestionKind.ASK,
    name: str = "ask#1",
) -> NewWait:
    asked = NewQuestion(
        kind=kind, question="Send it?", options=options, default_json=json.dumps(default), by_message=by_message
    )
    return NewWait(name=name, kind=WaitKind.QUESTION, due_at=until, question=asked)


# Rows


def look(core: VirtualCore, task_id: str) -> Task:
    return core.do(core.tasks.get, task_id)


def rows(core: VirtualCore, table: str) -> list[dict[str, Any]]:
    return core.rows(f"SELECT * FROM {table} ORDER BY seq")


def the_question(core: VirtualCore) -> dict[str, Any]:
    """Return the only open question."""
    [row] = core.rows("SELECT * FROM questions WHERE status = 'OPEN'")
    return row
