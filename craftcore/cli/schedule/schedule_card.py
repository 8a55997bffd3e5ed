"""Schedules on paper: the list of all, one with its options and moments, and its account. On a cluster, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from craftcore.cli.damaged_list import RowList, print_list
from craftcore.cli.schedule.preview import print_moments
from craftcore.cli.schedule.view import next_occurrence_text
from craftcore.cli.session import Session, hint
from craftcore.cli.trigger.view import readable_facts
from craftcore.diagnostics.documents import schedule_document
from craftcore.diagnostics.text.schedule_text import (
    command_line,
    expression_text,
    is_irreversible,
    local_time_text,
    next_firing,
    upcoming_rows,
)
from craftcore.errors import ScheduleInvalid
from craftcore.schedules.model import Occurrence, Schedule, ScheduleStatus
from craftcore.schedules.recurrence.timing import Startup
from craftcore.serialization.time_text import add_iso_times, clock_time
from craftcore.storage.damaged_rows import Damaged, omit_damaged
from craftcore.storage.transaction import Row

LIST_COLUMNS = ("id", "status", "when", "zone", "next", "last", "last is", "runs", "reason")
HISTORY_COLUMNS = ("decided", "cause", "occurrence", "count", "outcome", "trigger", "is now", "reason")
NEXT_SHOWN, HISTORY_SHOWN = 3, 5
DURATIONS = {"catch_up_window", "catch_up_spacing", "jitter", "expires_after"}
NO_TRIGGER = {"trigger_status": None, "trigger_reason": None, "task_status": None, "task_reason": None}
NONE_FIRED = {"last_trigger_id": None, "last_trigger_status": None, "last_fired_at": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One schedule with what belongs to it, at a moment. `account`: its last lines as documents. `holds`: why it does
    not fire although it is active. `problem`: what is wrong with it, and the command that helps."""

    now: float
    schedule: Schedule
    account: Sequence[dict[str, Any]]
    live_trigger: str | None = None
    live_task: str | None = None
    holds: str | None = None
    ahead: bool = False
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleList:
    """The first schedules by id. `latest`: the last trigger of each. `note`: what concerns them all. `problems`: what
    is wrong with single ones, and `exit_code` for that."""

    found: Sequence[Schedule | Damaged]
    latest: Mapping[str, Row | Damaged]
    has_more: bool
    note: str | None = None
    problems: Sequence[str] = ()
    exit_code: int = 0


def print_schedules(session: Session, found: Sequence[Schedule | Damaged], latest: Mapping[str, Row | Damaged]) -> int:
    """Print the list, each with the last trigger that it fired. Return the exit code."""
    marks = any(map(is_irreversible, omit_damaged(found)))
    rows = RowList(
        (*LIST_COLUMNS[:-1], "irreversible", LIST_COLUMNS[-1]) if marks else LIST_COLUMNS,
        found,
        document_of=lambda one: {**schedule_document(one), **add_iso_times(_latest_document(latest[one.id]))},
        cells=lambda one: _cells(one, _latest_document(latest[one.id]), marks),
        beside=latest.values(),
    )
    return print_list(session, rows)


def print_schedule(session: Session, shown: Shown) -> None:
    """Print one schedule."""
    schedule, account, now = shown.schedule, shown.account, shown.now
    try:
        moments = upcoming_rows(schedule, now, NEXT_SHOWN) if schedule.status is ScheduleStatus.ACTIVE else []
    except ScheduleInvalid as error:
        session.out.print_note(error.message)
        moments = []
    document = schedule_document(schedule)
    if session.json:
        live = {"live_trigger": shown.live_trigger, "live_task": shown.live_task}
        session.out.document({**document, "ahead": shown.ahead, "next": moments, **live, "history": account})
        if session.cluster is not None and shown.problem is not None:
            session.out.print_problem(f"{schedule.id}: {shown.problem}")
        return
    out, zone = session.out, schedule.timezone
    out.line(f"{schedule.id}: {expression_text(schedule.expression, schedule.timing, zone)}", style="bold")
    if (command := command_line(schedule)) is not None:
        out.line(f"runs: {command}")
    out.line(next_occurrence_text(schedule, now))
    for wrong in (shown.holds, shown.problem):
        if wrong is not None:
            out.line(wrong, style="bad")
    if shown.live_task is not None:
        out.line(f"at work: task {shown.live_task} (see: {hint('task', 'show', shown.live_task)})")
    elif shown.live_trigger is not None:
        out.line(f"at work: trigger {shown.live_trigger} (see: {hint('trigger', 'why', shown.live_trigger)})")
    out.line()
    spans = {name: f"{value:g} s" for name in DURATIONS if (value := document[name]) is not None}
    out.facts({name: value for name, value in readable_facts({**document, **spans}).items() if name != "id"})
    if moments:
        out.line()
        print_moments(out, moments, zone)
    if account:
        out.line()
        print_account(session, account, zone)


def line_document(line: Occurrence, trigger: Row | None) -> dict[str, Any]:
    """Return a line of an account. `trigger`: what its trigger is now; None: that is not known."""
    document = add_iso_times({**asdict(line), **(trigger or NO_TRIGGER)})
    del document["seq"]  # a number of the table
    return document


def print_account(session: Session, account: Sequence[dict[str, Any]], zone: str) -> None:
    """Print lines of an account, newest first."""
    if session.json:
        session.out.document(account)
        return
    cells = []
    for line in account:
        first, last = local_time_text(line["nominal_at"], zone), local_time_text(line["last_at"], zone)
        what = "trigger" if line["task_status"] is None or line["trigger_status"] == "PENDING" else "task"
        state, why = line[f"{what}_status"], line[f"{what}_reason"]
        cells.append(
            (
                clock_time(line["decided_at"]),
                line["cause"],
                first if line["count"] == 1 else f"{first} to {last}",
                line["count"],
                line["outcome"],
                line["trigger_id"],
                state if why is None or state == "PENDING" else f"{state}: {why}",
                line["reason"],
            )
        )
    session.out.table(HISTORY_COLUMNS, cells)


def _latest_document(latest: Row | Damaged) -> Row:
    return {**NONE_FIRED, "last_trigger_status": "damaged"} if isinstance(latest, Damaged) else latest


def _cells(schedule: Schedule, latest: Row, marks: bool) -> tuple[object, ...]:
    """Return the cells of a line. `marks`: one says whether what it runs is irreversible."""
    starts = schedule.status is ScheduleStatus.ACTIVE and isinstance(schedule.timing, Startup)
    return (
        schedule.id,
        schedule.status,
        schedule.expression,
        schedule.timezone,
        "at startup" if starts else clock_time(next_firing(schedule)),
        clock_time(latest["last_fired_at"] if latest["last_trigger_id"] is not None else schedule.last_nominal_at),
        latest["last_trigger_status"],
        schedule.runs if schedule.max_runs is None else f"{schedule.runs} of {schedule.max_runs}",
        *(("yes" if is_irreversible(schedule) else None,) if marks else ()),
        schedule.reason,
    )
