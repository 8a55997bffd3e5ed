"""Rows as JSON documents, for the command line and for programs. Each moment is also there in ISO: `due_at_iso`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from craftcore.activities.model import Activity
from craftcore.schedules.model import Schedule
from craftcore.serialization.display import json_or_text
from craftcore.serialization.time_text import add_iso_times
from craftcore.storage.damaged_rows import Damaged, row_document
from craftcore.storage.transaction import Row
from craftcore.tasks.model import Question, Task, Wait
from craftcore.tasks.session_message import StoredMessage
from craftcore.tasks.turn_event_store import StreamRow
from craftcore.triggers.model import Trigger

ACTIVITY_KEYS = (
    *("key", "task_id", "turn", "action", "status", "reason", "policy", "provider_ref", "decision", "in_doubt"),
    *("may_retry", "calls", "args_hash", "result_unstored", "error_code", "error_message", "first_call_at"),
    *("last_call_at", "created_at", "updated_at", "settled_at"),
)
QUESTION_KEYS = (
    *("id", "task_id", "workflow", "kind", "activity_key", "question", "options", "default", "by_message", "status"),
    *("answer", "note", "answered_by", "created_at", "expires_at", "closed_at", "form", "to"),
)
SCHEDULE_KEYS = (
    *("id", "status", "reason", "origin", "expression", "kind", "timezone", "workflow", "payload", "catch_up"),
    *("catch_up_window", "catch_up_max", "catch_up_spacing", "overlap", "jitter", "expires_after", "start_at"),
    *("until_at", "max_runs", "runs", "next_at", "last_nominal_at", "high_water_at", "skip_to_at", "generation"),
    *("session_id", "source", "deliver", "priority", "description", "max_attempts", "created_at", "updated_at"),
)
TASK_KEYS = (
    *("id", "workflow", "status", "reason", "turn", "session_id", "schedule_id", "parent_id", "trigger_id"),
    *("error_code", "error_message", "max_attempts", "turns_alone", "steps_alone", "created_at", "updated_at"),
    *("deadline_at", "ended_at"),
)
WAIT_KEYS = ("id", "turn", "name", "kind", "event", "due_at", "created_at")


def trigger_document(trigger: Trigger) -> dict[str, Any]:
    """Return a trigger, its payload as an object."""
    document = asdict(trigger)
    document["payload"] = json_or_text(document.pop("payload_json"))
    return add_iso_times(document)


def schedule_document(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule, its payload as an object."""
    payload = json_or_text(schedule.payload_json)
    return add_iso_times({name: payload if name == "payload" else getattr(schedule, name) for name in SCHEDULE_KEYS})


def task_document(task: Task) -> dict[str, Any]:
    """Return a task without its state and result."""
    return add_iso_times({name: getattr(task, name) for name in TASK_KEYS})


def wait_document(waits: Sequence[Wait | Damaged]) -> dict[str, Any] | None:
    """Return the wait of a task, with its alternatives if it has any. None: the task does not wait."""
    documents = [
        row_document(wait, lambda whole: add_iso_times({name: getattr(whole, name) for name in WAIT_KEYS}))
        for wait in waits
    ]
    if len(documents) > 1:
        documents[0]["others"] = documents[1:]
    return documents[0] if documents else None


def question_document(question: Question) -> dict[str, Any]:
    """Return a question, its default and its form as values."""
    values = {
        "default": json_or_text(question.default_json),
        "form": None if question.form_json is None else json_or_text(question.form_json),
        "to": question.addressee,
    }
    return add_iso_times({name: values[name] if name in values else getattr(question, name) for name in QUESTION_KEYS})


def activity_document(activity: Activity) -> dict[str, Any]:
    """Return an activity without its arguments and its result."""
    return add_iso_times({name: getattr(activity, name) for name in ACTIVITY_KEYS})


def event_document(event: Row | StreamRow) -> dict[str, Any]:
    """Return an event of a task or an activity, or a message, with its payload as a value."""
    row = event if isinstance(event, dict) else event._asdict()
    known = {name: value for name, value in row.items() if name != "payload_json"}
    return add_iso_times({**known, "payload": json_or_text(row["payload_json"])})


def message_document(message: StoredMessage) -> dict[str, Any]:
    """Return a message of a session, as a value."""
    return add_iso_times(
        {
            "number": message.number,
            "task_id": message.task_id,
            "turn": message.turn,
            "created_at": message.created_at,
            "message": json_or_text(message.message_json),
        }
    )
