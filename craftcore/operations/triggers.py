"""Cancel, requeue and discard triggers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from craftcore.errors import StateRefused
from craftcore.operations.audit_scope import AuditScope
from craftcore.services import Services
from craftcore.storage.damaged_rows import Damaged, require_readable
from craftcore.storage.row_spans import NO_BOUND
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

    done: list[Trigger | Damaged]
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


def discard(
    tx: Transaction, scope: AuditScope, services: Services, trigger_ids: Iterable[str]
) -> list[Trigger | Damaged]:
    """Take triggers off the list of dead letters, all or none. One that cannot be read is returned as Damaged.

    Raises NotFound or StateRefused.
    """
    return [_discard(tx, scope, services, id) for id in trigger_ids]


def requeue_error(tx: Transaction, scope: AuditScope, services: Services, error: str, until: float) -> DeadDone:
    """Give the newest dead letters of one error, buried by `until`, all their attempts again: 500 at most. Others stay
    as they are."""

    def requeue_letter(letter: Trigger | Damaged) -> Trigger:
        if isinstance(letter, Damaged):
            raise StateRefused(f"trigger {letter.id} is damaged: {letter.wrong}")
        done = services.triggers.requeue(tx, letter.id)
        scope.record(done.id)
        return done

    return _change_error(tx, requeue_letter, error, until)


def discard_error(tx: Transaction, scope: AuditScope, services: Services, error: str, until: float) -> DeadDone:
    """Take the newest dead letters of one error, buried by `until`, off the list: 500 at most, those that cannot be
    read included."""
    return _change_error(tx, lambda letter: _discard(tx, scope, services, str(letter.id)), error, until)


def dead_letters(reader: Reader, *, with_damaged: bool = False) -> list[str]:
    """Return the ids of all dead letters. Raises UnreadableRow when one cannot be read, unless `with_damaged`."""
    found = TriggerLists().list_dead(reader, DEAD_MAX)
    return [str(letter.id) for letter in (found if with_damaged else require_readable(found))]


def make_reason(reason: str | None) -> str:
    """Return the reason as a row keeps it."""
    return f"cancelled: {reason}" if reason else "cancelled"


def _discard(tx: Transaction, scope: AuditScope, services: Services, id: str) -> Trigger | Damaged:
    damaged = services.triggers.discard_damaged(tx, id)
    if damaged is not None:
        scope.record(id, damaged=damaged.wrong)
        return damaged
    done = services.triggers.discard(tx, id)
    scope.record(done.id)
    return done


def _change_error(
    tx: Transaction, change: Callable[[Trigger | Damaged], Trigger | Damaged], error: str, until: float
) -> DeadDone:
    """Change each dead letter of an error. One whose change is refused stays as it is."""
    done: list[Trigger | Damaged] = []
    refused: list[str] = []
    for letter in TriggerPageStore().list_dead(tx, OF_AN_ERROR_MAX, error=error, before=(until, NO_BOUND)):
        try:
            done.append(change(letter))
        except StateRefused as why:
            refused.append(why.message)
    return DeadDone(done, refused)
