"""Retry, skip and invalidate executions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from craftcore.executions.invalidation import invalidate_record
from craftcore.executions.record import ExecutionRecord
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
