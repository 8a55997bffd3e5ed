"""The tick: what has come due is accounted for and fired, and the high-water mark moves on, in one commit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from craftcore.errors import CraftcoreError
from craftcore.schedules.firing import Firing, FiringResult
from craftcore.schedules.model import FireCause, Outcome, Overlap, Schedule, ScheduleStatus
from craftcore.schedules.occurrence_store import AccountStore
from craftcore.schedules.ports import Account, ScheduledTriggers, ScheduleRows
from craftcore.schedules.store import ScheduleStore
from craftcore.schedules.tick_plan import Decision, Skipped, decide, next_upcoming
from craftcore.schedules.transitions import exhausted_reason
from craftcore.storage.transaction import Transaction

T = TypeVar("T")

PLACED_MAX = 500
"""Occurrences after which a tick begins no other schedule, so that other writers wait only a moment."""


@dataclass(slots=True, kw_only=True)
class Ticked:
    """The result of a tick. `next_at`: the next occurrence of all, None when none is awaited; `more`: a batch was not
    enough. `skipped` and `disabled` go by the id of their schedule."""

    placed: list[FiringResult] = field(default_factory=list)
    skipped: list[tuple[str, Skipped]] = field(default_factory=list)
    disabled: list[tuple[str, str]] = field(default_factory=list)
    next_at: float | None = None
    more: bool = False

    @property
    def fired(self) -> int:
        """How many triggers there are now that there were not."""
        return sum(placed.outcome is Outcome.FIRED for placed in self.placed)

    @property
    def due_at(self) -> float | None:
        """When the first of them is due; None when there is none."""
        return min((placed.due_at for placed in self.placed if placed.due_at is not None), default=None)


class TickService:
    """Each method is a rule over a transaction it is given; one call handles at most `batch` schedules, and fewer when
    they have much to catch up."""

    def __init__(
        self,
        triggers: ScheduledTriggers,
        store: ScheduleRows | None = None,
        accounts: Account | None = None,
        *,
        batch: int = 100,
    ) -> None:
        self._store: ScheduleRows = store or ScheduleStore()
        self._accounts: Account = accounts or AccountStore()
        self._firing = Firing(triggers, self._accounts)
        self._batch = batch

    def tick(self, tx: Transaction) -> Ticked:
        """Fire what waited for an earlier occurrence, then account for what has come due."""
        ready = self._accounts.ready(tx, self._batch)
        due = self._store.list_due(tx, tx.now, self._batch)
        ticked = Ticked(more=self._batch in (len(ready), len(due)))
        for line in ready:
            schedule = self._store.get(tx, line.schedule_id)
            assert schedule is not None, line
            if self._validate(tx, schedule, ticked, _is_timed):
                ticked.placed.append(self._firing.fire_buffered(tx, schedule, line))
        for schedule in due:
            if len(ticked.placed) >= PLACED_MAX:
                ticked.more = True
                break
            if (decision := self._validate(tx, schedule, ticked, decide)) is not None:
                self._apply(tx, schedule, decision, ticked)
        ticked.next_at = self._store.next_occurrence_at(tx)
        return ticked

    def fire_startup(self, tx: Transaction, *, held: str | None = None) -> Ticked:
        """Fire what is to run whenever a daemon starts; `held`: why it is skipped this time."""
        ticked = Ticked()
        for schedule in self._store.list_startup(tx):
            # Not by the high-water mark: it comes with a daemon, also when the clock was set back since the last one.
            if not (schedule.start_at or 0.0) <= tx.now <= (schedule.until_at or math.inf):
                continue
            if held is not None:
                self._firing.hold_startup(tx, schedule, held)
                continue
            if not self._validate(tx, schedule, ticked, _is_timed):
                continue
            placed = self._firing.fire_or_buffer(tx, schedule, tx.now, FireCause.STARTUP)
            ticked.placed.append(placed)
            if placed.outcome is not Outcome.SKIPPED:
                mark = max(schedule.high_water_at, tx.now)
                self._advance(tx, schedule, runs=1, last=tx.now, high_water_at=mark, next_at=None)
        return ticked

    def _validate(
        self, tx: Transaction, schedule: Schedule, ticked: Ticked, ask: Callable[[Schedule, float], T]
    ) -> T | None:
        """Check a schedule before anything is written. Return None, and disable it, when it cannot go on: its zone is
        gone, its payload exceeds a lowered limit, or its row is damaged."""
        try:
            self._firing.check(schedule)
            return ask(schedule, tx.now)
        except (CraftcoreError, ValueError, OverflowError) as error:
            reason = f"cannot go on: {error}"
        runs = self._firing.drop_buffered(tx, schedule, reason)
        self._store.disable(tx, schedule.id, reason, runs=schedule.runs - runs)
        ticked.disabled.append((schedule.id, reason))
        return None

    def _apply(self, tx: Transaction, schedule: Schedule, decision: Decision, ticked: Ticked) -> None:
        for run in decision.skipped:
            self._firing.skip(tx, schedule, run)
            ticked.skipped.append((schedule.id, run))
        runs, last = 0, schedule.last_nominal_at
        for nth, nominal_at in enumerate(decision.fired):
            paced = nth and schedule.overlap is Overlap.ALLOW  # the others wait for one another anyway
            placed = self._firing.fire_or_buffer(
                tx,
                schedule,
                nominal_at,
                FireCause.TIME,
                queues=len(decision.fired) > 1,
                not_before=tx.now + nth * schedule.catch_up_spacing if paced else None,
            )
            if placed.outcome is not Outcome.SKIPPED:
                runs, last = runs + 1, nominal_at
            ticked.placed.append(placed)
        self._advance(
            tx, schedule, runs=runs, last=last, high_water_at=decision.high_water_at, next_at=decision.next_at
        )

    def _advance(
        self,
        tx: Transaction,
        schedule: Schedule,
        *,
        runs: int,
        last: float | None,
        high_water_at: float,
        next_at: float | None,
    ) -> None:
        after = replace(
            schedule,
            runs=schedule.runs + runs,
            last_nominal_at=last,
            high_water_at=high_water_at,
            next_at=next_at,
        )
        if finished := _exhausted_reason(after):
            after = replace(after, status=ScheduleStatus.FINISHED, reason=finished, next_at=None)
        moved = self._store.advance(tx, schedule, after)
        assert moved, schedule


def _is_timed(schedule: Schedule, now: float) -> bool:
    """Return True. Raises ScheduleInvalid when its next time cannot be computed."""
    next_upcoming(schedule, after=now)
    return True


def _exhausted_reason(schedule: Schedule) -> str | None:
    """Return why nothing comes any more; None while something may."""
    if schedule.is_one_time:
        return "fired" if schedule.runs else "skipped"
    if schedule.max_runs is not None and schedule.runs >= schedule.max_runs:
        return exhausted_reason(schedule)
    if schedule.next_at is None and schedule.kind != "startup":
        return "its end has come"
    return None
