"""`craftcore hold` and `craftcore release`: work that may not start until a person says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from craftcore.cli.base import OperatorCommand
from craftcore.cli.lookup import refuse_bad_text
from craftcore.cli.session import Session
from craftcore.errors import InvalidInput
from craftcore.operations import maintenance
from craftcore.triggers.start_holds import hold_target


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name what is held; none of them: everything."""
    for kind, metavar, text in (
        ("schedule", "NAME", "Only the occurrences of this schedule."),
        ("source", "NAME", "Only triggers of this source."),
        ("workflow", "NAME", "Only this workflow."),
    ):
        command = click.option(f"--{kind}", metavar=metavar, help=text)(command)
    return command


@click.command(
    cls=OperatorCommand,
    examples=("craftcore hold", "craftcore hold --source SCHEDULED --reason 'wrong recipients'"),
    see=("craftcore release", "craftcore status", "craftcore schedule pause", "docs/how-to/monitor.md"),
)
@target_options
@click.option("--reason", metavar="TEXT", help="Why, for `status`, `trigger why` and the audit log.")
@click.pass_obj
def hold(
    session: Session, /, workflow: str | None, source: str | None, schedule: str | None, reason: str | None
) -> None:
    """Start nothing, or nothing of a workflow, until released.

    Triggers are accepted, and due ones wait. Schedules fire, unless everything is held. A running attempt goes on to
    its end. A held workflow starts no turn of its tasks either. A restart keeps the hold.
    """
    target = hold_target(workflow, source, schedule)
    refuse_bad_text("reason", reason)
    core = session.core()
    with session.write(core) as (tx, scope):
        is_new = maintenance.hold(core, tx, scope, target, reason)
    if session.json:
        session.out.document({"held": str(target), "already": not is_new})
    else:
        session.out.line(f"{target} is held" if is_new else f"{target} was held already; that hold stays as it was")


@click.command(
    cls=OperatorCommand,
    examples=("craftcore release", "craftcore release --source SCHEDULED", "craftcore release --complete"),
    see=("craftcore hold", "craftcore status", "craftcore db restore", "docs/how-to/back-up-and-restore.md#restore"),
)
@target_options
@click.option(
    "--complete",
    is_flag=True,
    help="Also say that the restored file had everything that was done: its restore puts nothing in doubt any more.",
)
@click.pass_obj
def release(
    session: Session, /, workflow: str | None, source: str | None, schedule: str | None, complete: bool
) -> None:
    """Let what is held, or waits in safe mode, go on.

    Without an option every hold ends. An engine is also held after a restore, and in safe mode after 6 unclean starts
    within 10 minutes; `craftcore status` says which. Look at what is in doubt before: it may start work that the world
    has seen already.

    After a restore, irreversible actions that the lost file may have called stay in doubt, also those of work that
    starts again. Use --complete where nothing ran between the backup and the restore: it ends that. A question that was
    asked stays.
    """
    target = hold_target(workflow, source, schedule)
    if complete and target.kind is not None:
        raise InvalidInput("--complete is about the whole file: leave out --workflow, --source and --schedule")
    core = session.core()
    with session.write(core) as (tx, scope):
        reasons = maintenance.release(tx, scope, target)
        was_in_doubt = complete and maintenance.end_doubt(tx, scope)
    if session.json:
        why = "; ".join(reasons) or None
        session.out.document({"released": bool(reasons), "reason": why, "doubt_ended": was_in_doubt})
        return
    if was_in_doubt:
        session.out.line("the restored file was complete: nothing more is in doubt because of the restore")
    elif complete:
        session.out.line("nothing was in doubt because of a restore")
    if not reasons:
        session.out.line("nothing was held" if target.kind is None else f"{target} was not held")
    else:
        session.out.line(f"released; it was held because {'; '.join(reasons)}")
        session.say_without_daemon()
