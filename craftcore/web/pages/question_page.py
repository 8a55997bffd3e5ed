"""`/q/ID`: one question, its answers as buttons, and what its task did so far."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from craftcore.diagnostics.documents import event_document
from craftcore.diagnostics.text.question_text import answer_deadline_text
from craftcore.storage.damaged_rows import try_read
from craftcore.storage.transaction import Reader
from craftcore.tasks.model import QuestionStatus
from craftcore.tasks.store import TaskStore
from craftcore.tasks.turn_event_store import MemoStore
from craftcore.web.actions.form_fields import list_fields
from craftcore.web.actions.subjects import find_question
from craftcore.web.excerpt import excerpt_of_event
from craftcore.web.page import Answer, Page, Redirect
from craftcore.web.pictures.label import event_label
from craftcore.web.visit import Visit

EVENTS = 10


def show_question(visit: Visit) -> Answer:
    """Return the page of a question; an open one about an action in doubt is decided on the page of the action."""
    with visit.reading() as reader:
        question = find_question(reader, visit.path["id"])
        task = TaskStore().get_by_seq(reader, question.task_seq)
        events = try_read("events", lambda: _list_events(visit, reader, task.id))
    if question.activity_key is not None and question.status is QuestionStatus.OPEN:
        return Redirect(f"/activities/{quote(question.activity_key, safe='')}")
    facts = {
        "question": question,
        "task": task,
        "events": events,
        "is_open": question.status is QuestionStatus.OPEN,
        "deadline": answer_deadline_text(question, task, visit.now),
        "form_fields": list_fields(question.form_json),
    }
    return Page(template="question.html", title=f"Question of {question.workflow}", facts=facts)


def _list_events(visit: Visit, reader: Reader, task_id: str) -> list[dict[str, Any]]:
    return [_event_row(visit, event_document(row)) for row in MemoStore().list_newest(reader, task_id, EVENTS).rows]


def _event_row(visit: Visit, row: dict[str, Any]) -> dict[str, Any]:
    label, excerpt = event_label(row["type"], row["payload"]), excerpt_of_event(visit, row["payload"])
    return {"at": row["at"], "type": row["type"], "text": label if excerpt is None else f"{label}: {excerpt}"}
