"""Cancel, requeue and discard triggers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from craftcore.errors import StateRefused
from craftcore.operations.audit_scope import AuditScope
from craftcore.services import Services
from craftcore.storage.damaged_rows import Damaged, require_readable
from craftcore.storage.transaction import Reader, Transaction
from craftcore.tasks.all_work import CancelledWork
from craftcore.triggers.listing_store import TriggerLists
from craftcore.triggers.model import Trigger
from craftcore.triggers.page_store import TriggerPageStore

DEAD_MAX = 1_000_000
OF_AN_ERROR_MAX = 500
"""Dead letters of one error that are changed at once."""


class DeadDone(NamedTuple):
    """The result for the dead letters of one error. `refused`: why some stay dead, a sentence for each."""

    done: list[Trigger]
    refused: list[str]


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


def requeue_error(tx: Transaction, scope: AuditScope, services: Services, error: str) -> DeadDone:
    """Give the newest dead letters of one error all their attempts again: 500 at most. Others stay as they are."""
    return _change_error(tx, scope, services.triggers.requeue, error)


def discard_error(tx: Transaction, scope: AuditScope, services: Services, error: str) -> DeadDone:
    """Take the newest dead letters of one error off the list: 500 at most."""
    return _change_error(tx, scope, services.triggers.discard, error)


def dead_letters(reader: Reader) -> list[str]:
    """Return the ids of all dead letters that can be read."""
    return [letter.id for letter in require_readable(TriggerLists().list_dead(reader, DEAD_MAX))]


def make_reason(reason: str | None) -> str:
    """Return the reason as a row keeps it."""
    return f"cancelled: {reason}" if reason else "cancelled"


def _change_error(
    tx: Transaction, scope: AuditScope, change: Callable[[Transaction, str], Trigger], error: str
) -> DeadDone:
    """Change each readable dead letter of an error. One whose change is refused stays as it is."""
    done: list[Trigger] = []
    refused: list[str] = []
    for letter in TriggerPageStore().list_dead(tx, OF_AN_ERROR_MAX, error=error):
        if isinstance(letter, Damaged):
            refused.append(f"trigger {letter.id} is damaged: {letter.wrong}")
            continue
        try:
            done.append(change(tx, letter.id))
        except StateRefused as why:
            refused.append(why.message)
            continue
        scope.record(letter.id)
    return DeadDone(done, refused)
