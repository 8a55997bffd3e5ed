"""Cron on the wall clock of a zone: which moments an expression names. Pure.

Which wall times its fields name, days and times of day, is cronsim's to say. Changes of the wall clock follow Debian's
rules:

    fixed time (30 2 * * *)       each wall time once: at the first instant after a gap, at the first copy in a fold
    a leading * in minute or hour whenever the wall clock shows it: not at all in a gap, twice in a fold

cronsim 2.8 has these rules too, with exceptions, each of which has a test. In the second copy of an hour it returns the
first one, which has passed. It loses times where the clock moves by half an hour, and finds some in an hour that
midnight skips. It does not end where a fold reaches back over midnight.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from craftcore.clock import YEAR_10000
from craftcore.errors import ScheduleInvalid
from craftcore.schedules.recurrence.timezones import change_in, find_zone, moment_of, offset_at, stretches
from craftcore.schedules.recurrence.timing import Cron

_DAY = 86_400
_EPOCH_DAY = date(1970, 1, 1).toordinal()

CRON_END = int(YEAR_10000) - 2 * _DAY
"""No occurrence of cron is later: on the last days of 9999 some wall already shows the year 10000."""

_SEARCH_YEARS = 50
"""An occurrence that does not come for that long never comes. 29 February on a given weekday takes 40 years at most."""


def cron_after(timing: Cron, instant: int) -> int | None:
    """Return the first moment strictly after `instant`. None: there is none within fifty years or by 9999.

    Raises ScheduleInvalid for an expression that was damaged in its row.
    """
    zone = find_zone(timing.timezone)
    try:
        search = _next_wall_time if is_wildcard(timing.expression) else _next_fixed_time
        return search(timing.expression, zone, instant)
    except CronSimError as error:
        raise ScheduleInvalid(f"cron {timing.expression!r:.80} cannot be evaluated: {error}") from error


def is_wildcard(expression: str) -> bool:
    """Return whether the cadence is kept on the wall clock, rather than each wall time once."""
    minute, hour, *_ = expression.split()
    return minute.startswith("*") or hour.startswith("*")


def _next_fixed_time(expression: str, zone: ZoneInfo, instant: int) -> int | None:
    if instant >= CRON_END:
        return None
    wall = match_after(expression, instant + offset_at(zone, instant))  # what the wall showed earlier came earlier
    while wall is not None:
        moment = moment_of(zone, wall)
        if moment > instant:  # else `instant` is in the second copy, and that came in the first
            return moment if moment <= CRON_END else None
        wall = match_after(expression, wall)
    return None


def _next_wall_time(expression: str, zone: ZoneInfo, instant: int) -> int | None:
    at, end = instant + 1, min(instant + _SEARCH_YEARS * 366 * _DAY, CRON_END)
    while at <= end:
        offset = offset_at(zone, at)
        wall = match_after(expression, at + offset - 1)
        if wall is None or wall - offset > end:
            return None
        moment = wall - offset
        ahead = min(moment, at + _DAY)
        if offset_at(zone, ahead) != offset:
            at = change_in(zone, at, ahead)  # another wall clock from here on, so ask anew
        elif moment == ahead:
            return moment
        else:
            # Far off. No clock is moved by more than a day, so it need not be watched until a day before.
            at = max(ahead, moment - _DAY)
    return None


def count_cron(timing: Cron, counted: int, until: int) -> int:
    """Return how many there are in (counted, until], where `counted` is one itself."""
    expression, zone = timing.expression, find_zone(timing.timezone)
    fixed = not is_wildcard(expression)
    total, offset_before = 0, offset_at(zone, counted)
    for first, last, offset in stretches(zone, counted + 1, until):
        start = first + offset
        if fixed and offset > offset_before:  # all that is in the gap comes as one, with what its first instant names
            total += 1 if _count_matches(expression, first + offset_before, start) else 0
            start += 1
        elif fixed and offset < offset_before:  # the second copies do not come
            start = first + offset_before
        total += _count_matches(expression, start, last + offset)
        offset_before = offset
    return total


# Cron on the wall, without a zone: days × times of day, both named by the fields.


def match_after(expression: str, wall: int) -> int | None:
    """Return the first wall time after `wall` that the fields name. None: there is none within fifty years or by
    9999."""
    day, second = divmod(wall, _DAY)
    days, times = _days(expression, _year(day)), _times(expression)
    nth = bisect_left(days, day)
    if nth < len(days) and days[nth] == day:
        if second < times[-1]:
            return day * _DAY + times[bisect_right(times, second)]
        nth += 1
    return days[nth] * _DAY + times[0] if nth < len(days) else None


def _count_matches(expression: str, first: int, last: int) -> int:
    """Return how many wall times first..last the fields name."""
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
    """Return the seconds of a day at which it comes, on the days it does."""
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
    """Return the days of that year on which it comes, and the next one after it, counted from 1970-01-01."""
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
