"""The parts of what belongs to a task, beside its row: each as a JSON value, and each read by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from craftcore.activities.listing_store import ActivityListStore
from craftcore.diagnostics.documents import (
    activity_document,
    event_document,
    question_document,
    task_document,
    wait_document,
)
from craftcore.executions.store import ExecutionStore
from craftcore.serialization.display import json_or_text
from craftcore.serialization.time_text import add_iso_times
from craftcore.storage.damaged_rows import Damaged, require_readable, try_read
from craftcore.storage.transaction import Reader
from craftcore.tasks.hold_store import HoldStore
from craftcore.tasks.listing_store import TaskLists
from craftcore.tasks.mailbox_store import MailStore
from craftcore.tasks.model import Question, Task
from craftcore.tasks.question_store import QuestionStore
from craftcore.tasks.stream_store import StreamStore
from craftcore.tasks.turn_event_store import MemoStore
from craftcore.tasks.wait_store import WaitStore
from craftcore.tasks.waits import MAILBOX_MAX

ATTEMPTS_SHOWN, QUESTIONS_SHOWN, MAILS_SHOWN, CHILDREN_SHOWN, ACTIVITIES_SHOWN, STREAMS_SHOWN = 10, 20, 20, 100, 20, 20

Part = Callable[[Reader, Task], Any]


def hold_reason(reader: Reader, task: Task) -> str | None:
    """Return what the code of the last start does not fit of a live task; None when it fits, or has ended."""
    return HoldStore().get_reason(reader, task.id) if task.status.is_live else None


def read_details(reader: Reader, task: Task) -> dict[str, Any]:
    """Return all parts of a task. Raises UnreadableRow when a row of them is damaged."""
    return {name: part(reader, task) for name, part in PARTS.items()}


def read_readable_details(reader: Reader, task: Task) -> dict[str, Any]:
    """Return all parts of a task; a part with a damaged row is Damaged, and does not stop the others.

    The questions are models: a person who may not see arguments sees what was asked.
    """
    parts = {**PARTS, "questions": _list_questions}
    return {name: _try_part(reader, task, name, part) for name, part in parts.items()}


def read_events(reader: Reader, task: Task, limit: int) -> tuple[list[dict[str, Any]], bool]:
    """Return the newest events of a task, oldest of them first, and whether there are older ones."""
    stream = MemoStore().stream(reader, task.id, limit + 1)
    return [event_document(event) for event in stream[-limit:]], len(stream) > limit


def _try_part(reader: Reader, task: Task, name: str, part: Part) -> Any | Damaged:
    return try_read(name.replace("_", " "), lambda: part(reader, task))


def _list_questions(reader: Reader, task: Task) -> list[Question]:
    return QuestionStore().list_newest_of_task(reader, task.seq, QUESTIONS_SHOWN)


def _read_questions(reader: Reader, task: Task) -> list[dict[str, Any]]:
    return [question_document(one) for one in _list_questions(reader, task)]


def _read_activities(reader: Reader, task: Task) -> list[dict[str, Any]]:
    found = require_readable(ActivityListStore().list_newest(reader, ACTIVITIES_SHOWN, task_id=task.id))
    return [activity_document(activity) for activity in reversed(found)]


def _read_attempts(reader: Reader, task: Task) -> list[dict[str, Any]]:
    return [add_iso_times(row) for row in ExecutionStore().list_of_task(reader, task.id, ATTEMPTS_SHOWN)]


PARTS: dict[str, Part] = {
    "state": lambda _, task: json_or_text(task.state_json),
    "result": lambda _, task: json_or_text(task.result_json),
    "progress": lambda _, task: json_or_text(task.progress_json),
    "wait": lambda reader, task: wait_document(WaitStore().list_open(reader, task.seq)),
    "questions": _read_questions,
    "activities": _read_activities,
    "streams": lambda reader, task: [
        one._asdict() for one in StreamStore().list_of_task(reader, task.id, STREAMS_SHOWN)
    ],
    "unread": lambda reader, task: MailStore().count_unread(reader, task.seq, MAILBOX_MAX),
    "unread_mail": lambda reader, task: [
        event_document(mail) for mail in MailStore().list_unread(reader, task.seq, MAILS_SHOWN)
    ],
    "attempts": lambda reader, task: ExecutionStore().count_of_task(reader, task.id),
    "last_attempts": _read_attempts,
    "children": lambda reader, task: [
        task_document(child) for child in TaskLists().children(reader, task, CHILDREN_SHOWN)
    ],
}
"""The parts by their names, in the order of `craftcore task show --json`."""
