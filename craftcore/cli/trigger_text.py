"""A trigger as it is told: its JSON document, its row in a table, and what was done to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from craftcore.cli.kinship import task_of
from craftcore.cli.moments import clock_time
from craftcore.cli.output import Output, json_or_text, with_iso
from craftcore.cli.session import Session
from craftcore.storage.transaction import Reader
from craftcore.tasks.model import Task, TaskStatus
from craftcore.triggers.model import Trigger

COLUMNS = ("id", "created", "workflow", "source", "status", "due", "attempts", "reason")
ONE_LINE_EACH = 50


def tasks_of(reader: Reader, found: list[Trigger]) -> dict[str, Task]:
    """The task of each trigger that has to do with one, by the trigger's id."""
    return {row.id: task for row in found if (task := task_of(reader, row)) is not None}


def task_is(row: Trigger, task: Task) -> str:
    """`its task is WAITING at turn 2`; of one that it did not create, which."""
    return f"{'its task' if task.id == row.id else f'task {task.id}'} is {task.status} at turn {task.turn}"


def pending_again(row: Trigger, tasks: dict[str, Task]) -> str:
    """What became of a requeued trigger, and of a task that had failed with it."""
    lives = row.id in tasks and tasks[row.id].status.is_live
    return f"is pending again, due {clock_time(row.due_at)}{', and its task goes on with it' if lives else ''}"


def cancelled(row: Trigger, tasks: dict[str, Task]) -> str:
    """What became of a cancelled trigger, and of the task that it was to advance."""
    if row.is_started:
        return "has started; asked to cancel"
    ended = row.id in tasks and tasks[row.id].status is TaskStatus.CANCELLED
    return f"cancelled{', and its task with it' if ended else ''}"


def print_triggers(out: Output, found: list[Trigger], tasks: dict[str, Task]) -> None:
    """As a table, or as an array."""
    if out.as_json:
        out.document([{**told_trigger(row), "task": told_task_of(tasks.get(row.id))} for row in found])
        return
    cells = [
        (
            row.id,
            clock_time(row.created_at),
            row.workflow,
            row.source,
            row.status,
            clock_time(row.due_at),
            row.attempts,
            _reason(row, tasks.get(row.id)),
        )
        for row in found
    ]
    out.table(COLUMNS, cells)


def say_done(session: Session, done: list[Trigger], words: Callable[[Trigger], str]) -> None:
    """What was changed: a line each, a line for many, or an array."""
    if session.json:
        session.out.document([told_trigger(row) for row in done])
        return
    if len(done) > ONE_LINE_EACH:
        for text, count in Counter(words(row) for row in done).items():
            session.out.line(f"{count:,} triggers: each {text}")
        return
    for row in done:
        session.out.line(f"{row.id} {words(row)}")
    if not done:
        session.out.line("nothing to do")


def told_trigger(row: Trigger) -> dict[str, Any]:
    """The row as its JSON document: the payload as an object, moments also in ISO."""
    told = asdict(row)
    told["payload"] = json_or_text(told.pop("payload_json"))
    return with_iso(told)


def told_task_of(task: Task | None) -> dict[str, Any] | None:
    """What a trigger's document says of its task; None when it has to do with none."""
    return None if task is None else {"id": task.id, "status": task.status, "turn": task.turn}


def _reason(row: Trigger, task: Task | None) -> str | None:
    parts = [row.error_message or row.reason, None if task is None else task_is(row, task)]
    return "; ".join(part for part in parts if part) or None
