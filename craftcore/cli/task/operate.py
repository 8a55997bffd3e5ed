"""`craftcore task signal`, `cancel`, `stop`, `retry`: what a person does to a task."""

from __future__ import annotations

import click

from craftcore.cli.base import OnCluster, OperatorCommand
from craftcore.cli.confirm import confirm_by_person
from craftcore.cli.exit_codes import NO_SUCH, PROBLEM
from craftcore.cli.lookup import find_task, refuse_bad_text
from craftcore.cli.payload import read_json
from craftcore.cli.session import Session
from craftcore.cli.task.calls_on_tasks import open_tasks
from craftcore.diagnostics.documents import task_document
from craftcore.operations import tasks
from craftcore.tasks.model import Task, TaskStatus


@click.command(
    "signal",
    cls=OperatorCommand,
    exits={PROBLEM: "it has ended, or has too much unread mail", NO_SUCH: None},
    examples=(
        "craftcore task signal 01a1fdfa approved true",
        """craftcore task signal 01a1fdfa paid '{"amount": 7}'""",
    ),
    see=("craftcore task show", "craftcore inbox answer", "docs/explanation/lifecycle.md#tasks"),
    on_cluster=OnCluster(remark="It needs no worker.", exits={PROBLEM: "it has ended"}),
)
@click.argument("task_id", metavar="ID")
@click.argument("event", metavar="EVENT")
@click.argument("payload", metavar="[JSON|@FILE|-]", default="null")
@click.pass_obj
def signal(session: Session, /, task_id: str, event: str, payload: str) -> None:
    """Tell a task that an event has happened, and what it brought.

    EVENT is the name that the task waits for; what it brought is any JSON, null unless given. When the task does not
    wait for it now, it is kept until it does.
    """
    brought = read_json(payload)
    whole, after, waited = open_tasks(session).signal(task_id, event, brought)
    if session.json:
        document = {"id": whole, "status": None} if after is None else task_document(after)
        session.out.document({**document, "waited": waited})
        return
    if after is None:
        session.out.line(f"{event} is kept for {whole}, which has not begun")
    elif waited:
        session.out.line(f"{whole} waited for {event}, and goes on")
    else:
        session.out.line(f"{event} is kept for {whole}, which is {summary_text(after)}")
    session.say_without_daemon()


@click.command(
    "cancel",
    cls=OperatorCommand,
    exits={PROBLEM: "it has ended", NO_SUCH: None},
    examples=('craftcore task cancel 01a1fdfa --reason "wrong city"',),
    see=("craftcore task show", "craftcore trigger cancel", "docs/explanation/irreversible-actions.md"),
    on_cluster=OnCluster(
        help="""Ask a task to end. A worker ends it, at the next await of what runs.

        Its effects stay; an irreversible action that is being called is settled first, or in doubt.
        """
    ),
)
@click.argument("task_id", metavar="ID")
@click.option("--reason", metavar="TEXT", help="Why; stored with the task.")
@click.option("--yes", is_flag=True, help="Do not ask; without a terminal nothing is asked.")
@click.pass_obj
def cancel(session: Session, /, task_id: str, reason: str | None, yes: bool = True) -> None:
    """End a task: at once, or at the next await of what runs.

    It is CANCELLED then, its timers and open questions with it. Its effects stay; an irreversible action that is being
    called is settled first, or in doubt.
    """
    refuse_bad_text("reason", reason)
    calls = open_tasks(session)
    before = calls.find(task_id)
    confirm_by_person(yes, f"cancel task {before.id} of {before.workflow}, {summary_text(before)}")
    after = calls.cancel(before.id, reason)
    if session.json:
        session.out.document(task_document(after))
    elif session.cluster is not None:
        session.out.line(f"{after.id}: asked to cancel; a worker ends it")
    elif after.status.is_live:
        session.out.line(f"{after.id} runs; asked to cancel")
        session.say_without_daemon()
    else:
        session.out.line(f"{after.id} is {after.status}")


@click.command(
    "stop",
    cls=OperatorCommand,
    exits={PROBLEM: "it has ended, no turn of it has begun, or nothing would begin another", NO_SUCH: None},
    examples=("craftcore task stop 01a1fdfa",),
    see=("craftcore task show", "craftcore task cancel", "docs/how-to/write-handlers.md#state-turns-and-models"),
)
@click.argument("task_id", metavar="ID")
@click.option("--reason", metavar="TEXT", help="Why; stored in the row.")
@click.pass_obj
def stop(session: Session, /, task_id: str, reason: str | None) -> None:
    """Stop the turn of a task, and keep the task.

    Code that runs is cancelled at its next await. Then the task waits for what began this turn, such as the next
    message, with the state that the turn found. Completed steps stay done, and open questions are withdrawn.
    """
    refuse_bad_text("reason", reason)
    core = session.core()
    with session.write(core) as (tx, scope):
        before = find_task(tx, task_id)
        after = tasks.stop_turn(tx, scope, core, before.id, reason)
    if session.json:
        session.out.document(task_document(after))
    elif after.turn == before.turn:
        session.out.line(f"{after.id} runs; asked to stop turn {before.turn}")
        session.say_without_daemon()
    else:
        session.out.line(f"{after.id} is {summary_text(after)}")


@click.command(
    "retry",
    cls=OperatorCommand,
    exits={PROBLEM: "it is neither FAILED nor held, or cannot go on; it says why", NO_SUCH: None},
    examples=("craftcore task retry 01a1fdfa",),
    see=("craftcore task show", "craftcore trigger requeue", "docs/reference/error-codes.md"),
    on_cluster=OnCluster(
        help="""Let a FAILED task try its last turn again, with all its attempts.

        A new run of its workflow begins with the state of the task. The completed parts of the turn are kept, and not
        done again. The signals that it was sent and had not read are kept, too. A deadline that is past counts no more.
        """,
        exits={PROBLEM: "it is not FAILED, or was retried meanwhile"},
    ),
)
@click.argument("task_id", metavar="ID")
@click.option("--reason", metavar="TEXT", help="Why; stored with the task.")
@click.pass_obj
def retry(session: Session, /, task_id: str, reason: str | None = None) -> None:
    """Let a FAILED task try again, or a held one go on.

    A FAILED one tries its last turn again, with all its attempts. The completed parts of the turn are kept, and not
    done again. The signals that it was sent and had not read are kept, too. A live task is held while the code does not
    fit it: retried, it goes on with the code that runs, and may fail. The next start checks it again.
    """
    refuse_bad_text("reason", reason)
    after = open_tasks(session).retry(task_id, reason)
    if session.json:
        session.out.document(task_document(after))
        return
    with_trigger = "" if after.trigger_id is None else f", with trigger {after.trigger_id}"
    if after.status is TaskStatus.WAITING and session.cluster is None:
        session.out.line(f"{after.id} is not held any more, and waits as before: {after.reason}")
    else:
        session.out.line(f"{after.id} goes on at turn {after.turn}{with_trigger}")
    session.say_without_daemon()


def summary_text(task: Task) -> str:
    """Return `WAITING at turn 2: waits for an answer`"""
    why = task.error_message or task.reason
    return f"{task.status} at turn {task.turn}" + ("" if why is None else f": {why}")
