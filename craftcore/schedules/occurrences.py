"""When a timing comes due: what is next, what was last, how many there were. Pure.

Moments are UTC epoch seconds. A span is (after, until]: what came at `after` has been accounted for. Those of intervals
and cron are whole seconds; none lies beyond the year 9999.

Cron asks two things. Which wall times its fields name, days and times of day, is cronsim's to say. What a change of the
wall clock does to them is decided here, by Debian's rules:

    fixed time (30 2 * * *)       each wall time once: at the first instant after a gap, at the first copy in a fold
    a leading * in minute or hour whenever the wall clock shows it: not at all in a gap, twice in a fold

cronsim 2.8 has these rules too, but not everywhere: asked in the second copy of an hour it answers with the first one,
which is past; it loses times where the clock moves by half an hour, finds some in an hour that midnight skips, and goes
round in circles where a fold reaches back over midnight. Each of these has its test.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim

from craftcore.clock import YEAR_10000
from craftcore.errors import ScheduleInvalid
from craftcore.schedules.timing import Cron, Every, Once, Startup, Timing

_DAY = 86_400
_EPOCH_DAY = date(1970, 1, 1).toordinal()

_END = int(YEAR_10000) - 2 * _DAY
"""No occurrence of cron is later: on the last days of 9999 some wall already shows the year 10000."""

_SEARCH_YEARS = 50
"""What does not come for that long never comes. 29 February on a given weekday takes 40 years at most."""


def next_after(timing: Timing, t: float) -> float | None:
    """The first occurrence strictly after `t`. None: nothing comes any more, or nobody can say when (at startup)."""
    match timing:
        case Once(at=at):
            return at if at > t else None
        case Every(anchor_at=anchor, step_seconds=step):
            moment = anchor + step * max(0, (_whole(t) - anchor) // step + 1)
            return float(moment) if moment < YEAR_10000 else None
        case Cron(expression=expression, timezone=timezone):
            search = _next_on_the_wall if is_wildcard(expression) else _next_fixed
            found = search(expression, zone_named(timezone), _whole(t))
            return None if found is None else float(found)
        case Startup():
            return None


def last_until(timing: Timing, t: float, *, after: float) -> float | None:
    """The newest occurrence in (after, t]. None when there is none."""
    newest_known = next_after(timing, after)
    if newest_known is None or newest_known > t:
        return None
    if isinstance(timing, Once):
        return newest_known
    known, quiet = int(newest_known), _whole(t)  # nothing comes in (quiet, t]
    while known < quiet:
        middle = (known + quiet) // 2
        found = next_after(timing, middle)
        if found is None or found > t:
            quiet = middle
        else:
            known = int(found)
    return float(known)


def occurrences(timing: Timing, after: float, until: float) -> Iterator[float]:
    """All in (after, until], oldest first, made as they are asked for."""
    moment = next_after(timing, after)
    while moment is not None and moment <= until:
        yield moment
        moment = next_after(timing, moment)


def count(timing: Timing, after: float, until: float) -> int:
    """Exactly how many there are in (after, until], without making them: years of minutes are milliseconds."""
    first = next_after(timing, after)
    if first is None or first > until:
        return 0
    match timing:
        case Every(step_seconds=step):
            return (min(_whole(until), int(YEAR_10000) - 1) - int(first)) // step + 1
        case Cron():
            return 1 + _count_on(timing, int(first), min(_whole(until), _END))
        case _:
            return 1


def newest(timing: Timing, after: float, until: float, limit: int) -> list[float]:
    """The newest `limit` of those in (after, until], oldest first."""
    found: list[float] = []
    while len(found) < limit and (moment := last_until(timing, until, after=after)) is not None:
        found.append(moment)
        until = moment - 1
    return found[::-1]


# What a zone does to wall times. A wall time is counted in seconds too: the epoch seconds it would be in UTC.


@lru_cache(maxsize=64)
def zone_named(name: str) -> ZoneInfo:
    """The zone of a timing. Raises ScheduleInvalid when this machine no longer knows it."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ScheduleInvalid(f"time zone {name!r:.80} is not known on this machine; update tzdata") from error


def offset_at(zone: ZoneInfo, t: int) -> int:
    """Seconds to add to `t` for the wall time."""
    return _seconds(datetime.fromtimestamp(t, zone).utcoffset())


def moment_of(zone: ZoneInfo, wall: int) -> int:
    """When the wall clock shows that: the first copy in a fold; the first instant after a gap, where it never does."""
    local = datetime.fromtimestamp(wall, UTC).replace(tzinfo=zone)
    early, late = _seconds(local.utcoffset()), _seconds(local.replace(fold=1).utcoffset())
    return wall - early if early >= late else _change(zone, wall - late, wall - early)


def _change(zone: ZoneInfo, before: int, by: int) -> int:
    """The first instant in (before, by] with another offset, as `by` has. There is one: no zone changes twice a day."""
    offset = offset_at(zone, before)
    while by - before > 1:
        middle = (before + by) // 2
        if offset_at(zone, middle) == offset:
            before = middle
        else:
            by = middle
    return by


def _stretches(zone: ZoneInfo, first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """first..last cut where the offset changes: the first and the last second of each stretch, and its offset."""
    while first <= last:
        end, offset = first, offset_at(zone, first)
        while end < last:
            ahead = min(end + _DAY, last)
            if offset_at(zone, ahead) != offset:
                end = _change(zone, end, ahead) - 1
                break
            end = ahead
        yield first, end, offset
        first = end + 1


# Cron in a zone.


def is_wildcard(expression: str) -> bool:
    """Whether the cadence is kept on the wall clock, rather than each wall time once."""
    minute, hour, *_ = expression.split()
    return minute.startswith("*") or hour.startswith("*")


def _next_fixed(expression: str, zone: ZoneInfo, t: int) -> int | None:
    if t >= _END:
        return None
    wall = match_after(expression, t + offset_at(zone, t))  # what the wall showed earlier came earlier
    while wall is not None:
        moment = moment_of(zone, wall)
        if moment > t:  # else `t` is in the second copy, and that came in the first
            return moment if moment <= _END else None
        wall = match_after(expression, wall)
    return None


def _next_on_the_wall(expression: str, zone: ZoneInfo, t: int) -> int | None:
    at, end = t + 1, min(t + _SEARCH_YEARS * 366 * _DAY, _END)
    while at <= end:
        offset = offset_at(zone, at)
        wall = match_after(expression, at + offset - 1)
        if wall is None or wall - offset > end:
            return None
        moment = wall - offset
        ahead = min(moment, at + _DAY)
        if offset_at(zone, ahead) != offset:
            at = _change(zone, at, ahead)  # another wall clock from here on, so ask anew
        elif moment == ahead:
            return moment
        else:
            # Far off. No clock is moved by more than a day, so it need not be watched until a day before.
            at = max(ahead, moment - _DAY)
    return None


def _count_on(timing: Cron, counted: int, until: int) -> int:
    """How many there are in (counted, until], where `counted` is one itself."""
    expression, zone = timing.expression, zone_named(timing.timezone)
    fixed = not is_wildcard(expression)
    total, offset_before = 0, offset_at(zone, counted)
    for first, last, offset in _stretches(zone, counted + 1, until):
        start = first + offset
        if fixed and offset > offset_before:  # all that is in the gap comes as one, with what its first instant names
            total += 1 if _matches(expression, first + offset_before, start) else 0
            start += 1
        elif fixed and offset < offset_before:  # the second copies do not come
            start = first + offset_before
        total += _matches(expression, start, last + offset)
        offset_before = offset
    return total


# Cron on the wall, without a zone: days × times of day, both named by the fields.


def match_after(expression: str, wall: int) -> int | None:
    """The first wall time after `wall` that the fields name. None: there is none within fifty years or by 9999."""
    day, second = divmod(wall, _DAY)
    days, times = _days(expression, _year(day)), _times(expression)
    nth = bisect_left(days, day)
    if nth < len(days) and days[nth] == day:
        if second < times[-1]:
            return day * _DAY + times[bisect_right(times, second)]
        nth += 1
    return days[nth] * _DAY + times[0] if nth < len(days) else None


def _matches(expression: str, first: int, last: int) -> int:
    """How many wall times first..last the fields name."""
    (first_day, since), (last_day, until) = divmod(first, _DAY), divmod(last, _DAY)
    years = range(_year(first_day), _year(last_day) + 1)
    days = {day for year in years for day in _days(expression, year) if first_day <= day <= last_day}
    times = _times(expression)
    total = len(days) * len(times)
    if first_day in days:
        total -= bisect_left(times, since)
    if last_day in days:
        total -= len(times) - bisect_right(times, until)
    return max(total, 0)  # first..last can run backward within a day


@lru_cache(maxsize=256)
def _times(expression: str) -> tuple[int, ...]:
    """The seconds of a day at which it comes, on the days it does."""
    minute, hour, *_ = expression.split()
    midnight = datetime(2001, 1, 1, tzinfo=UTC)
    times: list[int] = []
    for moment in CronSim(f"{minute} {hour} * * *", midnight - timedelta(seconds=1)):
        if moment.date() != midnight.date():
            break
        times.append(moment.hour * 3600 + moment.minute * 60)
    return tuple(times)


@lru_cache(maxsize=512)
def _days(expression: str, year: int) -> tuple[int, ...]:
    """The days of that year on which it comes, and the next one after it, counted from 1970-01-01."""
    _, _, *days_and_months = expression.split()
    eve = datetime(year, 1, 1, tzinfo=UTC) - timedelta(seconds=1)
    days: list[int] = []
    try:
        for moment in CronSim(f"0 0 {' '.join(days_and_months)}", eve):  # it ends when fifty years have none
            days.append(moment.toordinal() - _EPOCH_DAY)
            if moment.year != year:
                break
    except OverflowError:  # it looked for one beyond the year 9999
        pass
    return tuple(days)


def _year(day: int) -> int:
    return date.fromordinal(_EPOCH_DAY + day).year


def _seconds(offset: timedelta | None) -> int:
    assert offset is not None, "a ZoneInfo has an offset for every moment"
    return offset.days * _DAY + offset.seconds


def _whole(t: float) -> int:
    """Occurrences are whole seconds after 1970, so what they are compared with can be, too."""
    return math.floor(min(max(t, -1.0), YEAR_10000))
