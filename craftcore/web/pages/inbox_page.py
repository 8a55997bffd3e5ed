"""`/`: the open questions, those in doubt and those that end soon first, and below them what needs a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from craftcore.diagnostics.open_questions import list_urgent_questions
from craftcore.tasks.question_store import QuestionStore
from craftcore.web.page import Page
from craftcore.web.visit import Visit

SHOWN = 50


def show_inbox(visit: Visit) -> Page:
    """Return the page of open questions."""
    with visit.reading() as reader:
        found = list_urgent_questions(reader, SHOWN + 1)
    status = visit.verdicts.read().status
    facts = {
        **read_inbox(visit),
        "questions": found[:SHOWN],
        "has_more": len(found) > SHOWN,
        "findings": [] if status is None else status.findings,
        "following": None if status is None else status.document["schedules"],
    }
    return Page(template="inbox.html", title="Inbox", facts=facts)


def read_inbox(visit: Visit) -> Mapping[str, Any]:
    """Return the facts of the live line above the questions: the fragment has no form, so it is not the list itself."""
    with visit.reading() as reader:
        return {"newest_at": QuestionStore().newest_open_at(reader)}
