"""`craftcore schedule add` and `edit`: what a schedule runs, and when."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from typing import Any

import click

from craftcore.cli.base import OperatorCommand
from craftcore.cli.exit_codes import CANNOT_CREATE, NO_SUCH, PROBLEM
from craftcore.cli.payload import require_argument_list
from craftcore.cli.schedule.id_lookup import find_schedule
from craftcore.cli.schedule.options import (
    WithCommand,
    command_payload,
    irreversible_payload,
    read_options,
    refuse_irreversible,
    schedule_options,
)
from craftcore.cli.schedule.view import next_occurrence_text, schedules_held_text
from craftcore.cli.session import Session
from craftcore.diagnostics.documents import schedule_document
from craftcore.diagnostics.text.schedule_text import COMMAND, command_line, expression_text, local_time, next_firing
from craftcore.operations import schedules
from craftcore.schedules.declaration import DeclareResult
from craftcore.schedules.model import Origin, Schedule, ScheduleSpec, ScheduleStatus
from craftcore.schedules.transitions import spec_of

UNSET = {
    ("session" if field.name == "session_id" else field.name.replace("_", "-")): field
    for field in fields(ScheduleSpec)
    if field.name not in ("id", "when", "workflow", "payload")
}
"""The options that can be taken away, each with its field: what is left is the field's default."""


@click.command(
    "add",
    cls=WithCommand,
    touches=OperatorCommand.default_touches + " Makes the database where it is missing.",
    exits={PROBLEM: "the app or the settings declare one of this id", CANNOT_CREATE: "the database cannot be made"},
    examples=(
        'craftcore schedule add nightly "every day at 3am" --workflow report',
        'craftcore schedule add dump "0 3 * * 1-5" --jitter 5m -- pg_dump -f db.sql',
        "craftcore schedule add walk @daily --deliver session --session ada",
    ),
    see=("craftcore schedule preview", "craftcore schedule edit", "docs/how-to/schedule-work.md"),
)
@click.argument("schedule_id", metavar="SCHEDULE")
@click.argument("words", metavar="EXPR", nargs=-1, required=True)
@schedule_options
@click.pass_obj
def add(
    session: Session,
    /,
    schedule_id: str,
    words: tuple[str, ...],
    irreversible: bool | None,
    command: list[str] | None,
    **given: str | int | None,
) -> None:
    """Declare a schedule, or change the one of this id.

    EXPR is when, in quotes: "every day at 3am", "every monday at 9am", "every 2h", "in 10m", "tomorrow at 9am",
    "2026-12-01T09:00Z", "0 3 * * 1-5", "@daily", "on startup". It runs a workflow, or the command after --,
    or is a message to a session.

    The same again changes nothing. An option that is not given has its default, also on a schedule that had another
    (`edit` changes only what it is given).
    """
    if len(words) > 1:
        raise click.UsageError(f'put EXPR in quotes: "{" ".join(words):.80}"; a command comes after --')
    declared = read_options(given, session.core().clock)
    declared |= _work(None, declared, command, irreversible)
    if "workflow" not in declared and "deliver" not in declared:
        raise click.UsageError("say what it runs: --workflow NAME, a command after --, or --deliver session")
    spec = ScheduleSpec(id=schedule_id, when=words[0], **declared)
    core = session.core()
    require_argument_list(spec.workflow, spec.payload)
    core.schedules.accept(spec)
    if not os.path.exists(core.database.path):  # also where one may not look: refused below
        core.schedules.check(spec, Origin.OPERATOR)  # what is refused must not leave a new database behind
    core.prepare()
    with session.write(core) as (tx, scope):
        put = schedules.declare(tx, scope, core, spec)
        holds = schedules_held_text(tx, tx.now)
    _say_put(session, put, holds, core.clock.now())


@click.command(
    "edit",
    cls=WithCommand,
    exits={PROBLEM: "the app or the settings declare it: change it there", NO_SUCH: None},
    examples=(
        'craftcore schedule edit nightly --when "every day at 4am" --jitter 5m',
        "craftcore schedule edit nightly --unset jitter",
    ),
    see=("craftcore schedule show", "craftcore schedule add", "docs/how-to/schedule-work.md"),
)
@click.argument("schedule_id", metavar="ID")
@click.option("--when", metavar="EXPR", help='When, in quotes: "every day at 4am".')
@click.option(
    "--unset",
    "unset",
    metavar="OPTION",
    type=click.Choice(list(UNSET)),
    multiple=True,
    help="Put an option back to its default: --unset jitter.",
)
@schedule_options
@click.pass_obj
def edit(
    session: Session,
    /,
    schedule_id: str,
    when: str | None,
    unset: tuple[str, ...],
    irreversible: bool | None,
    command: list[str] | None,
    **given: str | int | None,
) -> None:
    """Change what is given of a schedule, and leave the rest.

    It never fires the past: the change counts from now on. Fired work goes on as it was.
    """
    changes = read_options({"when": when, **given}, session.core().clock)
    for name in unset:
        field = UNSET[name]
        if field.name in changes:
            raise click.UsageError(f"--{name} is given and unset; which of them?")
        changes[field.name] = field.default
    if not changes and command is None and irreversible is None:
        raise click.UsageError("say what changes: --when, another option, or a command after --")
    core = session.core()
    with session.write(core) as (tx, scope):
        before = find_schedule(tx, schedule_id)
        spec = replace(spec_of(before), **changes, **_work(before, changes, command, irreversible))
        require_argument_list(spec.workflow, spec.payload)
        changes_workflow = "workflow" in changes or command is not None
        put = schedules.declare(tx, scope, core, spec, checks_workflow=changes_workflow)
        holds = schedules_held_text(tx, tx.now)
    _say_put(session, put, holds, core.clock.now())


def _work(
    before: Schedule | None, changes: dict[str, Any], command: list[str] | None, irreversible: bool | None
) -> dict[str, Any]:
    """Return the workflow and payload of a new or changed command; nothing where no command is concerned.

    A changed command keeps its directory, environment and timeout, and stays irreversible.
    """
    kept = {} if before is None or before.workflow != COMMAND else spec_of(before).payload
    runs_command = before is not None and before.workflow == COMMAND
    if command is None:
        if irreversible is not None:
            if not runs_command or "workflow" in changes or "payload" in changes:
                refuse_irreversible()
            return {"payload": irreversible_payload(dict(kept), irreversible)}
        if "deliver" in changes and before is not None and "workflow" not in changes:
            return {"workflow": None}
        if runs_command and changes.get("workflow", COMMAND) != COMMAND and "payload" not in changes:
            raise click.UsageError("its payload is a command's; give --payload with --workflow")
        return {}
    if "workflow" in changes or "payload" in changes:
        raise click.UsageError("a command is a workflow and a payload already: give one or the other")
    return {"workflow": COMMAND, "payload": irreversible_payload({**kept, **command_payload(command)}, irreversible)}


def _say_put(session: Session, put: DeclareResult, holds: str | None, now: float) -> None:
    schedule = put.schedule
    if session.json:
        there = None if (at := next_firing(schedule)) is None else local_time(at, schedule.timezone)
        local = None if there is None else there.isoformat()
        session.out.document({**schedule_document(schedule), "next_at_local": local, "change": put.change})
        return
    session.out.line(
        f"{schedule.id}: {put.change}. {expression_text(schedule.expression, schedule.timing, schedule.timezone)}"
    )
    if (command := command_line(schedule)) is not None:
        session.out.line(f"runs: {command}")
    session.out.line(next_occurrence_text(schedule, now))
    if schedule.status is ScheduleStatus.ACTIVE and holds is not None:
        session.out.line(holds, style="warn")
