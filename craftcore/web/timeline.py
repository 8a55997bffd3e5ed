"""The next 24 hours on one timeline: schedules, triggers by their due time, and the ends of waits. Pure.

Everything is bounded: a schedule that fires often is one band ("every 5 min (288)"), and marks that fall into the same
quarter of an hour are one mark with their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from craftcore.errors import ScheduleInvalid
from craftcore.schedules.model import Schedule
from craftcore.schedules.recurrence.occurrences import count
from craftcore.schedules.tick_plan import list_upcoming

DAY = 86_400.0
SLOT = 900.0
"""Seconds of the timeline within which marks are one."""

SPAN = DAY + SLOT
"""Seconds of the timeline: it begins with a slot, and shows a day from each moment of that on."""

DENSE = 13
"""Occurrences of a schedule that are drawn one by one, those of every two hours. More than that are a band."""

WIDTH = 960.0
"""The width of the picture, in its own units."""

HOURS_BETWEEN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Something that comes at one moment. `kind`: schedule, trigger, question, timer, event, child or deadline. `href`:
    the page of it."""

    at: float
    kind: str
    name: str
    href: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A schedule that fires too often for single marks, from its first occurrence on the timeline to its last."""

    first_at: float
    last_at: float
    count: int
    name: str
    expression: str
    href: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One sign of the picture: the first entry of a slot, and how many there are."""

    left: float
    entry: Entry
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stripe:
    """A band as it is drawn."""

    left: float
    width: float
    band: Band


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One line of the timeline. `entries`: the same content for a table. `more`: there is more than was read."""

    name: str
    marks: tuple[Mark, ...]
    stripes: tuple[Stripe, ...]
    entries: tuple[Entry, ...]
    more: bool

    @property
    def is_empty(self) -> bool:
        return not self.entries and not self.stripes


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The whole picture. `ticks`: full hours and where they are."""

    begin: float
    end: float
    ticks: tuple[tuple[float, float], ...]
    lanes: tuple[Lane, ...]

    @property
    def is_empty(self) -> bool:
        return all(lane.is_empty for lane in self.lanes)


def make_timeline(now: float, lanes: Iterable[Lane]) -> Timeline:
    """Return the picture of the time that begins now."""
    step = HOURS_BETWEEN * 3600.0
    hours = (now // step + 1) * step
    ticks = tuple((hours + number * step, place(hours + number * step, now)) for number in range(int(DAY // step)))
    return Timeline(begin=now, end=now + SPAN, ticks=ticks, lanes=tuple(lanes))


def make_lane(
    name: str, entries: Sequence[Entry], now: float, *, bands: Sequence[Band] = (), more: bool = False
) -> Lane:
    """Return one line. An entry that is late is drawn at its begin, and one beyond the end not at all."""
    within = sorted((one for one in entries if one.at <= now + SPAN), key=lambda one: one.at)
    slots: dict[int, list[Entry]] = {}
    for one in within:
        slots.setdefault(int(max(0.0, one.at - now) // SLOT), []).append(one)
    marks = tuple(Mark(left=place(ones[0].at, now), entry=ones[0], count=len(ones)) for ones in slots.values())
    stripes = tuple(_make_stripe(band, now) for band in bands)
    return Lane(name=name, marks=marks, stripes=stripes, entries=tuple(within), more=more)


def expand_schedule(schedule: Schedule, now: float) -> tuple[Entry, ...] | Band:
    """Return the occurrences of a schedule on the timeline: one by one, or as a band. One that is due already is the
    first."""
    href = page_address("schedules", schedule.id)
    moments = list_firings(schedule, now)
    if len(moments) <= DENSE:
        return tuple(Entry(at=at, kind="schedule", name=schedule.id, href=href) for at in moments)
    number, last = count_firings(schedule, now)
    return Band(
        first_at=moments[0],
        last_at=last,
        count=number,
        name=schedule.id,
        expression=schedule.expression,
        href=href,
    )


def list_firings(schedule: Schedule, now: float) -> list[float]:
    """Return the first occurrences on the timeline, at most one more than DENSE. Where its zone is
    unknown, only the stored one."""
    late = [schedule.next_at] if schedule.next_at is not None and schedule.next_at <= now else []
    try:
        moments = list_upcoming(schedule, now, DENSE + 1 - len(late))
    except ScheduleInvalid:  # its zone is gone from this machine; the next tick disables it, and says so
        moments = [] if schedule.next_at is None or late else [schedule.next_at]
    return late + [at for at in moments if now < at <= now + SPAN]


def count_firings(schedule: Schedule, now: float) -> tuple[int, float]:
    """Return how many occurrences there are on the timeline, and about when the last one is."""
    end = now + SPAN if schedule.until_at is None else min(now + SPAN, schedule.until_at)
    after = max(schedule.high_water_at, schedule.skip_to_at or 0.0, now)
    number = count(schedule.timing, after, end)
    left = None if schedule.max_runs is None else max(0, schedule.max_runs - schedule.runs)
    if left is None or left >= number:
        return number, end
    return left, list_upcoming(schedule, now, left)[-1]


def page_address(pages: str, id: str) -> str:
    """Return the address of the page of one thing: `/tasks/0192ab`."""
    return f"/{pages}/{quote(id, safe='')}"


def place(at: float, now: float) -> float:
    """Return where a moment is in the picture, between 0 and WIDTH."""
    return round(min(1.0, max(0.0, (at - now) / SPAN)) * WIDTH, 1)


def _make_stripe(band: Band, now: float) -> Stripe:
    left = place(band.first_at, now)
    return Stripe(left=left, width=round(max(2.0, place(band.last_at, now) - left), 1), band=band)
