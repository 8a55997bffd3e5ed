"""Who must know of a trigger that was settled without being run, or lives again: what it was to advance follows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from craftcore.storage.transaction import Transaction


class Follower(Protocol):
    """Is told in the same transaction."""

    def ended(self, tx: Transaction, trigger_ids: Sequence[str]) -> None:
        """These were cancelled, superseded, stale, poison or corrupt."""

    def requeued(self, tx: Transaction, trigger_id: str) -> None:
        """This one was given another life."""

    def has_begun(self, tx: Transaction, trigger_id: str) -> bool:
        """Whether something has begun with this one, although it may not be started now."""


class Nobody:
    """Where nothing follows triggers."""

    def ended(self, tx: Transaction, trigger_ids: Sequence[str]) -> None:
        return

    def requeued(self, tx: Transaction, trigger_id: str) -> None:
        return

    def has_begun(self, tx: Transaction, trigger_id: str) -> bool:
        return False
