"""`/schedules`: every schedule by id, each with the strip of its last 30 days."""

from __future__ import annotations

from typing import NamedTuple

from craftcore.diagnostics.conditions import schedules_held_findings
from craftcore.diagnostics.text.schedule_text import next_firing
from craftcore.schedules.model import Schedule
from craftcore.schedules.store import ScheduleStore
from craftcore.storage.damaged_rows import Damaged, map_rows, try_read
from craftcore.web.links import change_query
from craftcore.web.page import Page
from craftcore.web.pages.schedule_page import AccountStrip, read_strip
from craftcore.web.visit import Visit

SHOWN = 15
LINES_READ = 480
"""Lines of accounts that the strips of one page are drawn from: of 15 schedules, each has those of a month of days."""


class ScheduleRow(NamedTuple):
    """A schedule of the list with its strip. Each is Damaged when its rows cannot be read."""

    schedule: Schedule
    next_at: float | None
    reading: AccountStrip | Damaged


def show_schedules(visit: Visit) -> Page:
    """Return the page of all schedules. The lines that its strips are drawn from are shared among them."""
    shows_removed = visit.query.get("all") == "1"
    after = visit.query.get("after", "")
    with visit.reading() as reader:
        found = ScheduleStore().list_page(reader, SHOWN + 1, after=after, removed=shows_removed)
        shown = found[:SHOWN]
        each = LINES_READ // max(1, len(shown))

        def describe(one: Schedule) -> ScheduleRow:
            reading = try_read(one.id, lambda: read_strip(reader, one, each, visit.now))
            return ScheduleRow(one, next_firing(one), reading)

        rows = map_rows(shown, describe)
        holds = schedules_held_findings(reader, visit.now)
    facts = {
        "rows": rows,
        "holds": holds,
        "is_first": not after,
        "shows_removed": shows_removed,
        "all": change_query(visit, all=None if shows_removed else "1", after=None),
        "more_url": change_query(visit, after=shown[-1].id) if len(found) > SHOWN else None,
    }
    return Page(template="schedules.html", title="Schedules", facts=facts)
