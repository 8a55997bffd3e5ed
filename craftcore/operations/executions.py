"""Retry, skip and invalidate executions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from craftcore.audit.model import Actor
from craftcore.audit.store import audit
from craftcore.errors import NotFound, StateRefused
from craftcore.executions.record import ExecutionRecord
from craftcore.executions.record_store import INVALIDATE, RecordStore
from craftcore.operations.audit_scope import AuditScope
from craftcore.services import Services
from craftcore.storage.transaction import Transaction
from craftcore.tasks.attempt_service import AttemptService, facts_of
from craftcore.triggers.model import Trigger


def decide(
    tx: Transaction,
    scope: AuditScope,
    services: Services,
    decision: Literal["retry", "skip"],
    record: ExecutionRecord,
    reason: str,
    *,
    daemon_runs: bool,
    program: tuple[str, ...] = ("craftcore",),
) -> Trigger:
    """Retry or skip an attempt without an end, or a failed one; return its trigger.

    `program` begins the commands that a refusal names. Raises StateRefused.
    """
    attempts = AttemptService(services.triggers, program)
    facts = facts_of(tx, record, tx.now, daemon_runs=daemon_runs)
    trigger = attempts.retry(tx, facts, reason) if decision == "retry" else attempts.skip(tx, facts, reason)
    scope.record(record.id, reason=reason, trigger=trigger.id)
    return trigger


def invalidate(tx: Transaction, scope: AuditScope, execution_ids: Iterable[str], reason: str) -> list[ExecutionRecord]:
    """Exclude executions from replay, all or none. Raises NotFound or StateRefused.

    The rule adds the rows to `audit_log` itself.
    """
    return [invalidate_record(tx, id, scope.actor, reason) for id in dict.fromkeys(execution_ids)]


def invalidate_record(tx: Transaction, execution_id: str, actor: Actor, reason: str) -> ExecutionRecord:
    """Mark a record so that it is not replayed without force. Return the record as it is read then.

    A record without a response may be invalidated, too: a person may know before its end that the result will be
    wrong. Raises NotFound; StateRefused when it is invalidated already.
    """
    records = RecordStore()
    record = records.get(tx, execution_id)
    if record is None:
        raise NotFound(f"no execution {execution_id}")
    if record.invalidated is not None:
        why = f": {record.invalidated}" if record.invalidated else ""
        raise StateRefused(f"{execution_id} is invalidated already{why}; nothing was written")
    audit(tx, actor, INVALIDATE, execution_id, reason=reason, details={"record_hash": record.record_hash})
    after = records.get(tx, execution_id)
    assert after is not None, execution_id
    return after
