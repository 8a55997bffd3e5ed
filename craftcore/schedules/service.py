"""The declaration of schedules, and the operations on them. Each method is a rule over a transaction it is given.

Declaring is an upsert by id: the same declaration again changes nothing, so no restart and no second `schedule add`
moves a moment. Nothing here fires the past, except what a person asks for by `run_now` and `backfill`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from craftcore.clock import Clock
from craftcore.errors import ConfigInvalid, InvalidInput, NotFound, ScheduleInvalid, StateRefused
from craftcore.schedules.declaration import Change, Declarations, DeclareResult
from craftcore.schedules.firing import Firing, FiringResult
from craftcore.schedules.model import Declared, FireCause, Origin, Schedule, ScheduleSpec, ScheduleStatus
from craftcore.schedules.occurrence_store import AccountStore
from craftcore.schedules.ports import Account, ScheduledTriggers, ScheduleRows
from craftcore.schedules.recurrence.occurrences import count, occurrences
from craftcore.schedules.recurrence.timing import Once, Startup
from craftcore.schedules.store import ScheduleStore
from craftcore.schedules.tick_plan import Skipped, next_upcoming, skip
from craftcore.schedules.transitions import (
    MISSED,
    activate,
    apply_edit,
    has_timing_changed,
    place_of,
    reanchor,
    refuse_finished,
    require_status,
)
from craftcore.storage.transaction import Reader, Transaction
from craftcore.triggers.model import NewTrigger

BACKFILL_MAX = 1000
"""Occurrences one backfill may fire."""


class ScheduleService:
    """Declare, change and look after schedules. Due occurrences belong to `TickService`."""

    def __init__(
        self,
        clock: Clock,
        triggers: ScheduledTriggers,
        store: ScheduleRows | None = None,
        accounts: Account | None = None,
    ) -> None:
        self._declarations = Declarations(clock, triggers)
        self._triggers = triggers
        self._store: ScheduleRows = store or ScheduleStore()
        self._accounts: Account = accounts or AccountStore()
        self._firing = Firing(triggers, self._accounts)

    # Declare

    def accept(self, spec: ScheduleSpec) -> Declared:
        """Check everything but the expression. Raises InvalidInput; nothing is written by this."""
        return self._declarations.accept(spec)

    def check(self, spec: ScheduleSpec, origin: Origin) -> NewTrigger:
        """Check all that `put` would, were the id new; the trigger it would fire. Raises InvalidInput."""
        return self._declarations.check(spec, origin)

    def put(self, tx: Transaction, spec: ScheduleSpec, origin: Origin) -> DeclareResult:
        """Declare a schedule, or change the one with this id.

        A changed timing starts a new generation from now; anything else changes in place. Raises InvalidInput, or
        StateRefused when an operator or a program would change what code or file declare, or revive what has finished
        by saying the same again.
        """
        declared = self.accept(spec)
        before = self._store.get(tx, spec.id)
        if before is None or before.status is ScheduleStatus.REMOVED:
            return self._begin(tx, declared, origin, before, "added")
        if not origin.is_declared and before.origin.is_declared:
            place = place_of(before.origin)
            if before.status is ScheduleStatus.DISABLED:
                raise StateRefused(f"schedule {spec.id} was declared in {place}: remove it to use its id again")
            raise StateRefused(f"schedule {spec.id} is declared in {place}: change it there, or choose another id")
        if not origin.is_declared:
            origin = before.origin  # that of who made it stays
        if before.declared_hash == declared.declared_hash and before.origin is origin:
            return self._redeclare(tx, before)
        if has_timing_changed(before, declared):
            self._close(tx, before, "its schedule was changed")
            return self._begin(tx, declared, origin, before, "changed")
        changed = apply_edit(before, declared, origin, tx.now)
        match before.status:
            case ScheduleStatus.ACTIVE:
                changed = activate(changed)
            case ScheduleStatus.DISABLED:
                changed = self._wake(tx, changed)
            case ScheduleStatus.FINISHED if not before.is_one_time:  # its end or its number of runs may have changed
                changed = self._wake(tx, changed)
            case ScheduleStatus.FINISHED if not origin.is_declared:
                refuse_finished(before)
        return self._write(tx, changed, "changed")

    def declare(
        self, tx: Transaction, origin: Origin, specs: Sequence[ScheduleSpec], *, elsewhere: Collection[str] = ()
    ) -> list[DeclareResult]:
        """Declare all schedules of this origin: upsert each, and disable what it declares no longer; what became of
        each. A schedule that is now declared `elsewhere` is not disabled: that origin takes it over unchanged.

        Raises ConfigInvalid with one line per mistake; nothing is written then.
        """
        mistakes: list[str] = []
        puts: list[DeclareResult] = []
        for spec in specs:
            try:
                puts.append(self.put(tx, spec, origin))
            except InvalidInput as error:
                mistakes.append(f"schedule {spec.id!s:.80}: {error.message}")
        if mistakes:
            raise ConfigInvalid("\n".join(mistakes))
        declared = {spec.id for spec in specs}.union(elsewhere)
        for schedule in self._store.list_of_origin(tx, origin):
            # What a person paused stays so: it fires nothing, also not when it is declared again.
            if schedule.id not in declared and schedule.status is ScheduleStatus.ACTIVE:
                stopped = self._stop(tx, schedule, ScheduleStatus.DISABLED, f"no longer declared in {place_of(origin)}")
                puts.append(DeclareResult(schedule=stopped, change="disabled"))
        return puts

    # Operator commands

    def get(self, tx: Reader, schedule_id: str) -> Schedule:
        """Raise NotFound when there is none, or it was removed."""
        schedule = self._store.get(tx, schedule_id)
        if schedule is None or schedule.status is ScheduleStatus.REMOVED:
            raise NotFound(f"no schedule {schedule_id}")
        return schedule

    def list_all(self, tx: Reader) -> list[Schedule]:
        """Return every schedule that was not removed and can be read. A damaged one fires nothing."""
        return [schedule for schedule in self._store.list_all(tx) if isinstance(schedule, Schedule)]

    def pause(self, tx: Transaction, schedule_id: str, reason: str = "paused") -> Schedule:
        """Pause a schedule: it does not fire until it is resumed. Fired work goes on. Raises NotFound or
        StateRefused."""
        if (schedule := self.get(tx, schedule_id)).status is ScheduleStatus.PAUSED:
            return schedule
        require_status(schedule, ScheduleStatus.ACTIVE, verb="paused")
        return self._stop(tx, schedule, ScheduleStatus.PAUSED, reason)

    def resume(self, tx: Transaction, schedule_id: str) -> Schedule:
        """Go on from now: what came meanwhile is accounted for as skipped. A one-time job whose moment came fires.

        Raises NotFound or StateRefused.
        """
        if (schedule := self.get(tx, schedule_id)).status is ScheduleStatus.ACTIVE:
            return schedule
        require_status(schedule, ScheduleStatus.PAUSED, ScheduleStatus.DISABLED, verb="resumed")
        return self._write(tx, self._wake(tx, schedule), "enabled").schedule

    def remove(self, tx: Transaction, schedule_id: str) -> list[str]:
        """Take it away; its triggers that have not started are cancelled, their ids returned. Its history stays.

        Raises NotFound, or StateRefused for one that code or file would declare again.
        """
        schedule = self.get(tx, schedule_id)
        if schedule.origin.is_declared and schedule.status in (ScheduleStatus.ACTIVE, ScheduleStatus.PAUSED):
            raise StateRefused(
                f"schedule {schedule_id} is declared in {place_of(schedule.origin)}: remove it there, or pause it"
            )
        cancelled = self._accounts.list_unstarted_triggers(tx, schedule_id)
        for trigger_id in cancelled:
            self._triggers.cancel(tx, trigger_id, f"schedule {schedule_id} was removed")
        self._stop(tx, self._close(tx, schedule, "removed"), ScheduleStatus.REMOVED, "removed")
        return cancelled

    def stop_all(self, tx: Transaction, reason: str) -> list[str]:
        """Remove every schedule of an operator or a program, and pause every other one: the next start declares it.
        Return their ids."""
        ended = (ScheduleStatus.FINISHED, ScheduleStatus.DISABLED)
        live = [schedule for schedule in self.list_all(tx) if schedule.status not in ended]
        for schedule in live:
            if not schedule.origin.is_declared:
                self.remove(tx, schedule.id)
            else:
                self.pause(tx, schedule.id, reason)
        return [schedule.id for schedule in live]

    def run_now(self, tx: Transaction, schedule_id: str) -> FiringResult:
        """Fire it once more, now, whatever its time and status; its overlap policy holds. Raises NotFound."""
        return self._firing.fire_or_buffer(tx, self.get(tx, schedule_id), tx.now, FireCause.RUN_NOW)

    def skip_next(self, tx: Transaction, schedule_id: str) -> float:
        """Let the next occurrence pass, and when asked again the one after it; its moment. Raises NotFound or
        StateRefused."""
        schedule = self.get(tx, schedule_id)
        require_status(schedule, ScheduleStatus.ACTIVE, verb="skipped")
        moment = next_upcoming(schedule, after=max(schedule.high_water_at, schedule.skip_to_at or 0.0))
        if moment is None:
            raise StateRefused(f"schedule {schedule_id} ({schedule.expression}) has no occurrence left to skip")
        self._write(tx, replace(schedule, skip_to_at=moment, updated_at=tx.now), "changed")
        return moment

    def backfill(self, tx: Transaction, schedule_id: str, since: float, until: float) -> list[FiringResult]:
        """Fire the occurrences from `since` to `until`, both included, as if they had come now. Occurrences that have
        fired do not fire again. Raises NotFound, StateRefused or ScheduleInvalid."""
        schedule = self.get(tx, schedule_id)
        if isinstance(schedule.timing, Once | Startup):
            raise StateRefused(f"schedule {schedule_id} ({schedule.expression}) does not recur; there is run-now")
        if not since <= until <= tx.now:
            raise ScheduleInvalid("a backfill goes from an earlier moment to a later one, and not beyond now")
        after = math.ceil(since) - 1  # occurrences are whole seconds
        wanted = count(schedule.timing, after, until)
        if wanted > BACKFILL_MAX:
            raise ScheduleInvalid(f"the range has {wanted:,} occurrences; at most {BACKFILL_MAX:,} at a time")
        return [
            self._firing.fire_or_buffer(
                tx,
                schedule,
                moment,
                FireCause.BACKFILL,
                queues=True,
                not_before=tx.now + nth * schedule.catch_up_spacing,
            )
            for nth, moment in enumerate(occurrences(schedule.timing, after, until))
        ]

    def reanchor(self, tx: Transaction, schedule_ids: Sequence[str] = ()) -> list[Schedule]:
        """Go on from now, for those accounted for beyond now by a clock that was wrong; all such when none is named.

        Raises NotFound, or StateRefused for one that is not ahead of the clock.
        """
        ahead = {schedule.id: schedule for schedule in self._store.list_ahead(tx, tx.now)}
        for schedule_id in schedule_ids:
            if self.get(tx, schedule_id).id not in ahead:
                raise StateRefused(f"schedule {schedule_id} is not ahead of the clock; nothing was changed")
        chosen = [schedule for schedule in ahead.values() if not schedule_ids or schedule.id in schedule_ids]
        return [self._write(tx, self._back(tx, schedule), "changed").schedule for schedule in chosen]

    def _back(self, tx: Transaction, schedule: Schedule) -> Schedule:
        """Reanchor at now. Triggers of a wrong clock that have not started are cancelled: they would block until their
        time."""
        for trigger_id in self._accounts.list_unstarted_triggers(tx, schedule.id, after=tx.now):
            self._triggers.cancel(tx, trigger_id, f"schedule {schedule.id} was reanchored")
        dropped = self._firing.drop_buffered(tx, schedule, "reanchored", after=tx.now)
        return reanchor(replace(schedule, runs=schedule.runs - dropped), tx.now)

    # How a row changes

    def _begin(
        self, tx: Transaction, declared: Declared, origin: Origin, before: Schedule | None, change: Change
    ) -> DeclareResult:
        """Return a fresh timing from now on. A declared moment that is past is accounted for as skipped."""
        schedule = self._declarations.begin(declared, origin, before, tx.now)
        put = self._write(tx, schedule, change)
        if schedule.reason == MISSED and isinstance(schedule.timing, Once):
            missed = Skipped(first_at=schedule.timing.at, last_at=schedule.timing.at, count=1, reason=MISSED)
            self._firing.skip(tx, schedule, missed)
        return put

    def _redeclare(self, tx: Transaction, before: Schedule) -> DeclareResult:
        """Handle the same declaration once more."""
        if before.status is ScheduleStatus.DISABLED:
            return self._write(tx, self._wake(tx, before), "enabled")
        if before.status is ScheduleStatus.FINISHED and not before.origin.is_declared:
            refuse_finished(before)
        return DeclareResult(schedule=before, change="unchanged")

    def _wake(self, tx: Transaction, schedule: Schedule) -> Schedule:
        """Make a schedule ACTIVE from now on, with a row for the occurrences that it missed."""
        mark = schedule.high_water_at
        if not schedule.is_one_time:
            until = tx.now if schedule.until_at is None else min(tx.now, schedule.until_at)
            if run := skip(schedule, mark, until, schedule.reason or schedule.status.lower()):
                self._firing.skip(tx, schedule, run)
            mark = max(mark, tx.now)
        return activate(replace(schedule, high_water_at=mark, updated_at=tx.now))

    def _close(self, tx: Transaction, schedule: Schedule, reason: str) -> Schedule:
        """End a generation: an occurrence of it that has come and was not accounted for yet is skipped, and what
        waits."""
        closed = replace(schedule, runs=schedule.runs - self._firing.drop_buffered(tx, schedule, reason))
        if schedule.status is ScheduleStatus.FINISHED:
            return closed
        until = tx.now if schedule.until_at is None else min(tx.now, schedule.until_at)
        try:
            run = skip(schedule, schedule.high_water_at, until, schedule.reason or reason)
        except ScheduleInvalid:  # its zone is gone: nobody can say what came
            return closed
        if run is None:
            return closed
        self._firing.skip(tx, schedule, run)
        return replace(closed, high_water_at=run.last_at)

    def _stop(self, tx: Transaction, schedule: Schedule, status: ScheduleStatus, reason: str) -> Schedule:
        """Stop a schedule: it does not fire any more, nor do occurrences that wait for an earlier one."""
        runs = schedule.runs - self._firing.drop_buffered(tx, schedule, reason)
        stopped = replace(schedule, status=status, reason=reason, runs=runs, next_at=None, updated_at=tx.now)
        return self._write(tx, stopped, "changed").schedule

    def _write(self, tx: Transaction, schedule: Schedule, change: Change) -> DeclareResult:
        self._store.put(tx, schedule)
        return DeclareResult(schedule=schedule, change=change)
