"""Declarations of schedules: a spec, checked and with its timing read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from craftcore.clock import Clock
from craftcore.errors import ScheduleInvalid
from craftcore.schedules.model import Declared, Origin, Schedule, ScheduleSpec, ScheduleStatus
from craftcore.schedules.ports import ScheduledTriggers
from craftcore.schedules.recurrence.expression import parse
from craftcore.schedules.recurrence.timing import Once
from craftcore.schedules.transitions import new_schedule
from craftcore.schedules.validation import accept, check_names
from craftcore.triggers.model import NewTrigger, TriggerSpec

Change = Literal["added", "changed", "enabled", "disabled", "unchanged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclareResult:
    """The result of declaring a schedule."""

    schedule: Schedule
    change: Change


class Declarations:
    """Checks of specs against the clock and the limits of triggers. Nothing is written here."""

    def __init__(self, clock: Clock, triggers: ScheduledTriggers) -> None:
        self._clock = clock
        self._triggers = triggers

    def accept(self, spec: ScheduleSpec) -> Declared:
        """Check everything but the expression. Raises InvalidInput."""
        return accept(spec, self._trigger(spec), local_zone=self._clock.zone())

    def check(self, spec: ScheduleSpec, origin: Origin) -> NewTrigger:
        """Check the spec as if its id were new. Return the trigger it would fire. Raises InvalidInput."""
        row = self._trigger(spec)
        self.begin(accept(spec, row, local_zone=self._clock.zone()), origin, None, self._clock.now())
        return row

    def begin(self, declared: Declared, origin: Origin, before: Schedule | None, now: float) -> Schedule:
        """Return the schedule with a timing that is read now. Raises ScheduleInvalid for an expression that cannot be
        read, and for one that would never fire unless it is declared at each start."""
        is_known = declared.timezone_given or self._clock.zone() is not None
        timing = parse(
            declared.expression,
            now=now,
            timezone=declared.timezone if is_known else None,
            zone_given=declared.timezone_given,
            past_allowed=origin.is_declared,
        ).timing
        if isinstance(timing, Once) and declared.start_at is not None and timing.at < declared.start_at:
            raise ScheduleInvalid("start is after the only moment at which it would fire")
        schedule = new_schedule(declared, timing, origin, before, now)
        if not origin.is_declared and schedule.status is ScheduleStatus.FINISHED:
            raise ScheduleInvalid(f"{declared.expression} would never fire: {schedule.reason}")
        return schedule

    def _trigger(self, spec: ScheduleSpec) -> NewTrigger:
        check_names(spec)
        return self._triggers.accept(
            TriggerSpec(
                workflow=spec.workflow,
                payload=spec.payload,
                source=spec.source,
                session_id=spec.session_id,
                priority=spec.priority,
                description=spec.description,
                max_attempts=spec.max_attempts,
            )
        )
