"""`craftcore task`: which there are, how far each has come, and what it did."""

from __future__ import annotations

from itertools import chain

import click

from craftcore.cli.base import CommandGroup
from craftcore.cli.damaged_list import print_list
from craftcore.cli.exit_codes import BAD_FILTER, OF_A_LIST
from craftcore.cli.lookup import find_task, parse_choice
from craftcore.cli.session import Session, finding_document
from craftcore.cli.short_ids import count_digits
from craftcore.cli.task import operate
from craftcore.cli.task.task_card import print_events, print_task
from craftcore.cli.task.view import LIST_COLUMNS, task_row
from craftcore.daemon.lock import read_note
from craftcore.diagnostics.documents import task_document, wait_document
from craftcore.diagnostics.live_counts import is_booting
from craftcore.diagnostics.reasons.trigger_reasons import task_reasons
from craftcore.diagnostics.tasks.task_details import hold_reason, read_details, read_events
from craftcore.storage.damaged_rows import omit_damaged
from craftcore.tasks.listing_store import TaskLists
from craftcore.tasks.model import TaskStatus
from craftcore.tasks.wait_store import WaitStore
from craftcore.triggers.workflow_names import bare_name


@click.group(cls=CommandGroup)
def task() -> None:
    """Workflows in progress: list, show, events, cancel, …

    A workflow that takes ctx is a task. Its id is that of the trigger that created it, which `emit` prints.
    """


@task.command(
    "list",
    exits={**OF_A_LIST, BAD_FILTER: None},
    examples=("craftcore task list --status waiting", "craftcore task list --workflow nap --limit 5"),
    see=("craftcore task show", "craftcore inbox list", "docs/reference/cli.md#tasks-and-the-inbox"),
)
@click.option("--status", metavar="STATUS", help=f"Only these: {', '.join(TaskStatus)}.")
@click.option("--held", is_flag=True, help="Only live ones that the code of the last start does not fit.")
@click.option("--workflow", metavar="NAME", type=bare_name, help="Only of this workflow.")
@click.option("--session", "session_id", metavar="SESSION", help="Only of this session.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many at most.")
@click.pass_obj
def list_(
    session: Session, /, status: str | None, held: bool, workflow: str | None, session_id: str | None, limit: int
) -> int:
    """List the newest tasks, newest first.

    Each line shows the turn and what the task waits for. Live tasks are RUNNING or WAITING. The reason of a held task
    says what does not fit.
    """
    chosen = parse_choice("status", status, TaskStatus)
    with session.core().reading() as reader:
        tasks = TaskLists().list_newest(
            reader, status=chosen, held=held, workflow=workflow, session_id=session_id, limit=limit
        )
        held_by = {one.id: hold_reason(reader, one) for one in omit_damaged(tasks)}
        digits = count_digits(reader)
        waits = {one.id: WaitStore().look(reader, one.seq) for one in omit_damaged(tasks)}
    return print_list(
        session,
        LIST_COLUMNS,
        tasks,
        document_of=lambda one: {**task_document(one), "held": held_by[one.id], "wait": wait_document(waits[one.id])},
        cells=lambda one: task_row(one, waits[one.id], held_by[one.id]),
        beside=chain.from_iterable(waits.values()),
        digits=digits,
    )


@task.command(
    "show",
    examples=("craftcore task show 01a1fdfa",),
    see=("craftcore task events", "craftcore inbox answer", "docs/reference/cli.md#tasks-and-the-inbox"),
)
@click.argument("task_id", metavar="ID")
@click.pass_obj
def show(session: Session, /, task_id: str) -> None:
    """Show a task: what it waits for, and what to do.

    It also shows state or result, questions, irreversible actions, unread messages, last attempts and children.
    """
    core = session.core()
    note, daemon_runs = read_note(core.database.path)
    with core.reading() as reader:
        found = find_task(reader, task_id)
        weight, now = core.config.triggers.priority_weight, core.clock.now()
        booting = is_booting(reader, note, held=daemon_runs)
        why = task_reasons(reader, found, now, daemon_runs=daemon_runs, priority_weight=weight, booting=booting)
        held = hold_reason(reader, found)
        document = {
            **task_document(found),
            "held": held,
            "reasons": [finding_document(reason) for reason in why],
            **read_details(reader, found),
        }
        digits = count_digits(reader)
    if session.json:
        session.out.document(document)
    else:
        print_task(session.out, found, document, digits)


@task.command(
    "events",
    examples=("craftcore task events 01a1fdfa", "craftcore task events 01a1fdfa --limit 20"),
    see=("craftcore task show", "craftcore inspect", "docs/reference/events.md"),
)
@click.argument("task_id", metavar="ID")
@click.option("--limit", type=click.IntRange(1, 100_000), default=200, show_default=True, help="How many at most.")
@click.pass_obj
def events(session: Session, /, task_id: str, limit: int) -> None:
    """List the events of a task over all its turns, oldest first.

    They are the steps, irreversible actions, questions, waits and notes of all attempts. Beyond --limit, only the last
    ones are listed.
    """
    with session.core().reading() as reader:
        found = find_task(reader, task_id)
        events, has_more = read_events(reader, found, limit)
    if has_more:
        session.out.print_note(f"these are the last {limit:,}, and there were more: --limit")
    if session.json:
        session.out.document(events)
        return
    print_events(session.out, events)


for command_ in (operate.cancel, operate.retry, operate.signal, operate.stop):
    task.add_command(command_)
