"""A line of a schedule's account in words: what was to come when, what became of it, and why. Pure."""

from __future__ import annotations

from craftcore.diagnostics.text.schedule_text import local_time_text
from craftcore.schedules.model import FireCause, Outcome
from craftcore.schedules.occurrence_end_store import EndState, OccurrenceEnd
from craftcore.serialization.display import shorten
from craftcore.serialization.plurals import format_count
from craftcore.serialization.time_text import format_span
from craftcore.web.strip import Mark, MarkedLine

MESSAGE_SHOWN = 300
"""Characters of an error message that a line shows."""

NOT_PLANNED = (Mark.LATE, Mark.SKIPPED, Mark.FAILED, Mark.WAITS)
"""The marks of what a person looks for first."""


def format_moments(line: MarkedLine, timezone: str) -> str:
    """Return the moment of a line in the schedule's zone, or its first and last moment."""
    occurrence = line.occurrence
    first = local_time_text(occurrence.nominal_at, timezone)
    return first if occurrence.count == 1 else f"{first} to {local_time_text(occurrence.last_at, timezone)}"


def describe_line(line: MarkedLine, timezone: str, daemon_started_at: float | None = None) -> str:
    """Return what became of a line, and why, as far as anything tells. `daemon_started_at`: of the daemon that began
    it; None: unknown."""
    occurrence, end = line.occurrence, line.end
    asked = "" if occurrence.cause is FireCause.TIME else f" ({occurrence.cause})"
    if end is None:
        if occurrence.outcome is Outcome.SKIPPED:
            return f"{occurrence.count:,} skipped{asked}: {occurrence.reason}"
        return f"{occurrence.reason}{asked}"
    delay = "" if line.late is None else f", {_explain_delay(line, line.late, timezone, daemon_started_at)}"
    return f"fired{asked}{delay}; {_end_text(end)}"


def _explain_delay(line: MarkedLine, seconds: float, timezone: str, started_at: float | None) -> str:
    """Return how late it began, and what is known of the time until then."""
    late = f"{format_span(seconds)} late"
    if line.occurrence.reason is not None:
        return f"{late}: it {line.occurrence.reason}"
    if started_at is not None and started_at > line.occurrence.nominal_at:
        return f"{late}: the daemon that began it started at {local_time_text(started_at, timezone)}"
    return late


def _end_text(end: OccurrenceEnd) -> str:
    """Return the end of what fired in words."""
    match end.state:
        case EndState.WAITS:
            return "not started"
        case EndState.AT_WORK:
            return f"task is {end.status}" if end.is_task else "at work"
        case EndState.NOT_RUN:
            return f"did not run: {end.reason}"
        case EndState.GONE:
            return "its trigger and its records were removed by retention"
        case EndState.FAILED:
            message = None if end.error_message is None else shorten(end.error_message, MESSAGE_SHOWN)
            why = ": ".join(part for part in (end.error_code or end.reason, message) if part)
            tried = f" after {format_count(end.attempts, 'attempt')}" if end.attempts else ""
            return f"failed{tried}: {why}{'; dead letter' if end.is_dead else ''}"
        case EndState.DONE:
            took = ""
            if end.began_at is not None and end.ended_at is not None:
                took = f" after {format_span(max(0.0, end.ended_at - end.began_at))}"
            has_reason = end.reason not in (None, "succeeded") and end.status != "success"
            return f"ended{took}: {end.reason}" if has_reason else f"succeeded{took}"
