"""The executions in the history of a task, and `craftcore temporal audit`: what people did to it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from craftcore.cli.audit import COLUMNS
from craftcore.cli.exit_codes import NO_SUCH
from craftcore.cli.session import Session
from craftcore.cli.temporal.cluster_calls import read_task
from craftcore.cli.temporal.cluster_options import ClusterCommand
from craftcore.diagnostics.text.audit_text import details_text
from craftcore.serialization.time_text import add_iso_times, clock_time

if TYPE_CHECKING:
    from craftcore.executions.record import ExecutionRecord

PAGE = "docs/how-to/run-on-temporal.md"
EXECUTION = re.compile(r"exec-(.+)\.([0-9]{1,9})")


def read_entry(session: Session, given: str) -> ExecutionRecord:
    """Return the execution that is meant: `exec-TASK.NUMBER`, or a task for its last one. Raises NotFound."""
    whole = EXECUTION.fullmatch(given)
    found = read_task(session, given if whole is None else whole[1])
    from craftcore.temporal.records.task_records import get_record

    return get_record(found, None if whole is None else int(whole[2]))


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
