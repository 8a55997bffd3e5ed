"""Cancel all the work of a database: triggers, tasks and, unless they are to stay, schedules."""

from __future__ import annotations

from typing import NamedTuple

from craftcore.errors import StateRefused
from craftcore.storage.transaction import Transaction
from craftcore.tasks.listing_store import TaskLists
from craftcore.tasks.mailbox_store import MailStore
from craftcore.tasks.service import TaskService
from craftcore.triggers.service import TriggerService
from craftcore.triggers.store import TriggerStore


class CancelledWork(NamedTuple):
    """The ids of what was live and is cancelled, or will be at the next await of its code."""

    triggers: list[str]
    tasks: list[str]
    schedules: list[str]


def cancel_all(
    tx: Transaction, triggers: TriggerService, tasks: TaskService, reason: str, stopped: list[str]
) -> CancelledWork:
    """Cancel every live trigger and every live task, in the commit that stopped these schedules.

    Unread messages of tasks stay in their rows. They are not emitted again.
    """
    MailStore().leave_all(tx)
    store = TriggerStore()
    live_tasks = TaskLists().live_ids(tx)
    cancelled = store.live_ids(tx)
    _cancel(tx, triggers, cancelled, reason)
    for task_id in live_tasks:
        try:
            tasks.cancel(tx, task_id, reason)
        except StateRefused:
            pass  # it ended with its trigger
    # The end of a child wakes its parent, which was cancelled above or goes on with a trigger that was just made.
    seen = set(cancelled)
    while late := [trigger_id for trigger_id in store.live_ids(tx) if trigger_id not in seen]:
        _cancel(tx, triggers, late, reason)
        seen.update(late)
    return CancelledWork(cancelled, live_tasks, stopped)


def _cancel(tx: Transaction, triggers: TriggerService, ids: list[str], reason: str) -> None:
    for trigger_id in ids:
        try:
            triggers.cancel(tx, trigger_id, reason)
        except StateRefused:
            pass  # it was settled by the end of another
