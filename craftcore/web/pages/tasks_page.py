"""`/tasks`: the newest tasks that match the filter of the query, each with what it waits for."""

from __future__ import annotations

from typing import NamedTuple

from craftcore.diagnostics.tasks.task_details import hold_reason
from craftcore.storage.damaged_rows import list_damaged, map_rows, omit_damaged
from craftcore.storage.transaction import Reader
from craftcore.tasks.listing_store import TaskFilter, TaskLists
from craftcore.tasks.model import Task, TaskStatus
from craftcore.tasks.wait_store import WaitStore
from craftcore.web.links import list_links, read_choice, read_filter, read_number
from craftcore.web.page import Page
from craftcore.web.visit import Visit

SHOWN = 50


class TaskLine(NamedTuple):
    """A task in the list. `until`: the first end of its waits; None: they have none, or it does not wait."""

    task: Task
    until: float | None
    reason: str | None


def show_tasks(visit: Visit) -> Page:
    """Return the page of tasks. Raises FilterInvalid for an unknown status."""
    those = TaskFilter(
        status=read_choice(visit, "status", TaskStatus),
        workflow=read_filter(visit, "workflow"),
        session_id=read_filter(visit, "session"),
    )
    before = read_number(visit, "before")
    with visit.reading() as reader:
        page = TaskLists().list_page(reader, those, SHOWN + 1, before)
        shown = page.rows[:SHOWN]
        rows = map_rows(shown, lambda task: _read_line(reader, task))
    facts = {
        "rows": rows,
        "those": those,
        **list_links(visit, page.span, before, shown[-1].seq if len(page.rows) > SHOWN else None),
        "statuses": list(TaskStatus),
    }
    return Page(template="tasks.html", title="Tasks", facts=facts)


def _read_line(reader: Reader, task: Task) -> TaskLine:
    waits = WaitStore().look(reader, task.seq) if task.status is TaskStatus.WAITING else []
    ends = [wait.due_at for wait in omit_damaged(waits) if wait.due_at is not None]
    held = hold_reason(reader, task)
    reason = f"held: {held}" if held is not None else task.error_message or task.reason
    if list_damaged(waits):
        reason = "its wait is damaged"
    return TaskLine(task, min(ends, default=None), reason)
