"""A moment as a person writes it: `9am`, `tomorrow 9am`, `in 10m`, a date with a zone, or epoch seconds. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from craftcore.clock import BEFORE_1970
from craftcore.errors import InvalidInput
from craftcore.machine_zone import UNKNOWN
from craftcore.schedules.recurrence import natural_language
from craftcore.schedules.recurrence.expression import check_zone
from craftcore.schedules.recurrence.timezones import moment_of
from craftcore.schedules.recurrence.timing import Once
from craftcore.serialization.arguments import show_value
from craftcore.serialization.time_text import parse_moment
from craftcore.triggers.validation import MomentRead, moment

EXAMPLES = "9am, tomorrow 9am, in 10m, 2026-01-02T03:04:05Z, or epoch seconds"
_FIRST_WORDS = ("at", "in", "now", "today", "tomorrow")


def read_moment(field: str, value: object, now: float, timezone: str | None, *, zone_given: bool = False) -> MomentRead:
    """Return the moment that a value means at `now`, in epoch seconds. A time of day is the next one in the IANA zone
    `timezone`; None: the machine's is not known, so it is refused. A timedelta, `10m` and `in 10m` count from `now`.

    `zone_given`: the zone was chosen, so a date without an offset is read in it; else it is refused. Raises
    InvalidInput.
    """
    if isinstance(value, timedelta):
        if value < timedelta(0):
            raise InvalidInput(f"{field} {show_value(value)} must be 0 seconds or more from now")
        return MomentRead(moment(field, now + value.total_seconds()), is_delay=True)
    if not isinstance(value, str):
        return MomentRead(moment(field, value), is_delay=False)
    try:
        parsed = parse_moment(value)
    except InvalidInput:
        return _read_words(field, value, now, timezone)
    if zone_given and timezone is not None and isinstance(parsed, datetime) and parsed.tzinfo is None:
        wall = parsed.replace(microsecond=0, tzinfo=UTC).timestamp()
        parsed = moment_of(check_zone(timezone), int(wall)) + parsed.microsecond / 1e6
    return MomentRead(moment(field, parsed), is_delay=False)


def _read_words(field: str, text: str, now: float, timezone: str | None) -> MomentRead:
    words, zone = " ".join(text.lower().split()), check_zone("UTC" if timezone is None else timezone)
    forms = [words] if words.partition(" ")[0] in _FIRST_WORDS else [f"in {words}", f"at {words}"]
    for form in forms:
        try:
            is_delay = natural_language.delay(form) is not None
            timing = natural_language.read(form, now=now, zone=zone)
        except natural_language.Unreadable as unreadable:
            reason = unreadable
        else:
            assert isinstance(timing, Once), timing
            if timezone is None and not is_delay:
                raise InvalidInput(f"{field} {show_value(text)}: {UNKNOWN}")
            return MomentRead(timing.at, is_delay=is_delay)
    if now < 0:
        raise InvalidInput(f"{field} {show_value(text)}: {BEFORE_1970}")
    raise InvalidInput(f"{field} {show_value(text)} is not a moment: {reason}. Give e.g. {EXAMPLES}")
