"""`craftcore temporal task`: which tasks there are, how far each has come, and what it did. It needs no worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from craftcore.cli.base import CommandGroup
from craftcore.cli.exit_codes import BAD_FILTER, NO_SUCH
from craftcore.cli.lookup import parse_choice
from craftcore.cli.session import Session
from craftcore.cli.task.task_card import print_events, print_task
from craftcore.cli.temporal import cluster_task_operations
from craftcore.cli.temporal.cluster_calls import call_cluster, read_task
from craftcore.cli.temporal.cluster_options import ClusterCommand
from craftcore.diagnostics.documents import (
    activity_document,
    event_document,
    question_document,
    task_document,
    wait_document,
)
from craftcore.serialization.display import json_or_text
from craftcore.serialization.time_text import add_iso_times, clock_time
from craftcore.tasks.model import TaskStatus
from craftcore.triggers.workflow_names import bare_name

if TYPE_CHECKING:
    from craftcore.temporal.records.recorded_task import RecordedTask
    from craftcore.temporal.records.task_list import ListedTask
    from craftcore.temporal.temporal_client import TemporalClient

LIST_COLUMNS = ("id", "created", "workflow", "session", "status", "questions", "doubts")
LISTED_KEYS = ("id", "workflow", "session_id", "status", "created_at", "ended_at", "asks", "doubts")
ATTEMPTS_SHOWN = 10
NO_TASK: dict[int, str | None] = {NO_SUCH: "no such task"}


@click.group(cls=CommandGroup)
def task() -> None:
    """Tasks on a cluster: list, show, events, cancel, …

    They are read from the histories on the cluster, so no worker is needed.
    """


@task.command(
    "list",
    cls=ClusterCommand,
    exits={BAD_FILTER: None},
    examples=("craftcore temporal task list --status waiting", "craftcore temporal task list --workflow nap --limit 5"),
    see=("craftcore temporal task show", "craftcore temporal inbox list", "docs/how-to/run-on-temporal.md"),
)
@click.option("--status", metavar="STATUS", help=f"Only these: {', '.join(TaskStatus)}.")
@click.option("--workflow", metavar="NAME", type=bare_name, help="Only of this workflow.")
@click.option("--session", "session_id", metavar="SESSION", help="Only of this session.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many at most.")
@click.pass_obj
def list_(session: Session, /, status: str | None, workflow: str | None, session_id: str | None, limit: int) -> None:
    """List the newest tasks, newest first.

    The list is that of the cluster, which may lag a second. The id of a task with a dedup key is `k:KEY` here.
    """
    chosen = parse_choice("status", status, TaskStatus)

    async def read(client: TemporalClient) -> list[ListedTask]:
        from craftcore.temporal.records.task_list import list_tasks

        return await list_tasks(client.connection, limit=limit, status=chosen, workflow=workflow, session_id=session_id)

    found = call_cluster(session, read)
    if session.json:
        session.out.document([add_iso_times({name: getattr(one, name) for name in LISTED_KEYS}) for one in found])
        return
    rows = [
        (one.id, clock_time(one.created_at), one.workflow, one.session_id, one.status, len(one.asks), len(one.doubts))
        for one in found
    ]
    session.out.table(LIST_COLUMNS, rows)


@task.command(
    "show",
    cls=ClusterCommand,
    exits=NO_TASK,
    examples=("craftcore temporal task show 01a1fdfa",),
    see=("craftcore temporal task events", "craftcore temporal inbox answer", "docs/how-to/run-on-temporal.md"),
)
@click.argument("task_id", metavar="ID")
@click.pass_obj
def show(session: Session, /, task_id: str) -> None:
    """Show a task: what it waits for, and how far it has come.

    It also shows state or result, open questions, irreversible actions, unread messages and the last attempts.
    """
    found = read_task(session, task_id)
    document = show_document(found)
    if session.json:
        session.out.document(document)
    else:
        print_task(session.out, found.task, document, None)


@task.command(
    "events",
    cls=ClusterCommand,
    exits=NO_TASK,
    examples=("craftcore temporal task events 01a1fdfa", "craftcore temporal task events 01a1fdfa --limit 20"),
    see=("craftcore temporal task show", "craftcore temporal inspect", "docs/reference/events.md"),
)
@click.argument("task_id", metavar="ID")
@click.option("--limit", type=click.IntRange(1, 100_000), default=200, show_default=True, help="How many at most.")
@click.pass_obj
def events(session: Session, /, task_id: str, limit: int) -> None:
    """List the events of a task over all its turns, oldest first.

    They are the steps, irreversible actions, questions, waits and notes of all attempts, with what people did. Beyond
    --limit, only the last ones are listed.
    """
    found = read_task(session, task_id)
    from craftcore.temporal.records.task_records import list_stream

    stream = list_stream(found)
    if len(stream) > limit:
        session.out.print_note(f"these are the last {limit:,}, and there were more: --limit")
        stream = stream[-limit:]
    events = [event_document(event) for event in stream]
    if session.json:
        session.out.document(events)
    else:
        print_events(session.out, events)


for command_ in (
    cluster_task_operations.cancel,
    cluster_task_operations.retry,
    cluster_task_operations.signal,
):
    task.add_command(command_)


def show_document(found: RecordedTask) -> dict[str, Any]:
    """Return a task with what belongs to it. Children are not listed: the cluster has them."""
    from craftcore.temporal.records.task_records import list_questions, list_records

    row, state = found.task, found.state
    records = list_records(found)
    names = ("id", "turn", "attempt", "created_at", "ended_at", "status", "error_code", "latency_ms")
    mails = [] if state is None else state.mails
    return {
        **task_document(row),
        "held": None,
        "reasons": [{"code": row.status.value, "text": row.reason}] if row.status.is_live else [],
        "state": json_or_text(row.state_json),
        "result": json_or_text(row.result_json),
        "progress": json_or_text(row.progress_json),
        "wait": wait_document([] if state is None else state.open_waits),
        "questions": [question_document(question) for question in list_questions(found)],
        "activities": [] if state is None else [activity_document(activity) for activity in state.acts.values()],
        "unread": len(mails),
        "unread_mail": [
            {
                "event": mail.event,
                "created_at": None,
                "trigger_id": None,
                "sent_by": mail.sent_by,
                "payload": json_or_text(mail.payload_json),
            }
            for mail in mails
        ],
        "attempts": len(records),
        "last_attempts": [
            add_iso_times({name: getattr(record, name) for name in names})
            for record in reversed(records[-ATTEMPTS_SHOWN:])
        ],
        "children": [],
    }
