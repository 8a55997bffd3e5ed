"""Daily times in every time zone over a year, compared with an oracle that reads the wall clock of each hour.

Each day has one occurrence, also when a clock changes. It is the first instant at which the wall clock shows the time.
If the wall clock skips the time, it is the first instant after the gap, even on the next day.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest

from craftcore.schedules.recurrence.occurrences import count, occurrences
from craftcore.schedules.recurrence.timing import Cron
from tests.support.cells import cells

HOUR, DAY = 3600, 86_400

TIMES = [(0, 0), (1, 30), (2, 30), (3, 0), (23, 30)]

ZONE_YEARS = [
    ("UTC", 2028),
    ("Africa/Cairo", 2026),
    ("Africa/Casablanca", 2026),
    ("Africa/El_Aaiun", 2031),
    ("America/Asuncion", 2023),
    ("America/Caracas", 2016),
    ("America/Havana", 2026),
    ("America/New_York", 2026),
    ("America/Nuuk", 2026),
    ("America/Santiago", 2026),
    ("America/Sao_Paulo", 2018),
    ("America/Scoresbysund", 2026),
    ("America/St_Johns", 2010),
    ("Antarctica/Casey", 2023),
    ("Antarctica/Troll", 2026),
    ("Antarctica/Vostok", 1994),
    ("Asia/Beirut", 2026),
    ("Asia/Gaza", 2026),
    ("Asia/Kathmandu", 1986),
    ("Asia/Pyongyang", 2015),
    ("Asia/Pyongyang", 2018),
    ("Asia/Tehran", 2022),
    ("Atlantic/Azores", 2026),
    ("Australia/Lord_Howe", 2026),
    ("Europe/Berlin", 2026),
    ("Europe/Dublin", 2026),
    ("Europe/Volgograd", 2018),
    ("Pacific/Chatham", 2026),
    ("Pacific/Kiritimati", 1994),
]

SKIPPED_DAYS = [
    ("Pacific/Apia", date(2011, 12, 30)),
    ("Pacific/Fakaofo", date(2011, 12, 30)),
    ("Pacific/Kwajalein", date(1993, 8, 21)),
]


def wall_offset(zone: ZoneInfo, t: int) -> int:
    return round(datetime.fromtimestamp(t, zone).replace(tzinfo=UTC).timestamp()) - t


def list_offsets(zone: ZoneInfo, first: int, last: int) -> list[tuple[int, int, int]]:
    """Return each (start, end, offset) of a zone, found by a search through the hours and the minutes of a change."""
    starts = [first]
    offsets = ((hour, wall_offset(zone, hour)) for hour in range(first, last + HOUR, HOUR))
    for (hour, before), (following, after) in pairwise(offsets):
        if before != after:
            starts.append(next(t for t in range(hour, following + 1, 60) if wall_offset(zone, t) != before))
    return [(start, end, wall_offset(zone, start)) for start, end in pairwise([*starts, last])]


def first_instant(wall_time: int, offsets: list[tuple[int, int, int]]) -> int:
    """Return the first instant at which the wall clock shows a time, or else is past the time."""
    for start, end, offset in offsets:
        if start <= wall_time - offset < end:
            return wall_time - offset
    return next(start for start, _, offset in offsets if start + offset > wall_time)


def check_each_day_once(timezone: str, year: int, *, skipped: date | None = None) -> None:
    new_year = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
    days = (date(year + 1, 1, 1) - date(year, 1, 1)).days
    offsets = list_offsets(ZoneInfo(timezone), new_year - 3 * DAY, new_year + (days + 3) * DAY)
    for hour, minute in TIMES:
        timing = Cron(expression=f"{minute} {hour} * * *", timezone=timezone)
        eve, *moments = (
            first_instant(new_year + day * DAY + hour * HOUR + minute * 60, offsets) for day in range(-1, days)
        )

        found = [int(t) for t in occurrences(timing, eve, moments[-1])]

        assert found == sorted(set(moments) - {eve}), (timezone, year, hour, minute)
        assert count(timing, eve, moments[-1]) == len(found)
        if skipped is None or (hour, minute) != (0, 0):
            assert len(found) == days, (timezone, year, hour, minute)
        else:  # both midnights of the skipped day occur at the same first instant after the gap
            assert len(found) == days - 1


@pytest.mark.parametrize(
    ("timezone", "year"), cells(ZONE_YEARS, [f"{timezone}-{year}" for timezone, year in ZONE_YEARS])
)
def test_daily_cron_occurs_once_per_day_of_a_year(timezone, year):
    check_each_day_once(timezone, year)


@pytest.mark.parametrize(("timezone", "day"), SKIPPED_DAYS)
def test_daily_cron_of_a_skipped_day_occurs_at_the_first_instant_after(timezone, day):
    check_each_day_once(timezone, day.year, skipped=day)


@pytest.mark.campaign
@pytest.mark.parametrize("year", [2010, 2012, 2026, 2027])
def test_daily_cron_occurs_once_per_day_in_every_zone(year):
    for timezone in sorted(available_timezones()):
        check_each_day_once(timezone, year)


@pytest.mark.campaign
def test_zone_offsets_change_at_most_weekly_and_by_at_most_a_day():
    """The binary search for a change relies on this. The shortest span on record is a week."""
    for timezone in sorted(available_timezones()):
        zone = ZoneInfo(timezone)
        offsets = [(t, wall_offset(zone, t)) for t in range(0, 68 * 366 * DAY, 6 * HOUR)]
        changed = [(t, after - before) for (_, before), (t, after) in pairwise(offsets) if after != before]

        assert all(abs(by) <= DAY for _, by in changed), timezone
        assert all(later - earlier > 6 * DAY for (earlier, _), (later, _) in pairwise(changed)), timezone
