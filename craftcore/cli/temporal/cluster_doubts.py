"""The calls of commands on the questions and irreversible actions of a cluster. Those that decide need a worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from craftcore.activities.model import Activity, ActivityStatus, Decision
from craftcore.audit.caller import actor
from craftcore.cli.lookup import refuse_bad_text
from craftcore.cli.session import Session
from craftcore.cli.temporal.cluster_calls import call_operations
from craftcore.clock import SystemClock
from craftcore.diagnostics.activity_details import ActivityDetails, task_summary
from craftcore.diagnostics.documents import event_document
from craftcore.diagnostics.open_questions import OpenQuestion
from craftcore.errors import InvalidInput
from craftcore.serialization.display import json_or_text
from craftcore.serialization.texts import NOTE_MAX
from craftcore.serialization.time_text import add_iso_times
from craftcore.storage.damaged_rows import Damaged
from craftcore.tasks.answer_form import read_answer
from craftcore.tasks.model import Question, QuestionStatus, Task
from craftcore.temporal.records.recorded_task import RecordedTask
from craftcore.temporal.records.task_records import list_questions, list_stream
from craftcore.temporal.task_operations import TaskOperations
from craftcore.temporal.workflow.search_attributes import ASKS_KEY, DOUBTS_KEY


class ClusterDoubts:
    """The calls on the questions and actions of a cluster."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list_questions(self, limit: int) -> tuple[list[OpenQuestion | Damaged], bool, float]:
        asking = call_operations(self._session, lambda tasks: tasks.list_having(ASKS_KEY.name, limit + 1))
        asked = [(question, one.task) for one in asking for question in list_questions(one)]
        found: list[OpenQuestion | Damaged] = [
            OpenQuestion(*pair) for pair in sorted(asked, key=lambda pair: pair[0].created_at)
        ]
        return found[:limit], len(found) > limit, SystemClock().now()

    def answer(
        self, given: str, choose: Callable[[Question], str], *, note: str | None, reference: str | None
    ) -> tuple[Question, Task, Activity | None]:
        refuse_bad_text("note", note, NOTE_MAX)
        by = actor().text

        async def send(operations: TaskOperations) -> tuple[Question, Task, Activity | None]:
            asked = await operations.find_question(given)
            choice = choose(asked)
            if asked.options is not None and choice not in asked.options:
                raise InvalidInput(f"{choice!r:.200} is not one of the options: {', '.join(asked.options)}")
            if asked.form_json is not None:
                choice = read_answer(asked.form_json, choice)
            await operations.answer(asked.id, choice, by=by, note=note, reference=reference)
            closed = replace(asked, status=QuestionStatus.ANSWERED, closed_at=SystemClock().now())
            found, key = await operations.find(asked.task_id), asked.activity_key
            about = None if key is None or found.state is None else found.state.acts[key]
            return replace(closed, answer=choice, note=note, answered_by=by), found.task, about

        return call_operations(self._session, send)

    def list_activities(
        self, limit: int, status: ActivityStatus | None, task: str | None, action: str | None
    ) -> tuple[Sequence[Activity], int | None]:
        async def read(operations: TaskOperations) -> list[RecordedTask]:
            if task is not None:
                return [await operations.find(task)]
            return await operations.list_having(DOUBTS_KEY.name, limit)

        wanted = status if task is not None else status or ActivityStatus.UNKNOWN
        found = [
            one
            for recorded in call_operations(self._session, read)
            for one in ([] if recorded.state is None else recorded.state.acts.values())
            if wanted in (None, one.status) and action in (None, one.action)
        ]
        return sorted(found, key=lambda one: one.created_at, reverse=True)[:limit], None

    def find_activity(self, given: str) -> Activity:
        return call_operations(self._session, lambda operations: operations.find_activity(given))[1]

    def read_activity(self, given: str) -> tuple[ActivityDetails, bool]:
        recorded, found = call_operations(self._session, lambda operations: operations.find_activity(given))
        question = next((one for one in list_questions(recorded) if one.activity_key == found.key), None)
        document = {
            "task": task_summary(recorded.task),
            "arguments": json_or_text(found.request_json),
            "result": json_or_text(found.result_json),
            "decisions": _list_decisions(recorded, found),
            "events": [event_document(event) for event in list_stream(recorded) if _is_about(event, found)],
        }
        return ActivityDetails(activity=found, task=recorded.task, question=question, document=document), True

    def decide(
        self, seen: Activity, decision: Decision, *, note: str | None, reference: str | None
    ) -> tuple[Activity, Task]:
        async def send(operations: TaskOperations) -> tuple[Activity, Task]:
            by = actor().text
            await operations.decide(seen.task_id, seen.key, decision, by=by, note=note, reference=reference)
            found, after = await operations.find_activity(seen.key)
            return after, found.task

        return call_operations(self._session, send)


def _list_decisions(task: RecordedTask, found: Activity) -> list[dict[str, Any]]:
    """Return the decisions of people about an activity. An answer to its question is one, too."""
    return [
        add_iso_times(
            {
                "decided_at": one.at,
                "decided_by": one.by,
                "decision": one.details["decision"],
                "reference": one.details["reference"],
                "note": one.note,
            }
        )
        for one in task.history.operations
        if one.action == "activity resolve" and one.subject == found.key
    ]


def _is_about(event: Any, found: Activity) -> bool:
    payload = json_or_text(event["payload_json"])
    return isinstance(payload, dict) and found.key in (payload.get("key"), payload.get("subject"))
