"""The listener to triggers that were settled without being run, or were requeued: their tasks follow them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from craftcore.storage.transaction import Transaction


class TriggerListener(Protocol):
    """A listener that is called in the transaction of the change."""

    def on_settled_unrun(self, tx: Transaction, trigger_ids: Sequence[str]) -> None:
        """Handle triggers that were cancelled, superseded, stale, poison or corrupt."""

    def on_requeued(self, tx: Transaction, trigger_id: str) -> None:
        """Handle a trigger that was requeued."""

    def has_task(self, tx: Transaction, trigger_id: str) -> bool:
        """Return whether something has begun with this one, although it may not be started now."""


class NullListener:
    """Where nothing follows triggers."""

    def on_settled_unrun(self, tx: Transaction, trigger_ids: Sequence[str]) -> None:
        return

    def on_requeued(self, tx: Transaction, trigger_id: str) -> None:
        return

    def has_task(self, tx: Transaction, trigger_id: str) -> bool:
        return False
