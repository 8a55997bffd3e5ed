"""One form of a person: its operation happens once, and only to what the person saw."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from craftcore.audit.listing_store import AuditListStore
from craftcore.audit.model import Actor
from craftcore.errors import StateRefused
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

    `actor.request` is the random name of the form, a colon, and a hash of what it asks for. Return the result of the
    operation; None when the same was sent before, and nothing is done twice. Raises StateRefused for a form that was
    sent before with other content, and as the operation does; then nothing was written.
    """
    assert actor.request, "a form has a random name"
    with operator_transaction(services, actor, action) as (tx, scope):
        sent = AuditListStore().find_request(tx, actor.request.partition(":")[0], NEWEST)
        if sent is None:
            return operation(tx, scope)
        if sent != actor.request:
            raise StateRefused("this form was sent before, with other content; nothing was done. Load the page again")
        return None
