"""The tick: what has come due is accounted for and fired, and the high-water mark moves on, in one commit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import structlog

from craftcore.errors import CraftcoreError
from craftcore.schedules.firing import Firing
from craftcore.schedules.model import Cause, Outcome, Overlap, Schedule, ScheduleStatus
from craftcore.schedules.store import ScheduleStore
from craftcore.schedules.tick import decide
from craftcore.storage.transaction import Transaction
from craftcore.triggers.model import Emitted
from craftcore.triggers.service import TriggerService

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """`due_at`: of the first trigger that was fired, None when none was. `next_at`: the next occurrence of all, None
    when none is awaited. `more`: a batch was not enough."""

    fired: int
    due_at: float | None
    next_at: float | None
    more: bool


class TickService:
    """Each method is a rule over a transaction it is given; one call handles at most `batch` schedules."""

    def __init__(self, triggers: TriggerService, *, batch: int = 100) -> None:
        self._store = ScheduleStore()
        self._firing = Firing(triggers, self._store)
        self._batch = batch

    def tick(self, tx: Transaction) -> Ticked:
        """Fire what waited for an earlier occurrence, then account for what has come due."""
        ready = self._store.ready(tx, self._batch)
        due = self._store.due(tx, tx.now, self._batch)
        emitted = [
            self._firing.fire_buffered(tx, schedule, line)
            for line in ready
            if (schedule := self._store.get(tx, line.schedule_id))
        ]
        for schedule in due:
            try:
                emitted.extend(self._account(tx, schedule))
            except CraftcoreError as error:  # a zone that is gone, a payload over a limit that was lowered
                self._store.disable(tx, schedule.id, f"cannot go on: {error.message}")
                tx.after_commit(log.error, "schedule.disabled", schedule=schedule.id, reason=error.message)
        return self._ticked(tx, emitted, more=self._batch in (len(ready), len(due)))

    def startup(self, tx: Transaction) -> Ticked:
        """Fire what is to run whenever a daemon starts."""
        emitted: list[Emitted | None] = []
        for schedule in self._store.at_startup(tx):
            if schedule.high_water_at > tx.now or (schedule.until_at is not None and schedule.until_at < tx.now):
                continue
            outcome, fired = self._firing.place(tx, schedule, tx.now, Cause.STARTUP)
            emitted.append(fired)
            if outcome is not Outcome.SKIPPED:
                self._advance(tx, schedule, runs=1, last=tx.now, high_water_at=tx.now, next_at=None)
        return self._ticked(tx, emitted, more=False)

    def _account(self, tx: Transaction, schedule: Schedule) -> list[Emitted | None]:
        decision = decide(schedule, tx.now)
        for run in decision.skipped:
            self._firing.skip(tx, schedule, run)
        emitted: list[Emitted | None] = []
        runs = 0
        for nth, nominal_at in enumerate(decision.fired):
            paced = nth and schedule.overlap is Overlap.ALLOW  # the others wait for one another anyway
            outcome, fired = self._firing.place(
                tx,
                schedule,
                nominal_at,
                Cause.TIME,
                queues=len(decision.fired) > 1,
                not_before=tx.now + nth * schedule.catch_up_spacing if paced else None,
            )
            runs += outcome is not Outcome.SKIPPED
            emitted.append(fired)
        last = decision.fired[-1] if runs else schedule.last_nominal_at
        self._advance(
            tx, schedule, runs=runs, last=last, high_water_at=decision.high_water_at, next_at=decision.next_at
        )
        return emitted

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
        if finished := _finished(after):
            after = replace(after, status=ScheduleStatus.FINISHED, reason=finished, next_at=None)
        moved = self._store.advance(tx, schedule, after)
        assert moved, schedule

    def _ticked(self, tx: Transaction, emitted: list[Emitted | None], *, more: bool) -> Ticked:
        fired = [answer.due_at for answer in emitted if answer is not None and answer.created]
        return Ticked(fired=len(fired), due_at=min(fired, default=None), next_at=self._store.next_at(tx), more=more)


def _finished(schedule: Schedule) -> str | None:
    """Why nothing comes any more; None while something may."""
    if schedule.is_one_time:
        return "fired" if schedule.runs else "skipped"
    if schedule.max_runs is not None and schedule.runs >= schedule.max_runs:
        return f"all its {schedule.max_runs} runs are spent"
    if schedule.next_at is None and schedule.kind != "startup":
        return "its end has come"
    return None
