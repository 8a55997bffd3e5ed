"""The view of a trigger: its JSON document, its row in a table, and the operations on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from craftcore.cli.damaged_list import RowList, print_list
from craftcore.cli.session import Session
from craftcore.cli.short_ids import count_digits
from craftcore.diagnostics.documents import trigger_document
from craftcore.diagnostics.live_counts import are_claims_live, is_cut_off
from craftcore.diagnostics.text.printable import show_json
from craftcore.diagnostics.text.trigger_text import name_work, read_task, reason_text, task_summary
from craftcore.serialization.plurals import format_count
from craftcore.serialization.time_text import clock_time
from craftcore.storage.damaged_rows import Damaged, omit_damaged, row_document
from craftcore.storage.transaction import Reader
from craftcore.tasks.lineage_store import task_of
from craftcore.tasks.model import Task, TaskStatus
from craftcore.triggers.model import Trigger

COLUMNS = ("id", "created", "workflow", "source", "status", "due", "attempts", "reason")
ONE_LINE_EACH = 50

Done = TypeVar("Done", bound=Trigger | Damaged)


def tasks_of(reader: Reader, found: list[Trigger]) -> dict[str, Task]:
    """Return the task of each trigger that has to do with one, by the trigger's id."""
    return {row.id: task for row in found if (task := task_of(reader, row)) is not None}


def readable_facts(document: dict[str, Any]) -> dict[str, object]:
    """Return a document for people: moments as a clock shows them, objects as JSON."""

    def read(name: str, value: Any) -> object:
        if f"{name}_iso" in document:
            return None if value is None else clock_time(value)
        return show_json(value) if isinstance(value, dict) else value

    return {name: read(name, value) for name, value in document.items() if not name.endswith("_iso")}


def requeued_text(row: Trigger, tasks: dict[str, Task]) -> str:
    """Return what became of a requeued trigger, and of a task that had failed with it."""
    lives = row.id in tasks and tasks[row.id].status.is_live
    return f"is pending again, due {clock_time(row.due_at)}{', and its task goes on with it' if lives else ''}"


def cancelled_text(row: Trigger, tasks: dict[str, Task]) -> str:
    """Return what became of a cancelled trigger, and of the task that it was to advance."""
    if row.is_started:
        return "has started; asked to cancel"
    ended = row.id in tasks and tasks[row.id].status is TaskStatus.CANCELLED
    return f"cancelled{', and its task with it' if ended else ''}"


def print_triggers(session: Session, reader: Reader, found: list[Trigger | Damaged]) -> int:
    """Print a table, or an array, each trigger with its task. Return the exit code."""
    tasks = {row.id: read_task(reader, row) for row in omit_damaged(found)}
    claims_live = are_claims_live(reader, session.path)

    def to_document(row: Trigger) -> dict[str, Any]:
        task = tasks[row.id]
        document = {**trigger_document(row), "cut_off": is_cut_off(row, claims_live=claims_live)}
        return {**document, "task": row_document(task, task_summary)}

    def cells(row: Trigger) -> tuple[object, ...]:
        due, why = clock_time(row.due_at), reason_text(row, tasks[row.id], claims_live=claims_live)
        work = name_work(row.workflow, row.schedule_id)
        return row.id, clock_time(row.created_at), work, row.source, row.status, due, row.attempts, why

    beside = dict.fromkeys(tasks.values())  # many triggers have the same task
    digits = count_digits(reader)
    return print_list(
        session, RowList(COLUMNS, found, document_of=to_document, cells=cells, beside=beside, digits=digits)
    )


def say_done(session: Session, done: Sequence[Done], words: Callable[[Done], str]) -> None:
    """Print the changed triggers: a line each, a line for many, or an array."""
    if session.json:
        rows: Sequence[Trigger | Damaged] = done
        session.out.document([row_document(row, trigger_document) for row in rows])
        return
    if len(done) > ONE_LINE_EACH:
        for text, count in Counter(words(row) for row in done).items():
            session.out.line(f"{format_count(count, 'trigger')}: each {text}")
        return
    for row in done:
        session.out.line(f"{row.id} {words(row)}")
    if not done:
        session.out.line("nothing to do")
