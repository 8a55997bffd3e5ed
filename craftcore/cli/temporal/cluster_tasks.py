"""The calls of commands on the tasks of a cluster. Those that read need no worker."""

from __future__ import annotations

from typing import Any

from craftcore.audit.caller import actor
from craftcore.cli.damaged_list import RowList
from craftcore.cli.session import Session
from craftcore.cli.temporal.cluster_calls import call_cluster, call_operations, read_task
from craftcore.diagnostics.documents import (
    activity_document,
    event_document,
    question_document,
    task_document,
    wait_document,
)
from craftcore.errors import StateRefused
from craftcore.serialization.display import json_or_text
from craftcore.serialization.time_text import add_iso_times, clock_time
from craftcore.tasks.model import Task
from craftcore.temporal.records.recorded_task import RecordedTask
from craftcore.temporal.records.task_list import ListedTask, list_tasks
from craftcore.temporal.records.task_records import list_questions, list_records, list_stream
from craftcore.temporal.task_operations import TaskOperations

LIST_COLUMNS = ("id", "created", "workflow", "session", "status", "questions", "doubts")
LISTED_KEYS = ("id", "workflow", "session_id", "status", "created_at", "ended_at", "asks", "doubts")
ATTEMPTS_SHOWN = 10


class ClusterTasks:
    """The calls on the tasks of a cluster."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list_newest(self, **filters: Any) -> RowList[ListedTask]:
        return RowList(
            LIST_COLUMNS,
            call_cluster(self._session, lambda client: list_tasks(client, **filters)),
            document_of=lambda one: add_iso_times({name: getattr(one, name) for name in LISTED_KEYS}),
            cells=lambda one: (
                *(one.id, clock_time(one.created_at), one.workflow, one.session_id, one.status),
                *(len(one.asks), len(one.doubts)),
            ),
            digits=None,
        )

    def find(self, given: str) -> Task:
        return read_task(self._session, given).task

    def read(self, given: str) -> tuple[Task, dict[str, Any], int | None]:
        found = read_task(self._session, given)
        return found.task, make_card(found), None

    def read_events(self, given: str, limit: int) -> tuple[list[dict[str, Any]], bool]:
        stream = list_stream(read_task(self._session, given))
        return [event_document(event) for event in stream[-limit:]], len(stream) > limit

    def signal(self, given: str, event: str, payload: Any) -> tuple[str, Task | None, bool]:
        async def send(operations: TaskOperations) -> tuple[str, Task | None, bool]:
            found = await _find_live(operations, given)
            waits = [] if found.state is None else found.state.open_waits
            await operations.signal(found.id, event, payload, by=actor().text)
            return found.id, found.task, any(wait.event == event for wait in waits)

        return call_operations(self._session, send)

    def cancel(self, task_id: str, reason: str | None) -> Task:
        async def send(operations: TaskOperations) -> Task:
            found = await _find_live(operations, task_id)
            await operations.cancel(found.id, by=actor().text, note=reason)
            return found.task

        return call_operations(self._session, send)

    def retry(self, given: str, reason: str | None) -> Task:
        async def send(operations: TaskOperations) -> Task:
            found = await operations.find(given)
            await operations.retry(found.id, by=actor().text, note=reason)
            return (await operations.load(found.id)).task

        return call_operations(self._session, send)


async def _find_live(operations: TaskOperations, given: str) -> RecordedTask:
    found = await operations.find(given)
    if found.history.end is not None:
        raise StateRefused(f"task {found.id} is {found.task.status}; nothing was done")
    return found


def make_card(found: RecordedTask) -> dict[str, Any]:
    """Return a task with what belongs to it. Children are not listed: the cluster has them."""
    row, state = found.task, found.state
    records = list_records(found)
    names = ("id", "turn", "attempt", "created_at", "ended_at", "status", "error_code", "latency_ms")
    mails = [] if state is None else state.mails
    return {
        **task_document(row),
        "held": None,
        "reasons": [{"code": row.status.value, "text": row.reason}] if row.status.is_live else [],
        "state": json_or_text(row.state_json),
        "result": json_or_text(row.result_json),
        "progress": json_or_text(row.progress_json),
        "wait": wait_document([] if state is None else state.open_waits),
        "questions": [question_document(question) for question in list_questions(found)],
        "activities": [] if state is None else [activity_document(activity) for activity in state.acts.values()],
        "streams": [],
        "unread": len(mails),
        "unread_mail": [
            {
                "event": mail.event,
                "created_at": None,
                "trigger_id": None,
                "sent_by": mail.sent_by,
                "payload": json_or_text(mail.payload_json),
            }
            for mail in mails
        ],
        "attempts": len(records),
        "last_attempts": [
            add_iso_times({name: getattr(record, name) for name in names})
            for record in reversed(records[-ATTEMPTS_SHOWN:])
        ],
        "children": [],
    }
