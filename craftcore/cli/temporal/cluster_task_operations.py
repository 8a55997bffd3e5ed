"""`craftcore temporal task signal`, `cancel`, `retry`: what a person does to a task on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from craftcore.audit.caller import actor
from craftcore.cli.confirm import confirm_by_person
from craftcore.cli.exit_codes import NO_SUCH, PROBLEM
from craftcore.cli.lookup import refuse_bad_text
from craftcore.cli.payload import read_json
from craftcore.cli.session import Session
from craftcore.cli.task.view import summary_text
from craftcore.cli.temporal.cluster_calls import call_operations, read_task
from craftcore.cli.temporal.cluster_options import ClusterWriteCommand
from craftcore.diagnostics.documents import task_document
from craftcore.errors import StateRefused

if TYPE_CHECKING:
    from craftcore.temporal.records.recorded_task import RecordedTask
    from craftcore.temporal.task_operations import TaskOperations

PAGE = "docs/how-to/run-on-temporal.md"


@click.command(
    "signal",
    cls=ClusterWriteCommand,
    exits={PROBLEM: "it has ended", NO_SUCH: "no such task"},
    examples=(
        "craftcore temporal task signal 01a1fdfa approved true",
        """craftcore temporal task signal 01a1fdfa paid '{"amount": 7}'""",
    ),
    see=("craftcore temporal task show", "craftcore temporal inbox answer", PAGE),
)
@click.argument("task_id", metavar="ID")
@click.argument("event", metavar="EVENT")
@click.argument("payload", metavar="[JSON|@FILE|-]", default="null")
@click.pass_obj
def signal(session: Session, /, task_id: str, event: str, payload: str) -> None:
    """Tell a task that an event has happened, and what it brought.

    EVENT is the name that the task waits for; what it brought is any JSON, null unless given. When the task does not
    wait for it now, it is kept until it does. It needs no worker.
    """
    brought = read_json(payload)

    async def send(operations: TaskOperations) -> tuple[RecordedTask, bool]:
        found = await _find_live(operations, task_id)
        waits = [] if found.state is None else found.state.open_waits
        await operations.signal(found.id, event, brought, by=actor().text)
        return found, any(wait.event == event for wait in waits)

    found, waited = call_operations(session, send)
    if session.json:
        session.out.document({**task_document(found.task), "waited": waited})
    elif waited:
        session.out.line(f"{found.id} waited for {event}, and goes on")
    else:
        session.out.line(f"{event} is kept for {found.id}, which is {summary_text(found.task)}")


@click.command(
    "cancel",
    cls=ClusterWriteCommand,
    exits={PROBLEM: "it has ended", NO_SUCH: "no such task"},
    examples=('craftcore temporal task cancel 01a1fdfa --reason "wrong city"',),
    see=("craftcore temporal task show", "craftcore temporal audit", PAGE),
)
@click.argument("task_id", metavar="ID")
@click.option("--reason", metavar="TEXT", help="Why; stored in the history.")
@click.option("--yes", is_flag=True, help="Do not ask; without a terminal nothing is asked.")
@click.pass_obj
def cancel(session: Session, /, task_id: str, reason: str | None, yes: bool) -> None:
    """Ask a task to end. A worker ends it, at the next await of what runs.

    Its effects stay; an irreversible action that is being called is settled first, or in doubt.
    """
    refuse_bad_text("reason", reason)
    before = read_task(session, task_id)
    confirm_by_person(yes, f"cancel task {before.id} of {before.task.workflow}, {summary_text(before.task)}")
    found = ask_to_end(session, before.id, reason)
    if session.json:
        session.out.document(task_document(found.task))
    else:
        session.out.line(f"{found.id}: asked to cancel; a worker ends it")


@click.command(
    "retry",
    cls=ClusterWriteCommand,
    exits={PROBLEM: "it is not FAILED, or was retried meanwhile", NO_SUCH: "no such task"},
    examples=("craftcore temporal task retry 01a1fdfa",),
    see=("craftcore temporal task show", "docs/reference/error-codes.md", PAGE),
)
@click.argument("task_id", metavar="ID")
@click.option("--reason", metavar="TEXT", help="Why; stored in the history.")
@click.pass_obj
def retry(session: Session, /, task_id: str, reason: str | None) -> None:
    """Let a FAILED task try its last turn again, with all its attempts.

    A new run of its workflow begins with the state of the task. The completed parts of the turn are kept, and not done
    again. The signals that it was sent and had not read are kept, too. A deadline that is past counts no more.
    """
    found = try_again(session, task_id, reason)
    if session.json:
        session.out.document(task_document(found.task))
    else:
        session.out.line(f"{found.id} goes on at turn {found.task.turn}")


def ask_to_end(session: Session, given: str, reason: str | None) -> RecordedTask:
    """Ask a task to end, and return it as it was before. Raises NotFound; StateRefused when it has ended."""
    refuse_bad_text("reason", reason)

    async def send(operations: TaskOperations) -> RecordedTask:
        found = await _find_live(operations, given)
        await operations.cancel(found.id, by=actor().text, note=reason)
        return found

    return call_operations(session, send)


def try_again(session: Session, given: str, reason: str | None) -> RecordedTask:
    """Let a failed task go on, and return it. Raises NotFound; StateRefused when it has not failed."""
    refuse_bad_text("reason", reason)

    async def send(operations: TaskOperations) -> RecordedTask:
        found = await operations.find(given)
        await operations.retry(found.id, by=actor().text, note=reason)
        return await operations.load(found.id)

    return call_operations(session, send)


async def _find_live(operations: TaskOperations, given: str) -> RecordedTask:
    found = await operations.find(given)
    if found.history.end is not None:
        raise StateRefused(f"task {found.id} is {found.task.status}; nothing was done")
    return found
