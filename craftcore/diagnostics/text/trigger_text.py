"""A trigger in words: its state, and that of the task it belongs to."""

from __future__ import annotations

from typing import Any

from craftcore.diagnostics.live_counts import explain_claim
from craftcore.storage.damaged_rows import Damaged, try_read
from craftcore.storage.transaction import Reader
from craftcore.tasks.lineage_store import task_id_of
from craftcore.tasks.model import Task
from craftcore.tasks.store import TaskStore
from craftcore.triggers.model import Trigger, TriggerStatus


def task_status_text(row: Trigger, task: Task) -> str:
    """Return `its task is WAITING at turn 2`; of one that it did not create, which."""
    return f"{'its task' if task.id == row.id else f'task {task.id}'} is {task.status} at turn {task.turn}"


def task_summary(task: Task | None) -> dict[str, Any] | None:
    """Return what a trigger's document says of its task; None when it has to do with none."""
    return None if task is None else {"id": task.id, "status": task.status, "turn": task.turn}


def read_task(reader: Reader, row: Trigger) -> Task | Damaged | None:
    """Return the task of a trigger, or what is wrong with it; None when it has to do with none."""
    task_id = try_read(None, lambda: task_id_of(reader, row))
    if task_id is None or isinstance(task_id, Damaged):
        return task_id
    return try_read(task_id, lambda: TaskStore().get(reader, task_id))


def reason_text(row: Trigger, task: Task | Damaged | None, *, claims_live: bool) -> str | None:
    """Return why a trigger is in its state, and the state of its task; None when there is nothing to say."""
    which = (
        f"task {task.id} is damaged"
        if isinstance(task, Damaged)
        else None
        if task is None
        else task_status_text(row, task)
    )
    left = explain_claim(row, claims_live=claims_live)
    why = row.error_message or row.reason
    if row.status in (TriggerStatus.FAILED, TriggerStatus.DEAD) and row.error_code not in (None, why):
        why = f"{row.error_code}: {why}"
    parts = [left or why, which]
    return "; ".join(part for part in parts if part) or None


def name_work(workflow: str | None, schedule: str | None) -> str | None:
    """Return the name of a workflow, with the schedule that runs it where that has another name."""
    return workflow if schedule in (None, workflow) else f"{workflow} ({schedule})"
