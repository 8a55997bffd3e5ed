"""What becomes of a task one of whose rows is corrupt: it has FAILED, visibly, and the others go on."""

from __future__ import annotations

from dataclasses import replace

from craftcore.activities.quarantine_store import CorruptActivityStore
from craftcore.storage.transaction import Transaction
from craftcore.tasks.model import TaskStatus
from craftcore.tasks.quarantine_store import CorruptTaskStore
from craftcore.tasks.task_end import Ending
from craftcore.triggers.service import TriggerService


def set_aside_corrupt_tasks(tx: Transaction, triggers: TriggerService, ending: Ending) -> list[str]:
    """Make every corrupt row of tasks, activities, waits, questions, mails and memos readable, and fail the tasks that
    cannot go on with it; what was wrong with each.

    A task's trigger is DEAD with it. A mail is left, and its message is a dead letter, to be sent again. An activity is
    asked about.
    """
    store, ledger = CorruptTaskStore(), CorruptActivityStore()
    activities = ledger.find(tx, everywhere=False)
    for activity in activities:
        ledger.mend(tx, activity)
    found = store.find(tx)
    if not found and not activities:
        activities = ledger.find(tx, everywhere=True)
        for activity in activities:
            ledger.mend(tx, activity)
    for corrupt in found:
        store.mend(tx, corrupt)
        if corrupt.table == "mailbox" and corrupt.row["trigger_id"] is not None:
            triggers.undeliver(tx, corrupt.row["trigger_id"].decode(errors="backslashreplace"), corrupt.wrong)
    failed = {corrupt.task_seq: corrupt.wrong for corrupt in found if corrupt.task_seq is not None}
    failed |= {activity.task_seq: activity.wrong for activity in activities}
    for task_seq, wrong in failed.items():
        task = store.bury(tx, task_seq, wrong)
        if task is None:
            ending.ask_about_acts(tx, task_seq)
            continue
        if task.trigger_id is not None:
            triggers.bury(tx, task.trigger_id, wrong)
        ending.tidy(tx, [replace(task, status=TaskStatus.WAITING)])  # whatever it was: an open wait ends, too
    return [*(activity.wrong for activity in activities), *(corrupt.wrong for corrupt in found)]
