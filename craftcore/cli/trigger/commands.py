"""`craftcore trigger`: look at triggers, ask why one waits, cancel and requeue."""

from __future__ import annotations

from typing import Any

import click

from craftcore.cli.base import CommandGroup, OperatorCommand
from craftcore.cli.confirm import ids_or_all
from craftcore.cli.exit_codes import BAD_FILTER, NO_SUCH, OF_A_LIST, PROBLEM
from craftcore.cli.lookup import parse_choice, refuse_bad_text, resolve_id
from craftcore.cli.program_output import print_output, split_output
from craftcore.cli.session import Session, finding_document, hint, print_reasons
from craftcore.cli.trigger.view import (
    cancelled_text,
    print_triggers,
    readable_facts,
    requeued_text,
    say_done,
    tasks_of,
)
from craftcore.daemon.lock import read_note
from craftcore.diagnostics.documents import event_document, trigger_document
from craftcore.diagnostics.live_counts import are_claims_live, explain_claim, is_booting, is_cut_off
from craftcore.diagnostics.reasons.trigger_reasons import list_reasons
from craftcore.diagnostics.text.printable import show_json
from craftcore.diagnostics.text.trigger_text import task_status_text, task_summary
from craftcore.executions.event_store import EventStore
from craftcore.executions.model import Status
from craftcore.executions.store import ExecutionStore
from craftcore.operations import triggers
from craftcore.serialization.display import json_or_text
from craftcore.serialization.plurals import format_count
from craftcore.serialization.time_text import add_iso_times, clock_time
from craftcore.storage.transaction import Reader
from craftcore.tasks.lineage_store import task_of
from craftcore.triggers.listing_store import TriggerLists
from craftcore.triggers.model import Trigger, TriggerSource, TriggerStatus
from craftcore.triggers.store import TriggerStore
from craftcore.triggers.workflow_names import bare_name


@click.group(cls=CommandGroup)
def trigger() -> None:
    """Triggers: list, show, why, cancel, requeue."""


@trigger.command(
    "list",
    exits={**OF_A_LIST, BAD_FILTER: None},
    examples=("craftcore trigger list --status pending", "craftcore trigger list --workflow greet --limit 5"),
    see=("craftcore trigger show", "craftcore trigger why", "docs/reference/cli.md"),
)
@click.option("--status", metavar="STATUS", help="Only these: PENDING, CLAIMED, DONE, FAILED, DEAD.")
@click.option("--source", metavar="SOURCE", help="Only of this source, like MESSAGE.")
@click.option("--workflow", metavar="NAME", type=bare_name, help="Only for this workflow.")
@click.option("--session", "session_id", metavar="SESSION", help="Only of this session.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many at most.")
@click.pass_obj
def list_(
    session: Session,
    /,
    status: str | None,
    source: str | None,
    workflow: str | None,
    session_id: str | None,
    limit: int,
) -> int:
    """List the newest triggers, newest first.

    Each line shows due time, status, attempts and reason. With --json whole rows.
    """
    chosen = {
        "status": parse_choice("status", status, TriggerStatus),
        "source": parse_choice("source", source, TriggerSource),
    }
    with session.core().reading() as reader:
        found = TriggerLists().list_newest(reader, **chosen, workflow=workflow, session_id=session_id, limit=limit)
        return print_triggers(session, reader, found)


@trigger.command(
    "show",
    examples=("craftcore trigger show 01a1fdfa",),
    see=("craftcore trigger why", "craftcore task show", "craftcore inspect", "docs/reference/schema.md#triggers"),
)
@click.argument("trigger_id", metavar="ID")
@click.pass_obj
def show(session: Session, /, trigger_id: str) -> None:
    """Show one trigger: its row and its attempts.

    It shows its task, if it has one, and the record of each attempt: how it ended, and its events.
    """
    with session.core().reading() as reader:
        row = _get(reader, trigger_id)
        task = task_of(reader, row)
        records = [_record(reader, record) for record in ExecutionStore().list_of_trigger(reader, row.id)]
        claims_live = are_claims_live(reader, session.path)
    document = {**trigger_document(row), "cut_off": is_cut_off(row, claims_live=claims_live)}
    if session.json:
        session.out.document({**document, "task": task_summary(task), "executions": records})
        return
    out = session.out
    if task is not None:
        out.line(f"{task_status_text(row, task)}. See: {hint('task', 'show', task.id)}", style="bold")
    if (left := explain_claim(row, claims_live=claims_live)) is not None:
        out.line(left, style="warn")
    out.facts(readable_facts(document))
    for record in records:
        error = f", {record['error_code']}" if record["error_code"] else ""
        out.line()
        out.line(f"{record['id']}  attempt {record['attempt']}: {record['status']}{error}", style="bold")
        for event in record["events"]:
            out.line(f"  {event['seq']}  {clock_time(event['at'])}  {event['type']}  ", show_json(event["payload"]))
        if record["response"] is not None:
            response, texts = split_output(record["response"])
            out.line("  response ", show_json(response))
            print_output(out, texts)
    if row.status is not TriggerStatus.DONE and records and records[-1]["status"] in (Status.ERROR, Status.INCOMPLETE):
        out.line()
        out.line("to retry or skip it:")
        session.suggest("inspect", records[-1]["id"])


@trigger.command(
    "why",
    examples=("craftcore trigger why 01a1fdfa",),
    see=(
        "craftcore schedule why",
        "craftcore task show",
        "craftcore status",
        "docs/reference/schema.md#questions-and-their-queries",
    ),
)
@click.argument("trigger_id", metavar="ID")
@click.pass_obj
def why(session: Session, /, trigger_id: str) -> None:
    """Explain why a trigger does not run, with a query as proof.

    It lists every reason: not due yet, its lane is busy, a limit is reached, no daemon runs, all is held. For a task it
    also shows what the task waits for; for a settled trigger, how it ended.
    """
    core = session.core()
    note, daemon_runs = read_note(core.database.path)
    with core.reading() as reader:
        row = _get(reader, trigger_id)
        task = task_of(reader, row)
        weight, now = core.config.triggers.priority_weight, core.clock.now()
        booting = is_booting(reader, note, held=daemon_runs)
        found = list_reasons(reader, row, now, daemon_runs=daemon_runs, priority_weight=weight, booting=booting)
    if session.json:
        document = {"id": row.id, "status": row.status.value, "task": task_summary(task)}
        session.out.document({**document, "reasons": [finding_document(one) for one in found]})
        return
    of_task = "" if task is None else f"; {task_status_text(row, task)}"
    print_reasons(session, f"{row.id} is {row.status.value}{of_task}", found)


@trigger.command(
    "cancel",
    cls=OperatorCommand,
    exits={PROBLEM: "one of them is settled already; none was cancelled", NO_SUCH: None},
    examples=('craftcore trigger cancel 01a1fdfa --reason "wrong city"', "craftcore trigger cancel --all --yes"),
    see=("craftcore task cancel", "craftcore trigger list", "docs/explanation/lifecycle.md#triggers"),
)
@click.argument("ids", metavar="[ID...]", nargs=-1)
@click.option("--reason", metavar="TEXT", help="Why; stored in the row.")
@click.option("--all", "everything", is_flag=True, help="All live triggers and tasks, instead of IDs.")
@click.option("--schedules", is_flag=True, help="With --all: schedules, too. Those of code or file are paused.")
@click.option("--yes", is_flag=True, help="Do not ask about --all; needed without a terminal.")
@click.pass_obj
def cancel(
    session: Session, /, ids: tuple[str, ...], reason: str | None, everything: bool, schedules: bool, yes: bool
) -> None:
    """Settle waiting triggers as cancelled; ask running ones to end.

    Running code is cancelled at its next await, and its trigger settles then. Cancelling the trigger of a task cancels
    the task. All of those given are cancelled, or none.

    --all cancels tasks that wait without a trigger, too, and messages that no task has read are not delivered any more.
    With --schedules nothing is left that could run: schedules that were added by hand are removed, and those that code
    or a settings file declares are paused until `craftcore schedule resume`.
    """
    refuse_bad_text("reason", reason)
    if schedules and not everything:
        raise click.UsageError("--schedules needs --all")
    stopping = ", and stop every schedule" if schedules else ""
    ids_or_all(ids, everything, yes, f"cancel every trigger that is not settled and every live task{stopping}")
    core = session.core()
    with session.write(core) as (tx, scope):
        if everything:
            done, work = triggers.cancel_all(tx, scope, core, reason, with_schedules=schedules)
            if work.tasks or work.schedules:
                counts = (
                    f"{format_count(len(work.tasks), 'live task')} and {format_count(len(work.schedules), 'schedule')}"
                )
                tx.after_commit(session.out.print_note, f"with them end {counts}")
        else:
            done = triggers.cancel(tx, scope, core, [resolve_id(tx, given) for given in ids], reason)
        tasks = tasks_of(tx, done)
    say_done(session, done, lambda row: cancelled_text(row, tasks))


@trigger.command(
    "requeue",
    cls=OperatorCommand,
    exits={PROBLEM: "one is not DEAD or FAILED, or its dedup key is taken by now; none was", NO_SUCH: None},
    examples=("craftcore trigger requeue 01a1fdfa",),
    see=("craftcore dead requeue", "craftcore task retry", "docs/reference/error-codes.md"),
)
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.pass_obj
def requeue(session: Session, /, ids: tuple[str, ...]) -> None:
    """Give DEAD or FAILED triggers another life.

    Due now, with all their attempts; a task that failed with one goes on. The completed parts of its turn are not done
    again.
    """
    core = session.core()
    with session.write(core) as (tx, scope):
        done = triggers.requeue(tx, scope, core, (resolve_id(tx, given) for given in dict.fromkeys(ids)))
        tasks = tasks_of(tx, done)
    say_done(session, done, lambda row: requeued_text(row, tasks))


def _record(reader: Reader, row: dict[str, Any]) -> dict[str, Any]:
    document = add_iso_times({name: value for name, value in row.items() if not name.endswith("_json")})
    for name in ("envelope", "routing", "response"):
        document[name] = json_or_text(row[f"{name}_json"])
    document["events"] = [event_document(event) for event in EventStore().list_of_record(reader, row["seq"])]
    return document


def _get(reader: Reader, given: str) -> Trigger:
    row = TriggerStore().get(reader, resolve_id(reader, given))
    assert row is not None, given
    return row
