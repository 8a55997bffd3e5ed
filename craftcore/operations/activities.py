"""Resolve irreversible actions that are in doubt."""

from __future__ import annotations

from craftcore.activities.ledger_rules import describe_status
from craftcore.activities.model import Activity, Decision
from craftcore.activities.store import ActivityStore
from craftcore.errors import StateRefused
from craftcore.operations.audit_scope import AuditScope
from craftcore.services import Services
from craftcore.storage.transaction import Transaction
from craftcore.tasks.model import Task


def resolve(
    tx: Transaction,
    scope: AuditScope,
    services: Services,
    seen: Activity,
    decision: Decision,
    *,
    reference: str | None = None,
    note: str | None = None,
) -> tuple[Activity, Task]:
    """Decide about an activity as the operator saw it; return it after the decision, and its task.

    Raises InvalidInput, NotFound, or StateRefused when it is not in doubt or has changed since it was `seen`.
    """
    now = ActivityStore().get_by_seq(tx, seen.seq)
    if (now.status, now.calls, now.decision) != (seen.status, seen.calls, seen.decision):
        raise StateRefused(f"{now.key} has moved on meanwhile: it {describe_status(now)}; nothing was written")
    after = services.activity_decisions.decide(
        tx, seen.key, decision, decided_by=scope.operator, reference=reference, note=note
    )
    scope.record(after.key, reason=note, decision=decision, reference=reference, task=after.task_id)
    return after, services.tasks.get(tx, after.task_id)
