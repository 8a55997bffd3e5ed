"""`craftcore schedule list`, `show`, `why`, `history`: what there is, what came of it, and why not."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from craftcore.cli.base import Command
from craftcore.cli.exit_codes import OF_A_LIST
from craftcore.cli.schedule.id_lookup import find_schedule
from craftcore.cli.schedule.schedule_card import (
    HISTORY_SHOWN,
    NO_TRIGGER,
    Shown,
    print_account,
    print_schedule,
    print_schedules,
)
from craftcore.cli.schedule.view import (
    schedules_held_text,
)
from craftcore.cli.session import Session, finding_document, hint, print_reasons
from craftcore.daemon.lock import read_note
from craftcore.diagnostics.reasons.schedule_reasons import schedule_reasons
from craftcore.diagnostics.text.schedule_text import local_time_text, next_firing
from craftcore.schedules.model import Occurrence, ScheduleStatus
from craftcore.schedules.occurrence_store import TRIGGER_STATUS, AccountStore
from craftcore.schedules.store import ScheduleStore
from craftcore.serialization.time_text import add_iso_times
from craftcore.storage.damaged_rows import Damaged, omit_damaged, try_read
from craftcore.storage.transaction import Reader, Row


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
        latest = {one.id: _latest_row(reader, one.id) for one in omit_damaged(found)}
    if len(found) > limit:
        session.out.print_note(f"these are the first {limit:,}, and there are more: --limit")
        found = found[:limit]
    code = print_schedules(session, found, latest)
    if holds is not None:
        session.out.print_note(holds)
    return code


def _latest_row(reader: Reader, schedule_id: str) -> Row | Damaged:
    return try_read(f"the last trigger of {schedule_id}", lambda: AccountStore().last_trigger(reader, schedule_id))


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
    problem = None
    if ahead:
        done = f"ahead of the clock: accounted for up to {local_time_text(schedule.high_water_at, schedule.timezone)}"
        problem = f"{done}. To let it go on from now: {hint('schedule', 'reanchor', schedule.id)}"
    shown = Shown(
        schedule=schedule,
        account=account,
        live_trigger=live,
        live_task=task,
        holds=holds,
        ahead=ahead,
        problem=problem,
    )
    print_schedule(session, shown, now)


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
        document = {"id": schedule.id, "status": schedule.status.value, "next_at": next_firing(schedule)}
        session.out.document({**add_iso_times(document), "reasons": [finding_document(one) for one in found]})
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
    print_account(session, account, schedule.timezone)


def _line(reader: Reader, line: Occurrence) -> dict[str, Any]:
    """Return a line of the account, with what its trigger is now; None for one that is gone."""
    trigger = reader.fetch_one(TRIGGER_STATUS, id=line.trigger_id) if line.trigger_id else None
    document = add_iso_times({**asdict(line), **(trigger or NO_TRIGGER)})
    del document["seq"]  # a number of the table
    return document
