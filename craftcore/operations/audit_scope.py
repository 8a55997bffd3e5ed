"""The transaction of one operator, which commits only changes that `audit_log` names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from craftcore.audit.model import Actor
from craftcore.audit.store import audit, last_number
from craftcore.serialization.plurals import format_count
from craftcore.services import Services
from craftcore.storage.doorbell_client import EVERYTHING, ring
from craftcore.storage.transaction import Transaction


class AuditScope:
    """The operator and the command of one transaction, and the rows that it adds to `audit_log`."""

    def __init__(self, tx: Transaction, actor: Actor, action: str) -> None:
        self.actor = actor
        self._tx = tx
        self._action = action
        self._written_before = tx.rows_written
        self._last_before = last_number(tx)

    @property
    def operator(self) -> str:
        """The operator in one line, for a column beside a decision."""
        return self.actor.text

    def record(self, subject: str | None = None, /, *, reason: str | None = None, **details: Any) -> None:
        """Add a row: the command changed the thing with this id. Without an id it concerns no single thing."""
        audit(self._tx, self.actor, self._action, subject, reason=reason, details=details)

    def require_record(self) -> None:
        """Fail, so that nothing is committed, when rows changed and no row was added to `audit_log`."""
        changed = self._tx.rows_written - self._written_before
        recorded = last_number(self._tx) > self._last_before
        assert recorded or not changed, f"{self._action} changed {format_count(changed, 'row')} and did not say to what"


@contextmanager
def audited_transaction(services: Services, actor: Actor, action: str) -> Iterator[tuple[Transaction, AuditScope]]:
    """Open one transaction with its audit scope. The caller closes the database and wakes the daemon."""
    with services.transaction() as tx:
        scope = AuditScope(tx, actor, action)
        yield tx, scope
        scope.require_record()


@contextmanager
def operator_transaction(services: Services, actor: Actor, action: str) -> Iterator[tuple[Transaction, AuditScope]]:
    """Open one audited transaction on a database that must exist, close it, and wake the daemon after the commit."""
    with services.reading():
        pass  # a transaction would create a missing file
    try:
        with audited_transaction(services, actor, action) as entered:
            yield entered
    finally:
        services.close()
    ring(services.database.path, EVERYTHING)
