"""The plan of a tick for the occurrences since the last one. Pure: decides only; the service writes it.

Every occurrence in (high-water mark, now] is in the answer once: it fires, or it is in a run of skipped ones.

    every hour, down from 01:30 to 06:10, latest   ->  skipped 02:00-05:00 (4), fires 06:00
                                           all     ->  fires 02:00, 03:00, 04:00, 05:00, 06:00
                                           none    ->  skipped 02:00-06:00 (5)
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

from craftcore.schedules.model import CatchUp, Schedule, ScheduleStatus
from craftcore.schedules.recurrence.occurrences import (
    count,
    last_occurrence,
    list_moments,
    newest_occurrences,
    next_occurrence,
)

MISFIRE_GRACE = 60.0
"""Seconds after which an occurrence counts as missed: longer than the scheduler ever sleeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """`count` occurrences in a row that do not fire, and why."""

    first_at: float
    last_at: float
    count: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """`fired` are nominal moments, oldest first. `next_at` None: nothing comes any more."""

    skipped: list[Skipped]
    fired: list[float]
    high_water_at: float
    next_at: float | None


def decide(schedule: Schedule, now: float) -> Decision:
    """Decide about all that has come due by `now`."""
    timing, mark = schedule.timing, schedule.high_water_at
    end = now if schedule.until_at is None else min(now, schedule.until_at)
    last = last_occurrence(timing, end, after=mark)
    if last is None:
        return Decision(skipped=[], fired=[], high_water_at=mark, next_at=next_upcoming(schedule, after=mark))
    skipped: list[Skipped] = []
    if schedule.skip_to_at is not None and (run := skip(schedule, mark, min(schedule.skip_to_at, end), "skip-next")):
        skipped.append(run)
        mark = run.last_at
    fired, reason = _choose(schedule, mark, end, now)
    if missed := skip(schedule, mark, fired[0] - 1 if fired else end, reason):
        skipped.append(missed)
    return Decision(skipped=skipped, fired=fired, high_water_at=last, next_at=next_upcoming(schedule, after=last))


def next_upcoming(schedule: Schedule, *, after: float) -> float | None:
    """Return the first occurrence after that moment and within the schedule's end; None when there is none."""
    moment = next_occurrence(schedule.timing, after)
    return None if moment is None or (schedule.until_at is not None and moment > schedule.until_at) else moment


def list_upcoming(schedule: Schedule, now: float, count: int, *, since: float | None = None) -> list[float]:
    """Return the next occurrences that fire, `since` that moment, else from now on; what is late already is not among
    them. Raises ScheduleInvalid when this machine does not know its zone."""
    if schedule.status in (ScheduleStatus.FINISHED, ScheduleStatus.REMOVED):
        return []
    after = schedule.high_water_at
    if not schedule.is_one_time:
        after = max(after, schedule.skip_to_at or 0.0, now)
    if since is not None:
        after = max(math.ceil(since) - 1, (schedule.start_at or 0.0) - 1)  # occurrences are whole seconds
    if schedule.max_runs is not None:
        count = min(count, max(0, schedule.max_runs - schedule.runs))
    return list_moments(lambda moment: next_upcoming(schedule, after=moment), after, count)


def skip(schedule: Schedule, after: float, until: float, reason: str) -> Skipped | None:
    """Return the run of occurrences in (after, until] as skipped; None when there is none."""
    first = next_occurrence(schedule.timing, after)
    last = last_occurrence(schedule.timing, until, after=after)
    if first is None or last is None:
        return None
    return Skipped(first_at=first, last_at=last, count=count(schedule.timing, after, until), reason=reason)


def jitter(schedule_id: str, nominal_at: float, most: float) -> float:
    """Return how much later than its moment an occurrence fires: 0 to `most` seconds, always the same for the same
    one."""
    digest = hashlib.sha256(f"{schedule_id}:{int(nominal_at)}".encode()).digest()
    return most * int.from_bytes(digest[:4], "big") / (1 << 32)


def _choose(schedule: Schedule, after: float, until: float, now: float) -> tuple[list[float], str]:
    """Return which of (after, until] fire, oldest first, and why the others do not."""
    if schedule.is_one_time:
        return newest_occurrences(schedule.timing, after, until, 1), ""
    window = max(schedule.catch_up_window, MISFIRE_GRACE)  # what comes in time is not missed, however small the window
    limit, reason = 1, "missed: only the latest is caught up"
    match schedule.catch_up:
        case CatchUp.ALL:
            limit, reason = schedule.catch_up_max, f"missed: more than {schedule.catch_up_max} are not caught up"
        case CatchUp.NONE:
            window, reason = MISFIRE_GRACE, "missed: nothing is caught up"
    if schedule.max_runs is not None and (left := schedule.max_runs - schedule.runs) < limit:
        limit, reason = left, f"missed: only {left} of its runs were left"
    fired = newest_occurrences(schedule.timing, max(after, now - window), until, limit)
    if schedule.catch_up is not CatchUp.NONE and len(fired) < limit:
        reason = f"missed: older than {window:g} s, the window of its catch-up"
    return fired, reason
