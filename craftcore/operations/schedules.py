"""Declare, pause, resume, remove and fire schedules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from craftcore.operations.audit_scope import AuditScope
from craftcore.schedules.clock_guard import ClockTrust
from craftcore.schedules.declaration import DeclareResult
from craftcore.schedules.firing import FiringResult
from craftcore.schedules.model import Declared, Origin, Outcome, Schedule, ScheduleSpec, ScheduleStatus
from craftcore.schedules.occurrence_store import AccountStore, RunningOccurrence
from craftcore.schedules.store import ScheduleStore
from craftcore.serialization.display import json_or_text, shorten
from craftcore.services import Services
from craftcore.storage.transaction import Transaction
from craftcore.triggers.workflow_store import refuse_unknown

RECORDED = {field.name for field in fields(Declared)} - {"declared_hash", "timezone_given"}
CHANGED_MAX = 500
"""The characters of each side of a change that the audit log keeps."""


def declare(
    tx: Transaction, scope: AuditScope, services: Services, spec: ScheduleSpec, *, checks_workflow: bool = True
) -> DeclareResult:
    """Add a schedule, or change the one of this id. Raises InvalidInput or StateRefused."""
    if checks_workflow:
        refuse_unknown(tx, [spec.workflow])
    before = ScheduleStore().get(tx, spec.id)
    put = services.schedules.put(tx, spec, Origin.OPERATOR)
    if put.change != "unchanged":
        scope.record(spec.id, **list_changed_fields(before, put))
    return put


def pause(
    tx: Transaction, scope: AuditScope, services: Services, before: Schedule, reason: str
) -> tuple[Schedule, RunningOccurrence | None]:
    """Stop a schedule from firing until it is resumed. Return it, and its earlier occurrence that is not over.

    Raises NotFound or StateRefused.
    """
    after = services.schedules.pause(tx, before.id, reason)
    if before.status is not ScheduleStatus.PAUSED:
        scope.record(after.id, reason=reason)
    return after, AccountStore().running_occurrence(tx, before.id)


def resume(tx: Transaction, scope: AuditScope, services: Services, before: Schedule) -> tuple[Schedule, int | None]:
    """Let a paused or disabled schedule fire again from now.

    Return it, and how many occurrences the pause skipped, None when none came. Raises NotFound or StateRefused.
    """
    after = services.schedules.resume(tx, before.id)
    if before.status is not ScheduleStatus.ACTIVE:
        scope.record(after.id, was=before.status)
    newest = AccountStore().list_history(tx, before.id, 1)
    skipped = [one.count for one in newest if one.decided_at == tx.now and one.outcome is Outcome.SKIPPED]
    return after, skipped[0] if skipped else None


def remove(
    tx: Transaction, scope: AuditScope, services: Services, schedule_id: str
) -> tuple[Schedule, list[str], RunningOccurrence | None]:
    """Remove a schedule, and cancel its triggers that have not started.

    Return it, the ids of those triggers, and its earlier occurrence that is not over. Raises NotFound or StateRefused.
    """
    cancelled = services.schedules.remove(tx, schedule_id)
    scope.record(schedule_id, triggers_cancelled=len(cancelled))
    removed = ScheduleStore().get(tx, schedule_id)
    assert removed is not None, schedule_id
    return removed, cancelled, AccountStore().running_occurrence(tx, schedule_id)


def run_now(
    tx: Transaction, scope: AuditScope, services: Services, schedule_id: str
) -> tuple[FiringResult, RunningOccurrence | None]:
    """Fire a schedule once more, now; return it, and an earlier occurrence that is not over. Raises NotFound."""
    placed = services.schedules.run_now(tx, schedule_id)
    scope.record(schedule_id, reason=placed.reason, outcome=placed.outcome, trigger=placed.trigger_id)
    return placed, AccountStore().running_occurrence(tx, schedule_id)


def skip_next(tx: Transaction, scope: AuditScope, services: Services, schedule_id: str) -> tuple[Schedule, float]:
    """Skip the next occurrence; return the schedule, and the skipped moment. Raises NotFound or StateRefused."""
    skips_at = services.schedules.skip_next(tx, schedule_id)
    scope.record(schedule_id, skips_at=skips_at)
    return services.schedules.get(tx, schedule_id), skips_at


def backfill(
    tx: Transaction, scope: AuditScope, services: Services, schedule_id: str, first: float, last: float
) -> list[FiringResult]:
    """Fire the occurrences of a past span. Raises NotFound, StateRefused or ScheduleInvalid."""
    placed = services.schedules.backfill(tx, schedule_id, first, last)
    if placed:
        outcomes = dict(Counter(one.outcome for one in placed))
        scope.record(schedule_id, from_at=first, to_at=last, outcomes=outcomes)
    return placed


def trust_clock(tx: Transaction, scope: AuditScope) -> tuple[float | None, list[str]]:
    """Accept the wall clock, so that held schedules go on.

    Return the moment that they waited for, None when they did not wait, and the ids of those beyond now.
    """
    held_until = ClockTrust().trust(tx)
    scope.record(held_until=held_until)
    return held_until, ScheduleStore().list_ids_ahead(tx, tx.now)


def reanchor(tx: Transaction, scope: AuditScope, services: Services, schedule_ids: Sequence[str]) -> list[Schedule]:
    """Let schedules that are ahead of the clock go on from now: those given, or all. Raises StateRefused."""
    done = services.schedules.reanchor(tx, schedule_ids)
    for one in done:
        scope.record(one.id)
    return done


def list_changed_fields(before: Schedule | None, put: DeclareResult) -> dict[str, Any]:
    """Return each declared thing that is another now, as it was and as it is. A new one has its time and workflow."""
    after = put.schedule
    if before is None or before.status is ScheduleStatus.REMOVED:
        return {"change": put.change, "expression": after.expression, "workflow": after.workflow}
    changed: dict[str, Any] = {"change": put.change}
    for column in sorted(RECORDED):
        was, becomes = getattr(before, column), getattr(after, column)
        if was != becomes:
            name = column.removesuffix("_json")
            changed[name] = {"before": _shorten(name, was), "after": _shorten(name, becomes)}
    return changed


def _shorten(name: str, value: Any) -> Any:
    """Return a side of a change as the log keeps it. A long payload is left out: of half of one, no reader could tell
    what is secret."""
    if not isinstance(value, str):
        return value
    if name != "payload":
        return shorten(value, CHANGED_MAX)
    return json_or_text(value) if len(value) <= CHANGED_MAX else f"(not kept: {len(value)} characters)"
