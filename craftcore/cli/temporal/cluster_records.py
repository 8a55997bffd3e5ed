"""The executions in the history of a task, and what people did to it."""

from __future__ import annotations

import re

from craftcore.cli.session import Session
from craftcore.cli.temporal.cluster_calls import read_task
from craftcore.diagnostics.text.audit_text import AuditLine, details_text
from craftcore.executions.record import ExecutionRecord
from craftcore.serialization.time_text import add_iso_times, clock_time
from craftcore.temporal.records.history_events import Operation
from craftcore.temporal.records.task_records import get_record

EXECUTION = re.compile(r"exec-(.+)\.([0-9]{1,9})")


def read_entry(session: Session, given: str) -> ExecutionRecord:
    """Return the execution that is meant: `exec-TASK.NUMBER`, or a task for its last one. Raises NotFound."""
    whole = EXECUTION.fullmatch(given)
    found = read_task(session, given if whole is None else whole[1])
    return get_record(found, None if whole is None else int(whole[2]))


def list_operations(session: Session, given: str) -> list[AuditLine]:
    """Return what people did to a task, newest first. Raises NotFound."""
    found = read_task(session, given)
    return [_make_line(one, one.subject or found.id) for one in reversed(found.history.operations)]


def _make_line(one: Operation, subject: str) -> AuditLine:
    document = {
        "at": one.at,
        "by": one.by,
        "action": one.action,
        "subject": subject,
        "reason": one.note,
        "details": one.details,
    }
    cells = clock_time(one.at), one.by, one.action, subject, one.note, details_text(one.details)
    return add_iso_times(document), cells
