"""The view of a task: its JSON documents, and its row in a table."""

from __future__ import annotations

from collections.abc import Sequence

from craftcore.diagnostics.text.trigger_text import name_work
from craftcore.serialization.time_text import clock_time
from craftcore.storage.damaged_rows import Damaged, list_damaged, omit_damaged
from craftcore.tasks.model import Task, Wait

LIST_COLUMNS = ("id", "created", "workflow", "session", "status", "turn", "until", "reason")


def task_row(task: Task, waits: Sequence[Wait | Damaged], held: str | None) -> tuple[object, ...]:
    """Return its row under LIST_COLUMNS."""
    ends = [wait.due_at for wait in omit_damaged(waits) if wait.due_at is not None]
    until = "damaged" if list_damaged(waits) else clock_time(min(ends)) if ends else None
    return (
        task.id,
        clock_time(task.created_at),
        name_work(task.workflow, task.schedule_id),
        task.session_id,
        task.status,
        task.turn,
        until,
        f"held: {held}" if held is not None else task.error_message or task.reason,
    )


def summary_text(task: Task) -> str:
    """Return `WAITING at turn 2: waits for an answer`"""
    why = task.error_message or task.reason
    return f"{task.status} at turn {task.turn}" + ("" if why is None else f": {why}")
