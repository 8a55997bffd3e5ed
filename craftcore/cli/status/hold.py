"""`craftcore hold` and `craftcore release`: work that may not start until a person says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from craftcore.cli.base import OperatorCommand
from craftcore.cli.lookup import refuse_bad_text
from craftcore.cli.session import Session
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
    examples=("craftcore release", "craftcore release --source SCHEDULED"),
    see=("craftcore hold", "craftcore status", "craftcore db restore", "docs/how-to/back-up-and-restore.md#restore"),
)
@target_options
@click.pass_obj
def release(session: Session, /, workflow: str | None, source: str | None, schedule: str | None) -> None:
    """Let what is held, or waits in safe mode, go on.

    Without an option every hold ends. An engine is also held after a restore, and in safe mode after 6 unclean starts
    within 10 minutes; `craftcore status` says which. Look at what is in doubt before: it may start work that the world
    has seen already.
    """
    target = hold_target(workflow, source, schedule)
    core = session.core()
    with session.write(core) as (tx, scope):
        reasons = maintenance.release(tx, scope, target)
    if session.json:
        session.out.document({"released": bool(reasons), "reason": "; ".join(reasons) or None})
    elif not reasons:
        session.out.line("nothing was held" if target.kind is None else f"{target} was not held")
    else:
        session.out.line(f"released; it was held because {'; '.join(reasons)}")
        session.say_without_daemon(core)
