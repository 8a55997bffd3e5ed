"""One form of a person: its operation happens once, and only to what the person saw."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from craftcore.audit.listing_store import AuditListStore
from craftcore.audit.model import Actor
from craftcore.operations.audit_scope import AuditScope, operator_transaction
from craftcore.services import Services
from craftcore.storage.transaction import Transaction

T = TypeVar("T")

NEWEST = 2_000
"""Rows of the log among which a form that was sent before is looked for."""


def run_once(
    services: Services, actor: Actor, action: str, operation: Callable[[Transaction, AuditScope], T]
) -> T | None:
    """Run the operation of a form in one transaction, record it, and wake the daemon.

    Return its result; None when the form with `actor.request` was sent before, and nothing is done twice. Raises as the
    operation does; then nothing was written.
    """
    assert actor.request, "a form has a random name"
    with operator_transaction(services, actor, action) as (tx, scope):
        if AuditListStore().has_request(tx, actor.request, NEWEST):
            return None
        return operation(tx, scope)
