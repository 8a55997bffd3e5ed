"""`craftcore schedule list`, `show`, `why`, `history`: what there is, what came of it, and why not."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from craftcore.cli.base import Command
from craftcore.cli.damaged_list import print_list
from craftcore.cli.exit_codes import OF_A_LIST
from craftcore.cli.output import Output, show_json
from craftcore.cli.schedule.id_lookup import find_schedule
from craftcore.cli.schedule.preview import print_moments, upcoming_rows
from craftcore.cli.schedule.view import (
    command_line,
    expression_text,
    is_irreversible,
    next_occurrence_text,
    schedules_held_text,
)
from craftcore.cli.session import Session, finding_document, hint, print_reasons
from craftcore.daemon.lock import read_note
from craftcore.diagnostics.documents import schedule_document
from craftcore.diagnostics.schedule_reasons import schedule_reasons
from craftcore.diagnostics.schedule_text import local_time_text, next_firing
from craftcore.errors import ScheduleInvalid
from craftcore.schedules.listing_store import TRIGGER_STATUS
from craftcore.schedules.model import Occurrence, Schedule, ScheduleStatus
from craftcore.schedules.occurrence_store import AccountStore
from craftcore.schedules.recurrence.timing import Startup
from craftcore.schedules.store import ScheduleStore
from craftcore.serialization.time_text import add_iso_times, clock_time
from craftcore.storage.damaged_rows import Damaged, try_read
from craftcore.storage.transaction import Reader, Row

LIST_COLUMNS = ("id", "status", "when", "zone", "next", "last", "last is", "runs", "reason")
HISTORY_COLUMNS = ("decided", "cause", "occurrence", "count", "outcome", "trigger", "is now", "reason")
NEXT_SHOWN, HISTORY_SHOWN = 3, 5
DURATIONS = {"catch_up_window", "catch_up_spacing", "jitter", "expires_after"}
NO_TRIGGER = {"trigger_status": None, "trigger_reason": None}


@click.command(
    "list",
    cls=Command,
    exits=OF_A_LIST,
    examples=("craftcore schedule list", "craftcore schedule list --all"),
    see=("craftcore schedule show", "craftcore schedule why", "docs/how-to/schedule-work.md"),
)
@click.option("--all", "removed", is_flag=True, help="Removed ones, too.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=200, show_default=True, help="How many at most.")
@click.pass_obj
def list_(session: Session, /, removed: bool, limit: int) -> int:
    """List all schedules by id, with next and last occurrence.

    It also shows what holds them all, such as a clock that went back.
    """
    core = session.core()
    with core.reading() as reader:
        found = ScheduleStore().list_all(reader, removed=removed, limit=limit + 1)
        holds = schedules_held_text(reader, core.clock.now())
        latest = {one.id: _latest_row(reader, one.id) for one in found if not isinstance(one, Damaged)}
    if len(found) > limit:
        session.out.print_note(f"these are the first {limit:,}, and there are more: --limit")
        found = found[:limit]
    marks = any(not isinstance(one, Damaged) and is_irreversible(one) for one in found)
    code = print_list(
        session,
        (*LIST_COLUMNS[:-1], "irreversible", LIST_COLUMNS[-1]) if marks else LIST_COLUMNS,
        found,
        told=lambda one: {**schedule_document(one), **add_iso_times(_latest_document(latest[one.id]))},
        cells=lambda one: _cells(one, _latest_document(latest[one.id]), marks),
        beside=latest.values(),
    )
    if holds is not None:
        session.out.print_note(holds)
    return code


NONE_FIRED = {"last_trigger_id": None, "last_trigger_status": None, "last_fired_at": None}


def _latest_row(reader: Reader, schedule_id: str) -> Row | Damaged:
    return try_read(f"the last trigger of {schedule_id}", lambda: AccountStore().last_trigger(reader, schedule_id))


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


@click.command(
    "show",
    cls=Command,
    examples=("craftcore schedule show nightly",),
    see=("craftcore schedule why", "craftcore schedule history", "docs/how-to/schedule-work.md"),
)
@click.argument("schedule_id", metavar="ID")
@click.pass_obj
def show(session: Session, /, schedule_id: str) -> None:
    """Show a schedule: options, next and last occurrences.

    It shows every option with its value, the next 3 occurrences, running work, and the last 5 lines of its history. A
    removed schedule can be shown, too.
    """
    core = session.core()
    now, store = core.clock.now(), ScheduleStore()
    with core.reading() as reader:
        schedule = find_schedule(reader, schedule_id, removed=True)
        live = AccountStore().live_trigger(reader, schedule.id)
        task = AccountStore().live_task(reader, schedule.id)
        account = [_line(reader, line) for line in AccountStore().list_history(reader, schedule.id, HISTORY_SHOWN)]
        ahead = schedule.id in {one.id for one in store.list_ahead(reader, now)}
        holds = schedules_held_text(reader, now) if schedule.status is ScheduleStatus.ACTIVE else None
    try:
        moments = upcoming_rows(schedule, now, NEXT_SHOWN) if schedule.status is ScheduleStatus.ACTIVE else []
    except ScheduleInvalid as error:
        session.out.print_note(error.message)
        moments = []
    told = schedule_document(schedule)
    if session.json:
        session.out.document(
            {**told, "ahead": ahead, "next": moments, "live_trigger": live, "live_task": task, "history": account}
        )
        return
    out, zone = session.out, schedule.timezone
    out.line(f"{schedule.id}: {expression_text(schedule.expression, schedule.timing, zone)}", style="bold")
    if (command := command_line(schedule)) is not None:
        out.line(f"runs: {command}")
    out.line(next_occurrence_text(schedule, now))
    if holds is not None:
        out.line(holds, style="bad")
    if ahead:
        done = f"ahead of the clock: accounted for up to {local_time_text(schedule.high_water_at, zone)}"
        out.line(f"{done}. To let it go on from now: {hint('schedule', 'reanchor', schedule.id)}", style="bad")
    if task is not None:
        out.line(f"at work: task {task} (see: {hint('task', 'show', task)})")
    elif live is not None:
        out.line(f"at work: trigger {live} (see: {hint('trigger', 'why', live)})")
    out.line()
    out.facts({name: _readable_value(name, told) for name in told if not name.endswith("_iso") and name != "id"})
    if moments:
        out.line()
        print_moments(out, moments, zone)
    if account:
        out.line()
        _print_account(out, account, zone)


@click.command(
    "why",
    cls=Command,
    examples=("craftcore schedule why nightly",),
    see=("craftcore trigger why", "craftcore schedule show", "docs/how-to/schedule-work.md"),
)
@click.argument("schedule_id", metavar="ID")
@click.pass_obj
def why(session: Session, /, schedule_id: str) -> None:
    """Explain why a schedule does not fire, or when it will.

    Each reason has the query that proves it: paused, held by the clock, waiting for an earlier one, no daemon. It also
    shows what became of the last occurrence.
    """
    core = session.core()
    _, daemon_runs = read_note(core.database.path)
    with core.reading() as reader:
        schedule = find_schedule(reader, schedule_id, removed=True)
        found = schedule_reasons(reader, schedule, core.clock.now(), daemon_runs=daemon_runs)
    if session.json:
        told = {"id": schedule.id, "status": schedule.status.value, "next_at": next_firing(schedule)}
        session.out.document({**add_iso_times(told), "reasons": [finding_document(one) for one in found]})
        return
    print_reasons(session, f"{schedule.id} is {schedule.status.value}: {schedule.expression}", found)


@click.command(
    "history",
    cls=Command,
    examples=("craftcore schedule history nightly --limit 5",),
    see=("craftcore schedule show", "craftcore trigger show", "docs/how-to/schedule-work.md"),
)
@click.argument("schedule_id", metavar="ID")
@click.option("--limit", type=click.IntRange(1, 100_000), default=20, show_default=True, help="How many lines at most.")
@click.pass_obj
def history(session: Session, /, schedule_id: str, limit: int) -> None:
    """List the occurrences of a schedule, newest first.

    Each fired, waits for an earlier one, or was skipped with a reason; a run of skipped ones is one line. A removed
    schedule keeps its history.
    """
    with session.core().reading() as reader:
        schedule = find_schedule(reader, schedule_id, removed=True)
        account = [_line(reader, line) for line in AccountStore().list_history(reader, schedule.id, limit)]
    if session.json:
        session.out.document(account)
    else:
        _print_account(session.out, account, schedule.timezone)


def _line(reader: Reader, line: Occurrence) -> dict[str, Any]:
    """Return a line of the account, with what its trigger is now; None for one that is gone."""
    trigger = reader.fetch_one(TRIGGER_STATUS, id=line.trigger_id) if line.trigger_id else None
    told = add_iso_times({**asdict(line), **(trigger or NO_TRIGGER)})
    del told["seq"]  # a number of the table
    return told


def _print_account(out: Output, account: list[dict[str, Any]], zone: str) -> None:
    cells = []
    for line in account:
        first, last = local_time_text(line["nominal_at"], zone), local_time_text(line["last_at"], zone)
        state, why = line["trigger_status"], line["trigger_reason"]
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
    out.table(HISTORY_COLUMNS, cells)


def _readable_value(name: str, told: dict[str, Any]) -> object:
    value = told[name]
    if f"{name}_iso" in told:
        return None if value is None else clock_time(value)
    if name in DURATIONS:
        return None if value is None else f"{value:g} s"
    return show_json(value) if isinstance(value, dict) else value
