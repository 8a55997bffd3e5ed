"""The view of a task: its JSON documents, and its row in a table."""

from __future__ import annotations

from typing import Any

from craftcore.cli.damaged_list import damaged_document
from craftcore.cli.output import add_iso_times
from craftcore.serialization.display import json_or_text
from craftcore.serialization.time_text import clock_time
from craftcore.storage.damaged_rows import Damaged
from craftcore.storage.transaction import Reader, Row
from craftcore.tasks.hold_store import HoldStore
from craftcore.tasks.model import Task, Wait
from craftcore.tasks.turn_event_store import StreamRow

DOCUMENT = (
    *("id", "workflow", "status", "reason", "turn", "session_id", "schedule_id", "parent_id", "trigger_id"),
    *("error_code", "error_message", "max_attempts", "turns_alone", "steps_alone", "created_at", "updated_at"),
    *("deadline_at", "ended_at"),
)
"""The keys of a task's JSON document, in this order; moments also as ISO."""

LIST_COLUMNS = ("id", "created", "workflow", "session", "status", "turn", "until", "reason")


def task_document(task: Task) -> dict[str, Any]:
    """Return the row for programs, without its state and result."""
    return add_iso_times({name: getattr(task, name) for name in DOCUMENT})


def wait_document(wait: Wait | Damaged | None) -> dict[str, Any] | None:
    """Return what a task waits for; None when it does not."""
    if wait is None:
        return None
    if isinstance(wait, Damaged):
        return damaged_document(wait)
    names = ("id", "turn", "name", "kind", "event", "due_at", "created_at")
    return add_iso_times({name: getattr(wait, name) for name in names})


def mail_document(mail: Row) -> dict[str, Any]:
    """Return a mail that nobody has read."""
    known = {name: value for name, value in mail.items() if name != "payload_json"}
    return add_iso_times({**known, "payload": json_or_text(mail["payload_json"])})


def event_document(event: StreamRow) -> dict[str, Any]:
    """Return an event of a task's stream."""
    known = {name: value for name, value in event._asdict().items() if name != "payload_json"}
    return add_iso_times({**known, "payload": json_or_text(event.payload_json)})


def hold_reason(reader: Reader, task: Task) -> str | None:
    """Return what the code of the last start does not fit of a live task; None when it fits, or has ended."""
    return HoldStore().get_reason(reader, task.id) if task.status.is_live else None


def task_row(task: Task, wait: Wait | Damaged | None, held: str | None) -> tuple[object, ...]:
    """Return its row under LIST_COLUMNS."""
    if isinstance(wait, Damaged):
        until: str | None = "damaged"
    else:
        until = None if wait is None or wait.due_at is None else clock_time(wait.due_at)
    return (
        task.id,
        clock_time(task.created_at),
        task.workflow,
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
