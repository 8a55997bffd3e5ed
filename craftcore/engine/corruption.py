"""Rows that a bad disk or a foreign hand changed, in whichever table: set aside, visibly, so that the others go on."""

from __future__ import annotations

from craftcore.schedules.quarantine_store import set_aside_corrupt_schedules
from craftcore.storage.transaction import Transaction
from craftcore.tasks.service import TaskService
from craftcore.triggers.claim_service import ClaimService


class Corruption:
    """Looks for corrupt rows when something failed that should not."""

    def __init__(self, tasks: TaskService, claims: ClaimService) -> None:
        self._tasks = tasks
        self._claims = claims

    def set_aside(self, tx: Transaction) -> list[str]:
        """Take them out of the way; what was wrong with each. Tasks first: a trigger's end is told to its task."""
        return [
            *self._tasks.set_aside_corrupt(tx),
            *self._claims.set_aside_corrupt(tx),
            *set_aside_corrupt_schedules(tx),
        ]
