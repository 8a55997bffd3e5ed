"""`craftcore temporal trigger`: what was emitted, whether or not its function is a task. It needs no worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from craftcore.cli.base import CommandGroup, OnCluster
from craftcore.cli.exit_codes import BAD_FILTER, NO_SUCH, PROBLEM
from craftcore.cli.lookup import parse_choice
from craftcore.cli.session import Session
from craftcore.cli.task import operate
from craftcore.cli.temporal.cluster_calls import call_cluster
from craftcore.cli.temporal.cluster_options import ClusterCommand
from craftcore.cli.temporal.shared_command import PAGE, make_form
from craftcore.cli.trigger.view import readable_facts
from craftcore.diagnostics.records.record_documents import record_document
from craftcore.diagnostics.text.trigger_text import task_summary
from craftcore.serialization.display import json_or_text
from craftcore.serialization.time_text import add_iso_times, clock_time
from craftcore.triggers.workflow_names import bare_name

if TYPE_CHECKING:
    from craftcore.temporal.cluster_connection import Client
    from craftcore.temporal.records.recorded_task import RecordedTask
    from craftcore.temporal.records.task_list import ListedTask

LIST_COLUMNS = ("id", "created", "workflow", "session", "status")
LISTED_KEYS = ("id", "workflow", "session_id", "status", "created_at", "ended_at")


@click.group(cls=CommandGroup)
def trigger() -> None:
    """Triggers on a cluster: list, show, cancel, requeue.

    A trigger is the workflow of its task there, so both have one id.
    """


@trigger.command(
    "list",
    cls=ClusterCommand,
    exits={BAD_FILTER: None},
    examples=(
        "craftcore temporal trigger list --status dead",
        "craftcore temporal trigger list --workflow nap --limit 5",
    ),
    see=("craftcore temporal trigger show", "craftcore temporal task list", PAGE),
)
@click.option("--status", metavar="STATUS", help="Only these: PENDING, RUNNING, WAITING, DONE, DEAD, CANCELLED.")
@click.option("--workflow", metavar="NAME", type=bare_name, help="Only of this workflow.")
@click.option("--session", "session_id", metavar="SESSION", help="Only of this session.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many at most.")
@click.pass_obj
def list_(session: Session, /, status: str | None, workflow: str | None, session_id: str | None, limit: int) -> None:
    """List the newest triggers, newest first.

    The list is that of the cluster, which may lag a second. The id of one with a dedup key is `k:KEY` here.
    """

    async def read(client: Client) -> list[ListedTask]:
        from craftcore.temporal.records.task_list import WorkStatus, list_triggers

        chosen = parse_choice("status", status, WorkStatus)
        return await list_triggers(client, limit=limit, status=chosen, workflow=workflow, session_id=session_id)

    found = call_cluster(session, read)
    if session.json:
        session.out.document([add_iso_times({name: getattr(one, name) for name in LISTED_KEYS}) for one in found])
        return
    rows = [(one.id, clock_time(one.created_at), one.workflow, one.session_id, one.status) for one in found]
    session.out.table(LIST_COLUMNS, rows)


@trigger.command(
    "show",
    cls=ClusterCommand,
    exits={NO_SUCH: "no such trigger"},
    examples=("craftcore temporal trigger show 01a1fdfa",),
    see=("craftcore temporal task show", "craftcore temporal inspect", PAGE),
)
@click.argument("trigger_id", metavar="ID")
@click.pass_obj
def show(session: Session, /, trigger_id: str) -> None:
    """Show one trigger: what was emitted, how far it has come, its attempts.

    It is PENDING while no worker runs it, and DEAD when it failed and is not tried again.
    """

    async def read(client: Client) -> tuple[RecordedTask, str]:
        from craftcore.temporal.records.task_list import read_status
        from craftcore.temporal.task_operations import TaskOperations

        found = await TaskOperations(client).find(trigger_id)
        return found, await read_status(client, found.workflow_id, found.task.status)

    found, status = call_cluster(session, read)
    document, records = trigger_document(found, status), _list_records(found)
    if session.json:
        session.out.document({**document, "task": task_summary(found.task), "executions": records})
        return
    session.out.facts(readable_facts(document))
    for record in records:
        error = f", {record['error']['code']}" if record["error"] else ""
        session.out.line(f"{record['execution_id']}  attempt {record['attempt']}: {record['status']}{error}")


trigger.add_command(
    make_form(
        operate.cancel,
        OnCluster(
            help="Ask a trigger to end, and its task with it. A worker ends it.",
            without=("yes",),
            examples=('craftcore trigger cancel 01a1fdfa --reason "wrong city"',),
            see=("craftcore task cancel", "craftcore audit"),
        ),
    )
)
trigger.add_command(
    make_form(
        operate.retry,
        OnCluster(
            help="""Give a DEAD trigger another life, as `task retry` does.

            Due now, with all its attempts. The completed parts of its turn are not done again.
            """,
            without=("reason",),
            exits={PROBLEM: "it is not DEAD, or was requeued meanwhile"},
            examples=("craftcore trigger requeue 01a1fdfa",),
            see=("craftcore task retry", "docs/reference/error-codes.md"),
        ),
        "requeue",
    )
)


def trigger_document(found: RecordedTask, status: str) -> dict[str, Any]:
    """Return a trigger with the fields that it has on a cluster."""
    start, state, task = found.history.start, found.state, found.task
    return add_iso_times(
        {
            "id": found.id,
            "source": start["source"],
            "dedup_key": found.workflow_id[2:] if found.workflow_id.startswith("k:") else None,
            "session_id": task.session_id,
            "schedule_id": task.schedule_id,
            "workflow": task.workflow or None,
            "due_at": start["due_at"],
            "expires_at": start.get("expires_at"),
            "priority": start.get("priority"),
            "description": start.get("description"),
            "status": status,
            "attempts": 0 if state is None else state.attempts,
            "crash_count": 0 if state is None else state.crashes,
            "max_attempts": start.get("max_attempts"),
            "reason": task.reason,
            "error_code": task.error_code,
            "error_message": task.error_message,
            "created_at": found.history.started_at,
            "settled_at": task.ended_at,
            "payload": json_or_text(start["payload_json"]),
        }
    )


def _list_records(found: RecordedTask) -> list[dict[str, Any]]:
    from craftcore.temporal.records.task_records import list_records

    return [record_document(record) for record in list_records(found)]
