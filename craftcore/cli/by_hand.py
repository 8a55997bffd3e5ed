"""One transaction of a person's, and what the command says that it did in it."""

from __future__ import annotations

from typing import Any

from craftcore.cli.caller import actor, logged_in
from craftcore.storage.audit import audit
from craftcore.storage.transaction import Transaction


class Did:
    """`did(id, reason=…)`: writes to `audit_log` that this was done to the thing of that id, once for each.

    Without an id: to no one thing. Whatever else is given is JSON that stands in the row's details.
    """

    def __init__(self, tx: Transaction, action: str) -> None:
        self._tx = tx
        self._action = action
        self._actor = actor()
        login = logged_in()
        self._login = {} if login is None else {"login_uid": login.uid, "login_name": login.name}
        self._written_before = tx.rows_written
        self._said = False

    def __call__(self, subject: str | None = None, /, *, reason: str | None = None, **details: Any) -> None:
        audit(self._tx, self._actor, self._action, subject, reason=reason, details={**details, **self._login})
        self._said = True

    def require_said(self) -> None:
        """Fail, so that nothing is committed, when something was changed and nobody said what: a bug of the command."""
        changed = self._tx.rows_written - self._written_before
        assert self._said or not changed, f"{self._action} changed {changed} rows and did not say to what"
