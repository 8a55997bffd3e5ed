"""The view of a schedule: what ends in a command to paste."""

from __future__ import annotations

from craftcore.cli.session import finding_text
from craftcore.diagnostics.conditions import schedules_held_findings
from craftcore.diagnostics.text.schedule_text import next_occurrence_finding
from craftcore.schedules.model import Schedule
from craftcore.storage.transaction import Reader


def next_occurrence_text(schedule: Schedule, now: float) -> str:
    """Return one line: the next occurrence that fires, or why there is none."""
    return finding_text(next_occurrence_finding(schedule, now))


def schedules_held_text(reader: Reader, now: float) -> str | None:
    """Return why no schedule fires, whatever its row says, and what to do. None when nothing holds them."""
    return next(map(finding_text, schedules_held_findings(reader, now)), None)
