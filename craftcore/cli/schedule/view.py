"""The view of a schedule: its expression as it was read, its next occurrence, and its JSON document."""

from __future__ import annotations

import shlex
from datetime import datetime
from typing import Any

from craftcore.cli.output import add_iso_times
from craftcore.cli.schedule.options import COMMAND
from craftcore.cli.session import hint
from craftcore.errors import ScheduleInvalid
from craftcore.schedules.model import Schedule, ScheduleStatus
from craftcore.schedules.recurrence.dst_notes import local
from craftcore.schedules.recurrence.timing import Cron, Every, Once, Startup, Timing
from craftcore.schedules.tick_plan import next_upcoming
from craftcore.serialization.display import json_or_text
from craftcore.serialization.time_text import clock_time, format_span, relative_text

DOCUMENT = (
    *("id", "status", "reason", "origin", "expression", "kind", "timezone", "workflow", "payload", "catch_up"),
    *("catch_up_window", "catch_up_max", "catch_up_spacing", "overlap", "jitter", "expires_after", "start_at"),
    *("until_at", "max_runs", "runs", "next_at", "last_nominal_at", "high_water_at", "skip_to_at", "generation"),
    *("session_id", "priority", "description", "max_attempts", "created_at", "updated_at"),
)
"""The keys of a schedule's JSON document, in this order; moments also as ISO."""


def document(schedule: Schedule) -> dict[str, Any]:
    """Return the row for programs: the payload as an object."""
    payload = json_or_text(schedule.payload_json)
    return add_iso_times({name: payload if name == "payload" else getattr(schedule, name) for name in DOCUMENT})


def expression_text(expression: str, timing: Timing, timezone: str) -> str:
    """Return what was written, and what it means: `every day at 3am (0 3 * * * in Europe/Berlin)`."""
    match timing:
        case Cron(expression=cron):
            return f"{expression} in {timezone}" if cron == expression else f"{expression} ({cron} in {timezone})"
        case Every(anchor_at=anchor):
            return f"{expression} (counted from {local_time_text(anchor, timezone)})"
        case Once(at=at):
            return f"{expression} (once, {local_time_text(at, timezone)})"
        case Startup():
            return f"{expression} (at each start of the daemon)"


def next_occurrence_text(schedule: Schedule, now: float) -> str:
    """One line: the next occurrence that fires, or why none is awaited."""
    match schedule.status:
        case ScheduleStatus.PAUSED:
            why = "" if schedule.reason in (None, "paused") else f" ({schedule.reason})"
            return f"paused{why}: nothing of it fires until: {hint('schedule', 'resume', schedule.id)}"
        case ScheduleStatus.DISABLED | ScheduleStatus.FINISHED | ScheduleStatus.REMOVED:
            named = schedule.status.lower()
            return named if schedule.reason in (None, named) else f"{named}: {schedule.reason}"
    if isinstance(schedule.timing, Startup):
        return "next: when a daemon starts"
    moment = next_firing(schedule)
    if moment is None:
        return "next: none; what was left is skipped"
    skipped = "" if moment == schedule.next_at else "; what comes before is skipped"
    return f"next: {format_local_and_utc(moment, schedule.timezone, now)}{skipped}"


def command_line(schedule: Schedule) -> str | None:
    """Return the command it runs, quoted as for a shell, so that a word too many is seen, and whether it is
    irreversible; None when it runs none."""
    argv = _command(schedule).get("argv")
    if not isinstance(argv, list):
        return None
    asked = " (irreversible: in doubt, a person is asked)" if is_irreversible(schedule) else ""
    return shlex.join(map(str, argv)) + asked


def is_irreversible(schedule: Schedule) -> bool:
    """Return whether it runs a command under the ledger."""
    return _command(schedule).get("irreversible") is True


def _command(schedule: Schedule) -> dict[str, Any]:
    """Return the payload of a command; empty when it runs none."""
    payload = json_or_text(schedule.payload_json)
    return payload if schedule.workflow == COMMAND and isinstance(payload, dict) else {}


def next_firing(schedule: Schedule) -> float | None:
    """Return the next occurrence, past those that were asked to be skipped; None when none is awaited."""
    if schedule.next_at is None or schedule.skip_to_at is None or schedule.skip_to_at < schedule.next_at:
        return schedule.next_at
    try:
        return next_upcoming(schedule, after=schedule.skip_to_at)
    except ScheduleInvalid:  # its zone is gone from this machine; the next tick disables it, and says so
        return schedule.next_at


def local_time_text(t: float, timezone: str) -> str:
    """Return `2026-11-22 03:00:00 CET`; for UTC as everywhere, `2026-11-22 02:00:00Z`."""
    there = local_time(t, timezone)
    return clock_time(t) if there is None or there.tzname() == "UTC" else f"{there:%Y-%m-%d %H:%M:%S} {there.tzname()}"


def format_local_and_utc(t: float, timezone: str, now: float) -> str:
    """Return `2026-11-22 03:00:00 CET (2026-11-22 02:00:00Z, in 14 h)`; of what should have been, how late it is."""
    there, utc = local_time_text(t, timezone), clock_time(t)
    when = relative_text(t, now) if t > now else "due now" if now - t < 1 else f"late by {format_span(now - t)}"
    return f"{utc}, {when}" if there == utc else f"{there} ({utc}, {when})"


def local_time(t: float, timezone: str) -> datetime | None:
    """That moment in the zone; None when this machine does not know the zone, or no calendar shows it."""
    try:
        return local(t, timezone)
    except (ScheduleInvalid, ValueError, OverflowError, OSError):
        return None
