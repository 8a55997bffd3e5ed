"""A schedule in words: its expression, its command, and its moments in its own zone and in UTC."""

from __future__ import annotations

import shlex
from datetime import datetime
from typing import Any

from craftcore.diagnostics.finding import Finding
from craftcore.errors import ScheduleInvalid
from craftcore.schedules.model import Schedule, ScheduleStatus
from craftcore.schedules.recurrence.dst_notes import local, note
from craftcore.schedules.recurrence.timing import Cron, Every, Once, Startup, Timing
from craftcore.schedules.tick_plan import jitter, list_upcoming, next_upcoming
from craftcore.serialization.display import json_or_text
from craftcore.serialization.time_text import add_iso_times, clock_time, format_span, relative_text

COMMAND = "command.run"
"""As in `actions.command`, which is not imported for a name: it would bring the event loop."""


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
            return f"{expression} (at each start)"


def next_occurrence_finding(schedule: Schedule, now: float) -> Finding:
    """Return the next occurrence that fires, or why there is none and what helps."""
    match schedule.status:
        case ScheduleStatus.PAUSED:
            why = "" if schedule.reason in (None, "paused") else f" ({schedule.reason})"
            resume = (("craftcore", "schedule", "resume", schedule.id),)
            return Finding(code="paused", text=f"paused{why}: nothing of it fires until", remedies=resume)
        case ScheduleStatus.DISABLED | ScheduleStatus.FINISHED | ScheduleStatus.REMOVED:
            named = schedule.status.lower()
            text = named if schedule.reason in (None, named) else f"{named}: {schedule.reason}"
            return Finding(code=named, text=text)
    if isinstance(schedule.timing, Startup):
        return Finding(code="next", text="next: at the next start")
    moment = next_firing(schedule)
    if moment is None:
        return Finding(code="next", text="next: none; what was left is skipped")
    skipped = "" if moment == schedule.next_at else "; earlier occurrences are skipped"
    return Finding(code="next", text=f"next: {format_local_and_utc(moment, schedule.timezone, now)}{skipped}")


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


def upcoming_rows(schedule: Schedule, now: float, count: int, *, since: float | None = None) -> list[dict[str, Any]]:
    """Return the next occurrences that fire, as rows. Raises ScheduleInvalid when this machine does not know its
    zone."""
    return [
        moment_row(schedule.timing, schedule.timezone, at, jitter(schedule.id, at, schedule.jitter))
        for at in list_upcoming(schedule, now, count, since=since)
    ]


def moment_row(timing: Timing, zone: str, at: float, later: float = 0.0) -> dict[str, Any]:
    """Return one occurrence as a row: on the wall, in UTC, and what a change of the clock does to it."""
    there = local_time(at, zone)
    return add_iso_times(
        {
            "nominal_at": at,
            "local": None if there is None else there.isoformat(),
            "note": note(timing, at),
            "fire_at": at + later,
        }
    )


def moment_note(row: dict[str, Any]) -> str:
    """Return what is unusual about an occurrence; empty when nothing is."""
    later = row["fire_at"] - row["nominal_at"]
    notes = [row["note"], f"fires {format_span(later)} later (jitter)" if later else None]
    return "; ".join(text for text in notes if text)


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


def _command(schedule: Schedule) -> dict[str, Any]:
    """Return the payload of a command; empty when it runs none."""
    payload = json_or_text(schedule.payload_json)
    return payload if schedule.workflow == COMMAND and isinstance(payload, dict) else {}
