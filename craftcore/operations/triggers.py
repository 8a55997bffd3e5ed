"""Cancel, requeue and discard triggers."""

from __future__ import annotations

from collections.abc import Iterable

from craftcore.operations.audit_scope import AuditScope
from craftcore.services import Services
from craftcore.storage.damaged_rows import require_readable
from craftcore.storage.transaction import Reader, Transaction
from craftcore.tasks.all_work import CancelledWork
from craftcore.triggers.listing_store import TriggerLists
from craftcore.triggers.model import Trigger

DEAD_MAX = 1_000_000


def cancel(
    tx: Transaction, scope: AuditScope, services: Services, trigger_ids: Iterable[str], reason: str | None
) -> list[Trigger]:
    """Cancel triggers, all or none. Raises NotFound or StateRefused."""
    done = [services.triggers.cancel(tx, id, make_reason(reason)) for id in dict.fromkeys(trigger_ids)]
    for row in done:
        scope.record(row.id, reason=reason)
    return done


def cancel_all(
    tx: Transaction, scope: AuditScope, services: Services, reason: str | None, *, with_schedules: bool
) -> tuple[list[Trigger], CancelledWork]:
    """Cancel all live triggers and tasks, and every schedule too when asked.

    Return the triggers as they are now, and the ids of all work that was cancelled.
    """
    work = services.cancel_all(tx, make_reason(reason), with_schedules=with_schedules)
    for subject in dict.fromkeys([*work.triggers, *work.tasks, *work.schedules]):
        scope.record(subject, reason=reason)
    return [services.triggers.get(tx, id) for id in work.triggers], work


def requeue(tx: Transaction, scope: AuditScope, services: Services, trigger_ids: Iterable[str]) -> list[Trigger]:
    """Give DEAD or FAILED triggers all their attempts again, all or none. Raises NotFound or StateRefused."""
    done = [services.triggers.requeue(tx, id) for id in trigger_ids]
    for row in done:
        scope.record(row.id)
    return done


def discard(tx: Transaction, scope: AuditScope, services: Services, trigger_ids: Iterable[str]) -> list[Trigger]:
    """Take triggers off the list of dead letters, all or none. Raises NotFound or StateRefused."""
    done = [services.triggers.discard(tx, id) for id in trigger_ids]
    for row in done:
        scope.record(row.id)
    return done


def dead_letters(reader: Reader) -> list[str]:
    """Return the ids of all dead letters that can be read."""
    return [letter.id for letter in require_readable(TriggerLists().list_dead(reader, DEAD_MAX))]


def make_reason(reason: str | None) -> str:
    """Return the reason as a row keeps it."""
    return f"cancelled: {reason}" if reason else "cancelled"
