"""What `craftcore status` says of irreversible actions: how many are in doubt, and which for longest."""

from __future__ import annotations

from typing import Any

from craftcore.activities.listing_store import ActivityListing
from craftcore.activities.model import Activity
from craftcore.cli.activity.view import told_activity
from craftcore.cli.damaged_list import told_damaged
from craftcore.cli.moments import from_now
from craftcore.cli.output import Output
from craftcore.cli.session import hint
from craftcore.storage.damaged_rows import Damaged, attempted
from craftcore.storage.transaction import Reader


def read_in_doubt(reader: Reader) -> dict[str, Any]:
    """The key `in_doubt` of the document: those that nobody has decided."""
    count, oldest = ActivityListing().in_doubt(reader)
    return {"in_doubt": {"count": count, "oldest": None if oldest is None else _told(oldest)}}


def _told(oldest: Activity | Damaged) -> dict[str, Any]:
    told = oldest if isinstance(oldest, Damaged) else attempted(oldest.key, lambda: told_activity(oldest))
    return told_damaged(told) if isinstance(told, Damaged) else told


def say_in_doubt(out: Output, found: dict[str, Any]) -> None:
    """The line of `status` about them; none where nothing is in doubt."""
    count, oldest = found["in_doubt"]["count"], found["in_doubt"]["oldest"]
    if oldest is None:
        return
    if "damaged" in oldest:
        see = f"(see: {hint('activity', 'list')})"
        out.line(f"in doubt  {count:,} irreversible, undecided; the oldest is damaged {see}", style="warn")
        return
    since = f"the oldest {oldest['action']}, called {from_now(oldest['first_call_at'], found['now'])}"
    see = f"(see: {hint('activity', 'show', oldest['key'])})"
    out.line(f"in doubt  {count:,} irreversible, undecided; {since} {see}", style="warn")
