"""`/tasks/{id}`: a task: why it is as it is, its picture, and all that belongs to it."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import quote

from craftcore.audit.listing_store import AuditFilter, AuditListStore
from craftcore.daemon.lock import read_note
from craftcore.diagnostics.documents import message_document
from craftcore.diagnostics.live_counts import is_booting
from craftcore.diagnostics.reasons.trigger_reasons import task_reasons
from craftcore.diagnostics.tasks.task_details import hold_reason, read_readable_details
from craftcore.diagnostics.tasks.task_history import TaskHistory, read_task_history
from craftcore.diagnostics.text.audit_text import actor_text
from craftcore.executions.listing_store import ExecutionListStore
from craftcore.storage.damaged_rows import Damaged, require_readable, try_read
from craftcore.storage.transaction import Reader
from craftcore.tasks.model import Task, TaskStatus
from craftcore.tasks.session_message import session_of
from craftcore.tasks.session_message_store import SessionMessageStore
from craftcore.tasks.stream_store import StreamStore
from craftcore.web.actions.subjects import find_task
from craftcore.web.excerpt import excerpt_of_event
from craftcore.web.links import change_query, read_number
from craftcore.web.page import Page
from craftcore.web.picture import Picture, make_picture
from craftcore.web.pictures.mark import Mark
from craftcore.web.visit import Visit

EVENTS_SHOWN, EVENTS_MOST = 100, 500
"""Events that are drawn at first, and at most. The pages of records have those before them."""

LINES_SHOWN, LINES_BESIDE_MANY = 200, 100
"""Rows of the table of marks on one page; beside a picture of very many marks, which is large itself, fewer."""

AUDIT_SHOWN = 20
MESSAGES_SHOWN = 20
STREAMS_SHOWN = 5
TEXT_SHOWN = 4_000
"""Characters of the end of a stream."""


class MarkLine(NamedTuple):
    """A mark as a row of the table beside the picture."""

    mark: Mark
    excerpt: str | None


class Lines(NamedTuple):
    """Some rows of that table. `earlier`: the address of those before them; None: there are none in the picture."""

    rows: list[MarkLine]
    earlier: str | None


class WrittenStream(NamedTuple):
    """A stream of one turn, with the end of its text."""

    name: str
    turn: int
    chunks: int
    text: str
    is_damaged: bool


class Drawn(NamedTuple):
    """A picture with the table beside it. `earlier`: the address of the events before it; `more`: that of a picture
    with more of them; None: there are none."""

    picture: Picture
    lines: Lines
    earlier: str | None
    more: str | None


def show_task(visit: Visit) -> Page:
    """Return the page of a task. Raises NotFound."""
    shown = min(read_number(visit, "events") or EVENTS_SHOWN, EVENTS_MOST)
    note, daemon_runs = read_note(visit.services.database.path)
    with visit.reading() as reader:
        task = find_task(reader, visit.path["id"])
        booting = is_booting(reader, note, held=daemon_runs)
        weight = visit.services.config.triggers.priority_weight
        reasons = try_read(
            "the reasons",
            lambda: task_reasons(
                reader, task, visit.now, daemon_runs=daemon_runs, priority_weight=weight, booting=booting
            ),
        )
        drawn = try_read("the picture", lambda: _draw(reader, task, visit, daemon_runs=daemon_runs, limit=shown))
        held = hold_reason(reader, task)
        details = read_readable_details(reader, task)
        audit = _read_audit(reader, task, details)
        conversation = try_read("the conversation", lambda: _read_messages(reader, task))
        written = try_read("streams", lambda: _read_streams(reader, task, details["streams"]))
    facts = {
        "task": task,
        "held": held,
        "reasons": reasons,
        "drawn": drawn,
        "most": EVENTS_MOST,
        "audit": audit,
        "conversation": conversation,
        "written": written,
        "actions": list_actions(task, held),
        **details,
    }
    return Page(template="task.html", title=f"{task.workflow}: {task.status} at turn {task.turn}", facts=facts)


def list_actions(task: Task, held: str | None) -> list[str]:
    """Return the names of the operator actions that fit the state of a task."""
    if task.status is TaskStatus.FAILED:
        return ["task retry"]
    if not task.status.is_live:
        return []
    return ["task cancel", "task signal"] if held is None else ["task retry", "task cancel", "task signal"]


def _draw(reader: Reader, task: Task, visit: Visit, *, daemon_runs: bool, limit: int) -> Drawn:
    history = read_task_history(reader, task, visit.now, daemon_runs=daemon_runs, limit=limit)
    picture = make_picture(history)
    has_all_asked = picture.events >= limit  # large payloads leave fewer
    return Drawn(
        picture,
        _list_lines(visit, picture),
        _find_earlier(reader, history) if history.has_more else None,
        change_query(visit, events=EVENTS_MOST) if has_all_asked and limit < EVENTS_MOST else None,
    )


def _find_earlier(reader: Reader, history: TaskHistory) -> str:
    """Return the address of the events before those of a history: in their record, or in the one before it."""
    first = history.events[0]
    before = ExecutionListStore().find_earlier(reader, first.execution_id) if first.seq == 1 else None
    if before is not None:
        return f"/records/{quote(before, safe='')}"
    return f"/records/{quote(first.execution_id, safe='')}?before={first.seq}"


def _list_lines(visit: Visit, picture: Picture) -> Lines:
    """Return the newest marks of a picture, or those before `row`, with what their events tell as far as this person
    may see it."""
    end = min(read_number(visit, "row") or len(picture.marks), len(picture.marks))
    begin = max(0, end - (LINES_BESIDE_MANY if picture.outlines else LINES_SHOWN))
    rows = [MarkLine(mark, excerpt_of_event(visit, mark.facts)) for mark in picture.marks[begin:end]]
    return Lines(rows, change_query(visit, row=begin) + "#events" if begin else None)


def _read_messages(reader: Reader, task: Task) -> list[dict[str, Any]]:
    """Return the newest messages of the session of a task, oldest of them first."""
    found = SessionMessageStore().list_newest(reader, session_of(task), MESSAGES_SHOWN, 0, None)
    return [message_document(message) for message in require_readable(found)]


def _read_streams(reader: Reader, task: Task, streams: Any) -> list[WrittenStream] | Damaged:
    """Return the newest streams of a task with the ends of their texts."""
    if isinstance(streams, Damaged):
        return streams
    found = []
    for one in streams[:STREAMS_SHOWN]:
        texts = StreamStore().read_texts(reader, task.id, one["name"], one["turn"])
        text = "" if texts is None else "".join(texts)
        found.append(WrittenStream(one["name"], one["turn"], one["chunks"], text[-TEXT_SHOWN:], texts is None))
    return found


def _read_audit(reader: Reader, task: Task, details: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what operators did to a task, its questions and its activities, newest first."""
    questions, activities = (
        [] if isinstance(details[name], Damaged) else details[name] for name in ("questions", "activities")
    )
    parts = [*(str(one.id) for one in questions), *(str(one["key"]) for one in activities)]
    rows = AuditListStore().list_newest(reader, AUDIT_SHOWN, AuditFilter(subject=task.id, parts=parts))
    return [
        {"at": row.at, "actor": actor_text(row), "action": row.action, "subject": row.subject, "reason": row.reason}
        for row in rows
    ]
