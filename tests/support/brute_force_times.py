"""An independent calendar of schedules: it tries the wall clock of a zone at each quarter of an hour.

It parses cron itself and imports nothing of craftcore. It supports neither zones whose clock changes between quarters
of an hour, nor cron with both a day of the month and a day of the week.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

DAY, QUARTER, MINUTE = 86_400, 900, 60


class Wall:
    """The wall clock of a zone from `first` to `last`, both whole days of UTC."""

    def __init__(self, zone: str, first: int, last: int) -> None:
        self._zone = ZoneInfo(zone)
        self.first, self.last = first, last
        shown = [(t, self._look(t)) for t in range(first, last, QUARTER)]
        changes = [(t, offset) for (_, before), (t, offset) in pairwise(shown) if offset != before]
        self._starts = [first, *(t for t, _ in changes)]
        self._offsets = [shown[0][1], *(offset for _, offset in changes)]

    def offset(self, t: int) -> int:
        """Return the offset of the wall clock from UTC in seconds."""
        return self._offsets[bisect_right(self._starts, t) - 1]

    def moment(self, wall: int) -> int | None:
        """Return the first moment at which the wall clock shows this time, or the first one after a skipped time.

        None means that the time is out of range.
        """
        if shown := [wall - offset for offset in self._offsets if self._shows(wall - offset, wall)]:
            return min(shown)
        for (_, before), (t, after) in pairwise(zip(self._starts, self._offsets, strict=True)):
            if t + before <= wall < t + after:
                return t
        return None

    def _shows(self, t: int, wall: int) -> bool:
        return self.first <= t < self.last and t + self.offset(t) == wall

    def _look(self, t: int) -> int:
        offset = datetime.fromtimestamp(t, self._zone).utcoffset()
        assert offset is not None
        return int(offset.total_seconds())


@cache
def wall_of(zone: str, first: int, last: int) -> Wall:
    return Wall(zone, first, last)


def cron(expression: str, zone: str, first: int, last: int) -> list[int]:
    """Return all moments of a cron expression, by Debian's rules at clock changes; wildcards in quarters only."""
    minute, hour, day, month, weekday = expression.split()
    minutes, hours = _named(minute, 0, 59), _named(hour, 0, 23)
    days, months, weekdays = _named(day, 1, 31), _named(month, 1, 12), _named(weekday, 0, 7)
    weekdays |= {0} if 7 in weekdays else set()
    wall = wall_of(zone, first - 2 * DAY, last + 2 * DAY)

    def is_named(date: int) -> bool:
        shown = datetime.fromtimestamp(date, UTC)
        return shown.day in days and shown.month in months and shown.isoweekday() % 7 in weekdays

    dates = {date for date in range(first - DAY, last + DAY, DAY) if is_named(date)}
    found: Iterable[int | None]
    if minute.startswith("*") or hour.startswith("*"):
        assert all(one % 15 == 0 for one in minutes), expression
        found = [
            t
            for t in range(first, last, QUARTER)
            if (shown := t + wall.offset(t)) - shown % DAY in dates
            and shown % DAY // 3600 in hours
            and shown % 3600 // MINUTE in minutes
        ]
    else:
        found = [wall.moment(date + 3600 * h + MINUTE * m) for date in dates for h in hours for m in minutes]
    return sorted({moment for moment in found if moment is not None and first <= moment < last})


def interval(anchor: int, step: int, last: int) -> list[int]:
    """Return all moments from the anchor on."""
    return list(range(anchor, last, step))


def _named(field: str, least: int, most: int) -> set[int]:
    """Return the numbers in `*`, `*/15`, `1-5` or `0,30`."""
    numbers: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        start, _, end = (f"{least}-{most}" if span == "*" else span).partition("-")
        numbers |= set(range(int(start), int(end or start) + 1, int(step or 1)))
    return numbers
