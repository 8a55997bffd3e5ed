"""Expressions of time, read once when a schedule is declared: cron, nicknames, ISO 8601 or words. Pure.

The forms, and what they become:

    0 9 * * 1-5  @daily          -> Cron, in the schedule's zone
    2026-12-01T09:00+01:00       -> Once
    in 2 hours  tomorrow at 9am  -> Once; the words are read by `words`
    every 2h                     -> Every, anchored now
    on startup                   -> Startup
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, available_timezones

from craftcore.clock import BEFORE_1970
from craftcore.errors import ScheduleInvalid
from craftcore.machine_zone import UNKNOWN
from craftcore.schedules.recurrence import natural_language
from craftcore.schedules.recurrence.cron_fields import FIELDS, find_field_mistake, is_cron
from craftcore.schedules.recurrence.occurrences import next_occurrence
from craftcore.schedules.recurrence.timezones import moment_of
from craftcore.schedules.recurrence.timing import Cron, Once, Startup, Timing

FORMS = (
    "immediate, in 10m, at 3pm [today|tomorrow], tomorrow at 9am, 2026-12-01T09:00Z, every 2h, every day at 7am, "
    "every monday at 9am, 5-field cron, @hourly to @yearly, on startup"
)

MAX_CHARACTERS = 200

_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_STARTUP = ("on startup", "@reboot")

_CRON = re.compile(r"[^a-z]*\*.*|[\d,/-]+( [\d,/-]\S*)+|[\d,/-]+( \S+){4,6}")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?!\d).*")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[t ](\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?) ?(z|[+-]\d\d(?::?\d\d)?)?")
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")
_NO_ZONE = re.compile(r"(?:posix|right)/.*|posixrules|localtime", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """The timing of an expression from now on, and the expression as it was written, with single spaces."""

    timing: Timing
    text: str


def parse(
    text: str, *, now: float, timezone: str | None, zone_given: bool = False, past_allowed: bool = False
) -> Parsed:
    """Return what `text` means if declared at `now`, in the IANA zone `timezone`; None: the machine's is not known, so
    a time of day is refused.

    `zone_given`: the zone was chosen, so an ISO moment without one is read in it; else it is refused. `past_allowed`:
    an ISO moment or a time of today may have passed. Raises ScheduleInvalid, with what is wrong and the supported
    forms, or for an unknown zone.
    """
    zone = check_zone("UTC" if timezone is None else timezone)
    if type(text) is not str:
        raise ScheduleInvalid(f"a schedule must be text, not {type(text).__name__}. Supported: {FORMS}")
    try:
        written = _normalize(text)
        timing = _read(written, now, zone, zone_given, past_allowed)
        is_refused = timezone is None and _is_local(written.lower(), timing)
    except natural_language.Unreadable as reason:
        if now < 0:
            raise ScheduleInvalid(f"schedule {text!r:.80}: {BEFORE_1970}") from None
        raise ScheduleInvalid(f"schedule {text!r:.80}: {reason}. Supported: {FORMS}") from None
    if is_refused:
        raise ScheduleInvalid(f"schedule {text!r:.80}: {UNKNOWN}")
    return Parsed(timing=timing, text=written)


def _is_local(spoken: str, timing: Timing) -> bool:
    """Return whether the timing depends on the zone. A date names its offset, or is refused."""
    if isinstance(timing, Once):
        return natural_language.delay(spoken) is None and not _DATE.fullmatch(spoken.removeprefix("at "))
    return isinstance(timing, Cron)


def check_zone(name: str) -> ZoneInfo:
    """Return the IANA zone of that name. Raises ScheduleInvalid, with the nearest name there is."""
    if type(name) is not str or not _ZONE.fullmatch(name) or len(name) > 100:
        raise ScheduleInvalid(f"time zone {_show_value(name)} must be an IANA name such as Europe/Berlin or UTC")
    if _NO_ZONE.fullmatch(name):
        raise ScheduleInvalid(f"time zone {name!r:.80} is not a place's: use an IANA name such as Europe/Berlin or UTC")
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown; no zone file; a folder of them
        known = {zone.lower(): zone for zone in available_timezones()}
        near = difflib.get_close_matches(name.lower(), known, n=1)
        advice = f"did you mean {known[near[0]]}?" if near else "use an IANA name such as Europe/Berlin or UTC"
        raise ScheduleInvalid(f"time zone {name!r:.80} is unknown; {advice}") from None


def _normalize(text: str) -> str:
    """Return the text with single spaces, once it is one that could be read at all."""
    if len(text) > MAX_CHARACTERS:
        raise natural_language.Unreadable(f"it has {len(text):,} characters; the limit is {MAX_CHARACTERS}")
    for character in text:
        if character != "\t" and not " " <= character <= "~":
            raise natural_language.Unreadable(f"no form has the character {character!a}")
    if not text.strip():
        raise natural_language.Unreadable("it is empty")
    return " ".join(text.split())


def _read(written: str, now: float, zone: ZoneInfo, zone_given: bool, past_allowed: bool) -> Timing:
    spoken = written.lower()
    if spoken in _STARTUP:
        return Startup()
    if spoken.startswith("@"):
        if spoken not in _NICKNAMES:
            raise natural_language.Unreadable(
                f"there is no such nickname; there are {', '.join(_NICKNAMES)} and @reboot"
            )
        return Cron(expression=_NICKNAMES[spoken], timezone=zone.key)
    if _DATE.fullmatch(spoken.removeprefix("at ")):
        return _moment(spoken.removeprefix("at "), now, zone if zone_given else None, past_allowed)
    if _CRON.fullmatch(spoken):
        return _cron(written, now, zone)
    return natural_language.read(spoken, now=now, zone=zone, past_allowed=past_allowed)


def _moment(spoken: str, now: float, zone: ZoneInfo | None, past_allowed: bool) -> Once:
    """Return an ISO 8601 moment; without an offset it is on the wall of `zone`, and None refuses it."""
    parts = _MOMENT.fullmatch(spoken)
    try:
        moment = datetime.fromisoformat(f"{parts[1]}T{parts[2]}{(parts[3] or '').upper()}") if parts else None
    except ValueError:
        moment = None
    if moment is None:
        raise natural_language.Unreadable("it is not a date and time there is: write one as in 2026-12-01T09:00Z")
    if moment.tzinfo is not None:
        at = moment.timestamp()
    elif zone is not None:
        wall = moment.replace(microsecond=0, tzinfo=UTC).timestamp()
        at = moment_of(zone, int(wall)) + moment.microsecond / 1e6
    else:
        raise natural_language.Unreadable(
            "it has no time zone: add Z or an offset such as +01:00, or name the time zone"
        )
    if at < now and not past_allowed:
        raise natural_language.Unreadable("the moment has passed")
    return natural_language.parse_once(at)


def _cron(expression: str, now: float, zone: ZoneInfo) -> Cron:
    fields = expression.split()
    if len(fields) != len(FIELDS):
        raise natural_language.Unreadable(
            f"cron has 5 fields (minute hour day month weekday, no seconds), and this has {len(fields)}"
        )
    for nth, field in enumerate(fields):
        if (mistake := find_field_mistake(nth, field)) is not None:
            raise natural_language.Unreadable(mistake)
    cron = Cron(expression=expression, timezone=zone.key)
    if not is_cron(expression):
        raise natural_language.Unreadable(
            f"it has no occurrence: no day of month {fields[2]!r:.40} (1-31) is in month {fields[3]!r:.40}"
        )
    if next_occurrence(cron, now) is None:
        raise natural_language.Unreadable("it has no occurrence within fifty years")
    return cron


def _show_value(value: object) -> str:
    return f"{value!r:.80}" if isinstance(value, str) else f"a value of type {type(value).__name__}"
