"""The rules of a hold: a live task that the code does not fit waits, and nothing of it is lost or spent.

hold      at a start, of each task that does not fit; its messages are kept, and its waits end as usual
put off   its trigger, when it is claimed: out of the claim window, no attempt counted
release   at a start when the code fits again, or by a person in any case; its trigger is due then
"""

from __future__ import annotations

from collections.abc import Mapping

from craftcore.storage.transaction import Transaction
from craftcore.tasks.hold_store import HoldStore
from craftcore.tasks.store import TaskStore
from craftcore.triggers.model import OWN_SOURCES, Claim
from craftcore.triggers.operator_store import OperatorStore


class Holds:
    """Hold, put off, release. Each method is a rule over a transaction it is given."""

    def __init__(self) -> None:
        self._triggers = OperatorStore()
        self._holds = HoldStore()
        self._tasks = TaskStore()

    def hold_misfits(self, tx: Transaction, misfits: Mapping[str, str]) -> list[str]:
        """Hold these live tasks, each with what does not fit, and release all others; the ids of those released."""
        released = sorted(self._holds.ids(tx) - misfits.keys())
        for task_id in released:
            self.release(tx, task_id)
        self._holds.put_all(tx, misfits)
        return released

    def put_off(self, tx: Transaction, claim: Claim, task_id: str, reason: str) -> bool:
        """Put off the trigger that would go on with a held task. False when it would not: another one does, it has
        ended, or it was cancelled meanwhile."""
        task = self._tasks.get(tx, task_id)
        if task is None or not task.status.is_live or task.trigger_id != claim.id:
            return False
        before = self._triggers.put_off(tx, claim, f"held: {reason}")
        if before is None:
            return False
        self._holds.note_put_off(tx, task_id, claim.id, before[0])
        return True

    def release(self, tx: Transaction, task_id: str) -> bool:
        """Let it go on with the code as it is. False when it is not held."""
        put_off = self._holds.remove(tx, task_id)
        if put_off is not None and put_off.trigger_id is not None:
            self._triggers.put_back(tx, put_off.trigger_id, put_off.trigger_reason)
        return put_off is not None


def task_advanced_by(claim: Claim) -> str | None:
    """Return the task that a claim would begin or go on with; None when it brings a message to one."""
    if claim.task_id is None or claim.task_id == claim.id:
        return claim.id
    return claim.task_id if claim.source in OWN_SOURCES else None
