"""`craftcore temporal activity`: irreversible actions of the tasks on a cluster, and decisions about those in doubt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from craftcore.activities.model import Activity, ActivityStatus
from craftcore.audit.caller import actor
from craftcore.cli.activity.activity_card import print_activity
from craftcore.cli.activity.decision_options import choose_decision, decision_options
from craftcore.cli.activity.view import LIST_COLUMNS, activity_row
from craftcore.cli.base import CommandGroup
from craftcore.cli.confirm import confirm_by_person
from craftcore.cli.exit_codes import BAD_FILTER, NO_SUCH, PROBLEM
from craftcore.cli.lookup import parse_choice, refuse_bad_text
from craftcore.cli.session import Session
from craftcore.cli.temporal.cluster_calls import call_cluster, call_operations, make_suggest
from craftcore.cli.temporal.cluster_options import ClusterCommand, ClusterWriteCommand
from craftcore.diagnostics.activity_details import task_summary
from craftcore.diagnostics.documents import activity_document, event_document
from craftcore.diagnostics.text.activity_text import confirmation_text, decision_result, describe_status
from craftcore.log_format import escape_control
from craftcore.serialization.display import json_or_text
from craftcore.serialization.texts import NOTE_MAX
from craftcore.serialization.time_text import add_iso_times

if TYPE_CHECKING:
    from craftcore.temporal.records.recorded_task import RecordedTask
    from craftcore.temporal.task_operations import TaskOperations
    from craftcore.temporal.temporal_client import TemporalClient

PAGE = "docs/how-to/run-on-temporal.md"


@click.group(cls=CommandGroup, verbs=("list", "show", "resolve"))
def activity() -> None:
    """Irreversible actions on a cluster: list, show, resolve what is in doubt.

    INTENT is written before a call, DONE or FAILED after it; UNKNOWN means that the outcome is unknown.
    """


@activity.command(
    "list",
    cls=ClusterCommand,
    exits={NO_SUCH: "no such task", BAD_FILTER: None},
    examples=("craftcore temporal activity list", "craftcore temporal activity list --task 01a1fdfa"),
    see=("craftcore temporal activity show", "craftcore temporal inbox list", PAGE),
)
@click.option("--status", metavar="STATUS", help=f"Only these: {', '.join(ActivityStatus)}.")
@click.option("--task", "task_id", metavar="ID", help="All of this task.")
@click.option("--action", metavar="NAME", help="Only of this action, like email.send.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many at most.")
@click.pass_obj
def list_(session: Session, /, status: str | None, task_id: str | None, action: str | None, limit: int) -> None:
    """List the irreversible actions in doubt, or those of one task, newest first.

    Without --task, it lists what the live tasks with an action in doubt have. Other actions are in the histories of
    their tasks.
    """
    chosen = parse_choice("status", status, ActivityStatus)

    async def read(client: TemporalClient) -> list[RecordedTask]:
        from craftcore.temporal.records.open_matters import list_doubting
        from craftcore.temporal.task_operations import TaskOperations

        if task_id is not None:
            return [await TaskOperations(client.connection).find(task_id)]
        return await list_doubting(client.connection, limit)

    tasks = call_cluster(session, read)
    wanted = chosen if task_id is not None else chosen or ActivityStatus.UNKNOWN
    found = [
        one
        for task in tasks
        for one in _list_acts(task)
        if wanted in (None, one.status) and action in (None, one.action)
    ]
    newest = sorted(found, key=lambda one: one.created_at, reverse=True)[:limit]
    if session.json:
        session.out.document([activity_document(one) for one in newest])
    else:
        session.out.table(LIST_COLUMNS, [activity_row(one) for one in newest])


@activity.command(
    "show",
    cls=ClusterCommand,
    exits={NO_SUCH: "no such activity"},
    examples=("craftcore temporal activity show KEY",),
    see=("craftcore temporal activity resolve", "craftcore temporal task show", PAGE),
)
@click.argument("key", metavar="KEY")
@click.pass_obj
def show(session: Session, /, key: str) -> None:
    """Show an irreversible action, and what to do about it.

    It shows what was sent, the outcome, the calls, the history, the decisions, and the commands that settle it. KEY is
    whole.
    """
    task, found = call_operations(session, lambda operations: operations.find_activity(key))
    from craftcore.temporal.records.task_records import list_questions, list_stream

    question = next((one for one in list_questions(task) if one.activity_key == found.key), None)
    document = {
        **activity_document(found),
        "task": task_summary(task.task),
        "arguments": json_or_text(found.request_json),
        "result": json_or_text(found.result_json),
        "decisions": _list_decisions(task, found),
        "events": [event_document(event) for event in list_stream(task) if _is_about(event, found)],
        "question_id": None if question is None else question.id,
    }
    if session.json:
        session.out.document(document)
        return
    means = describe_status(found, task.task, question, claims_live=True)
    print_activity(session, found, task.task, document, means, make_suggest(session))


@activity.command(
    "resolve",
    cls=ClusterWriteCommand,
    exits={PROBLEM: "it is not in doubt, or has moved on meanwhile", NO_SUCH: "no such activity"},
    examples=(
        'craftcore temporal activity resolve KEY --happened ref-9 --note "seen"',
        "craftcore temporal activity resolve KEY --resend",
        "craftcore temporal activity resolve KEY --give-up",
    ),
    see=("craftcore temporal activity show", "craftcore temporal inbox answer", PAGE),
)
@click.argument("key", metavar="KEY")
@decision_options
@click.pass_obj
def resolve(
    session: Session, /, key: str, happened: str | None, resend: bool, give_up: bool, note: str | None, yes: bool
) -> None:
    """Decide about an action whose outcome is unknown.

    The open question about it is answered, and a waiting task goes on. A worker takes the decision; without one the
    command ends with 75 after some seconds, and the decision may be applied later. Give one of the three.
    """
    decision, reference = choose_decision(happened, resend, give_up)
    refuse_bad_text("note", note, NOTE_MAX)
    task, seen = call_operations(session, lambda operations: operations.find_activity(key))
    confirm_by_person(yes, escape_control(confirmation_text(seen, decision)))

    async def send(operations: TaskOperations) -> tuple[RecordedTask, Activity]:
        await operations.decide(task.id, seen.key, decision, by=actor().text, note=note, reference=reference)
        return await operations.find_activity(seen.key)

    found, after = call_operations(session, send)
    if session.json:
        session.out.document({**activity_document(after), "task": task_summary(found.task)})
    else:
        session.out.line(decision_result(after, decision, found.task))


def _list_acts(task: RecordedTask) -> list[Activity]:
    return [] if task.state is None else list(task.state.acts.values())


def _list_decisions(task: RecordedTask, found: Activity) -> list[dict[str, Any]]:
    """Return the decisions of people about an activity. An answer to its question is one, too."""
    return [
        add_iso_times(
            {
                "decided_at": one.at,
                "decided_by": one.by,
                "decision": one.details["decision"],
                "reference": one.details["reference"],
                "note": one.note,
            }
        )
        for one in task.history.operations
        if one.action == "activity resolve" and one.subject == found.key
    ]


def _is_about(event: Any, found: Activity) -> bool:
    payload = json_or_text(event["payload_json"])
    return isinstance(payload, dict) and found.key in (payload.get("key"), payload.get("subject"))
