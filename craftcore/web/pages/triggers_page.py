"""`/triggers`: the newest triggers that match the filter of the query."""

from __future__ import annotations

from enum import StrEnum

from craftcore.diagnostics.live_counts import are_claims_live
from craftcore.diagnostics.text.trigger_text import name_work, read_task, reason_text
from craftcore.errors import FilterInvalid
from craftcore.storage.damaged_rows import Damaged
from craftcore.triggers.model import Trigger, TriggerSource, TriggerStatus
from craftcore.triggers.page_store import TriggerFilter, TriggerPageStore
from craftcore.web.links import change_query, read_filter, read_number
from craftcore.web.page import Page
from craftcore.web.visit import Visit

SHOWN = 50


def show_triggers(visit: Visit) -> Page:
    """Return the page of triggers. Raises FilterInvalid for a status or source that there is not."""
    those = TriggerFilter(
        status=_read_choice(visit, "status", TriggerStatus),
        source=_read_choice(visit, "source", TriggerSource),
        workflow=read_filter(visit, "workflow"),
        session_id=read_filter(visit, "session"),
        schedule_id=read_filter(visit, "schedule"),
    )
    before = read_number(visit, "before")
    with visit.reading() as reader:
        page = TriggerPageStore().list_page(reader, those, SHOWN + 1, before)
        claims_live = are_claims_live(reader, visit.services.database.path)
        shown = page.rows[:SHOWN]
        rows: list[Damaged | tuple[Trigger, str | None, str | None]] = []
        for row in shown:
            if isinstance(row, Damaged):
                rows.append(row)
                continue
            reason = reason_text(row, read_task(reader, row), claims_live=claims_live)
            rows.append((row, name_work(row.workflow, row.schedule_id), reason))
    last = next((row for row in reversed(shown) if not isinstance(row, Damaged)), None)
    has_more = len(page.rows) > SHOWN and last is not None
    further = None if page.span is None or has_more else page.span.next_before
    facts = {
        "rows": rows,
        "those": those,
        "span": page.span,
        "is_first": before is None,
        "statuses": list(TriggerStatus),
        "sources": list(TriggerSource),
        "older": change_query(visit, before=last.seq) if has_more and last else None,
        "further": None if further is None else change_query(visit, before=further),
    }
    return Page(template="triggers.html", title="Triggers", facts=facts)


def _read_choice(visit: Visit, name: str, kind: type[StrEnum]) -> str | None:
    given = read_filter(visit, name)
    if given is None:
        return None
    try:
        return kind(given.upper())
    except ValueError:
        raise FilterInvalid(f"{name} {given!r:.80} is unknown; it must be one of {', '.join(kind)}") from None
