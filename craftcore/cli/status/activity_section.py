"""The lines of `craftcore status` on irreversible actions: how many are in doubt, and the oldest of them."""

from __future__ import annotations

from typing import Any

from craftcore.activities.listing_store import ActivityListStore
from craftcore.activities.model import Activity
from craftcore.cli.activity.view import activity_document
from craftcore.cli.damaged_list import damaged_document
from craftcore.cli.output import Output
from craftcore.cli.session import hint
from craftcore.serialization.time_text import relative_text
from craftcore.storage.damaged_rows import Damaged, try_read
from craftcore.storage.transaction import Reader


def read_in_doubt(reader: Reader) -> dict[str, Any]:
    """Return the key `in_doubt` of the document: those that nobody has decided."""
    count, oldest = ActivityListStore().count_in_doubt(reader)
    return {"in_doubt": {"count": count, "oldest": None if oldest is None else _doubt_document(oldest)}}


def _doubt_document(oldest: Activity | Damaged) -> dict[str, Any]:
    told = oldest if isinstance(oldest, Damaged) else try_read(oldest.key, lambda: activity_document(oldest))
    return damaged_document(told) if isinstance(told, Damaged) else told


def say_in_doubt(out: Output, found: dict[str, Any]) -> None:
    """The line of `status` about them; none where nothing is in doubt."""
    count, oldest = found["in_doubt"]["count"], found["in_doubt"]["oldest"]
    if oldest is None:
        return
    if "damaged" in oldest:
        see = f"(see: {hint('activity', 'list')})"
        out.line(f"in doubt  {count:,} irreversible, undecided; the oldest is damaged {see}", style="warn")
        return
    since = f"the oldest {oldest['action']}, called {relative_text(oldest['first_call_at'], found['now'])}"
    see = f"(see: {hint('activity', 'show', oldest['key'])})"
    out.line(f"in doubt  {count:,} irreversible, undecided; {since} {see}", style="warn")
