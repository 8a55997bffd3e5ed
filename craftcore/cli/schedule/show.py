"""`craftcore schedule list`, `show`, `why`, `history`: what there is, what came of it, and why not."""

from __future__ import annotations

import click

from craftcore.cli.base import Command, OnCluster
from craftcore.cli.exit_codes import OF_A_LIST
from craftcore.cli.schedule.calls_on_schedules import open_schedules
from craftcore.cli.schedule.id_lookup import find_schedule
from craftcore.cli.schedule.schedule_card import print_account, print_schedule, print_schedules
from craftcore.cli.session import Session, finding_document, print_reasons
from craftcore.daemon.lock import read_note
from craftcore.diagnostics.reasons.schedule_reasons import schedule_reasons
from craftcore.diagnostics.text.schedule_text import next_firing
from craftcore.serialization.time_text import add_iso_times


@click.command(
    "list",
    cls=Command,
    exits=OF_A_LIST,
    examples=("craftcore schedule list", "craftcore schedule list --all"),
    see=("craftcore schedule show", "craftcore schedule why", "docs/how-to/schedule-work.md"),
    on_cluster=OnCluster(
        help="""List all schedules by id, with next and last occurrence.

        With --task-queue, those of one app. The list may lag a second. Schedules whose workers do not answer are named
        after it.
        """,
        without=("removed",),
        examples=("craftcore schedule list", "craftcore schedule list --task-queue my-agent"),
        see=("craftcore schedule show", "craftcore schedules sync"),
    ),
)
@click.option("--all", "removed", is_flag=True, help="Removed ones, too.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=200, show_default=True, help="How many at most.")
@click.pass_obj
def list_(session: Session, /, limit: int, **filters: bool) -> int:
    """List all schedules by id, with next and last occurrence.

    It also shows what holds them all, such as a clock that went back.
    """
    listed = open_schedules(session).list_all(limit, **filters)
    if listed.has_more:
        session.out.print_note(f"these are the first {limit:,}, and there are more: --limit")
    code = print_schedules(session, listed.found, listed.latest)
    if listed.note is not None:
        session.out.print_note(listed.note)
    for problem in listed.problems:
        session.out.print_problem(problem)
    return listed.exit_code or code


@click.command(
    "show",
    cls=Command,
    examples=("craftcore schedule show nightly",),
    see=("craftcore schedule why", "craftcore schedule history", "docs/how-to/schedule-work.md"),
    on_cluster=OnCluster(
        help="""Show a schedule: options, next and last occurrences.

        It shows every option with its value, the next 3 occurrences, running work, and the last 5 lines of its history.
        """,
        see=("craftcore schedule history", "craftcore task show"),
    ),
)
@click.argument("schedule_id", metavar="ID")
@click.pass_obj
def show(session: Session, /, schedule_id: str) -> None:
    """Show a schedule: options, next and last occurrences.

    It shows every option with its value, the next 3 occurrences, running work, and the last 5 lines of its history. A
    removed schedule can be shown, too.
    """
    print_schedule(session, open_schedules(session).read(schedule_id))


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
    on_cluster=OnCluster(
        help="""List the last occurrences of a schedule, newest first, out of the 200 that it keeps.

        Each fired, waits for an earlier one, or was skipped with a reason; a run of skipped ones is one line.
        """
    ),
)
@click.argument("schedule_id", metavar="ID")
@click.option("--limit", type=click.IntRange(1, 100_000), default=20, show_default=True, help="How many lines at most.")
@click.pass_obj
def history(session: Session, /, schedule_id: str, limit: int) -> None:
    """List the occurrences of a schedule, newest first.

    Each fired, waits for an earlier one, or was skipped with a reason; a run of skipped ones is one line. A removed
    schedule keeps its history.
    """
    print_account(session, *open_schedules(session).read_account(schedule_id, limit))
