"""`/now`: what is at work, the next 24 hours, what is due and why it waits, and the rates of the hour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from craftcore.diagnostics.due import explain_due
from craftcore.diagnostics.starts import list_starts
from craftcore.diagnostics.top import list_claimed, list_due_next, split_claimed
from craftcore.storage.damaged_rows import Damaged, list_damaged, omit_damaged, try_read
from craftcore.web.excerpt import make_excerpt
from craftcore.web.page import Page
from craftcore.web.progress_store import ProgressStore, RunningTask
from craftcore.web.spark import draw_bars
from craftcore.web.timeline import Entry, Timeline, page_address
from craftcore.web.visit import Visit

DUE_SHOWN = 10
ROWS_SHOWN = 50


def show_now(visit: Visit) -> Page:
    """Return the page of what happens."""
    return Page(template="now.html", title="Now", facts={**read_now(visit), **read_coming(visit)})


def read_now(visit: Visit) -> Mapping[str, Any]:
    """Return the facts of the fragment of this moment. Where the database cannot be read, only the reason."""
    looked = visit.verdicts.read()
    if looked.status is None:
        return {"problem": looked.text}
    status = looked.status.document
    daemon, now = status["daemon"], visit.now
    with visit.reading() as reader:
        claimed, due_next = list_claimed(reader), list_due_next(reader)
        claims, following = split_claimed(omit_damaged(claimed), status), omit_damaged(due_next)
        due = [row["id"] for row in following if is_due_trigger(row, now)]
        rates = visit.rates.read(reader, now)
        tasks = ProgressStore().find_tasks(reader, [row["id"] for row in claims["running"]])
        starts = try_read("the last start", lambda: list_starts(reader, 1, runs=daemon["running"]))
        waiting = explain_due(
            reader,
            visit.services,
            due[:DUE_SHOWN],
            now,
            daemon_runs=daemon["running"],
            booting=daemon["booting"],
        )
    return {
        "problem": None,
        "database": visit.database,
        "findings": looked.status.findings,
        "daemon": daemon,
        "starts": starts,
        "counts": status["counts"],
        "running": [_describe_running(visit, row, tasks.get(row["id"])) for row in claims["running"]],
        "cut_off": claims["cut_off"],
        "may_act": visit.may_act,
        "damaged_rows": list_damaged([*claimed, *due_next, *waiting]),
        "following": next((row for row in following if row["due_at"] > now), None),
        "waiting": omit_damaged(waiting),
        "rates": rates,
        "bars": draw_bars(rates.minutes),
    }


def read_coming(visit: Visit) -> Mapping[str, Any]:
    """Return the facts of the fragment of the next 24 hours. They change with what comes."""
    if visit.verdicts.read().status is None:
        return {"timeline": None}
    with visit.reading() as reader:
        found = try_read("the timeline", lambda: visit.timelines.read(reader, visit.now))
    if isinstance(found, Damaged):
        return {"timeline": found}
    timeline, damaged = found
    entries = list_entries(timeline)
    return {
        "timeline": timeline,
        "schedules_damaged": damaged,
        "bands": [stripe.band for lane in timeline.lanes for stripe in lane.stripes],
        "entries": entries[:ROWS_SHOWN],
        "has_more": len(entries) > ROWS_SHOWN or any(lane.more for lane in timeline.lanes),
    }


def is_due_trigger(row: Mapping[str, Any], now: float) -> bool:
    """Return whether a row of what comes next is a trigger whose time has come."""
    return row["kind"] == "trigger" and bool(row["due_at"] <= now)


def _describe_running(visit: Visit, row: dict[str, Any], task: RunningTask | None) -> dict[str, Any]:
    """Return what runs, with its task, what that says of itself as far as this person may see it, and where to end
    it."""
    return {
        **row,
        "task_id": None if task is None else task.id,
        "progress": None if task is None else make_excerpt(visit, task.progress),
        "cancel": page_address("triggers", row["id"]) if task is None else page_address("tasks", task.id),
    }


def list_entries(timeline: Timeline) -> list[Entry]:
    """Return what comes in all lanes, the first first."""
    return sorted((one for lane in timeline.lanes for one in lane.entries), key=lambda one: one.at)
