"""`craftcore temporal inspect`, `replay` and `audit`: what the history of a task says of its attempts and of people."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from craftcore.cli.audit import COLUMNS
from craftcore.cli.execution.replay import print_replays
from craftcore.cli.execution.source import envelope_in
from craftcore.cli.exit_codes import NO_SUCH, NOT_REPLAYABLE
from craftcore.cli.session import Session
from craftcore.cli.temporal.cluster_calls import read_task
from craftcore.cli.temporal.cluster_options import ClusterCommand
from craftcore.diagnostics.records.record_documents import envelope_document, event_document, record_document
from craftcore.diagnostics.text.audit_text import details_text
from craftcore.executions import replay as rule
from craftcore.serialization.time_text import add_iso_times, clock_time

if TYPE_CHECKING:
    from craftcore.executions.record import ExecutionRecord

PAGE = "docs/how-to/run-on-temporal.md"
EXECUTION = re.compile(r"exec-(.+)\.([0-9]{1,9})")


def read_record(session: Session, given: str) -> ExecutionRecord:
    """Return the execution that is meant: `exec-TASK.NUMBER`, or a task for its last one. Raises NotFound."""
    whole = EXECUTION.fullmatch(given)
    found = read_task(session, given if whole is None else whole[1])
    from craftcore.temporal.records.task_records import get_record

    return get_record(found, None if whole is None else int(whole[2]))


@click.command(
    "inspect",
    cls=ClusterCommand,
    exits={NO_SUCH: "no such task or execution"},
    examples=(
        "craftcore temporal inspect 01a1fdfa --events",
        "craftcore temporal inspect exec-01a1fdfa-4600-7008-9f39-0b2018072e8c.1",
    ),
    see=("craftcore temporal replay", "craftcore temporal task events", PAGE),
)
@click.argument("execution_id", metavar="ID")
@click.option("--events", "with_events", is_flag=True, help="Also its events.")
@click.option("--envelope", "with_envelope", is_flag=True, help="Also the envelope of the request.")
@click.pass_obj
def inspect(session: Session, /, execution_id: str, with_events: bool, with_envelope: bool) -> None:
    """Show one execution as JSON: an entry of a turn, from the history.

    ID is exec-TASK.NUMBER, as `task show` lists them, or a task for its last one. A history has no hash chain.
    """
    record = read_record(session, execution_id)
    document = record_document(record)
    if with_events:
        document["events"] = [event_document(event) for event in record.events]
    if with_envelope:
        document["envelope"] = envelope_document(record)
    session.out.document(document)


@click.command(
    "replay",
    cls=ClusterCommand,
    exits={NO_SUCH: "no such task or execution", NOT_REPLAYABLE: None},
    examples=("craftcore temporal replay 01a1fdfa", "craftcore temporal replay 01a1fdfa --force"),
    see=("craftcore temporal inspect", "docs/reference/cli.md#replay", PAGE),
)
@click.argument("those", metavar="ID...", nargs=-1, required=True)
@click.option("--verify-envelope", "envelope_file", metavar="FILE", help="Only if the record is of this envelope.")
@click.option("--force", is_flag=True, help="Give what there is of one that cannot be replayed, with warnings.")
@click.pass_obj
def replay(session: Session, /, those: tuple[str, ...], envelope_file: str | None, force: bool) -> int:
    """Return the recorded result from the history; nothing is run.

    It prints what `craftcore replay` prints. For several it prints a list, and the exit code is the highest of theirs.
    """
    envelope = None if envelope_file is None else envelope_in(envelope_file)
    return print_replays(session, those, lambda given: rule.replay(read_record(session, given), envelope, force=force))


@click.command(
    "audit",
    cls=ClusterCommand,
    exits={NO_SUCH: "no such task"},
    examples=("craftcore temporal audit 01a1fdfa",),
    see=("craftcore temporal task events", PAGE),
)
@click.argument("task_id", metavar="ID")
@click.pass_obj
def audit(session: Session, /, task_id: str) -> None:
    """List what was done to a task from outside, newest first: who, what, why.

    They are its answers, decisions, signals, cancellations and retries, out of its history. There is no list over all
    tasks. The names are those that the callers gave; the cluster does not check them.
    """
    found = read_task(session, task_id)
    done = found.history.operations[::-1]
    if session.json:
        session.out.document(
            [
                add_iso_times(
                    {
                        "at": one.at,
                        "by": one.by,
                        "action": one.action,
                        "subject": one.subject or found.id,
                        "reason": one.note,
                        "details": one.details,
                    }
                )
                for one in done
            ]
        )
        return
    rows = [
        (clock_time(one.at), one.by, one.action, one.subject or found.id, one.note, details_text(one.details))
        for one in done
    ]
    session.out.table(COLUMNS, rows)
