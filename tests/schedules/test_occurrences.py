"""Occurrences of timings: next, last, all and count agree with measured vectors and with a search by minutes."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from craftcore.clock import YEAR_10000
from craftcore.errors import ScheduleInvalid
from craftcore.schedules.recurrence.occurrences import (
    count,
    last_occurrence,
    newest_occurrences,
    next_occurrence,
    occurrences,
)
from craftcore.schedules.recurrence.timing import Cron, Every, Once, Startup, Timing
from tests.support.cells import cells

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86_400, 365 * 86_400
NEW_YEAR = 1_767_225_600

ACCEPTANCE = pytest.mark.acceptance


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def as_text(moments: list[float]) -> list[str]:
    return [f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%dT%H:%MZ}" for moment in moments]


def cron(expression: str, timezone: str = "UTC") -> Cron:
    return Cron(expression=expression, timezone=timezone)


def following(timing: Timing, after: str, number: int) -> list[str]:
    return as_text(list(islice(occurrences(timing, utc(after), math.inf), number)))


VECTORS = json.loads((Path(__file__).parent / "dst_vectors.json").read_text())["vectors"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector['expr']} {vector['tz']} {vector['after']}")
def test_cron_occurrences_match_the_measured_vectors(vector):
    after = datetime.fromisoformat(vector["after"]).timestamp()
    timing = cron(vector["expr"], vector["tz"])

    assert as_text(list(islice(occurrences(timing, after, math.inf), len(vector["next_utc"])))) == vector["next_utc"]


# Cases in which cronsim 2.8 alone gives another answer


def test_fixed_time_does_not_recur_in_the_second_copy_of_an_hour():
    """In Berlin, after the second 02:30, cronsim continues with the first 02:45."""
    assert following(cron("45 2 * * *", "Europe/Berlin"), "2026-10-25 01:30", 1) == ["2026-10-26T01:45Z"]


def test_cron_over_a_half_hour_clock_change_loses_no_existing_wall_time():
    """On Lord Howe, cronsim steps by an hour from half past, and misses 02:00, 02:15, 03:00 and 03:15."""
    lord_howe = "Australia/Lord_Howe"

    assert following(cron("*/15 2 * * *", lord_howe), "2026-04-04 15:15", 2) == [
        "2026-04-04T15:30Z",
        "2026-04-04T15:45Z",
    ]
    assert following(cron("*/15 3 * * *", lord_howe), "2026-10-03 15:00", 2) == [
        "2026-10-03T16:00Z",
        "2026-10-03T16:15Z",
    ]


def test_wildcard_cron_does_not_occur_in_an_hour_skipped_at_midnight():
    """In Havana, 8 March begins at 01:00. cronsim returns the missing 00:00."""
    assert following(cron("*/30 0 * * 0", "America/Havana"), "2026-03-07 12:00", 1) == ["2026-03-15T04:00Z"]


def test_cron_advances_past_a_fold_across_midnight():
    """The clock of St John's went from 00:01 back to 23:01 in 2010. cronsim returns the first midnight for ever."""
    timing = cron("0 * * * 0", "America/St_Johns")

    assert following(timing, "2010-11-07 02:45", 2) == ["2010-11-07T03:30Z", "2010-11-07T04:30Z"]
    assert following(timing, "2010-11-07 02:00", 2) == ["2010-11-07T02:30Z", "2010-11-07T03:30Z"]


def test_fixed_time_in_a_gap_ending_within_a_minute_occurs_at_the_first_second_after():
    """Monrovia left an offset of -00:44:30 on 7 January 1972, from midnight to 00:44:30."""
    assert next_occurrence(cron("0 0 * * *", "Africa/Monrovia"), utc("1972-01-06 12:00")) == utc("1972-01-07 00:44:30")
    assert next_occurrence(cron("0 0 * * *", "Africa/Monrovia"), utc("1972-01-05 12:00")) == utc("1972-01-06 00:44:30")


def test_count_up_to_the_second_copy_of_an_hour_includes_only_the_first_copy():
    """The span in Berlin is from noon of the day before until the second 02:20."""
    timing, after, until = cron("0,15,30,45 2 * * *", "Europe/Berlin"), utc("2026-10-24 12:00"), utc("2026-10-25 01:20")

    assert following(timing, "2026-10-24 12:00", 4)[-1] == "2026-10-25T00:45Z"
    assert count(timing, after, until) == 4
    assert last_occurrence(timing, until, after=after) == utc("2026-10-25 00:45")


# Apia skipped 30 December 2011. Fixed times of that day occur at the first instant of the 31st.


def test_fixed_time_of_a_skipped_day_occurs_at_the_first_instant_after():
    assert following(cron("0 9 * * *", "Pacific/Apia"), "2011-12-29 00:00", 3) == [
        "2011-12-29T19:00Z",
        "2011-12-30T10:00Z",
        "2011-12-30T19:00Z",
    ]


def test_midnight_of_a_skipped_day_and_of_the_next_day_occur_once():
    apia = cron("0 0 * * *", "Pacific/Apia")

    assert following(apia, "2011-12-29 00:00", 3) == ["2011-12-29T10:00Z", "2011-12-30T10:00Z", "2011-12-31T10:00Z"]
    assert count(apia, utc("2011-12-29 00:00"), utc("2011-12-31 10:00")) == 3


def test_wildcard_cron_keeps_the_cadence_over_a_skipped_day():
    assert following(cron("0 * * * *", "Pacific/Apia"), "2011-12-30 08:30", 3) == [
        "2011-12-30T09:00Z",
        "2011-12-30T10:00Z",
        "2011-12-30T11:00Z",
    ]


# Intervals, once, startup

ANCHOR = NEW_YEAR + 7


@pytest.mark.parametrize(
    ("t", "moment"),
    [
        (0.0, ANCHOR),
        (ANCHOR - 0.5, ANCHOR),
        (ANCHOR, ANCHOR + 90),
        (ANCHOR + 89.999, ANCHOR + 90),
        (ANCHOR + 90, ANCHOR + 180),
        (ANCHOR + 90.001, ANCHOR + 180),
        (-math.inf, ANCHOR),
        (YEAR_10000, None),
        (math.inf, None),
    ],
)
def test_interval_occurs_on_the_grid_from_the_anchor(t, moment):
    assert next_occurrence(Every(anchor_at=ANCHOR, step_seconds=90), t) == moment


def test_interval_of_a_second_is_counted_over_a_century():
    timing = Every(anchor_at=NEW_YEAR, step_seconds=1)
    until = NEW_YEAR + 100 * YEAR + 0.5

    assert count(timing, NEW_YEAR, until) == 100 * YEAR
    assert count(timing, NEW_YEAR - 1, until) == 100 * YEAR + 1
    assert last_occurrence(timing, until, after=NEW_YEAR) == NEW_YEAR + 100 * YEAR
    assert newest_occurrences(timing, NEW_YEAR, until, 3) == [NEW_YEAR + 100 * YEAR - 2 + nth for nth in range(3)]


def test_once_timing_with_a_fraction_of_a_second_occurs_once():
    timing = Once(at=NEW_YEAR + 0.75)

    assert next_occurrence(timing, NEW_YEAR + 0.5) == NEW_YEAR + 0.75
    assert next_occurrence(timing, NEW_YEAR + 0.75) is None
    assert last_occurrence(timing, NEW_YEAR + 0.75, after=NEW_YEAR + 0.5) == NEW_YEAR + 0.75
    assert last_occurrence(timing, NEW_YEAR + 0.7, after=NEW_YEAR) is None
    assert last_occurrence(timing, NEW_YEAR + 9, after=NEW_YEAR + 0.75) is None
    assert newest_occurrences(timing, 0, NEW_YEAR + 9, 5) == [NEW_YEAR + 0.75]
    assert [count(timing, 0, NEW_YEAR + tenths / 10) for tenths in (7, 8)] == [0, 1]


def test_startup_timing_has_no_occurrences():
    assert next_occurrence(Startup(), 0) is None
    assert last_occurrence(Startup(), YEAR_10000, after=0) is None
    assert list(occurrences(Startup(), 0, math.inf)) == []
    assert count(Startup(), 0, YEAR_10000) == 0
    assert newest_occurrences(Startup(), 0, YEAR_10000, 5) == []


EACH_KIND = [
    Once(at=NEW_YEAR + 5),
    Every(anchor_at=NEW_YEAR, step_seconds=1),
    cron("* * * * *"),
    cron("* * * * *", "Europe/Berlin"),
    cron("0 0 * * *", "Pacific/Kiritimati"),
    cron("0 0 * * *", "Pacific/Pago_Pago"),
    Startup(),
]


@pytest.mark.parametrize("timing", EACH_KIND, ids=str)
def test_span_that_is_empty_or_reversed_has_no_occurrences(timing):
    for after, until in [(NEW_YEAR + 60, NEW_YEAR + 60), (NEW_YEAR + DAY, NEW_YEAR), (math.inf, 0)]:
        assert list(occurrences(timing, after, until)) == []
        assert count(timing, after, until) == 0
        assert last_occurrence(timing, until, after=after) is None
        assert newest_occurrences(timing, after, until, 5) == []
    assert newest_occurrences(timing, NEW_YEAR, NEW_YEAR + DAY, 0) == []


@pytest.mark.parametrize("timing", EACH_KIND, ids=str)
@pytest.mark.parametrize("days", [0, 1, pytest.param(2, marks=ACCEPTANCE), pytest.param(3, marks=ACCEPTANCE)])
def test_occurrences_end_with_the_year_9999(timing, days):
    near = YEAR_10000 - days * DAY - 90
    last = last_occurrence(timing, math.inf, after=near)

    assert last == last_occurrence(timing, YEAR_10000, after=near)
    assert last is None or near < last < YEAR_10000
    assert last is None or next_occurrence(timing, last) is None
    assert next_occurrence(timing, YEAR_10000) is None
    assert count(timing, near, math.inf) == len(list(islice(occurrences(timing, near, math.inf), 300_000)))


@pytest.mark.parametrize(
    ("expression", "timezone"),
    [("0 0 */29 2 MON#5", "UTC"), ("* 2 * 3 0L", "Europe/Berlin")],
    ids=["29 February is never a fifth Monday", "the clock skips that hour each year"],
)
def test_cron_without_an_occurrence_in_fifty_years_never_occurs(expression, timezone):
    assert next_occurrence(cron(expression, timezone), NEW_YEAR) is None
    assert count(cron(expression, timezone), NEW_YEAR, NEW_YEAR + 60 * YEAR) == 0


def test_cron_that_occurs_every_28_years_is_found():
    assert following(cron("0 0 29 2 */7"), "2026-01-01", 3) == [
        "2032-02-29T00:00Z",
        "2060-02-29T00:00Z",
        "2088-02-29T00:00Z",
    ]


def test_cron_in_an_unknown_zone_is_refused():
    with pytest.raises(ScheduleInvalid, match="time zone 'Mars/Olympus' is not known on this machine"):
        next_occurrence(cron("* * * * *", "Mars/Olympus"), NEW_YEAR)


def test_count_over_years_of_minutes_takes_under_two_seconds():
    """Listing them would take half a minute."""
    timing = cron("* * * * *", "Europe/Berlin")
    started = time.process_time()

    assert count(timing, NEW_YEAR, NEW_YEAR + 5 * YEAR) == 5 * YEAR // 60
    assert newest_occurrences(timing, NEW_YEAR, NEW_YEAR + 5 * YEAR, 20)[-1] == NEW_YEAR + 5 * YEAR
    assert time.process_time() - started < 2.0


# The oracle: a search through the minutes of a zone, for expressions with known field values


@dataclass(frozen=True)
class Fields:
    """A cron expression, with the values of its fields."""

    fields: tuple[str, ...]
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]

    @property
    def expression(self) -> str:
        return " ".join(self.fields)

    @property
    def keeps_cadence(self) -> bool:
        return self.fields[0].startswith("*") or self.fields[1].startswith("*")

    def matches(self, wall: datetime) -> bool:
        day, weekday = wall.day in self.days, wall.isoweekday() % 7 in self.weekdays
        both = self.fields[2].startswith("*") or self.fields[4].startswith("*")
        return (
            wall.minute in self.minutes
            and wall.hour in self.hours
            and wall.month in self.months
            and ((day and weekday) if both else (day or weekday))
        )


def search_by_minutes(known: Fields, zone: ZoneInfo, after: float, until: float) -> list[float]:
    """Return all occurrences in (after, until], in a zone whose offsets are whole minutes."""
    first, last = (
        math.floor(after / 60) - 27 * 60,
        math.floor(until / 60),
    )  # no zone goes back by more than a day
    found: set[int] = set()
    seen: set[datetime] = set()
    before = None
    for minute in range(first, last + 1):
        wall = datetime.fromtimestamp(minute * 60, zone).replace(tzinfo=None, fold=0)
        if known.keeps_cadence:
            walls = [wall]
        else:
            gap = 1 if before is None else max(1, int((wall - before) / timedelta(minutes=1)))
            walls = [passed for passed in (wall - timedelta(minutes=n) for n in range(gap)) if passed not in seen]
            seen.update(walls)
        if any(map(known.matches, walls)):
            found.add(minute * 60)
        before = wall
    return [float(moment) for moment in sorted(found) if after < moment <= until]


ODD_ZONES = [
    "UTC",
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/Asuncion",
    "America/Havana",
    "America/New_York",
    "America/Nuuk",
    "America/Sao_Paulo",
    "America/Scoresbysund",
    "America/St_Johns",
    "Antarctica/Casey",
    "Antarctica/Troll",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Asia/Pyongyang",
    "Atlantic/Azores",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Europe/Dublin",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Pacific/Kwajalein",
]


EVERY_DAY = (range(1, 32), range(1, 13), range(7))


@lru_cache
def change_days(timezone: str) -> list[int]:
    """Return the days from 1975 to 2038 before a change of the offset of a zone."""
    zone = ZoneInfo(timezone)
    days = range(5 * YEAR, 68 * YEAR, DAY)
    offsets = [datetime.fromtimestamp(day, zone).utcoffset() for day in days]
    return [day for day, (before, after) in zip(days, pairwise(offsets), strict=False) if before != after] or [NEW_YEAR]


@st.composite
def draw_field(draw, low: int, high: int, near: int) -> tuple[str, frozenset[int]]:
    """Draw a field of the range low-high and its values, with single numbers only up to `near`."""
    full_range = range(low, high + 1)
    step = draw(st.integers(1, high))
    start = draw(st.integers(low, near - 1))
    end = draw(st.integers(start + 1, near))
    numbers = draw(st.sets(st.integers(low, near), min_size=1, max_size=4))
    field: tuple[str, frozenset[int]] = draw(
        st.sampled_from(
            [
                ("*", frozenset(full_range)),
                (f"*/{step}", frozenset(full_range[::step])),
                (f"{start}", frozenset({start})),
                (f"{start}/{step}", frozenset(range(start, high + 1, step))),
                (f"{start}-{end}", frozenset(range(start, end + 1))),
                (f"{start}-{end}/{step}", frozenset(range(start, end + 1, step))),
                (",".join(map(str, numbers)), frozenset(numbers)),
                (f"{start},*/{step}", frozenset(full_range[::step]) | {start}),
            ]
        )
    )
    return field


@st.composite
def draw_expression(draw) -> Fields:
    every_day = draw(st.sampled_from([True, True, False]))
    drawn = [
        draw(draw_field(0, 59, 59)),
        draw(draw_field(0, 23, 23) | draw_field(0, 23, 4)),
        ("*", frozenset(range(1, 32))) if every_day else draw(draw_field(1, 31, 28)),
        ("*", frozenset(range(1, 13))) if every_day else draw(draw_field(1, 12, 12)),
        ("*", frozenset(range(8))) if every_day else draw(draw_field(0, 7, 7)),
    ]
    minutes, hours, days, months, weekdays = (meaning for _, meaning in drawn)
    sunday_is_0 = frozenset(weekday % 7 for weekday in weekdays)
    return Fields(tuple(text for text, _ in drawn), minutes, hours, days, months, sunday_is_0)


@st.composite
def draw_span(draw) -> tuple[str, float, float, float]:
    """Draw a zone, and three ordered moments within two days of a change of its offset."""
    timezone = draw(st.sampled_from(ODD_ZONES))
    change = draw(st.sampled_from(change_days(timezone)))
    hours = sorted(draw(st.lists(st.floats(-20, 44), min_size=3, max_size=3)))
    after, middle, until = (change + HOUR * number for number in hours)
    return timezone, after, middle, until


def check_against_search(known: Fields, span: tuple[str, float, float, float]) -> None:
    """Compare the occurrences in (after, until] and in its two parts with those of the search by minutes."""
    timezone, after, middle, until = span
    timing = cron(known.expression, timezone)
    expected = search_by_minutes(known, ZoneInfo(timezone), after, until)

    assert list(occurrences(timing, after, until)) == expected
    early, late = list(occurrences(timing, after, middle)), list(occurrences(timing, middle, until))
    assert early + late == expected
    for start, end, found in [(after, until, expected), (after, middle, early), (middle, until, late)]:
        assert count(timing, start, end) == len(found)
        assert last_occurrence(timing, end, after=start) == (found[-1] if found else None)
        assert newest_occurrences(timing, start, end, 4) == found[-4:]


@settings(max_examples=20, deadline=None, derandomize=True)
@given(draw_expression(), draw_span())
def test_cron_around_a_clock_change_matches_a_search_by_minutes(known, span):
    check_against_search(known, span)


@pytest.mark.campaign
@settings(max_examples=10_000, deadline=None, derandomize=True)
@given(draw_expression(), draw_span())
def test_cron_around_a_clock_change_matches_the_search_over_many_examples(known, span):
    check_against_search(known, span)


CADENCES = [
    Fields(("*/15", "*", "*", "*", "*"), frozenset({0, 15, 30, 45}), frozenset(range(24)), *map(frozenset, EVERY_DAY)),
    Fields(("0", "*", "*", "*", "*"), frozenset({0}), frozenset(range(24)), *map(frozenset, EVERY_DAY)),
    Fields(("0", "*/2", "*", "*", "*"), frozenset({0}), frozenset(range(0, 24, 2)), *map(frozenset, EVERY_DAY)),
    Fields(("*", "2", "*", "*", "*"), frozenset(range(60)), frozenset({2}), *map(frozenset, EVERY_DAY)),
]


@pytest.mark.parametrize(
    ("timezone", "known"),
    cells(
        [(timezone, known) for timezone in ODD_ZONES for known in CADENCES],
        [f"{timezone}-{known.expression}" for timezone in ODD_ZONES for known in CADENCES],
    ),
)
def test_wildcard_cron_keeps_the_cadence_through_clock_changes(known, timezone):
    for change in change_days(timezone)[-2:]:
        after, until = change - 6 * HOUR, change + 30 * HOUR

        found = list(occurrences(cron(known.expression, timezone), after, until))

        assert found == search_by_minutes(known, ZoneInfo(timezone), after, until)


def test_quarter_hourly_cron_is_evenly_spaced_all_year():
    moments = list(occurrences(cron("*/15 * * * *", "Europe/Berlin"), NEW_YEAR, NEW_YEAR + YEAR))

    assert {later - earlier for earlier, later in pairwise(moments)} == {15 * MINUTE}
    assert len(moments) == YEAR // (15 * MINUTE)


YEARLY_COUNTS = [
    ("30 2 * * *", 365.25),
    ("0 0 * * *", 365.25),
    ("*/30 1,2 * * 0", 4 * 52.18),
    ("0-30/10 23,0 1-7 * *", 8 * 84),
    ("0 */6 * * *", 4 * 365.25),
    ("* 0 1 1 *", 60),
    ("0 9 29 2 *", 0.25),
]


FOUR_ZONES = ["Europe/Berlin", "Pacific/Apia", "America/St_Johns", "Africa/Casablanca"]


@pytest.mark.parametrize(
    ("expression", "yearly_count", "timezone"),
    cells(
        [(*case, timezone) for case in YEARLY_COUNTS for timezone in FOUR_ZONES],
        [f"{expression}-{timezone}" for expression, _ in YEARLY_COUNTS for timezone in FOUR_ZONES],
    ),
)
def test_count_over_twenty_years_equals_the_listed_occurrences(expression, yearly_count, timezone):
    timing, after, until = cron(expression, timezone), utc("1999-07-01 12:00"), utc("2019-07-01 12:00")

    moments = list(occurrences(timing, after, until))

    assert count(timing, after, until) == len(moments) == pytest.approx(20 * yearly_count, rel=0.02)
    assert newest_occurrences(timing, after, until, 10) == moments[-10:]
    assert all(earlier < later for earlier, later in pairwise(moments))


@st.composite
def draw_timing(draw) -> Timing:
    match draw(st.integers(0, 4)):
        case 0:
            return Once(at=draw(st.floats(0, YEAR_10000, exclude_max=True)))
        case 1:
            return Every(anchor_at=draw(st.integers(0, int(YEAR_10000) - 1)), step_seconds=draw(st.integers(1, YEAR)))
        case _:
            return cron(draw(draw_expression()).expression, draw(st.sampled_from(ODD_ZONES)))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(draw_timing(), st.floats(0, YEAR_10000))
def test_next_occurrence_is_later_and_equals_the_last_until_then(timing, t):
    moment = next_occurrence(timing, t)

    if moment is not None:
        assert t < moment < YEAR_10000
        assert last_occurrence(timing, moment, after=t) == moment
        assert next_occurrence(timing, math.nextafter(moment, 0)) == moment
        assert count(timing, t, moment) == 1


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 1000), st.integers(1, 50), st.lists(st.floats(-100, 2000), min_size=2, max_size=2))
def test_interval_occurrences_equal_the_arithmetic_grid(anchor, step, span):
    timing, (after, until) = Every(anchor_at=anchor, step_seconds=step), sorted(span)
    expected = [float(moment) for moment in range(anchor, 2001, step) if after < moment <= until]

    assert list(occurrences(timing, after, until)) == expected
    assert count(timing, after, until) == len(expected)
    assert last_occurrence(timing, until, after=after) == (expected[-1] if expected else None)
    assert newest_occurrences(timing, after, until, 3) == expected[-3:]
