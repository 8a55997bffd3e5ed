"""`craftcore execution retry` and `skip`, and `craftcore invalidate`: an operator decides about an execution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import click

from craftcore.cli.base import CommandGroup, OperatorCommand
from craftcore.cli.exit_codes import NO_SUCH, PROBLEM
from craftcore.cli.lookup import find_record, refuse_bad_text
from craftcore.cli.session import Session
from craftcore.cli.trigger.view import cancelled_text, requeued_text, tasks_of
from craftcore.daemon.lock import read_note
from craftcore.diagnostics.documents import trigger_document
from craftcore.diagnostics.records.record_documents import record_document
from craftcore.diagnostics.text.trigger_text import task_summary
from craftcore.operations import executions
from craftcore.tasks.model import Task
from craftcore.triggers.model import Trigger, TriggerStatus

REFUSED = {
    PROBLEM: "it runs, has succeeded, was tried again since, or is in doubt; it says which",
    NO_SUCH: None,
}
DECIDED = {"retry": "retried", "skip": "skipped"}


@click.group(cls=CommandGroup)
def execution() -> None:
    """An attempt that has no end, or failed: retry it, skip it.

    `craftcore inspect ID` says what can be done.
    """


@execution.command(
    "retry",
    cls=OperatorCommand,
    exits=REFUSED,
    examples=('craftcore execution retry exec-01a1fdfa --reason "the provider is back"',),
    see=("craftcore inspect", "craftcore task retry", "docs/explanation/records-and-integrity.md#after-a-crash"),
)
@click.argument("execution_id", metavar="ID")
@click.option("--reason", metavar="TEXT", required=True, help="Why; stored in the audit log.")
@click.pass_obj
def retry(session: Session, /, execution_id: str, reason: str) -> None:
    """Let the trigger of an attempt run again, now.

    A trigger in backoff does not wait longer; a DEAD or FAILED one gets another life, and so does its task. An
    irreversible action with an unknown outcome has to be resolved first.
    """
    _decide(session, "retry", execution_id, reason, requeued_text)


@execution.command(
    "skip",
    cls=OperatorCommand,
    exits=REFUSED,
    examples=('craftcore execution skip exec-01a1fdfa --reason "done by hand"',),
    see=("craftcore inspect", "craftcore dead discard", "docs/explanation/records-and-integrity.md#after-a-crash"),
)
@click.argument("execution_id", metavar="ID")
@click.option("--reason", metavar="TEXT", required=True, help="Why; stored in the audit log.")
@click.pass_obj
def skip(session: Session, /, execution_id: str, reason: str) -> None:
    """Let the trigger of an attempt run no more; its task ends.

    A dead letter is discarded, and stays readable as FAILED.
    """
    _decide(session, "skip", execution_id, reason, _skipped_text)


def _skipped_text(trigger: Trigger, tasks: dict[str, Task]) -> str:
    match trigger.status:
        case TriggerStatus.FAILED:
            return "is discarded, and stays readable as FAILED"
        case TriggerStatus.CLAIMED:
            return "is cancelled by the next daemon, before anything runs; its own is gone"
        case _:
            return cancelled_text(trigger, tasks)


def _decide(
    session: Session,
    decision: Literal["retry", "skip"],
    given: str,
    reason: str,
    words: Callable[[Trigger, dict[str, Task]], str],
) -> None:
    """Decide and log it, in one commit, and print it. `words`: what became of the trigger."""
    refuse_bad_text("reason", reason)
    core = session.core()
    _, daemon_runs = read_note(core.database.path)
    with session.write(core) as (tx, scope):
        record = find_record(tx, given)
        trigger = executions.decide(
            tx, scope, core, decision, record, reason, daemon_runs=daemon_runs, program=session.words()
        )
        tasks = tasks_of(tx, [trigger])
    if session.json:
        document = {"trigger": trigger_document(trigger), "task": task_summary(tasks.get(trigger.id))}
        session.out.document({"execution_id": record.id, "decision": decision, **document})
        return
    session.out.line(f"{record.id} is {DECIDED[decision]}: {trigger.id} {words(trigger, tasks)}")
    if decision == "retry":
        session.say_without_daemon()


@click.command(
    "invalidate",
    cls=OperatorCommand,
    exits={PROBLEM: "one of them is invalidated already; none was", NO_SUCH: None},
    examples=('craftcore invalidate exec-01a1fdfa --reason "made with the wrong prices"',),
    see=("craftcore replay", "craftcore audit", "docs/reference/cli.md#replay"),
)
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--reason", metavar="TEXT", required=True, help="Why; stored in the audit log.")
@click.pass_obj
def invalidate(session: Session, /, ids: tuple[str, ...], reason: str) -> None:
    """Refuse replays of these executions without --force.

    The records stay as they are; this cannot be taken back, and is not asked about. All of them, or none.
    """
    refuse_bad_text("reason", reason)
    core = session.core()
    with session.write(core) as (tx, scope):
        done = executions.invalidate(tx, scope, [find_record(tx, given).id for given in ids], reason)
    if session.json:
        session.out.document([record_document(record) for record in done])
        return
    for record in done:
        session.out.line(f"{record.id} is invalidated: it is not replayed any more")
