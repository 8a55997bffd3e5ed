"""`craftcore activity`: outcomes of irreversible actions, and the decision of an operator where they are unknown."""

from __future__ import annotations

import click

from craftcore.activities.model import Activity, ActivityStatus
from craftcore.cli.activity.activity_card import print_activity
from craftcore.cli.activity.calls_on_doubts import open_doubts
from craftcore.cli.activity.resolve import resolve
from craftcore.cli.base import CommandGroup, OnCluster
from craftcore.cli.damaged_list import RowList, print_list
from craftcore.cli.exit_codes import BAD_FILTER, NO_SUCH, OF_A_LIST
from craftcore.cli.lookup import parse_choice
from craftcore.cli.session import Session
from craftcore.diagnostics.documents import activity_document
from craftcore.diagnostics.text.activity_text import describe_status
from craftcore.serialization.time_text import clock_time

LIST_COLUMNS = ("key", "called", "action", "status", "reference", "reason")


@click.group(
    cls=CommandGroup,
    verbs=("list", "show", "resolve"),
    on_cluster="""Irreversible actions on a cluster: list, show, resolve what is in doubt.

    INTENT is written before a call, DONE or FAILED after it; UNKNOWN means that the outcome is unknown.
    """,
)
def activity() -> None:
    """Irreversible actions: list, show, resolve what is in doubt.

    INTENT is written before a call, DONE or FAILED after it; UNKNOWN means that the outcome is unknown.
    """


activity.add_command(resolve)


@activity.command(
    "list",
    exits={**OF_A_LIST, NO_SUCH: "no such task, or no such database", BAD_FILTER: None},
    examples=("craftcore activity list --status unknown", "craftcore activity list --task 01a1fdfa"),
    see=("craftcore activity show", "craftcore inbox list", "docs/how-to/resolve-unknown-activities.md"),
    on_cluster=OnCluster(
        help="""List the irreversible actions in doubt, or those of one task, newest first.

        Without --task, it lists what the live tasks with an action in doubt have. Other actions are in the histories of
        their tasks.
        """,
        examples=("craftcore activity list", "craftcore activity list --task 01a1fdfa"),
    ),
)
@click.option("--status", metavar="STATUS", help=f"Only these: {', '.join(ActivityStatus)}.")
@click.option("--task", "task_id", metavar="ID", help="Only of this task.")
@click.option("--action", metavar="NAME", help="Only of this action, like email.send.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many at most.")
@click.pass_obj
def list_(session: Session, /, status: str | None, task_id: str | None, action: str | None, limit: int) -> int:
    """List the newest irreversible actions, newest first.

    Each line shows the outcome and the provider's reference.
    """
    chosen = parse_choice("status", status, ActivityStatus)
    found, digits = open_doubts(session).list_activities(limit, chosen, task_id, action)
    return print_list(
        session,
        RowList(LIST_COLUMNS, found, document_of=activity_document, cells=_make_row, digits=digits),
    )


@activity.command(
    "show",
    examples=("craftcore activity show 01a1fdfa",),
    see=("craftcore activity resolve", "craftcore task show", "docs/how-to/resolve-unknown-activities.md"),
    on_cluster=OnCluster(remark="KEY is whole.", examples=("craftcore activity show KEY",)),
)
@click.argument("key", metavar="KEY")
@click.pass_obj
def show(session: Session, /, key: str) -> None:
    """Show an irreversible action, and what to do about it.

    It shows what was sent, the outcome, the calls, the history, the decisions, and the commands that settle it.
    """
    reading, claims_live = open_doubts(session).read_activity(key)
    found, task, question = reading.activity, reading.task, reading.question
    document = {
        **activity_document(found),
        **reading.document,
        "question_id": None if question is None else question.id,
    }
    if session.json:
        session.out.document(document)
    else:
        print_activity(session, found, task, document, describe_status(found, task, question, claims_live=claims_live))


def _make_row(activity: Activity) -> tuple[object, ...]:
    """Return its row under LIST_COLUMNS."""
    # Of one that was decided, the reason says who did, and the error is that of the call before.
    error = f": {activity.error_message}" if activity.error_message and activity.decision is None else ""
    return (
        activity.key,
        clock_time(activity.last_call_at),
        activity.action,
        activity.status,
        activity.provider_ref,
        activity.reason + error,
    )
