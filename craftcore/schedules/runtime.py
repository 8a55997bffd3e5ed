"""Schedules that programs make at run time: by an app, by a turn, or beside the daemon. Their origin is `api`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from craftcore.clock import Clock
from craftcore.errors import InvalidInput
from craftcore.schedules.firing import FiringResult
from craftcore.schedules.model import Declared, Occurrence, Origin, Schedule, ScheduleChanges, ScheduleSpec
from craftcore.schedules.occurrence_store import AccountStore
from craftcore.schedules.recurrence.expression import parse
from craftcore.schedules.recurrence.occurrences import list_moments, next_occurrence
from craftcore.schedules.recurrence.timing import Once
from craftcore.schedules.service import ScheduleService
from craftcore.schedules.tick_plan import list_upcoming
from craftcore.schedules.transitions import spec_of
from craftcore.serialization.arguments import require_whole_number
from craftcore.storage.restored_work import MadeKind
from craftcore.storage.transaction import Reader, Transaction

LIST_MAX = 10_000
"""How many moments or lines of history one call returns at most."""


def find_made(result: object, now: float) -> tuple[MadeKind, str] | None:
    """Return the kind and the id of what a call has made or changed at this moment. None when that is nothing."""
    match result:
        case Schedule() if result.updated_at == now:
            return "schedule", result.id
        case FiringResult(trigger_id=str(trigger_id)):
            return "trigger", trigger_id
    return None


class RuntimeSchedules:
    """The calls behind `app.schedules`, `ctx.schedules` and those of the producers, each over a transaction.

    `check(tx, declared)` refuses work that could only fail: what it can know of the workflows depends on the caller.
    """

    def __init__(
        self, schedules: ScheduleService, clock: Clock, check: Callable[[Transaction, Declared], object]
    ) -> None:
        self._schedules = schedules
        self._clock = clock
        self._check = check
        self.pause = schedules.pause
        self.resume = schedules.resume
        self.remove = schedules.remove
        self.run_now = schedules.run_now
        self.skip_next = schedules.skip_next
        self.list_all = schedules.list_all
        self.get = schedules.get

    def add(self, tx: Transaction, spec: ScheduleSpec) -> Schedule:
        """Add a schedule, or change the one of this id; the same again changes nothing."""
        self._check(tx, self._schedules.accept(spec))
        return self._schedules.put(tx, spec, Origin.API).schedule

    def edit(self, tx: Transaction, schedule_id: str, changes: ScheduleChanges) -> Schedule:
        """Change what is given, and leave the rest."""
        return self.add(tx, replace(spec_of(self._schedules.get(tx, schedule_id)), **changes))

    def history(self, tx: Reader, schedule_id: str, limit: int) -> list[Occurrence]:
        """Return the newest lines of the account, newest first."""
        require_whole_number("limit", limit, 1, LIST_MAX, InvalidInput)
        return AccountStore().list_history(tx, self._schedules.get(tx, schedule_id).id, limit)

    def preview(self, tx: Reader, schedule_id: str, count: int) -> list[float]:
        """Return the next occurrences that fire."""
        require_whole_number("count", count, 1, LIST_MAX, InvalidInput)
        return list_upcoming(self._schedules.get(tx, schedule_id), self._clock.now(), count)

    def preview_expression(self, when: str, timezone: str | None, count: int) -> list[float]:
        """Return the next moments of an expression. `timezone`: an IANA name; None: the machine's. Raises
        ScheduleInvalid."""
        require_whole_number("count", count, 1, LIST_MAX, InvalidInput)
        now = self._clock.now()
        zone = self._clock.zone() if timezone is None else timezone
        timing = parse(when, now=now, timezone=zone, zone_given=timezone is not None).timing
        after = timing.at - 1 if isinstance(timing, Once) else now  # `immediate` is now, which is not after now
        return list_moments(lambda moment: next_occurrence(timing, moment), after, count)
