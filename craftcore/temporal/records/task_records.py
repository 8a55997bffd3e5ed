"""A task on a cluster as the rows that the commands show: the task, its open questions, its executions."""

from __future__ import annotations

import json
from collections.abc import Sequence

from craftcore.errors import NotFound
from craftcore.executions.chain.seal import Event
from craftcore.executions.model import Reason, Status, envelope, execution_id
from craftcore.executions.record import ExecutionRecord
from craftcore.executions.responses import error_text
from craftcore.serialization.canonical import canonicalize
from craftcore.tasks.model import Question, QuestionKind, QuestionStatus, Task, TaskStatus, question_asked
from craftcore.temporal.records.history_events import TaskAttempt
from craftcore.temporal.records.recorded_task import RecordedTask
from craftcore.temporal.workflow import mailbox
from craftcore.temporal.workflow.messages import OpenQuestion
from craftcore.triggers.settlement import Failed

STATUSES = {
    "returned": Status.SUCCESS,
    "continues": Status.SUCCESS,
    "suspends": Status.SUSPENDED,
    "PENDING": Status.ERROR,
    "FAILED": Status.ERROR,
    "DEAD": Status.ERROR,
    "DONE": Status.SUCCESS,
}
"""The status of an execution, for each end of an entry. With any other it is incomplete."""


def list_questions(found: RecordedTask) -> list[Question]:
    """Return the open questions of a task."""
    return [] if found.state is None else [make_question(one) for one in mailbox.list_questions(found.state)]


def make_question(asked: OpenQuestion) -> Question:
    """Return the row of an open question. It has no numbers of other rows, which only a database has."""
    return Question(
        seq=0,
        id=asked.id,
        task_seq=0,
        task_id=asked.id.rpartition(".")[0],
        workflow=asked.workflow,
        wait_seq=None,
        activity_seq=None,
        activity_key=asked.activity_key,
        kind=QuestionKind(asked.kind),
        question=asked.question,
        asked=question_asked(asked.question, is_about_activity=asked.activity_key is not None),
        options=None if asked.options is None else tuple(asked.options),
        default_json=asked.default_json,
        by_message=asked.by_message,
        status=QuestionStatus.OPEN,
        answer=None,
        note=None,
        answered_by=None,
        created_at=asked.created_at,
        expires_at=asked.expires_at,
        closed_at=None,
        form_json=asked.form_json,
        addressee=asked.addressee,
    )


def list_records(found: RecordedTask) -> list[ExecutionRecord]:
    """Return the executions of a task, oldest first: one for each entry of a turn.

    They have no chain. A task that has ended has its result in the last one.
    """
    attempts = found.history.attempts
    last = attempts[-1] if attempts else None
    return [_make_record(found, attempt, found.task if attempt is last else None) for attempt in attempts]


def get_record(found: RecordedTask, entry: int | None) -> ExecutionRecord:
    """Return the execution of an entry; None: the last one. Raises NotFound."""
    records = list_records(found)
    if entry is None and records:
        return records[-1]
    for record in records:
        if entry is not None and record.seq == entry:
            return record
    what = (
        "no execution: no worker has taken it" if not records else f"no execution {entry}; the last is {len(records)}"
    )
    raise NotFound(f"task {found.id} has {what}")


def _make_record(found: RecordedTask, attempt: TaskAttempt, task: Task | None) -> ExecutionRecord:
    """Return the record of an entry. `task`: when it is the last entry; None: others followed."""
    start = found.history.start
    asked = envelope(
        workflow=start["workflow"],
        payload_json=start["payload_json"],
        request_id=found.id,
        source=start["source"],
        session_id=found.task.session_id,
        description=start.get("description"),
    )
    status = STATUSES.get(attempt.status, Status.INCOMPLETE)
    response = _make_response(attempt, status, task)
    ended = attempt.ended_at
    began = attempt.scheduled_at if attempt.began_at is None else attempt.began_at
    return ExecutionRecord(
        seq=attempt.entry,
        id=execution_id(found.id, attempt.entry),
        trigger_id=found.id,
        task_id=found.id,
        turn=attempt.turn,
        attempt=attempt.attempt,
        epoch=0,
        workflow=start["workflow"],
        created_at=began,
        ended_at=ended,
        status=status,
        replayable=response is not None,
        replayable_reason=None if response is not None else Reason.EXECUTION_INCOMPLETE,
        envelope_json=asked.text,
        envelope_hash=asked.hash,
        routing_json=None,
        response_json=response,
        error_code=attempt.error_code,
        latency_ms=None if ended is None else (ended - began) * 1000,
        chain_seq=None,
        events_hash=None,
        response_hash=None,
        prev_hash=None,
        record_hash=None,
        stripped_at=None,
        invalidated=None,
        events=_list_events(found, attempt.entry),
    )


def _list_events(found: RecordedTask, entry: int) -> tuple[Event, ...]:
    of_entry = [event for event in found.history.events if event.entry == entry]
    return tuple(
        Event(number, event.type, event.at, canonicalize(event.payload), turn=event.turn)
        for number, event in enumerate(of_entry, 1)
    )


def _make_response(attempt: TaskAttempt, status: Status, task: Task | None) -> str | None:
    match status:
        case Status.SUCCESS:
            is_end = task is not None and task.status is TaskStatus.DONE
            result = task.result_json if task is not None and is_end else None
            return f'{{"metadata":{{}},"payload":{result or "null"},"status":"success"}}'
        case Status.ERROR:
            code, message = attempt.error_code or "AGENT_ERROR", attempt.error_message or attempt.reason
            return error_text(Failed(code=code, message=message, retryable=attempt.status == "PENDING"), {})
        case _:
            return None


def list_stream(found: RecordedTask) -> Sequence[dict[str, object]]:
    """Return the documents of all events of a task, oldest first. Moments are epoch seconds."""
    return [
        {
            "seq": number,
            "execution_id": execution_id(found.id, event.entry) if event.entry else None,
            "at": event.at,
            "turn": event.turn,
            "type": event.type,
            "payload_json": json.dumps(event.payload),
        }
        for number, event in enumerate(found.history.events, 1)
    ]
