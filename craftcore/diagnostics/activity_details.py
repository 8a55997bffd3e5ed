"""All that is known of one irreversible action: its row, its task, its question, its decisions, its events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from craftcore.activities.listing_store import ActivityListStore
from craftcore.activities.model import Activity
from craftcore.diagnostics.documents import event_document
from craftcore.serialization.display import json_or_text
from craftcore.serialization.time_text import add_iso_times
from craftcore.storage.transaction import Reader
from craftcore.tasks.model import Question, Task
from craftcore.tasks.question_store import QuestionStore
from craftcore.tasks.store import TaskStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityDetails:
    """One activity with what belongs to it. `question`: the open one about it. `document`: what was sent and answered,
    the decisions and the events, as JSON values."""

    activity: Activity
    task: Task
    question: Question | None
    document: dict[str, Any]


def task_summary(task: Task) -> dict[str, Any]:
    """Return what an activity's document says of its task."""
    return {"id": task.id, "workflow": task.workflow, "status": task.status, "turn": task.turn}


def read_activity(reader: Reader, found: Activity) -> ActivityDetails:
    """Return what belongs to an activity."""
    task, store = TaskStore().get_by_seq(reader, found.task_seq), ActivityListStore()
    return ActivityDetails(
        activity=found,
        task=task,
        question=QuestionStore().open_question_about(reader, found.seq),
        document={
            "task": task_summary(task),
            "arguments": json_or_text(found.request_json),
            "result": json_or_text(found.result_json),
            "decisions": [add_iso_times(row) for row in store.decisions(reader, found.seq)],
            "events": [event_document(event) for event in store.list_history(reader, found)],
        },
    )
