"""When a timing comes due: what is next, what was last, how many there were. Pure.

Moments are UTC epoch seconds. A span is (after, until]: what came at `after` has been accounted for. Those of intervals
and cron are whole seconds; none lies beyond the year 9999.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from craftcore.clock import YEAR_10000
from craftcore.schedules.recurrence.cron import CRON_END, count_cron, cron_after
from craftcore.schedules.recurrence.timing import Cron, Every, Once, Startup, Timing


def next_occurrence(timing: Timing, instant: float) -> float | None:
    """Return the first occurrence strictly after `instant`. None: there is none any more, or its time is unknown (at
    startup)."""
    match timing:
        case Once(at=at):
            return at if at > instant else None
        case Every(anchor_at=anchor, step_seconds=step):
            moment = anchor + step * max(0, (_round_to_second(instant) - anchor) // step + 1)
            return float(moment) if moment < YEAR_10000 else None
        case Cron():
            found = cron_after(timing, _round_to_second(instant))
            return None if found is None else float(found)
        case Startup():
            return None


def last_occurrence(timing: Timing, instant: float, *, after: float) -> float | None:
    """Return the newest occurrence in (after, instant]. None when there is none."""
    newest_known = next_occurrence(timing, after)
    if newest_known is None or newest_known > instant:
        return None
    if isinstance(timing, Once):
        return newest_known
    known, quiet = int(newest_known), _round_to_second(instant)  # nothing comes in (quiet, instant]
    while known < quiet:
        middle = (known + quiet) // 2
        found = next_occurrence(timing, middle)
        if found is None or found > instant:
            quiet = middle
        else:
            known = int(found)
    return float(known)


def occurrences(timing: Timing, after: float, until: float) -> Iterator[float]:
    """Yield all in (after, until], oldest first, made as they are asked for."""
    moment = next_occurrence(timing, after)
    while moment is not None and moment <= until:
        yield moment
        moment = next_occurrence(timing, moment)


def count(timing: Timing, after: float, until: float) -> int:
    """Return exactly how many there are in (after, until], without making them: years of minutes are milliseconds."""
    first = next_occurrence(timing, after)
    if first is None or first > until:
        return 0
    match timing:
        case Every(step_seconds=step):
            return (min(_round_to_second(until), int(YEAR_10000) - 1) - int(first)) // step + 1
        case Cron():
            return 1 + count_cron(timing, int(first), min(_round_to_second(until), CRON_END))
        case _:
            return 1


def newest_occurrences(timing: Timing, after: float, until: float, limit: int) -> list[float]:
    """Return the newest `limit` of those in (after, until], oldest first."""
    found: list[float] = []
    while len(found) < limit and (moment := last_occurrence(timing, until, after=after)) is not None:
        found.append(moment)
        until = moment - 1
    return found[::-1]


def list_moments(following: Callable[[float], float | None], after: float, count: int) -> list[float]:
    """Return the next moments, at most `count`, where `following` returns the first one after a moment."""
    moments: list[float] = []
    while len(moments) < count and (moment := following(after)) is not None:
        moments.append(moment)
        after = moment
    return moments


def _round_to_second(instant: float) -> int:
    """Round down to a second: occurrences are whole seconds after 1970."""
    return math.floor(min(max(instant, -1.0), YEAR_10000))
