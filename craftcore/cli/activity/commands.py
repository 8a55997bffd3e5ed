"""`craftcore activity`: outcomes of irreversible actions, and the decision of an operator where they are unknown."""

from __future__ import annotations

from typing import Any

import click

from craftcore.activities.listing_store import ActivityListStore
from craftcore.activities.model import Activity, ActivityStatus
from craftcore.cli.activity.activity_card import print_activity
from craftcore.cli.activity.resolve import resolve
from craftcore.cli.activity.view import LIST_COLUMNS, activity_row, describe_status, task_summary
from craftcore.cli.base import CommandGroup
from craftcore.cli.damaged_list import print_list
from craftcore.cli.exit_codes import BAD_FILTER, NO_SUCH, OF_A_LIST
from craftcore.cli.lookup import find_activity, find_task, parse_choice
from craftcore.cli.session import Session
from craftcore.cli.short_ids import count_digits
from craftcore.diagnostics.documents import activity_document, event_document
from craftcore.diagnostics.live_counts import are_claims_live
from craftcore.serialization.display import json_or_text
from craftcore.serialization.time_text import add_iso_times
from craftcore.storage.transaction import Reader
from craftcore.tasks.model import Task
from craftcore.tasks.question_store import QuestionStore
from craftcore.tasks.store import TaskStore


@click.group(cls=CommandGroup, verbs=("list", "show", "resolve"))
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
    with session.core().reading() as reader:
        found = ActivityListStore().list_newest(
            reader,
            limit,
            status=chosen,
            task_id=None if task_id is None else find_task(reader, task_id).id,
            action=action,
        )
        digits = count_digits(reader)
    return print_list(
        session, LIST_COLUMNS, found, told=activity_document, cells=activity_row, key="key", digits=digits
    )


@activity.command(
    "show",
    examples=("craftcore activity show 01a1fdfa",),
    see=("craftcore activity resolve", "craftcore task show", "docs/how-to/resolve-unknown-activities.md"),
)
@click.argument("key", metavar="KEY")
@click.pass_obj
def show(session: Session, /, key: str) -> None:
    """Show an irreversible action, and what to do about it.

    It shows what was sent, the outcome, the calls, the history, the decisions, and the commands that settle it.
    """
    core = session.core()
    with core.reading() as reader:
        found = find_activity(reader, key)
        claims_live = are_claims_live(reader, core.database.path)
        task = TaskStore().get_by_seq(reader, found.task_seq)
        question = QuestionStore().open_question_about(reader, found.seq)
        told = {**activity_document(found), **_related_document(reader, found, task)}
    told["question_id"] = None if question is None else question.id
    if session.json:
        session.out.document(told)
    else:
        print_activity(session, found, task, told, describe_status(found, task, question, claims_live=claims_live))


def _related_document(reader: Reader, found: Activity, task: Task) -> dict[str, Any]:
    """Return what belongs to an activity, beside its row."""
    store = ActivityListStore()
    return {
        "task": task_summary(task),
        "arguments": json_or_text(found.request_json),
        "result": json_or_text(found.result_json),
        "decisions": [add_iso_times(row) for row in store.decisions(reader, found.seq)],
        "events": [event_document(event) for event in store.list_history(reader, found)],
    }
