"""`/activities/KEY`: one irreversible action: what was sent, what is known, how to find out, and the decision."""

from __future__ import annotations

from craftcore.activities.result_shape import describe_required
from craftcore.diagnostics.activity_details import read_activity
from craftcore.diagnostics.live_counts import are_claims_live
from craftcore.diagnostics.text.activity_text import decisions_for, describe_status
from craftcore.registry.call import message_id
from craftcore.web.actions.subjects import find_activity
from craftcore.web.actions.work_actions import DECISIONS
from craftcore.web.page import Page
from craftcore.web.visit import Visit

EMAIL = "email.send"


def show_activity(visit: Visit) -> Page:
    """Return the page of an activity, with the form that decides about it where that is possible."""
    with visit.reading() as reader:
        reading = read_activity(reader, find_activity(reader, visit.path["id"]))
        claims_live = are_claims_live(reader, visit.services.database.path)
    found = reading.activity
    possible = decisions_for(found)
    facts = {
        "activity": found,
        "task": reading.task,
        "question": reading.question,
        "document": reading.document,
        "means": describe_status(found, reading.task, reading.question, claims_live=claims_live),
        "message_id": message_id(found.key) if found.action == EMAIL else None,
        "needed": describe_required(found.result_shape),
        "decisions": [(value, label) for value, label in DECISIONS if value in possible],
        "may_decide": visit.person.may_answer(None) and visit.person.in_doubt,
    }
    return Page(template="activity.html", title=f"{found.action}: did it happen?", facts=facts)
