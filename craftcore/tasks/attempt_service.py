"""Operations on an attempt that has no end or has failed: retry it, or skip it."""

from __future__ import annotations

import shlex

from craftcore.activities.listing_store import ActivityListStore
from craftcore.activities.model import ActivityStatus
from craftcore.activities.store import ActivityStore
from craftcore.errors import StateRefused
from craftcore.executions.listing_store import ExecutionListStore
from craftcore.executions.model import EventType, Status
from craftcore.executions.record import ExecutionRecord, refusal_to_replay
from craftcore.executions.recovery import Act, AttemptFacts, State, assess, state_of
from craftcore.storage.damaged_rows import require_readable
from craftcore.storage.transaction import Reader, Transaction
from craftcore.tasks.model import Task
from craftcore.tasks.store import TaskStore
from craftcore.triggers.model import Trigger
from craftcore.triggers.service import TriggerService
from craftcore.triggers.store import TriggerStore

ACTS_MAX = 100
"""Unfinished activities of a task that are read."""


def facts_of(
    reader: Reader,
    record: ExecutionRecord,
    now: float,
    *,
    daemon_runs: bool,
    known_faults: list[str] | None = None,
) -> AttemptFacts:
    """Return what is known of an attempt beside its record. `known_faults`: what is wrong with the record, where that
    was asked before; None: it is asked."""
    trigger = TriggerStore().get(reader, record.trigger_id)
    task = None if record.task_id is None else TaskStore().get(reader, record.task_id)
    [newest] = ExecutionListStore().ids_of(reader, record.trigger_id, 1) or [record.id]
    return AttemptFacts(
        id=record.id,
        status=record.status,
        ended_at=record.ended_at,
        error_code=record.error_code,
        newest_id=newest,
        trigger_id=record.trigger_id,
        task_id=record.task_id,
        trigger_status=None if trigger is None else trigger.status,
        trigger_reason=None if trigger is None else trigger.reason,
        cancel_asked=trigger is not None and trigger.cancel_requested_at is not None,
        due_at=None if trigger is None else trigger.due_at,
        now=now,
        daemon_runs=daemon_runs,
        acts=_unended_acts(reader, task),
        irreversible=[event.type for event in record.events].count(EventType.ACTIVITY_INTENT),
        not_replayable=refusal_to_replay(record, known_faults) if record.status is Status.SUCCESS else None,
        task_is_over=task is not None and not task.status.is_live,
    )


def _unended_acts(reader: Reader, task: Task | None) -> tuple[Act, ...]:
    if task is None:
        return ()
    called = require_readable(
        ActivityListStore().list_newest(reader, ACTS_MAX, status=ActivityStatus.INTENT, task_id=task.id)
    )
    doubted = ActivityStore().list_undecided(reader, [task.seq])
    return tuple(
        Act(key=one.key, action=one.action, has_intent=one.status is ActivityStatus.INTENT)
        for one in (*doubted, *called)
    )


class AttemptService:
    """Retry, skip. Each method is a rule over a transaction it is given; ring the daemon's bell after the commit.

    `program`: with what the commands begin that a refusal names.
    """

    def __init__(self, triggers: TriggerService, program: tuple[str, ...] = ("craftcore",)) -> None:
        self._triggers = triggers
        self._program = program

    def retry(self, tx: Transaction, facts: AttemptFacts, reason: str) -> Trigger:
        """Run it again, now: one that waits for it does not wait longer, one that was given up gets another life, and
        the task that failed with it goes on.

        PENDING       -> PENDING, due now
        DEAD, FAILED  -> PENDING, with all its attempts

        Raises StateRefused, which says what to do instead, for any other.
        """
        match state_of(facts):
            case State.PENDING:
                return self._triggers.run_now(tx, facts.trigger_id, f"retried: {reason}")
            case State.DEAD | State.FAILED:
                return self._triggers.requeue(tx, facts.trigger_id)
            case _:
                raise self._refusal(facts, "retry")

    def skip(self, tx: Transaction, facts: AttemptFacts, reason: str) -> Trigger:
        """Do not run it again, and let its task end with it.

        PENDING  -> DONE, cancelled
        CLAIMED  -> DONE, cancelled: by the next daemon, when its own has died
        DEAD     -> FAILED, discarded

        Raises StateRefused, which says what to do instead, for any other.
        """
        match state_of(facts):
            case State.PENDING | State.INTERRUPTED:
                return self._triggers.cancel(tx, facts.trigger_id, f"skipped: {reason}")
            case State.DEAD:
                return self._triggers.discard(tx, facts.trigger_id, f"skipped: {reason}")
            case _:
                raise self._refusal(facts, "skip")

    def _refusal(self, facts: AttemptFacts, verb: str) -> StateRefused:
        found = assess(facts)
        commands = [
            shlex.join((*self._program, *words)) for words in found.commands if words[:2] != ("execution", verb)
        ]
        instead = f". See: {', or '.join(commands)}" if commands else ""
        return StateRefused(f"{verb} of {facts.id} is refused: {found.text}{instead}. Nothing was written")
