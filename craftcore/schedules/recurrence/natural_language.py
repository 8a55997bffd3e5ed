"""The words people type for a time, and what they mean: `in 1h30m`, `tomorrow at 9am`, `every mon and fri at 17:30`.

Words come in lower case with single spaces, as `expression.parse` leaves them. Times of day are the zone's: one that a
gap skips is the first instant after it, one that a fold repeats is the first of the two.
"""

from __future__ import annotations

import re
from datetime import datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

from craftcore.clock import YEAR_10000
from craftcore.schedules.recurrence.timezones import moment_of, offset_at
from craftcore.schedules.recurrence.timing import Cron, Every, Once, Timing

LONGEST_STEP = 10 * 366 * 86_400
"""Ten years, in seconds: a longer interval is a mistake."""

_DAY = 86_400

_UNITS = {
    **dict.fromkeys(("w", "week", "weeks"), 7 * _DAY),
    **dict.fromkeys(("d", "day", "days"), _DAY),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
}
_UNITS_OF_NO_LENGTH = {"mo", "month", "months", "y", "yr", "yrs", "year", "years"}

_DAYS = {
    **dict.fromkeys(("sun", "sunday"), frozenset({0})),
    **dict.fromkeys(("mon", "monday"), frozenset({1})),
    **dict.fromkeys(("tue", "tues", "tuesday"), frozenset({2})),
    **dict.fromkeys(("wed", "wednesday"), frozenset({3})),
    **dict.fromkeys(("thu", "thur", "thurs", "thursday"), frozenset({4})),
    **dict.fromkeys(("fri", "friday"), frozenset({5})),
    **dict.fromkeys(("sat", "saturday"), frozenset({6})),
    "day": frozenset(range(7)),
    "weekday": frozenset(range(1, 6)),
    "weekend": frozenset({0, 6}),
}
"""Numbered as cron does: Sunday is 0."""

_PIECE = re.compile(r"(\d+(?:\.\d+)?) ?([a-z]+)(?:,? and |, | |$|(?=\d))")
_CLOCK = re.compile(r"(\d{1,2})(?::(\d\d))?(?: ?(am|pm))?")
_BETWEEN_DAYS = re.compile(r" ?, ?(?:and )?| and ")


class Unreadable(Exception):
    """The reason why words cannot be read, as a clause: `parse` makes the sentence."""


def read(words: str, *, now: float, zone: ZoneInfo, past_allowed: bool = False) -> Timing:
    """Return the timing that these words name. `past_allowed`: a time of today may have passed. Raises Unreadable."""
    if (seconds := delay(words)) is not None:
        return parse_once(now + seconds)
    first, _, rest = words.partition(" ")
    match first:
        case "at":
            clock, day = _cut_day(rest)
            return _parse_once(clock, day, now, zone, past_allowed)
        case "today" | "tomorrow":
            if not rest:
                raise Unreadable(f"add a time of day: {first} at 9am")
            return _parse_once(rest.removeprefix("at "), first, now, zone, past_allowed)
        case "every":
            return _parse_every(rest, now, zone)
        case _:
            raise Unreadable("it is not one of the supported forms")


def delay(words: str) -> float | None:
    """Return how many seconds after it is said these words mean. None for a time of their own. Raises Unreadable."""
    first, _, rest = words.partition(" ")
    match first:
        case "immediate" | "now" if not rest:
            return 0.0
        case "in":
            return float(parse_span(rest))
        case _:
            return None


def parse_once(at: float) -> Once:
    """Return the timing of one moment. Raises Unreadable when no calendar can print it."""
    if not 0 <= at < YEAR_10000:
        raise Unreadable("the moment is not between the years 1970 and 9999")
    return Once(at=at)


def parse_span(words: str) -> Fraction:
    """Return the seconds, more than 0: `10m`, `2 hours`, `1h30m`, `1 hour and 30 minutes`. Raises Unreadable."""
    if words.startswith("-"):
        raise Unreadable("a span of time cannot be negative")
    total, smaller, position = Fraction(0), LONGEST_STEP, 0
    while position < len(words):
        piece = _PIECE.match(words, position)
        if piece is None:
            raise Unreadable(f"{words!r:.40} is not a span of time such as 10m, 2 hours or 1h30m")
        number, name = piece.groups()
        if name in _UNITS_OF_NO_LENGTH:
            raise Unreadable("months and years differ in length: use weeks or days, a date, or cron")
        unit = _UNITS.get(name)
        if unit is None:
            raise Unreadable(f"the unit {name!r:.20} is unknown: use s, m, h, d or w")
        if unit >= smaller:
            raise Unreadable("each unit is named once, from the largest to the smallest: 1h30m")
        total, smaller, position = total + Fraction(number) * unit, unit, piece.end()
    if not words:
        raise Unreadable("the span of time is missing: add one such as 10m, 2 hours or 1h30m")
    if total <= 0:
        raise Unreadable("a span of time must be more than 0")
    if total >= YEAR_10000:
        raise Unreadable("the moment is beyond the year 9999")
    return total


def time_of_day(words: str) -> tuple[int, int]:
    """Return the hour and minute: `3pm`, `3:30pm`, `15:30`, `noon`, `midnight`; 12am is midnight. Raises Unreadable."""
    if words in ("midnight", "noon"):
        return (0, 0) if words == "midnight" else (12, 0)
    clock = _CLOCK.fullmatch(words)
    if clock is not None:
        hour, minute, half = int(clock[1]), int(clock[2] or 0), clock[3]
        if half is not None and 1 <= hour <= 12 and minute < 60:
            return hour % 12 + (12 if half == "pm" else 0), minute
        if half is None and clock[2] is not None and hour < 24 and minute < 60:
            return hour, minute
    if not words:
        raise Unreadable("the time of day is missing: say 3pm, 3:30pm or 15:30")
    raise Unreadable(f"{words!r:.40} is not a time of day: say 3pm, 3:30pm or 15:30")


def _cut_day(words: str) -> tuple[str, str | None]:
    """Split a time from a day: `3pm tomorrow` is (3pm, tomorrow); without a day, None: the next time the clock shows
    it."""
    clock, _, last = words.rpartition(" ")
    return (clock, last) if last in ("today", "tomorrow") else (words, None)


def _parse_once(clock: str, day: str | None, now: float, zone: ZoneInfo, past_allowed: bool) -> Once:
    hour, minute = time_of_day(clock)
    if now >= YEAR_10000 - 2 * _DAY:
        raise Unreadable("the calendar ends with the year 9999")
    today = (int(now) + offset_at(zone, int(now))) // _DAY

    def on(date: int) -> float:
        return float(moment_of(zone, date * _DAY + hour * 3600 + minute * 60))

    if day == "tomorrow":
        return parse_once(on(today + 1))
    at = on(today)
    if at >= now or (day == "today" and past_allowed):
        return parse_once(at)
    if day == "today":
        shown = datetime.fromtimestamp(now, zone)
        raise Unreadable(f"{clock} today has passed: it is {shown:%H:%M} in {zone.key}; say tomorrow at {clock}")
    return parse_once(on(today + 1))


def _parse_every(words: str, now: float, zone: ZoneInfo) -> Timing:
    if not words:
        raise Unreadable("every what? Say every 30 minutes, or every monday at 9am")
    named, at, clock = f"{words} ".partition(" at ")
    days = _days(named.strip())
    if days is None and at:
        raise Unreadable(f"a time of day needs days of the week, as in every day at 9am, and {named!r:.40} is not")
    if days is None:
        return Every(anchor_at=int(now), step_seconds=_step(words))
    if not clock.strip():
        raise Unreadable(f"add a time: every {named.strip()} at 9am")
    hour, minute = time_of_day(clock.strip())
    return Cron(expression=f"{minute} {hour} * * {_field(days)}", timezone=zone.key)


def _step(words: str) -> int:
    if words in ("week", "w"):
        raise Unreadable("name a day: every monday at 9am; or say every 1 week, counted from now")
    seconds = parse_span(f"1 {words}" if words.isalpha() else words)
    if seconds.denominator != 1:
        raise Unreadable("an interval must be a whole number of seconds, at least 1")
    if seconds > LONGEST_STEP:
        raise Unreadable("an interval must be at most 10 years")
    return int(seconds)


def _days(words: str) -> frozenset[int] | None:
    """Return the days of the week in `mon, wed and fri`. None when these are not days."""
    days: frozenset[int] = frozenset()
    for name in _BETWEEN_DAYS.split(words):
        if name not in _DAYS:
            return None
        days |= _DAYS[name]
    return days


def _field(days: frozenset[int]) -> str:
    """Return the day-of-week field, as a person would write it."""
    for named, field in (("day", "*"), ("weekday", "1-5")):
        if days == _DAYS[named]:
            return field
    return ",".join(map(str, sorted(days)))
