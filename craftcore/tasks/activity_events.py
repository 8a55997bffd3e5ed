"""Irreversible actions of turns that run: the ledger's row and the event of the record, in one commit.

Questions about them are asked here too, when their task ends, and answered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from craftcore.activities.decision_store import DecisionStore
from craftcore.activities.ledger import Ledger
from craftcore.activities.ledger_rules import LEFT_BEHIND, RESTORED, RESTORED_OTHER_KEY, describe_status
from craftcore.activities.model import Activity, ActivityStatus, CallOutcome, Decision, NewIntent, StartedCall
from craftcore.activities.result_shape import describe_required
from craftcore.activities.store import ActivityStore
from craftcore.clock import Clock
from craftcore.errors import ErrorCode, LeaseLost, StateRefused
from craftcore.executions.model import EventType
from craftcore.serialization.canonical import canonicalize
from craftcore.storage.facts import increment_call_mark
from craftcore.storage.transaction import Transaction
from craftcore.tasks.model import LEAVE, TRY_AGAIN, NewQuestion, QuestionKind
from craftcore.tasks.question_store import QuestionStore
from craftcore.tasks.store import TaskStore
from craftcore.tasks.turn_event_store import MemoStore, NewEvent
from craftcore.tasks.turn_events import TurnRecorder
from craftcore.tasks.wait_store import WaitStore

WHAT_ANSWERS_MEAN = (
    "With happened, it is done. With resend, it did not happen, and the task sends it when it comes to it again. "
    "With give up, the outcome stays unknown, and the task fails when it comes to it again."
)
"""True also when the task ends before an answer."""

EVENTS = {
    ActivityStatus.DONE: EventType.ACTIVITY_DONE,
    ActivityStatus.FAILED: EventType.ACTIVITY_FAILED,
    ActivityStatus.UNKNOWN: EventType.ACTIVITY_UNKNOWN,
}


class NewAct(NamedTuple):
    """An intent of a running turn. `event`: what the record says of it. `again`: the activity as it was seen, when its
    policy has it called again. `ends_at`: the call is not made after this moment, and is over by then."""

    intent: NewIntent
    event: NewEvent
    again: Activity | None = None
    ends_at: float = math.inf


class ActEnd(NamedTuple):
    """The outcome of a call of a running turn, and its event."""

    begun: StartedCall
    ending: CallOutcome
    event: NewEvent


class ActivityEvents:
    """Begin and settle acts, and ask about them. Each method is a rule over a transaction it is given."""

    def __init__(self, clock: Clock, ledger: Ledger, recording: TurnRecorder) -> None:
        self._clock = clock
        self._ledger = ledger
        self._recording = recording
        self._memos = MemoStore()
        self._store = ActivityStore()
        self._decisions = DecisionStore()
        self._tasks = TaskStore()
        self._questions = QuestionStore()
        self._waits = WaitStore()

    def begin_all(self, tx: Transaction, acts: list[NewAct]) -> list[StartedCall | Activity | Exception]:
        """Write intents, or tell what is on record; an answer each. LeaseLost, and nothing written, for a turn that
        does not hold its trigger any more; IdempotencyConflict."""
        held = self._memos.held_leases(tx, [(act.event.trigger_seq, act.event.lease_token) for act in acts])
        mine = [act for act in acts if (act.event.trigger_seq, act.event.lease_token) in held]
        answers = dict(
            zip(
                (act.intent.key for act in mine if act.again is None),
                self._ledger.begin_all(tx, [act.intent for act in mine if act.again is None]),
                strict=True,
            )
        )
        for act in mine:
            if act.again is not None:
                answers[act.intent.key] = self._ledger.call_again(tx, act.again, act.intent)
                if isinstance(answers[act.intent.key], StartedCall):
                    self._decisions.add(tx, act.again, Decision.RESEND, f"policy {act.again.policy}")
        self._mark(tx, answers)
        begun = [(act, answer) for act in mine if isinstance(answer := answers[act.intent.key], StartedCall)]
        if again := [answer.seq for _, answer in begun if answer.calls > 1]:
            self._withdraw_about(tx, again)
        self._recording.append_all(tx, [intent_event(act, answer) for act, answer in begun])
        lost = LeaseLost("the turn is over; nothing was written, and nothing was called")
        return [answers.get(act.intent.key, lost) for act in acts]

    def _mark(self, tx: Transaction, answers: dict[str, StartedCall | Activity | Exception]) -> None:
        """Give what is to be called the call mark of this commit: one for all of it."""
        begun = {key: answer for key, answer in answers.items() if isinstance(answer, StartedCall)}
        if begun:
            mark = increment_call_mark(tx)
            answers.update((key, one._replace(mark=mark)) for key, one in begun.items())

    def intent_of(self, tx: Transaction, intent: NewIntent) -> StartedCall | None:
        """Return the intent of this attempt that has no end yet; None when there is none."""
        found = self._store.get(tx, intent.key)
        if found is None or found.status is not ActivityStatus.INTENT or found.execution_seq != intent.execution_seq:
            return None
        return found.last_call

    def settle_all(self, tx: Transaction, ends: list[ActEnd]) -> list[bool | Exception]:
        """Write what calls came to; an answer each: whether the activity was still to be settled by this call. It is
        written also when the turn has lost its lease: it happened."""
        settled = self._store.settle_all(tx, [(end.begun, end.ending) for end in ends])
        self._recording.record_all(tx, [end.event for end in ends if end.begun.seq in settled])
        return [end.begun.seq in settled for end in ends]

    def decide(
        self,
        tx: Transaction,
        activity: Activity,
        decision: Decision,
        decided_by: str,
        reference: str | None,
        event: NewEvent,
    ) -> Activity:
        """Write that a policy ended a doubt. Return the activity after that. Raises StateRefused when another did."""
        now = self._store.get_by_seq(tx, activity.seq)
        if not now.is_open or now.calls != activity.calls:
            raise StateRefused(f"{now.key} {describe_status(now)}; nothing was written")
        decided = self._ledger.decide(tx, activity, decision, decided_by=decided_by, reference=reference)
        self._withdraw_about(tx, [activity.seq])
        self._recording.record_all(tx, [event])
        return decided

    def mark_interrupted(self, tx: Transaction) -> int:
        """Mark interrupted calls as in doubt, in their rows and in open records. Nothing may run. How many."""
        left = self._ledger.mark_interrupted(tx)
        self._recording.append_to_open(
            tx,
            [
                (one.execution_seq, one.task_seq, one.turn, EventType.ACTIVITY_UNKNOWN, _ending_text(one), one.seq)
                for one in left
            ],
        )
        self._ask_what_is_in_doubt(tx, sorted({one.task_seq for one in left}))
        return len(left)

    # Questions

    def _withdraw_about(self, tx: Transaction, activity_seqs: Sequence[int]) -> None:
        """Withdraw the questions about what is not in doubt any more, and end what waits for their answers."""
        self._waits.end_about(tx, activity_seqs)
        self._questions.withdraw_about(tx, activity_seqs)

    def ask_at_end(self, tx: Transaction, task_seqs: Sequence[int]) -> None:
        """Ask about activities in doubt of tasks that have ended: no turn will come to them again. Ask also about those
        that would have sent something else under a key."""
        self._ask_what_is_in_doubt(tx, task_seqs)
        for task in self._tasks.list_failed_with(tx, task_seqs, ErrorCode.IDEMPOTENCY_CONFLICT):
            asked = NewQuestion(
                kind=QuestionKind.CONFLICT,
                question=f"Task {task.id} ({task.workflow}) has failed: {task.error_message}. Try its turn again, or "
                "leave it?",
                options=(TRY_AGAIN, LEAVE),
            )
            self._questions.ask(tx, self._clock.new_id(), task.seq, None, asked, None)

    def ask_at_stop(self, tx: Transaction, task_seq: int) -> None:
        """Ask about activities in doubt of a turn that a person has stopped: no other turn comes to them."""
        for activity in self._store.list_undecided(tx, [task_seq]):
            self._ask(tx, activity)

    def _ask_what_is_in_doubt(self, tx: Transaction, task_seqs: Sequence[int]) -> None:
        for activity in self._store.list_undecided(tx, task_seqs):
            if not self._tasks.get_by_seq(tx, activity.task_seq).status.is_live:
                self._ask(tx, activity)

    def _ask(self, tx: Transaction, activity: Activity) -> None:
        self._questions.ask(tx, self._clock.new_id(), activity.task_seq, None, question_about(activity, None), None)


def intent_event(act: NewAct, begun: StartedCall) -> NewEvent:
    """Return the event of an intent. Names need no escaping."""
    text = f'{{"action":"{act.intent.action}","attempt":{begun.calls},"key":"{act.intent.key}"}}'
    return act.event._replace(payload_json=text, activity_seq=begun.seq)


def question_about(activity: Activity, why: str | None) -> NewQuestion:
    """Return what a person is asked about an activity in doubt. Its arguments are shown beside it, not written here."""
    called = datetime.fromtimestamp(activity.last_call_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    error = f" ({activity.error_message})" if activity.error_message else ""
    happened = f"It was called at {called}, and {activity.reason}{error}."
    if activity.reason in (RESTORED, RESTORED_OTHER_KEY):  # nobody knows even that
        happened = "The database was restored, and it may have been called before: the file that was lost would know."
    return NewQuestion(
        kind=QuestionKind.ACTIVITY,
        question=f"Did {activity.action} happen? {happened}"
        + (
            " An action that it began may still go on: look before you answer."
            if activity.reason == LEFT_BEHIND.reason
            else ""
        )
        + (f" Known facts: {why}." if why else "")
        + f"\n{WHAT_ANSWERS_MEAN}{_needed_text(activity)}",
        options=tuple(Decision),
        activity_seq=activity.seq,
    )


def _needed_text(activity: Activity) -> str:
    """Return which result a person has to tell when it happened; empty: none."""
    if (needed := describe_required(activity.result_shape)) is None:
        return ""
    return f" With happened, its task needs what {activity.action} returned: give it as the reference ({needed})."


def _ending_text(activity: Activity) -> str:
    return canonicalize(
        {"action": activity.action, "attempt": activity.calls, "key": activity.key, "reason": "the process ended"}
    )
