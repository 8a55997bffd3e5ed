"""The view of a whole task for people: its facts, and the tables of what belongs to it."""

from __future__ import annotations

from typing import Any

from craftcore.cli.output import Output
from craftcore.cli.program_output import print_output, split_output
from craftcore.cli.short_ids import shorten_cells
from craftcore.diagnostics.text.event_text import event_text
from craftcore.diagnostics.text.printable import Verbatim, show_json
from craftcore.serialization.display import shorten
from craftcore.serialization.time_text import clock_time, format_span
from craftcore.tasks.model import Task, TaskStatus

EVENT_COLUMNS = ("time", "turn", "type", "what")
QUESTION_COLUMNS = ("question", "asked", "status", "answer", "by", "what")
ACTIVITY_COLUMNS = ("irreversible", "called", "action", "status", "reference", "what")
MAIL_COLUMNS = ("unread mail", "event", "message", "from", "payload")
STREAM_COLUMNS = ("stream", "turn", "chunks", "last")
ATTEMPT_COLUMNS = ("turn", "attempt", "began", "status", "took", "error", "record")
CHILD_COLUMNS = ("child", "workflow", "status", "reason")
TEXT_MAX = 1_000


def print_task(out: Output, task: Task, document: dict[str, Any], digits: int | None) -> None:
    """Print a task with what belongs to it. `digits`: of the ids in tables; None: they are whole."""
    out.line(f"{task.id} is {task.status} at turn {task.turn}", style="bold")
    for reason in document["reasons"]:
        out.line(f"  {reason['text']}")
    out.line()
    result, texts = split_output(document["result"])
    out.facts(
        {
            "workflow": task.workflow,
            "session": task.session_id,
            "schedule": task.schedule_id,
            "parent": task.parent_id,
            "attempts": f"{document['attempts']:,} of all its turns",
            "trigger": task.trigger_id,
            "created": clock_time(task.created_at),
            "moved": clock_time(task.updated_at),
            "deadline": None if task.deadline_at is None else clock_time(task.deadline_at),
            "ended": None if task.ended_at is None else clock_time(task.ended_at),
            "error": None if task.error_code is None else f"{task.error_code}: {task.error_message}",
            "progress": _value(document["progress"]),
            "state": _value(document["state"]),
            "result": _value(result) if task.status is TaskStatus.DONE else None,
        }
    )
    print_output(out, texts)
    _table(out, QUESTION_COLUMNS, [_question_cells(one) for one in document["questions"]], digits)
    _table(out, ACTIVITY_COLUMNS, [_activity_cells(one) for one in document["activities"]], digits)
    _table(out, MAIL_COLUMNS, [_mail_cells(one) for one in document["unread_mail"]], digits)
    _table(out, STREAM_COLUMNS, [tuple(one.values()) for one in document["streams"]], None)
    _table(out, ATTEMPT_COLUMNS, [_attempt_cells(one) for one in document["last_attempts"]], digits)
    names = ("id", "workflow", "status", "reason")
    _table(out, CHILD_COLUMNS, [tuple(child[name] for name in names) for child in document["children"]], digits)


def print_events(out: Output, events: list[dict[str, Any]]) -> None:
    """Print the events of a task as a table, from their documents."""
    rows = [
        (clock_time(one["at"]), one["turn"], one["type"], event_text(one["type"], one["payload"])) for one in events
    ]
    out.table(EVENT_COLUMNS, rows)


def _table(out: Output, columns: tuple[str, ...], rows: list[tuple[object, ...]], digits: int | None) -> None:
    if rows:
        out.line()
        out.table(columns, rows if digits is None else [shorten_cells(row, digits) for row in rows])


def _question_cells(document: dict[str, Any]) -> tuple[object, ...]:
    asked = clock_time(document["created_at"])
    return document["id"], asked, document["status"], document["answer"], document["answered_by"], document["question"]


def _activity_cells(document: dict[str, Any]) -> tuple[object, ...]:
    called = clock_time(document["last_call_at"])
    return document["key"], called, document["action"], document["status"], document["provider_ref"], document["reason"]


def _mail_cells(document: dict[str, Any]) -> tuple[object, ...]:
    return (
        clock_time(document["created_at"]),
        document["event"],
        document["trigger_id"],
        document["sent_by"],
        _value(document["payload"]),
    )


def _attempt_cells(document: dict[str, Any]) -> tuple[object, ...]:
    took = None if document["latency_ms"] is None else format_span(document["latency_ms"] / 1000)
    began = clock_time(document["created_at"])
    return (
        document["turn"],
        document["attempt"],
        began,
        document["status"],
        took,
        document["error_code"],
        document["id"],
    )


def _value(value: Any) -> Verbatim | None:
    return None if value is None else Verbatim(shorten(show_json(value), TEXT_MAX))
