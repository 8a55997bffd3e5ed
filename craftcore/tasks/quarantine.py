"""Quarantine of tasks: a corrupt row fails its task, visibly, and all other tasks go on."""

from __future__ import annotations

from dataclasses import replace

from craftcore.storage.damaged_rows import readable_text
from craftcore.storage.transaction import Transaction
from craftcore.tasks.model import TaskStatus
from craftcore.tasks.quarantine_store import LIVE_TASKS, MESSAGES, fail_task, find_corrupt
from craftcore.tasks.task_end import TaskCloser
from craftcore.triggers.service import TriggerService


def set_aside_corrupt_tasks(tx: Transaction, triggers: TriggerService, ending: TaskCloser) -> list[str]:
    """Repair each corrupt row and fail the tasks that cannot go on without it. Return what was wrong.

    The trigger of such a task is DEAD. The trigger of a corrupt message is a dead letter, which can be sent again.
    A corrupt activity is asked about.
    """
    found = find_corrupt(tx)
    for table, corrupt in found:
        if table is not LIVE_TASKS:
            table.repair(tx, corrupt)
        if table is MESSAGES and (trigger_id := readable_text(corrupt.row["trigger_id"])) is not None:
            triggers.mark_undelivered(tx, trigger_id, corrupt.message)
    for task_seq, wrong in {one.owner: one.message for _, one in reversed(found) if one.owner is not None}.items():
        task = fail_task(tx, task_seq, wrong)
        if task is None:
            ending.ask_about_acts(tx, task_seq)
            continue
        if task.trigger_id is not None:
            triggers.bury(tx, task.trigger_id, wrong)
        ending.close(tx, [replace(task, status=TaskStatus.WAITING)])  # an open wait ends in every case
    return [one.message for _, one in found]
