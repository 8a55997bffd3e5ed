"""`/doubt`: the irreversible actions whose outcome is unknown."""

from __future__ import annotations

from craftcore.activities.listing_store import ActivityListStore
from craftcore.activities.model import ActivityStatus
from craftcore.storage.damaged_rows import Damaged, omit_damaged
from craftcore.web.page import Page
from craftcore.web.visit import Visit

SHOWN = 200


def show_doubt(visit: Visit) -> Page:
    """Return the page of activities in doubt: undecided ones first."""
    with visit.reading() as reader:
        found = ActivityListStore().list_newest(reader, SHOWN, status=ActivityStatus.UNKNOWN)
        count, _ = ActivityListStore().count_in_doubt(reader)
    facts = {
        "count": count,
        "open": [one for one in found if isinstance(one, Damaged) or one.is_open],
        "decided": [one for one in omit_damaged(found) if not one.is_open],
    }
    return Page(template="doubt.html", title="In doubt", facts=facts)
