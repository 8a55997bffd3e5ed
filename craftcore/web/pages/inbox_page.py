"""`/`: the open questions, those in doubt and those that end soon first, and below them what needs a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from craftcore.diagnostics.open_questions import OpenQuestion, list_urgent_questions
from craftcore.diagnostics.text.question_text import AnswerEnd, answer_deadline_text, find_answer_end
from craftcore.storage.damaged_rows import Damaged, map_rows, try_read
from craftcore.tasks.model import Question, Task
from craftcore.tasks.question_store import QuestionStore
from craftcore.web.page import Page
from craftcore.web.visit import Visit

SHOWN = 50
COMING = 3
"""Upcoming items that are shown."""


class Entry(NamedTuple):
    """An open question of the list. `end`: None when no time ends it, and `lasts` says how long it is open."""

    question: Question
    task: Task | Damaged
    end: AnswerEnd | None
    lasts: str


def show_inbox(visit: Visit) -> Page:
    """Return the page of open questions."""
    with visit.reading() as reader:
        found = list_urgent_questions(reader, SHOWN + 1)
        coming = try_read("what comes", lambda: visit.timelines.list_next(reader, visit.now, COMING))
    status = visit.verdicts.read().status
    facts = {
        **read_inbox(visit),
        "questions": map_rows(found[:SHOWN], lambda one: _make_entry(one, visit.now)),
        "has_more": len(found) > SHOWN,
        "findings": [] if status is None else status.findings,
        "coming": coming,
    }
    return Page(template="inbox.html", title="Inbox", facts=facts)


def read_inbox(visit: Visit) -> Mapping[str, Any]:
    """Return the facts of the live line above the questions: the fragment has no form, so it is not the list itself."""
    with visit.reading() as reader:
        return {"newest_at": try_read("the newest question", lambda: QuestionStore().newest_open_at(reader))}


def _make_entry(one: OpenQuestion, now: float) -> Entry:
    question, task = one
    if isinstance(task, Damaged):
        return Entry(question, task, None, "")
    return Entry(question, task, find_answer_end(question, task), answer_deadline_text(question, task, now))
