"""The lines of `craftcore status` on tasks: how many there are, and what the last start did with them."""

from __future__ import annotations

import json
from typing import Any

from craftcore.cli.output import Output, add_iso_times
from craftcore.cli.session import hint
from craftcore.serialization.plurals import format_count
from craftcore.storage.facts import get_fact
from craftcore.storage.transaction import Reader
from craftcore.tasks.hold_store import HoldStore
from craftcore.tasks.listing_store import TaskLists


def read_tasks(reader: Reader, epoch: int | None) -> dict[str, Any]:
    """Return the keys `tasks` and `restart` of the document. `restart` None: this epoch began with no task at work."""
    restart = _restart(get_fact(reader, "restart"), epoch)
    tasks = {**TaskLists().counts(reader), "held": HoldStore().count(reader)}
    return {"tasks": tasks, "restart": None if restart is None else add_iso_times(restart)}


def _restart(notice: str | None, epoch: int | None) -> dict[str, Any] | None:
    """Return what the start of this epoch left. None for an earlier one, and for what is damaged."""
    try:
        found = json.loads(notice or "null")
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("epoch") != epoch:
        return None
    sound = all(type(found.get(name)) is int for name in ("epoch", "resumed", "stale"))
    return found if sound and type(found.get("at")) in (int, float) else None


def say_tasks(out: Output, found: dict[str, Any]) -> None:
    """The lines of `status` about tasks; none where there are none."""
    counts, restart = found["tasks"], found["restart"]
    if any(counts.values()):
        text = f"running {counts['running']:,}, waiting {counts['waiting']:,}, questions {counts['questions']:,}"
        see = f" (see: {hint('inbox', 'list')})" if counts["questions"] else ""
        out.line(f"tasks     {text}{see}")
    if counts["held"]:
        see = hint("task", "list", "--held")
        out.line(
            f"held      {format_count(counts['held'], 'task')} that the code does not fit (see: {see})", style="warn"
        )
    if restart is not None:
        text = f"restart   resumed {restart['resumed']:,}"
        if restart["stale"]:
            text += f"; stale {restart['stale']:,}, which were interrupted too long ago to go on unasked"
            out.line(f"{text} (see: {hint('inbox', 'list')})", style="warn")
        else:
            out.line(text)
