"""One transaction of a person's, and what the command says that it did in it."""

from __future__ import annotations

from typing import Any

from craftcore.audit.log import audit, last_number
from craftcore.cli.caller import actor
from craftcore.serialization.plurals import counted
from craftcore.storage.transaction import Transaction


class Did:
    """`did(id, reason=…)`: writes to `audit_log` that this was done to the thing of that id, once for each.

    Without an id: to no one thing. Whatever else is given is JSON that stands in the row's details. A rule that writes
    the row itself is given the `actor`.
    """

    def __init__(self, tx: Transaction, action: str) -> None:
        self.actor = actor()
        self._tx = tx
        self._action = action
        self._written_before = tx.rows_written
        self._last_before = last_number(tx)

    def __call__(self, subject: str | None = None, /, *, reason: str | None = None, **details: Any) -> None:
        audit(self._tx, self.actor, self._action, subject, reason=reason, details=details)

    def require_said(self) -> None:
        """Fail, so that nothing is committed, when something was changed and nobody said what: a bug of the command."""
        changed = self._tx.rows_written - self._written_before
        said = last_number(self._tx) > self._last_before
        assert said or not changed, f"{self._action} changed {counted(changed, 'row')} and did not say to what"
