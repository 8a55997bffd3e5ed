"""Retention, holds and releases by hand, and the hold after a restore."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from craftcore.audit.model import Actor
from craftcore.engine import boot
from craftcore.operations.audit_scope import AuditScope, audited_transaction
from craftcore.retention.model import Taken
from craftcore.retention.service import STEPS, Retention
from craftcore.retention.size_store import TableSizes
from craftcore.services import Services
from craftcore.storage import restored_work
from craftcore.storage.backup.restore import Origin
from craftcore.storage.facts import LastSeen
from craftcore.storage.files.file_size import count_free_pages, give_back
from craftcore.storage.transaction import Transaction
from craftcore.triggers import start_holds
from craftcore.triggers.start_holds import HoldTarget


def hold(services: Services, tx: Transaction, scope: AuditScope, target: HoldTarget, reason: str | None) -> bool:
    """Keep a target from starting; False when it is held already. Raises as `Services.hold` does."""
    is_new = services.hold(tx, target, scope.operator, reason)
    if is_new:
        scope.record(reason=reason, held=str(target))
    return is_new


def release(tx: Transaction, scope: AuditScope, target: HoldTarget) -> list[str]:
    """Let a target start again; everything ends every hold and safe mode. Return why each was held."""
    reasons = list(start_holds.release(tx, target).values())
    if reasons:
        scope.record(released=str(target), held_because="; ".join(reasons))
    return reasons


def end_doubt(tx: Transaction, scope: AuditScope) -> bool:
    """End the doubts that a restore began: a person says that the restored file was complete. False when there were
    none. Open questions stay open."""
    was_open = restored_work.end_doubt(tx)
    if was_open:
        scope.record(complete=True)
    return was_open


def hold_restored(
    services: Services,
    actor: Actor,
    action: str,
    process: boot.Process,
    source: str,
    brought: Origin,
    why: str,
    last_seen: LastSeen | None,
) -> boot.RestoreMark:
    """Hold everything in a restored file before it replaces the database. Opens and closes its own transaction."""
    try:
        with audited_transaction(services, actor, action) as (tx, scope):
            done = boot.mark_restored(tx, services.acts, process, why, until=brought.until, last_seen=last_seen)
            scope.record(file=source, sha256=brought.sha256, epoch=done.epoch, in_doubt=done.in_doubt)
    finally:
        services.close()
    return done


def take_old(services: Services, retention: Retention, progress: Callable[[], object]) -> tuple[Taken, TableSizes]:
    """Take what retention allows, in batches. Each has its own transaction, so that a daemon need not wait."""
    taken, weight = Taken(), TableSizes(Counter(), Counter())
    for step in STEPS:
        after: int | None = 0
        while after is not None:
            with services.reading() as reader:
                found = retention.find(reader, step, services.clock.now(), after)
            batch = Taken()
            if found.seqs:
                with services.transaction() as tx:
                    batch, of_it = retention.take_weighed(tx, step, found, tx.now)
                taken.add(batch)
                weight.add(of_it)
            progress()
            if not batch.goes_on:
                after = found.after
    return taken, weight


def give_pages_back(services: Services, progress: Callable[[], object]) -> int:
    """Give free pages back to the file system in small transactions; return how many."""
    with services.reading() as reader:
        before = count_free_pages(reader)
    more = True
    while more:
        with services.transaction() as tx:
            more = give_back(tx) > 0
            after = count_free_pages(tx)
        progress()
    return before - after
