"""Notes about occurrences that a change of the wall clock affects. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from craftcore.schedules.recurrence.cron import is_wildcard, match_after
from craftcore.schedules.recurrence.timezones import find_zone, offset_at
from craftcore.schedules.recurrence.timing import Cron, Timing


def note(timing: Timing, instant: float) -> str | None:
    """Return why `instant`, an occurrence of cron, is not the plain time its fields name. None when it is, and for
    other timings.

    A fixed time that a gap skips comes at the first instant after the gap; see `cron`.
    """
    if not isinstance(timing, Cron):
        return None
    zone, at = find_zone(timing.timezone), int(instant)
    shown, before = at + offset_at(zone, at), at + offset_at(zone, at - 1)
    named = match_after(timing.expression, min(shown, before) - 1)
    if named is not None and named < shown and not is_wildcard(timing.expression):
        return _skipped_note(named, shown)
    local_time = local(at, timing.timezone)
    if local_time.utcoffset() != local_time.replace(fold=1 - local_time.fold).utcoffset():
        return f"repeated hour: the {'second' if local_time.fold else 'first'} of two"
    return None


def local(instant: float, timezone: str) -> datetime:
    """Return the wall time of a moment in the zone. Raises ScheduleInvalid when the zone is not known."""
    return datetime.fromtimestamp(instant, find_zone(timezone))


def _skipped_note(named: int, shown: int) -> str:
    skipped, instead = datetime.fromtimestamp(named, UTC), datetime.fromtimestamp(shown, UTC)
    if skipped.date() == instead.date():
        return f"skipped hour: {skipped:%H:%M} does not exist that day"
    return f"skipped hour: {skipped:%Y-%m-%d %H:%M} does not exist"
