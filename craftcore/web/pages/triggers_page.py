"""`/triggers`: the newest triggers that match the filter of the query."""

from __future__ import annotations

from craftcore.diagnostics.live_counts import are_claims_live
from craftcore.diagnostics.text.trigger_text import name_work, read_task, reason_text
from craftcore.storage.damaged_rows import map_rows
from craftcore.triggers.model import Trigger, TriggerSource, TriggerStatus
from craftcore.triggers.page_store import TriggerFilter, TriggerPageStore
from craftcore.web.links import list_links, read_choice, read_filter, read_number
from craftcore.web.page import Page
from craftcore.web.visit import Visit

SHOWN = 50


def show_triggers(visit: Visit) -> Page:
    """Return the page of triggers. Raises FilterInvalid for a status or source that there is not."""
    those = TriggerFilter(
        status=read_choice(visit, "status", TriggerStatus),
        source=read_choice(visit, "source", TriggerSource),
        workflow=read_filter(visit, "workflow"),
        session_id=read_filter(visit, "session"),
        schedule_id=read_filter(visit, "schedule"),
    )
    before = read_number(visit, "before")
    with visit.reading() as reader:
        page = TriggerPageStore().list_page(reader, those, SHOWN + 1, before)
        claims_live = are_claims_live(reader, visit.services.database.path)
        shown = page.rows[:SHOWN]

        def describe(row: Trigger) -> tuple[Trigger, str | None, str | None]:
            reason = reason_text(row, read_task(reader, row), claims_live=claims_live)
            return row, name_work(row.workflow, row.schedule_id), reason

        rows = map_rows(shown, describe)
    facts = {
        "rows": rows,
        "those": those,
        **list_links(visit, page.span, before, shown[-1].seq if len(page.rows) > SHOWN else None),
        "statuses": list(TriggerStatus),
        "sources": list(TriggerSource),
    }
    return Page(template="triggers.html", title="Triggers", facts=facts)
