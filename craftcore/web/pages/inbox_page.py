"""`/`: the open questions, those about an action in doubt first, and below them what needs a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from craftcore.diagnostics.open_questions import OpenQuestion, list_open_questions
from craftcore.storage.damaged_rows import Damaged
from craftcore.tasks.model import Question
from craftcore.tasks.question_store import QuestionStore
from craftcore.web.page import Page
from craftcore.web.visit import Visit

SHOWN = 50


def show_inbox(visit: Visit) -> Page:
    """Return the page of open questions."""
    with visit.reading() as reader:
        found = list_open_questions(reader, SHOWN + 1)
    status = visit.verdicts.read().status
    facts = {
        **read_inbox(visit),
        "questions": sorted(found[:SHOWN], key=_sort_key),
        "has_more": len(found) > SHOWN,
        "findings": [] if status is None else status.findings,
        "following": None if status is None else status.document["schedules"],
    }
    return Page(template="inbox.html", title="Inbox", facts=facts)


def read_inbox(visit: Visit) -> Mapping[str, Any]:
    """Return the facts of the live line above the questions: the fragment has no form, so it is not the list itself."""
    with visit.reading() as reader:
        return {"newest_at": QuestionStore().newest_open_at(reader)}


def _sort_key(one: OpenQuestion) -> tuple[bool, float]:
    """Return the order: in doubt first, then by the earliest expiry; a damaged question comes before all."""
    question = one.question
    if isinstance(question, Damaged):
        return False, 0.0
    return question.activity_key is None, _end_of(question)


def _end_of(question: Question) -> float:
    return float("inf") if question.expires_at is None else question.expires_at
