"""The view of a schedule: its expression as it was read, its next occurrence, and its JSON document."""

from __future__ import annotations

import shlex
from typing import Any

from craftcore.cli.schedule.options import COMMAND
from craftcore.cli.session import finding_text, hint
from craftcore.diagnostics.conditions import schedules_held_findings
from craftcore.diagnostics.text.schedule_text import format_local_and_utc, local_time_text, next_firing
from craftcore.schedules.model import Schedule, ScheduleStatus
from craftcore.schedules.recurrence.timing import Cron, Every, Once, Startup, Timing
from craftcore.serialization.display import json_or_text
from craftcore.storage.transaction import Reader


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
    """Return one line: the next occurrence that fires, or why there is none."""
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
    skipped = "" if moment == schedule.next_at else "; earlier occurrences are skipped"
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


def schedules_held_text(reader: Reader, now: float) -> str | None:
    """Return why no schedule fires, whatever its row says, and what to do. None when nothing holds them."""
    return next(map(finding_text, schedules_held_findings(reader, now)), None)
