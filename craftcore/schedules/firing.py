"""The firing of one occurrence: it fires, waits behind an earlier one, or is skipped, with its row in the same
commit."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from craftcore.schedules.model import FireCause, Occurrence, Outcome, Overlap, Schedule
from craftcore.schedules.ports import Account, ScheduledTriggers
from craftcore.schedules.tick_plan import Skipped, jitter
from craftcore.storage.transaction import Transaction
from craftcore.triggers.model import DedupScope, Emitted, TriggerSource, TriggerSpec
from craftcore.triggers.sources import (
    ONE_TIME_PRIORITY,
    scheduled_now_key,
    scheduled_once_key,
    scheduled_startup_key,
    slot_key,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FiringResult:
    """The result of one occurrence. `trigger_id` and `due_at` None: it did not fire, or not yet; `reason` says why.
    `cause` is known for those that fired."""

    schedule_id: str
    nominal_at: float
    outcome: Outcome
    reason: str | None = None
    trigger_id: str | None = None
    due_at: float | None = None
    cause: FireCause = FireCause.TIME
    again: bool = False
    """It is skipped for the same reason as the one before it."""


class Firing:
    """Fires occurrences through `emit`, and keeps the account."""

    def __init__(self, triggers: ScheduledTriggers, account: Account) -> None:
        self._triggers = triggers
        self._store = account

    def check(self, schedule: Schedule) -> None:
        """Raise what would keep it from being fired, before anything is written: InvalidInput, ValueError."""
        self._triggers.accept(self._spec(schedule, 0.0, _key(schedule, 0.0, FireCause.TIME)))

    def fire_or_buffer(
        self,
        tx: Transaction,
        schedule: Schedule,
        nominal_at: float,
        cause: FireCause,
        *,
        queues: bool = False,
        not_before: float | None = None,
    ) -> FiringResult:
        """Fire an occurrence, or do what its overlap policy says while an earlier one is at work.

        One that fired or waits already is skipped. `queues`: more than one may wait behind another, because each of
        them was asked for.
        """
        causes = _SLOTS if cause in _SLOTS else (cause,)
        if standing := self._store.find_occurrence(tx, schedule, nominal_at, causes):
            return self._fire_or_note(tx, schedule, cause, _duplicate_result(schedule, nominal_at, standing.trigger_id))
        blocker = None if schedule.overlap is Overlap.ALLOW else self._store.running_occurrence(tx, schedule.id)
        if blocker is None:
            emitted = self._emit(tx, schedule, nominal_at, cause, not_before)
            return self._fire_or_note(tx, schedule, cause, _firing_result(schedule, nominal_at, cause, emitted))
        queues = queues or schedule.is_one_time  # it always fires
        if schedule.overlap is Overlap.SKIP and not schedule.is_one_time:
            outcome, reason = Outcome.SKIPPED, f"overlap: {blocker.is_not_over}"
        elif not queues and self._store.list_buffered(tx, schedule.id):
            outcome, reason = Outcome.SKIPPED, "overlap: an earlier occurrence waits already"
        else:
            outcome, reason = Outcome.BUFFERED, f"waits for {blocker}"
        placed = FiringResult(schedule_id=schedule.id, nominal_at=nominal_at, outcome=outcome, reason=reason)
        return self._fire_or_note(tx, schedule, cause, placed)

    def fire_buffered(self, tx: Transaction, schedule: Schedule, line: Occurrence) -> FiringResult:
        """Fire what waited; it is skipped when it had fired before."""
        emitted = self._emit(tx, schedule, line.nominal_at, line.cause, None)
        placed = _firing_result(schedule, line.nominal_at, line.cause, emitted)
        self._store.close_buffered(tx, line, placed.outcome, of=placed.trigger_id or placed.reason or "")
        return placed

    def drop_buffered(self, tx: Transaction, schedule: Schedule, reason: str, *, after: float = -1.0) -> int:
        """Skip the occurrences after that moment that wait for an earlier one. Return how many of them had been counted
        as runs."""
        waiting = [line for line in self._store.list_buffered(tx, schedule.id) if line.nominal_at > after]
        for line in waiting:
            self._store.close_buffered(tx, line, Outcome.SKIPPED, of=reason)
        return sum(line.cause in (FireCause.TIME, FireCause.STARTUP) for line in waiting)

    def skip(self, tx: Transaction, schedule: Schedule, run: Skipped) -> None:
        """Write the row of a run of occurrences that do not fire."""
        skipped = FiringResult(
            schedule_id=schedule.id, nominal_at=run.first_at, outcome=Outcome.SKIPPED, reason=run.reason
        )
        line = _line_of(schedule, FireCause.TIME, skipped, tx.now)
        self._store.insert(tx, replace(line, last_at=run.last_at, count=run.count))

    def hold_startup(self, tx: Transaction, schedule: Schedule, reason: str) -> None:
        """Write the row of a start at which nothing scheduled may fire."""
        placed = FiringResult(
            schedule_id=schedule.id, nominal_at=tx.now, outcome=Outcome.SKIPPED, reason=f"held: {reason}"
        )
        self._fire_or_note(tx, schedule, FireCause.STARTUP, placed)

    def _emit(
        self,
        tx: Transaction,
        schedule: Schedule,
        nominal_at: float,
        cause: FireCause,
        not_before: float | None,
    ) -> Emitted:
        at = nominal_at
        if cause is FireCause.TIME or cause is FireCause.BACKFILL:
            at += jitter(schedule.id, nominal_at, schedule.jitter)
        spec = self._spec(schedule, at, _key(schedule, nominal_at, cause))
        if cause is FireCause.BACKFILL and schedule.expires_after is not None:
            spec = replace(spec, expires_at=max(not_before or at, tx.now) + schedule.expires_after)  # as if it came now
        return self._triggers.emit_scheduled(
            tx,
            spec,
            schedule_id=schedule.id,
            nominal_at=nominal_at,
            not_before=not_before,
            is_late=cause is FireCause.BACKFILL,
        )

    def _spec(self, schedule: Schedule, at: float, dedup_key: str | None) -> TriggerSpec:
        is_once = schedule.is_one_time and schedule.source is TriggerSource.SCHEDULED
        priority = ONE_TIME_PRIORITY if is_once else None
        return TriggerSpec(
            workflow=schedule.workflow,
            payload=json.loads(schedule.payload_json),
            source=schedule.source,
            at=at,
            expires_at=None if schedule.expires_after is None else at + schedule.expires_after,
            priority=priority if schedule.priority is None else schedule.priority,
            session_id=schedule.session_id,
            description=schedule.description,
            max_attempts=schedule.max_attempts,
            dedup_key=dedup_key,
            dedup_scope=None if dedup_key is None else DedupScope.EVER,
        )

    def _fire_or_note(
        self, tx: Transaction, schedule: Schedule, cause: FireCause, placed: FiringResult
    ) -> FiringResult:
        skipped = placed.outcome is Outcome.SKIPPED and cause is FireCause.TIME
        if skipped and self._store.extend(tx, schedule, placed.nominal_at, placed.reason or ""):
            return replace(placed, again=True)
        inserted = self._store.insert(tx, _line_of(schedule, cause, placed, tx.now))
        assert inserted, placed
        return placed


def _line_of(schedule: Schedule, cause: FireCause, placed: FiringResult, now: float) -> Occurrence:
    """Return the row of one occurrence."""
    return Occurrence(
        seq=0,
        schedule_id=schedule.id,
        generation=schedule.generation,
        cause=cause,
        nominal_at=placed.nominal_at,
        last_at=placed.nominal_at,
        count=1,
        outcome=placed.outcome,
        reason=placed.reason,
        trigger_id=placed.trigger_id,
        decided_at=now,
    )


def _key(schedule: Schedule, nominal_at: float, cause: FireCause) -> str:
    match cause:
        case FireCause.RUN_NOW:
            return scheduled_now_key(schedule.id, nominal_at)
        case FireCause.STARTUP:
            return scheduled_startup_key(schedule.id, nominal_at)
    if schedule.is_one_time:
        return scheduled_once_key(schedule.id, schedule.generation)
    return slot_key(schedule.source, schedule.id, nominal_at)


_SLOTS = (FireCause.TIME, FireCause.BACKFILL)
"""An occurrence that fired for one of these causes has fired for the other."""


def _duplicate_result(schedule: Schedule, nominal_at: float, trigger_id: str | None) -> FiringResult:
    reason = f"fired before, as trigger {trigger_id}" if trigger_id else "waits already"
    return FiringResult(schedule_id=schedule.id, nominal_at=nominal_at, outcome=Outcome.SKIPPED, reason=reason)


def _firing_result(schedule: Schedule, nominal_at: float, cause: FireCause, emitted: Emitted) -> FiringResult:
    if not emitted.created:
        return _duplicate_result(schedule, nominal_at, emitted.id)
    return FiringResult(
        schedule_id=schedule.id,
        nominal_at=nominal_at,
        outcome=Outcome.FIRED,
        trigger_id=emitted.id,
        due_at=emitted.due_at,
        cause=cause,
    )
