"""The state of a thing in one line, as a person saw it before they decided about it. Pure.

A form keeps this text. An operation compares it with the state in its own transaction, and refuses when it differs.
"""

from __future__ import annotations

from craftcore.activities.model import Activity
from craftcore.errors import StateRefused
from craftcore.executions.record import ExecutionRecord
from craftcore.schedules.clock_guard import HeldClock
from craftcore.schedules.model import Schedule
from craftcore.serialization.canonical import sha256_of
from craftcore.serialization.time_text import clock_time
from craftcore.storage.damaged_rows import Damaged
from craftcore.tasks.model import Question, QuestionStatus, Task
from craftcore.triggers.model import Trigger
from craftcore.triggers.start_holds import StartHolds

Subject = Task | Trigger | Question | Activity | Schedule | ExecutionRecord | StartHolds | HeldClock | Damaged

TEXT_MAX = 500
"""Characters of a state that are printed; a longer one ends with its hash."""


def state_text(subject: Subject) -> str:
    """Return what matters for a decision: the status, and what counts its life: turn, attempts, calls."""
    match subject:
        case Task():
            return f"{subject.status} at turn {subject.turn}"
        case Trigger():
            return f"{subject.status} after {subject.attempts} of its attempts"
        case Question(status=QuestionStatus.ANSWERED):
            return f"ANSWERED by {subject.answered_by}"
        case Question():
            return f"{subject.status}"
        case Activity():
            decided = "" if subject.decision is None else f", decided: {subject.decision}"
            return f"{subject.status} after call {subject.calls}{decided}"
        case Schedule():
            return f"{subject.status} as declared {subject.declared_hash.removeprefix('sha256:')[:8]}"
        case ExecutionRecord():
            return f"{subject.status}"
        case StartHolds():
            return _shorten("; ".join(subject.reasons)) or "not held"
        case HeldClock():
            return "trusted" if subject.until is None else f"held until {clock_time(subject.until)}"
        case Damaged():
            return "damaged"


def next_occurrence_text(subject: Subject) -> str:
    """Return the state of a schedule with its next occurrence, for a decision about that occurrence."""
    assert isinstance(subject, Schedule)
    skipped = "" if subject.skip_to_at is None else f", skipped to {clock_time(subject.skip_to_at)}"
    following = "none" if subject.next_at is None else clock_time(subject.next_at)
    return f"{state_text(subject)}, next {following}{skipped}"


def require_unchanged(name: str, now: str, seen: str) -> None:
    """Raise StateRefused when a thing is not any more as it was seen. `now` and `seen`: its states."""
    if now != seen:
        raise StateRefused(f"{name} was {seen} when you saw it, and is {now} now; nothing was done", now=now)


def _shorten(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}… ({sha256_of(text).removeprefix('sha256:')[:8]})"
