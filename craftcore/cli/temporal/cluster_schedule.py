"""`craftcore temporal schedule`: the schedules of a cluster. A worker answers for each of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from craftcore.cli.base import CommandGroup
from craftcore.cli.exit_codes import NO_SUCH, TRY_LATER
from craftcore.cli.schedule.schedule_card import (
    HISTORY_SHOWN,
    NO_TRIGGER,
    NONE_FIRED,
    Shown,
    print_account,
    print_schedule,
    print_schedules,
)
from craftcore.cli.session import Session
from craftcore.cli.temporal import cluster_schedule_operations
from craftcore.cli.temporal.cluster_options import ClusterCommand
from craftcore.cli.temporal.cluster_schedule_view import SeenSchedule, read_all, read_schedule
from craftcore.schedules.model import Occurrence, Outcome
from craftcore.serialization.time_text import add_iso_times

NO_SCHEDULE: dict[int, str | None] = {NO_SUCH: "no such schedule"}
PAGE = "docs/how-to/run-on-temporal.md"


@click.group(cls=CommandGroup)
def schedule() -> None:
    """Schedules on a cluster: list, show, pause, run-now, …

    They are declared by `craftcore temporal schedules sync` and by each start of a worker. A worker answers for them.
    """


@schedule.command(
    "list",
    cls=ClusterCommand,
    examples=("craftcore temporal schedule list", "craftcore temporal schedule list --task-queue my-agent"),
    see=("craftcore temporal schedule show", "craftcore temporal schedules sync", PAGE),
)
@click.option("--limit", type=click.IntRange(1, 100_000), default=200, show_default=True, help="How many at most.")
@click.pass_obj
def list_(session: Session, /, limit: int) -> int:
    """List all schedules by id, with next and last occurrence.

    With --task-queue, those of one app. The list may lag a second. Schedules whose workers do not answer are named
    after it.
    """
    found, silent, more = read_all(session, limit)
    if more:
        session.out.print_note(f"these are the first {limit:,}, and there are more: --limit")
    readable = [one for one in found if one.schedule is not None]
    code = print_schedules(
        session,
        [one.schedule for one in readable if one.schedule is not None],
        {one.id: _last_trigger(one) for one in readable},
    )
    for one in found:
        if one.error is not None:
            session.out.print_problem(f"{one.id} does not fire: {one.error}")
    for id in silent:
        session.out.print_problem(f"{id} cannot be shown: no worker answers for it")
    return TRY_LATER if silent else code


@schedule.command(
    "show",
    cls=ClusterCommand,
    exits=NO_SCHEDULE,
    examples=("craftcore temporal schedule show nightly",),
    see=("craftcore temporal schedule history", "craftcore temporal task show", PAGE),
)
@click.argument("schedule_id", metavar="ID")
@click.pass_obj
def show(session: Session, /, schedule_id: str) -> None:
    """Show a schedule: options, next and last occurrences.

    It shows every option with its value, the next 3 occurrences, running work, and the last 5 lines of its history.
    """
    seen = read_schedule(session, schedule_id)
    account = [line_document(line) for line in seen.lines[:HISTORY_SHOWN]]
    problem = None if seen.error is None else f"it does not fire, and tries again every minute: {seen.error}"
    shown = Shown(schedule=seen.require(), account=account, live_task=seen.live_task, problem=problem)
    print_schedule(session, shown, seen.now)
    if session.json and problem is not None:
        session.out.print_problem(f"{seen.id}: {problem}")


@schedule.command(
    "history",
    cls=ClusterCommand,
    exits=NO_SCHEDULE,
    examples=("craftcore temporal schedule history nightly --limit 5",),
    see=("craftcore temporal schedule show", "craftcore temporal trigger show", PAGE),
)
@click.argument("schedule_id", metavar="ID")
@click.option("--limit", type=click.IntRange(1, 100_000), default=20, show_default=True, help="How many lines at most.")
@click.pass_obj
def history(session: Session, /, schedule_id: str, limit: int) -> None:
    """List the last occurrences of a schedule, newest first, out of the 200 that it keeps.

    Each fired, waits for an earlier one, or was skipped with a reason; a run of skipped ones is one line.
    """
    seen = read_schedule(session, schedule_id)
    print_account(session, [line_document(line) for line in seen.lines[:limit]], seen.require().timezone)


for command in (
    cluster_schedule_operations.pause,
    cluster_schedule_operations.resume,
    cluster_schedule_operations.run_now,
    cluster_schedule_operations.skip_next,
    cluster_schedule_operations.backfill,
):
    schedule.add_command(command)


def line_document(line: Occurrence) -> dict[str, Any]:
    """Return a line of the account. The present status of its trigger is not looked up: `trigger show` says it."""
    document = add_iso_times({**asdict(line), **NO_TRIGGER})
    del document["seq"]  # a number of its book
    return document


def _last_trigger(seen: SeenSchedule) -> dict[str, Any]:
    fired = next((line for line in seen.lines if line.outcome is Outcome.FIRED), None)
    if fired is None:
        return NONE_FIRED
    return {**NONE_FIRED, "last_trigger_id": fired.trigger_id, "last_fired_at": fired.nominal_at}
