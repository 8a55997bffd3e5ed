"""The state of a thing in one line, as a person saw it before they decided about it. Pure.

A form keeps this text. An operation compares it with the state in its own transaction, and refuses when it differs.
"""

from __future__ import annotations

from craftcore.activities.model import Activity
from craftcore.errors import StateRefused
from craftcore.executions.record import ExecutionRecord
from craftcore.schedules.model import Schedule
from craftcore.storage.damaged_rows import Damaged
from craftcore.tasks.model import Question, Task
from craftcore.triggers.model import Trigger

Subject = Task | Trigger | Question | Activity | Schedule | ExecutionRecord | Damaged


def state_text(subject: Subject) -> str:
    """Return what matters for a decision: the status, and what counts its life: turn, attempts, calls."""
    match subject:
        case Task():
            return f"{subject.status} at turn {subject.turn}"
        case Trigger():
            return f"{subject.status} after {subject.attempts} of its attempts"
        case Question():
            return f"{subject.status}"
        case Activity():
            decided = "" if subject.decision is None else f", decided: {subject.decision}"
            return f"{subject.status} after call {subject.calls}{decided}"
        case Schedule():
            return f"{subject.status}"
        case ExecutionRecord():
            return f"{subject.status}"
        case Damaged():
            return "damaged"


def require_unchanged(id: str, subject: Subject, seen: str) -> None:
    """Raise StateRefused when a thing is not any more as it was seen."""
    if (now := state_text(subject)) != seen:
        raise StateRefused(f"{id} was {seen} when you saw it, and is {now} now; nothing was done", now=now)
