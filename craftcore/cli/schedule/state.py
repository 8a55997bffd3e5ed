"""`craftcore schedule pause`, `resume` and `remove`: whether a schedule fires at all."""

from __future__ import annotations

import click

from craftcore.cli.base import OnCluster, OperatorCommand
from craftcore.cli.confirm import confirm_by_person
from craftcore.cli.exit_codes import NO_SUCH, PROBLEM
from craftcore.cli.lookup import refuse_bad_text
from craftcore.cli.schedule.calls_on_schedules import open_schedules
from craftcore.cli.schedule.id_lookup import find_schedule
from craftcore.cli.schedule.view import next_occurrence_text
from craftcore.cli.session import Session, hint
from craftcore.diagnostics.documents import schedule_document
from craftcore.operations import schedules
from craftcore.schedules.model import ScheduleStatus
from craftcore.schedules.occurrence_store import AccountStore
from craftcore.serialization.plurals import format_count


@click.command(
    "pause",
    cls=OperatorCommand,
    exits={PROBLEM: "it is finished or disabled", NO_SUCH: None},
    examples=('craftcore schedule pause nightly --reason "the holidays"',),
    see=("craftcore schedule resume", "craftcore schedule show", "docs/how-to/schedule-work.md"),
    on_cluster=OnCluster(),
)
@click.argument("schedule_id", metavar="ID")
@click.option("--reason", metavar="TEXT", default="paused", help="Why; stored with the schedule.")
@click.pass_obj
def pause(session: Session, /, schedule_id: str, reason: str) -> None:
    """Pause a schedule until it is resumed.

    Fired work goes on; the command that stops it is printed. Occurrences meanwhile are recorded as skipped.
    """
    refuse_bad_text("reason", reason)
    before, after, live = open_schedules(session).pause(schedule_id, reason)
    if session.json:
        session.out.document(schedule_document(after))
    elif before.status is ScheduleStatus.PAUSED:
        session.out.line(f"{after.id} was paused already ({after.reason}); nothing was changed")
    else:
        session.out.line(f"{after.id} is paused; nothing of it fires until: {hint('schedule', 'resume', after.id)}")
        if live is not None:
            stop = hint(live.noun, "cancel", live.id)
            session.out.line(f"{live}, which has fired, goes on; to stop it: {stop}")


@click.command(
    "resume",
    cls=OperatorCommand,
    exits={PROBLEM: "it is finished", NO_SUCH: None},
    examples=("craftcore schedule resume nightly",),
    see=("craftcore schedule pause", "craftcore schedule backfill", "docs/how-to/schedule-work.md"),
    on_cluster=OnCluster(),
)
@click.argument("schedule_id", metavar="ID")
@click.pass_obj
def resume(session: Session, /, schedule_id: str) -> None:
    """Resume a paused or disabled schedule from now.

    Missed occurrences are not made up for; the history has them as skipped. A one-time schedule whose moment came fires
    now.
    """
    before, after, skipped, now = open_schedules(session).resume(schedule_id)
    if session.json:
        session.out.document(schedule_document(after))
        return
    if before.status is ScheduleStatus.ACTIVE:
        session.out.line(f"{after.id} is active already; nothing was changed")
    else:
        if after.status is ScheduleStatus.ACTIVE:
            session.out.line(f"{after.id} is active again")
        if skipped is not None:
            session.out.line(f"skipped: {skipped:,} that came meanwhile")
    session.out.line(next_occurrence_text(after, now))
    if before.status is ScheduleStatus.DISABLED and before.origin.is_declared:
        remark = "unless it is declared again, the next start of the daemon disables it again"
        session.out.line(f"it was disabled: {before.reason}; {remark}", style="warn")


@click.command(
    "remove",
    cls=OperatorCommand,
    exits={PROBLEM: "the app or the settings declare it: remove it there, or pause it", NO_SUCH: None},
    examples=("craftcore schedule remove nightly",),
    see=("craftcore schedule pause", "craftcore schedule history", "docs/how-to/schedule-work.md"),
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
        whole = find_schedule(reader, schedule_id).id
        waiting = len(AccountStore().list_unstarted_triggers(reader, whole))
    confirm_by_person(yes, f"remove schedule {whole}" + (f" and cancel {_triggers(waiting)}" if waiting else ""))
    with session.write(core) as (tx, scope):
        removed, cancelled, live = schedules.remove(tx, scope, core, whole)
    if session.json:
        session.out.document({**schedule_document(removed), "cancelled": cancelled})
        return
    also = f"; {_triggers(len(cancelled))} that had not started, cancelled" if cancelled else ""
    session.out.line(f"{whole} is removed{also}. Its triggers: {hint('schedule', 'history', whole)}")
    if live is not None:
        session.out.line(f"{live}, which runs, goes on; to stop it: {hint(live.noun, 'cancel', live.id)}")


def _triggers(count: int) -> str:
    return format_count(count, "trigger")
