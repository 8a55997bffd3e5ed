"""`craftcore task`: which there are, how far each has come, and what it did."""

from __future__ import annotations

from typing import Any

import click

from craftcore.cli.base import CommandGroup, OnCluster
from craftcore.cli.damaged_list import print_list
from craftcore.cli.exit_codes import BAD_FILTER, OF_A_LIST
from craftcore.cli.lookup import parse_choice
from craftcore.cli.session import Session
from craftcore.cli.task import operate
from craftcore.cli.task.calls_on_tasks import open_tasks
from craftcore.cli.task.stream_command import stream
from craftcore.cli.task.task_card import print_events, print_task
from craftcore.tasks.model import TaskStatus
from craftcore.triggers.workflow_names import bare_name


@click.group(
    cls=CommandGroup,
    on_cluster="""Tasks on a cluster: list, show, events, cancel, …

    They are read from the histories on the cluster, so no worker is needed.
    """,
)
def task() -> None:
    """Workflows in progress: list, show, events, cancel, …

    A workflow that takes ctx is a task. Its id is that of the trigger that created it, which `emit` prints.
    """


@task.command(
    "list",
    exits={**OF_A_LIST, BAD_FILTER: None},
    examples=("craftcore task list --status waiting", "craftcore task list --workflow nap --limit 5"),
    see=("craftcore task show", "craftcore inbox list", "docs/reference/cli.md#tasks-and-the-inbox"),
    on_cluster=OnCluster(
        help="""List the newest tasks, newest first.

        The list is that of the cluster, which may lag a second. The id of a task with a dedup key is `k:KEY` here.
        """,
        without=("held",),
    ),
)
@click.option("--status", metavar="STATUS", help=f"Only these: {', '.join(TaskStatus)}.")
@click.option("--held", is_flag=True, help="Only live ones that the code of the last start does not fit.")
@click.option("--workflow", metavar="NAME", type=bare_name, help="Only of this workflow.")
@click.option("--session", "session_id", metavar="SESSION", help="Only of this session.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many at most.")
@click.pass_obj
def list_(session: Session, /, status: str | None, **filters: Any) -> int:
    """List the newest tasks, newest first.

    Each line shows the turn and what the task waits for. Live tasks are RUNNING or WAITING. The reason of a held task
    says what does not fit.
    """
    chosen = parse_choice("status", status, TaskStatus)
    return print_list(session, open_tasks(session).list_newest(status=chosen, **filters))


@task.command(
    "show",
    examples=("craftcore task show 01a1fdfa",),
    see=("craftcore task events", "craftcore inbox answer", "docs/reference/cli.md#tasks-and-the-inbox"),
    on_cluster=OnCluster(
        help="""Show a task: what it waits for, and how far it has come.

        It also shows state or result, open questions, irreversible actions, unread messages and the last attempts.
        """
    ),
)
@click.argument("task_id", metavar="ID")
@click.pass_obj
def show(session: Session, /, task_id: str) -> None:
    """Show a task: what it waits for, and what to do.

    It also shows state or result, questions, irreversible actions, unread messages, last attempts and children.
    """
    found, document, digits = open_tasks(session).read(task_id)
    if session.json:
        session.out.document(document)
    else:
        print_task(session.out, found, document, digits)


@task.command(
    "events",
    examples=("craftcore task events 01a1fdfa", "craftcore task events 01a1fdfa --limit 20"),
    see=("craftcore task show", "craftcore inspect", "docs/reference/events.md"),
    on_cluster=OnCluster(),
)
@click.argument("task_id", metavar="ID")
@click.option("--limit", type=click.IntRange(1, 100_000), default=200, show_default=True, help="How many at most.")
@click.pass_obj
def events(session: Session, /, task_id: str, limit: int) -> None:
    """List the events of a task over all its turns, oldest first.

    They are the steps, irreversible actions, questions, waits and notes of all attempts. Beyond --limit, only the last
    ones are listed.
    """
    events, has_more = open_tasks(session).read_events(task_id, limit)
    if has_more:
        session.out.print_note(f"these are the last {limit:,}, and there were more: --limit")
    if session.json:
        session.out.document(events)
    else:
        print_events(session.out, events)


for command_ in (stream, operate.cancel, operate.retry, operate.signal, operate.stop):
    task.add_command(command_)
