"""`craftcore schedule`: declare schedules, change them, take them away."""

from __future__ import annotations

import os
import sys
from dataclasses import fields, replace
from typing import Any

import click

from craftcore.cli import schedule_hands, schedule_views
from craftcore.cli.confirm import confirm
from craftcore.cli.exit_codes import CANNOT_CREATE, NO_SUCH, PROBLEM
from craftcore.cli.given import refuse_bad_reason
from craftcore.cli.hint import hint
from craftcore.cli.root import ByHand, Noun
from craftcore.cli.schedule_ids import the_schedule
from craftcore.cli.schedule_options import (
    COMMAND,
    WithCommand,
    command_payload,
    marked,
    read_options,
    refuse_irreversible,
    schedule_options,
)
from craftcore.cli.schedule_preview import preview
from craftcore.cli.schedule_status import what_holds_them
from craftcore.cli.schedule_text import command_line, document, understood, what_changed, what_comes
from craftcore.cli.session import Session
from craftcore.schedules.account_store import AccountStore
from craftcore.schedules.changes import spec_of
from craftcore.schedules.model import Origin, Outcome, Schedule, ScheduleSpec, ScheduleStatus
from craftcore.schedules.service import Put
from craftcore.schedules.store import ScheduleStore
from craftcore.triggers.declared import refuse_unknown

UNSET = {
    ("session" if field.name == "session_id" else field.name.replace("_", "-")): field
    for field in fields(ScheduleSpec)
    if field.name not in ("id", "when", "workflow", "payload")
}
"""The options that can be taken away, each with its field: what is left is the field's default."""


VERBS = (
    *("add", "list", "show", "why", "preview", "pause", "resume", "edit", "run-now", "skip-next", "backfill"),
    *("history", "remove", "trust-clock", "reanchor"),
)


@click.group(cls=Noun, verbs=VERBS)
def schedule() -> None:
    """What runs by the clock: add, list, preview, pause, edit, …

    Those of the app and of the settings are declared there: they can be paused and run here, and not edited.
    """


for command_ in (*schedule_views.COMMANDS, preview, *schedule_hands.COMMANDS):
    schedule.add_command(command_)


@schedule.command(
    "add",
    cls=WithCommand,
    touches=ByHand.default_touches + " Makes the database where it is missing.",
    exits={PROBLEM: "the app or the settings declare one of this id", CANNOT_CREATE: "the database cannot be made"},
    examples=(
        'craftcore schedule add nightly "every day at 3am" --workflow report',
        'craftcore schedule add dump "0 3 * * 1-5" --jitter 5m -- pg_dump -f db.sql',
        'craftcore schedule add once "tomorrow at 9am" --workflow greet',
    ),
    see=("craftcore schedule preview", "craftcore schedule edit", "docs/how-it-works.md#schedules"),
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
    "2026-12-01T09:00Z", "0 3 * * 1-5", "@daily", "on startup". It runs a workflow, or the command after --.

    The same again changes nothing. An option that is not given has its default, also on a schedule that had another
    (`edit` changes only what it is given).
    """
    if len(words) > 1:
        raise click.UsageError(f'put EXPR in quotes: "{" ".join(words):.80}"; a command comes after --')
    declared = read_options(given)
    if command is not None:
        if "workflow" in declared or "payload" in declared:
            raise click.UsageError("a command is a workflow and a payload already: give one or the other")
        declared |= {"workflow": COMMAND, "payload": command_payload(command, irreversible)}
    elif irreversible is not None:
        refuse_irreversible()
    elif "workflow" not in declared:
        raise click.UsageError("say what it runs: --workflow NAME, or a command after --")
    spec = ScheduleSpec(id=schedule_id, when=words[0], **declared)
    core = session.core()
    core.schedules.accept(spec)
    if not os.path.exists(core.database.path):  # also where one may not look: refused below
        core.schedules.check(spec, Origin.OPERATOR)  # what is refused must not leave a new database behind
    core.prepare()
    with session.changing(core) as (tx, did):
        refuse_unknown(tx, [spec.workflow])
        before = ScheduleStore().get(tx, spec.id)
        put = core.schedules.put(tx, spec, Origin.OPERATOR)
        if put.change != "unchanged":
            did(spec.id, **what_changed(before, put))
        holds = what_holds_them(tx, tx.now)
    _say_put(session, put, holds, core.clock.now())


@schedule.command(
    "edit",
    cls=WithCommand,
    exits={PROBLEM: "the app or the settings declare it: change it there", NO_SUCH: None},
    examples=(
        'craftcore schedule edit nightly --when "every day at 4am" --jitter 5m',
        "craftcore schedule edit nightly --unset jitter",
    ),
    see=("craftcore schedule show", "craftcore schedule add", "docs/how-it-works.md#schedules"),
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

    It never fires the past: what is new counts from now on. What has fired already goes on as it was.
    """
    changes = read_options({"when": when, **given})
    for name in unset:
        field = UNSET[name]
        if field.name in changes:
            raise click.UsageError(f"--{name} is given and unset; which of them?")
        changes[field.name] = field.default
    if not changes and command is None and irreversible is None:
        raise click.UsageError("say what changes: --when, another option, or a command after --")
    core = session.core()
    with session.changing(core) as (tx, did):
        before = the_schedule(tx, schedule_id)
        spec = replace(spec_of(before), **changes, **_work(before, changes, command, irreversible))
        if "workflow" in changes or command is not None:
            refuse_unknown(tx, [spec.workflow])
        put = core.schedules.put(tx, spec, Origin.OPERATOR)
        if put.change != "unchanged":
            did(before.id, **what_changed(before, put))
        holds = what_holds_them(tx, tx.now)
    _say_put(session, put, holds, core.clock.now())


def _work(
    before: Schedule, changes: dict[str, Any], command: list[str] | None, irreversible: bool | None
) -> dict[str, Any]:
    """What a changed command comes to; its directory, environment and timeout stay, and that it is irreversible."""
    runs_command = before.workflow == COMMAND
    kept = spec_of(before).payload if runs_command else {}
    if command is None:
        if irreversible is not None:
            if not runs_command or "workflow" in changes or "payload" in changes:
                refuse_irreversible()
            return {"payload": marked(dict(kept), irreversible)}
        if runs_command and changes.get("workflow", COMMAND) != COMMAND and "payload" not in changes:
            raise click.UsageError("its payload is a command's; give --payload with --workflow")
        return {}
    if "workflow" in changes or "payload" in changes:
        raise click.UsageError("a command is a workflow and a payload already: give one or the other")
    return {"workflow": COMMAND, "payload": marked({**kept, **command_payload(command, None)}, irreversible)}


def _say_put(session: Session, put: Put, holds: str | None, now: float) -> None:
    schedule = put.schedule
    if session.json:
        session.out.document({**document(schedule), "change": put.change})
        return
    session.out.line(
        f"{schedule.id}: {put.change}. {understood(schedule.expression, schedule.timing, schedule.timezone)}"
    )
    if (command := command_line(schedule)) is not None:
        session.out.line(f"runs: {command}")
    session.out.line(what_comes(schedule, now))
    if schedule.status is ScheduleStatus.ACTIVE and holds is not None:
        session.out.line(holds, style="warn")


@schedule.command(
    "pause",
    cls=ByHand,
    exits={PROBLEM: "it is finished or disabled", NO_SUCH: None},
    examples=('craftcore schedule pause nightly --reason "the holidays"',),
    see=("craftcore schedule resume", "craftcore schedule show", "docs/how-it-works.md#schedules"),
)
@click.argument("schedule_id", metavar="ID")
@click.option("--reason", metavar="TEXT", default="paused", help="Why; it stands in the row.")
@click.pass_obj
def pause(session: Session, /, schedule_id: str, reason: str) -> None:
    """Let nothing of a schedule fire until it is resumed.

    What has fired goes on; the command that stops it is printed. What comes meanwhile is accounted for as skipped.
    """
    refuse_bad_reason(reason)
    core = session.core()
    with session.changing(core) as (tx, did):
        before = the_schedule(tx, schedule_id)
        after = core.schedules.pause(tx, before.id, reason)
        if before.status is not ScheduleStatus.PAUSED:
            did(after.id, reason=reason)
        live = AccountStore().at_work(tx, before.id)
    if session.json:
        session.out.document(document(after))
    elif before.status is ScheduleStatus.PAUSED:
        session.out.line(f"{after.id} was paused already ({after.reason}); nothing was changed")
    else:
        session.out.line(f"{after.id} is paused; nothing of it fires until: {hint('schedule', 'resume', after.id)}")
        if live is not None:
            stop = hint(live.noun, "cancel", live.id)
            session.out.line(f"{live}, which has fired, goes on; to stop it: {stop}")


@schedule.command(
    "resume",
    cls=ByHand,
    exits={PROBLEM: "it is finished", NO_SUCH: None},
    examples=("craftcore schedule resume nightly",),
    see=("craftcore schedule pause", "craftcore schedule backfill", "docs/how-it-works.md#schedules"),
)
@click.argument("schedule_id", metavar="ID")
@click.pass_obj
def resume(session: Session, /, schedule_id: str) -> None:
    """Let a paused or disabled schedule go on from now.

    What came meanwhile is not made up for, and stands in its history as skipped. A one-time one whose moment came
    fires now.
    """
    core = session.core()
    with session.changing(core) as (tx, did):
        before = the_schedule(tx, schedule_id)
        after = core.schedules.resume(tx, before.id)
        if before.status is not ScheduleStatus.ACTIVE:
            did(after.id, was=before.status)
        newest = AccountStore().history(tx, before.id, 1)
        now = tx.now
    if session.json:
        session.out.document(document(after))
        return
    if before.status is ScheduleStatus.ACTIVE:
        session.out.line(f"{after.id} is active already; nothing was changed")
    else:
        if after.status is ScheduleStatus.ACTIVE:
            session.out.line(f"{after.id} is active again")
        for line in newest:
            if line.decided_at == now and line.outcome is Outcome.SKIPPED:
                session.out.line(f"skipped: {line.count:,} that came meanwhile")
    session.out.line(what_comes(after, now))
    if before.status is ScheduleStatus.DISABLED and before.origin is not Origin.OPERATOR:
        remark = "unless it is declared again, the next start of the daemon disables it again"
        session.out.line(f"it was disabled: {before.reason}; {remark}", style="warn")


@schedule.command(
    "remove",
    cls=ByHand,
    exits={PROBLEM: "the app or the settings declare it: remove it there, or pause it", NO_SUCH: None},
    examples=("craftcore schedule remove nightly",),
    see=("craftcore schedule pause", "craftcore schedule history", "docs/how-it-works.md#schedules"),
)
@click.argument("schedule_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask; without a terminal nothing is asked.")
@click.pass_obj
def remove(session: Session, /, schedule_id: str, yes: bool) -> None:
    """Take a schedule away, and its triggers that have not started.

    Its history stays, and what runs goes on; the command that stops it is printed.
    """
    core = session.core()
    with core.reading() as reader:
        whole = the_schedule(reader, schedule_id).id
        waiting = len(AccountStore().unstarted_triggers(reader, whole))
    # A script named it, and its history stays; a person at a terminal may have meant another one.
    confirm(
        yes or not sys.stdin.isatty(),
        f"remove schedule {whole}" + (f" and cancel {_triggers(waiting)}" if waiting else ""),
    )
    with session.changing(core) as (tx, did):
        cancelled = core.schedules.remove(tx, whole)
        did(whole, triggers_cancelled=len(cancelled))
        removed = the_schedule(tx, whole, removed=True)
        live = AccountStore().at_work(tx, whole)
    if session.json:
        session.out.document({**document(removed), "cancelled": cancelled})
        return
    also = f"; {_triggers(len(cancelled))} that had not started, cancelled" if cancelled else ""
    session.out.line(f"{whole} is removed{also}. What it did: {hint('schedule', 'history', whole)}")
    if live is not None:
        session.out.line(f"{live}, which runs, goes on; to stop it: {hint(live.noun, 'cancel', live.id)}")


def _triggers(count: int) -> str:
    return "1 trigger" if count == 1 else f"{count:,} triggers"
