"""Moments of a schedule in words: in its own zone and in UTC."""

from __future__ import annotations

from datetime import datetime

from craftcore.errors import ScheduleInvalid
from craftcore.schedules.model import Schedule
from craftcore.schedules.recurrence.dst_notes import local
from craftcore.schedules.tick_plan import next_upcoming
from craftcore.serialization.time_text import clock_time, format_span, relative_text


def next_firing(schedule: Schedule) -> float | None:
    """Return the next occurrence, past those that were asked to be skipped; None when none is awaited."""
    if schedule.next_at is None or schedule.skip_to_at is None or schedule.skip_to_at < schedule.next_at:
        return schedule.next_at
    try:
        return next_upcoming(schedule, after=schedule.skip_to_at)
    except ScheduleInvalid:  # its zone is gone from this machine; the next tick disables it, and says so
        return schedule.next_at


def local_time_text(instant: float, timezone: str) -> str:
    """Return `2026-11-22 03:00:00 CET`; for UTC as everywhere, `2026-11-22 02:00:00Z`."""
    there = local_time(instant, timezone)
    return (
        clock_time(instant)
        if there is None or there.tzname() == "UTC"
        else f"{there:%Y-%m-%d %H:%M:%S} {there.tzname()}"
    )


def format_local_and_utc(instant: float, timezone: str, now: float) -> str:
    """Return `2026-11-22 03:00:00 CET (2026-11-22 02:00:00Z, in 14 h)`; of what should have been, how late it is."""
    there, utc = local_time_text(instant, timezone), clock_time(instant)
    when = (
        relative_text(instant, now)
        if instant > now
        else "due now"
        if now - instant < 1
        else f"late by {format_span(now - instant)}"
    )
    return f"{utc}, {when}" if there == utc else f"{there} ({utc}, {when})"


def local_time(instant: float, timezone: str) -> datetime | None:
    """Return the moment in the zone. None when this machine does not know the zone, or no calendar shows it."""
    try:
        return local(instant, timezone)
    except (ScheduleInvalid, ValueError, OverflowError, OSError):
        return None
