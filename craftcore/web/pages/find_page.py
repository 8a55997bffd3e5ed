"""`/find?q=`: what begins with an id, and what has exactly that workflow, session or schedule."""

from __future__ import annotations

from collections.abc import Sequence

from craftcore.web.page import Answer, Page, Redirect
from craftcore.web.pages.find_store import LOOKED, SHOWN, FindStore, Found
from craftcore.web.timeline import page_address
from craftcore.web.visit import Visit

GIVEN_MAX = 500
PAGES = {
    "task": "tasks",
    "trigger": "triggers",
    "question": "q",
    "schedule": "schedules",
    "record": "records",
    "activity": "activities",
}


def show_find(visit: Visit) -> Answer:
    """Return what was found, or the page of the one thing whose whole id was typed."""
    given = visit.query.get("q", "").strip().removesuffix("…")[:GIVEN_MAX]
    if not given:
        return Page(template="find.html", title="Find", facts={"given": ""})
    store = FindStore()
    with visit.reading() as reader:
        found = store.list_ids(reader, given)
        is_workflow = store.is_workflow(reader, given)
        whole = find_whole(found, given)
        if whole is not None and not is_workflow:
            return Redirect(page_address(PAGES[whole.kind], whole.id))
        tasks, triggers = store.count_uses(reader, given)
        oldest = store.list_oldest(reader)
    facts = {
        "given": given,
        "found": [(one, page_address(PAGES[one.kind], one.id)) for one in found],
        "is_workflow": is_workflow,
        "tasks": tasks,
        "triggers": triggers,
        "oldest": oldest,
        "looked": LOOKED,
        "shown": SHOWN,
    }
    return Page(template="find.html", title="Find", facts=facts)


def find_whole(found: Sequence[Found], given: str) -> Found | None:
    """Return the one thing that has this whole id; None when other ids begin so. A task comes before the trigger that
    began it, and the records and activities of both do not count, as their ids begin with that of the other."""
    others = [one for one in found if one.kind not in ("record", "activity")] or found
    return others[0] if others and all(one.id == given for one in others) else None
