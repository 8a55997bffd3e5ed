"""`/dead`: the dead letters, first by error, then one by one."""

from __future__ import annotations

from craftcore.diagnostics.text.trigger_text import name_work
from craftcore.operations.triggers import OF_AN_ERROR_MAX
from craftcore.storage.damaged_rows import list_damaged, omit_damaged
from craftcore.triggers.page_store import DEAD_READ, TriggerPageStore
from craftcore.web.actions.table import make_request
from craftcore.web.links import change_query, read_filter, read_number
from craftcore.web.page import Page
from craftcore.web.visit import Visit

SHOWN = 25
"""Each with two forms and a message of its error."""

CORRUPT = "corrupt row"
"""The reason of what was set aside: its payload is lost, so it can only be discarded."""


def show_dead(visit: Visit) -> Page:
    """Return the page of dead letters: of all errors, or of the one that the query names."""
    error, before = read_filter(visit, "error"), _read_place(visit)
    store = TriggerPageStore()
    with visit.reading() as reader:
        groups = store.group_dead(reader)
        found = store.list_dead(reader, SHOWN + 1, error=error, before=before)
    shown = found[:SHOWN]
    whole = omit_damaged(shown)
    last = whole[-1] if whole and len(found) > SHOWN else None
    facts = {
        "groups": groups,
        "error": error,
        "rows": [(row, name_work(row.workflow, row.schedule_id)) for row in whole],
        "damaged_rows": list_damaged(shown),
        "is_cut": sum(group.letters for group in groups) >= DEAD_READ,
        "read": DEAD_READ,
        "most": OF_AN_ERROR_MAX,
        "corrupt": CORRUPT,
        "once": make_request,
        "of_error": {group.error: change_query(visit, error=group.error, at=None, before=None) for group in groups},
        "all": change_query(visit, error=None, at=None, before=None),
        "older": change_query(visit, at=repr(last.settled_at), before=last.seq) if last else None,
    }
    return Page(template="dead.html", title="Dead letters", facts=facts)


def _read_place(visit: Visit) -> tuple[float, int] | None:
    """Return the moment and the number of the last letter that was seen; None on the first page."""
    seq = read_number(visit, "before")
    try:
        at = float(visit.query.get("at", ""))
    except ValueError:
        return None
    return None if seq is None or at != at else (at, seq)
