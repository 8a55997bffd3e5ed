"""The strip of a schedule: its occurrences of 30 days, a mark for each day. Pure.

Each occurrence is counted once, in the day of the schedule's own zone in which it was to come. A day shows the worst of
its marks. A schedule that comes too often for that has a mark for each of its newest lines instead.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import chain, groupby
from typing import NamedTuple
from zoneinfo import ZoneInfo

from craftcore.errors import ScheduleInvalid
from craftcore.schedules.model import FireCause, Occurrence, Outcome, Schedule, ScheduleStatus
from craftcore.schedules.occurrence_end_store import AccountLine, EndState, OccurrenceEnd
from craftcore.schedules.recurrence.occurrences import count
from craftcore.schedules.recurrence.timezones import find_zone, moment_of
from craftcore.schedules.recurrence.timing import Startup, Timing
from craftcore.schedules.tick_plan import MISFIRE_GRACE, jitter

DAYS = 30
WHOLE_DAYS_MIN = 7
"""Days that the lines must reach back for a strip of days; otherwise each of the newest lines has a mark."""


COUNTS_KEPT = 1024
"""Counts of occurrences that are kept: three for each schedule of many pages."""


class Mark(StrEnum):
    """The result of an occurrence, for a person at a glance."""

    FIRED = "fired"
    LATE = "late"
    SKIPPED = "skipped"
    FAILED = "failed"
    WAITS = "waits"


WORST_FIRST = (Mark.FAILED, Mark.SKIPPED, Mark.LATE, Mark.WAITS, Mark.FIRED)


class MarkedLine(NamedTuple):
    """A line of the account with its mark. `late`: seconds; None: it began in time, or its start is unknown."""

    occurrence: Occurrence
    end: OccurrenceEnd | None
    mark: Mark
    late: float | None = None


class Group(NamedTuple):
    """The occurrences of a day, or of one line. `at`: when the day begins, or the occurrence was to come. `is_read`:
    whether all its lines were read."""

    at: float
    timezone: str
    counts: Counter[Mark]
    is_day: bool = True
    is_read: bool = True

    @property
    def label(self) -> str:
        """The day, or the moment, in the schedule's zone."""
        there = datetime.fromtimestamp(self.at, _find_zone(self.timezone))
        return f"{there:%Y-%m-%d}" if self.is_day else f"{there:%Y-%m-%d %H:%M:%S}"

    @property
    def mark(self) -> Mark | None:
        """The worst of its marks; None when it has no occurrence."""
        if len(self.counts) < 2:
            return next(iter(self.counts), None)
        return next(mark for mark in WORST_FIRST if mark in self.counts)

    @property
    def text(self) -> str:
        """The group in words: `2026-11-12: 23 fired, 1 failed`."""
        counted = [f"{self.counts[mark]:,} {mark}" for mark in Mark if self.counts[mark]]
        unread = [] if self.is_read else ["older lines were not read"]
        return f"{self.label}: {', '.join([*counted, *unread]) or 'none'}"


class Run(NamedTuple):
    """Neighbouring groups that look the same."""

    mark: Mark | None
    is_read: bool
    length: int


class Strip(NamedTuple):
    """The drawing of a schedule. `groups`, oldest first, are days, or lines where `is_daily` is false.

    counts        by mark, of all occurrences of these days whose lines were read
    unaccounted   occurrences that have passed and have no line: 0, or something is wrong
    since         the moment from which all lines were read
    """

    groups: Sequence[Group]
    counts: Counter[Mark]
    unaccounted: int
    since: float
    is_daily: bool

    @property
    def runs(self) -> list[Run]:
        """The groups, with those that look the same in one."""
        return [
            Run(*key, len(list(several))) for key, several in groupby(self.groups, lambda one: (one.mark, one.is_read))
        ]

    @property
    def text(self) -> str:
        """The counts in words: `27 fired (1 late, 1 failed), 3 skipped, 0 unaccounted`."""
        fired = sum(self.counts[mark] for mark in (Mark.FIRED, Mark.LATE, Mark.FAILED))
        of_them = ", ".join(f"{self.counts[mark]:,} {mark}" for mark in (Mark.LATE, Mark.FAILED) if self.counts[mark])
        parts = [
            f"{fired:,} fired ({of_them})" if of_them else f"{fired:,} fired",
            f"{self.counts[Mark.SKIPPED]:,} skipped",
        ]
        if waiting := self.counts[Mark.WAITS]:
            parts.append(f"{waiting:,} {'waits' if waiting == 1 else 'wait'}")
        return ", ".join([*parts, f"{self.unaccounted:,} unaccounted"])


def mark_line(line: AccountLine, schedule: Schedule) -> MarkedLine:
    """Return a line of the account with its mark."""
    occurrence, end = line
    if end is None:
        return MarkedLine(occurrence, None, Mark.SKIPPED if occurrence.outcome is Outcome.SKIPPED else Mark.WAITS)
    late = _measure_delay(occurrence, end, schedule)
    match end.state:
        case EndState.FAILED:
            mark = Mark.FAILED
        case EndState.NOT_RUN:
            mark = Mark.SKIPPED
        case EndState.WAITS:
            mark = Mark.WAITS
        case _:
            mark = Mark.FIRED if late is None else Mark.LATE
    return MarkedLine(occurrence, end, mark, late)


def draw_strip(schedule: Schedule, lines: Iterable[MarkedLine], now: float, *, is_whole: bool) -> Strip:
    """Return the strip of a schedule, from the newest lines of its account. `is_whole`: it has no other lines."""
    marked = sorted(lines, key=lambda line: line.occurrence.seq)
    bounds = list_days(schedule.timezone, now)
    since = bounds[0] if is_whole or not marked else max(bounds[0], marked[0].occurrence.decided_at)
    counted: list[Counter[Mark]] = [Counter() for _ in range(DAYS)]
    totals: Counter[Mark] = Counter()
    for mark, day, number in chain(_place_lines(marked, schedule, bounds), _place_undecided(schedule, bounds, now)):
        if 0 <= day < DAYS:
            counted[day][mark] += number
            totals[mark] += number
    zone = schedule.timezone
    whole_days = DAYS - bisect_left(bounds, since)
    is_daily = since <= bounds[0] or whole_days >= WHOLE_DAYS_MIN
    if is_daily:
        groups = [Group(at, zone, counts, is_read=since <= at) for at, counts in zip(bounds, counted, strict=False)]
    else:
        newest = [(line.occurrence, line.mark) for line in marked[-DAYS:]]
        groups = [Group(one.nominal_at, zone, Counter({mark: one.count}), is_day=False) for one, mark in newest]
    return Strip(groups, totals, count_unaccounted(schedule, [line.occurrence for line in marked]), since, is_daily)


def list_days(timezone: str, now: float) -> Sequence[float]:
    """Return the moments at which the last days of that zone begin, oldest first, and the end of today.

    A zone that this machine does not know counts as UTC.
    """
    zone = _find_zone(timezone)
    return _list_days(zone, datetime.fromtimestamp(now, zone).date())


@lru_cache(maxsize=64)
def _list_days(zone: ZoneInfo, today: date) -> Sequence[float]:
    days = [today + timedelta(days=offset) for offset in range(1 - DAYS, 2)]
    midnights = [datetime(day.year, day.month, day.day, tzinfo=UTC) for day in days]
    return [float(moment_of(zone, int(one.timestamp()))) for one in midnights]


def _find_zone(timezone: str) -> ZoneInfo:
    try:
        return find_zone(timezone)
    except ScheduleInvalid:
        return find_zone("UTC")


def count_unaccounted(schedule: Schedule, lines: Iterable[Occurrence]) -> int:
    """Return how many occurrences of this generation, from its first line on, have passed and have no line."""
    timed = [line for line in lines if line.cause is FireCause.TIME and line.generation == schedule.generation]
    if not timed or isinstance(schedule.timing, Startup):
        return 0
    first = min(line.nominal_at for line in timed)
    last = schedule.high_water_at if schedule.until_at is None else min(schedule.high_water_at, schedule.until_at)
    return max(0, _count(schedule, first - 1, last) - sum(line.count for line in timed))


def _measure_delay(occurrence: Occurrence, end: OccurrenceEnd, schedule: Schedule) -> float | None:
    """Return the seconds from its time to its first attempt; None when it was in time, or fired for another cause."""
    if occurrence.cause is not FireCause.TIME:
        return None
    planned = occurrence.nominal_at
    if schedule.jitter:
        planned += jitter(schedule.id, planned, schedule.jitter)
    late = (occurrence.decided_at if end.began_at is None else end.began_at) - planned
    return late if late > MISFIRE_GRACE else None


def _place_lines(
    marked: Iterable[MarkedLine], schedule: Schedule, bounds: Sequence[float]
) -> Iterator[tuple[Mark, int, int]]:
    """Yield each line as its mark, a day, and how many occurrences of it came that day."""
    for line in marked:
        occurrence = line.occurrence
        first = _find_day(bounds, occurrence.nominal_at)
        last = first if occurrence.count == 1 else _find_day(bounds, occurrence.last_at)
        if first == last:
            yield line.mark, first, occurrence.count
            continue
        numbers = _split(occurrence, schedule, bounds, first, last)
        yield from ((line.mark, first + offset, number) for offset, number in enumerate(numbers) if number)


def _split(occurrence: Occurrence, schedule: Schedule, bounds: Sequence[float], first: int, last: int) -> list[int]:
    """Return how many occurrences of a run came on each day.

    Those of an earlier timing are spread evenly over its time: only their number is known.
    """
    ends = [min(occurrence.last_at, bounds[day + 1] - 1) for day in range(first, last)] + [occurrence.last_at]
    starts = [occurrence.nominal_at - 1, *ends[:-1]]
    if occurrence.generation == schedule.generation:
        numbers = [_count(schedule, after, until) for after, until in zip(starts, ends, strict=True)]
        if sum(numbers) == occurrence.count:
            return numbers
    each = (occurrence.last_at - occurrence.nominal_at) / max(1, occurrence.count - 1)
    passed = [int((until - occurrence.nominal_at) // each) + 1 for until in ends[:-1]] + [occurrence.count]
    return [so_far - before for before, so_far in zip([0, *passed], passed, strict=False)]


def _place_undecided(schedule: Schedule, bounds: Sequence[float], now: float) -> Iterator[tuple[Mark, int, int]]:
    """Yield what has come and is not in the account yet: it waits for a daemon, or is skipped when it is resumed."""
    last = now if schedule.until_at is None else min(now, schedule.until_at)
    mark = Mark.WAITS if schedule.status is ScheduleStatus.ACTIVE or schedule.is_one_time else Mark.SKIPPED
    if schedule.status in (ScheduleStatus.FINISHED, ScheduleStatus.REMOVED) or isinstance(schedule.timing, Startup):
        return
    after = schedule.high_water_at
    for day in range(len(bounds) - 1):
        until = min(last, bounds[day + 1] - 1)
        if until > max(after, bounds[day] - 1) and (number := _count(schedule, max(after, bounds[day] - 1), until)):
            yield mark, day, number


def _count(schedule: Schedule, after: float, until: float) -> int:
    """Return how many occurrences lie in (after, until]; 0 when this machine does not know its zone."""
    try:
        return _count_occurrences(schedule.timing, after, until)
    except ScheduleInvalid:
        return 0


@lru_cache(maxsize=COUNTS_KEPT)
def _count_occurrences(timing: Timing, after: float, until: float) -> int:
    """Return the same, and keep it: a strip asks for the same spans until its schedule fires again."""
    return count(timing, after, until)


def _find_day(bounds: Sequence[float], moment: float) -> int:
    """Return the number of its day; -1 for what came before the first."""
    return bisect_right(bounds, moment) - 1
