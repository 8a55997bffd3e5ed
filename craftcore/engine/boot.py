"""Boot of a daemon, before it consumes. Each step may be repeated: a crash in boot is a crash like any other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from craftcore.errors import InvalidInput
from craftcore.executions.recorder import Recorder
from craftcore.executions.store import ExecutionStore
from craftcore.schedules.clock_guard import ClockTrust
from craftcore.serialization.plurals import format_count
from craftcore.storage.epochs import Process as Process
from craftcore.storage.epochs import (
    begin_epoch,
    count_unclean_starts,
    end_epoch,
    last_epoch,
    newest_epoch,
    replace_workflows,
)
from craftcore.storage.facts import CALL_MARK, LastSeen, call_mark, get_fact, give_id, set_fact
from craftcore.storage.restored_work import begin_doubt, find_latest
from craftcore.storage.transaction import Row, Transaction
from craftcore.tasks.activity_events import ActivityEvents
from craftcore.tasks.resume import ResumeContract, Resumed
from craftcore.triggers.claim_service import ClaimService, Reclaimed
from craftcore.triggers.model import TriggerSource, TriggerSpec
from craftcore.triggers.service import TriggerService
from craftcore.triggers.settlement import SHUT_DOWN
from craftcore.triggers.sources import system_key

if TYPE_CHECKING:  # a command that only reads must not pay for the registry
    from craftcore.registry.registry import Registry


UNCLEAN_STARTS_MAX = 6
UNCLEAN_STARTS_SECONDS = 600.0
"""Seconds within which that many unclean starts put scheduled and resumed work on hold. It ends after as many
seconds without another crash, or when a person releases it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """The result of a boot.

    call_mark  the call mark that the lock file must store, beside the epoch
    held       why nothing is claimed until a person releases it
    safe_mode  why scheduled and resumed work is not claimed; `begins_safe_mode`: it was claimed before
    in_doubt   how many irreversible actions were being called when the last daemon died
    """

    epoch: int
    database_id: str
    call_mark: int
    reclaimed: Reclaimed
    resumed: Resumed
    in_doubt: int
    clean: bool
    held: str | None
    safe_mode: str | None
    begins_safe_mode: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreMark:
    """The state of a restored file: its id, None when no daemon ever ran on it, and the number of irreversible actions
    that it was calling. `epoch` is the one that the restore took. `call_mark` is the mark that the lock file must
    have."""

    epoch: int
    call_mark: int
    database_id: str | None
    in_doubt: int


def boot(
    tx: Transaction,
    claims: ClaimService,
    acts: ActivityEvents,
    contract: ResumeContract,
    process: Process,
    workflows: list[str],
    *,
    new_database_id: str,
    last_seen: LastSeen | None,
) -> Boot:
    """Take the next epoch, reclaim what earlier ones held, let their tasks go on, declare the workflows. One commit.

    `last_seen` is what the lock file remembers. A database whose epoch or call mark is lower was restored without
    `craftcore db restore`. Nothing of it runs until a person releases it. An epoch that ended on a full disk left its
    end in the lock file: what it held is handed back here, and was in no crash. Raises DatabaseInvalid when no record
    can be closed.
    """
    give_id(tx, new_database_id)
    database_id = get_fact(tx, "database_id")
    assert database_id is not None
    last = last_epoch(tx)
    epoch = (last["epoch"] if last else 0) + 1
    mark = call_mark(tx)
    seen = last_seen if last_seen is not None and last_seen.database_id == database_id else None
    unrecorded = seen if last is not None and _was_end_unrecorded(last, seen) else None
    if unrecorded is not None:
        end_epoch(tx, unrecorded.epoch, unrecorded.ended_at)
    if seen is not None and (behind := _restored_reason(seen, epoch, mark)) is not None:
        epoch = max(epoch, seen.epoch + 1)
        mark = _catch_up(tx, mark, seen)
        why = f"the database is older than its lock file ({behind}): it was restored"
        _hold_restored(tx, why, epoch, find_latest(tx))
    begin_epoch(tx, epoch, process)
    was_safe = get_fact(tx, "safe_mode") is not None
    if (unclean := count_unclean_starts(tx, tx.now - UNCLEAN_STARTS_SECONDS)) >= UNCLEAN_STARTS_MAX:
        set_fact(
            tx,
            "safe_mode",
            f"{format_count(unclean, 'unclean start')} within {UNCLEAN_STARTS_SECONDS / 60:.0f} minutes",
        )
    ClockTrust().boot(tx, epoch)
    machine_restarted = (
        last is not None
        and None not in (last["machine_boot_id"], process.machine_boot_id)
        and last["machine_boot_id"] != process.machine_boot_id
    )
    ExecutionStore().head(tx)  # what this daemon runs could not be settled without it
    in_doubt = acts.mark_interrupted(tx)  # before anything ends the tasks, which are asked about then
    if unrecorded is not None:  # what that epoch could not give back was in no crash
        Recorder().release_open(tx, unrecorded.epoch, SHUT_DOWN)
        claims.release_epoch(tx, unrecorded.epoch)
    reclaimed = claims.reclaim(tx, epoch, machine_restarted=machine_restarted)
    resumed = contract.resume(tx, epoch)
    replace_workflows(tx, workflows, epoch)
    return Boot(
        epoch=epoch,
        database_id=database_id,
        call_mark=mark,
        reclaimed=reclaimed,
        resumed=resumed,
        in_doubt=in_doubt,
        clean=last is None or last["ended_at"] is not None or unrecorded is not None,
        held=get_fact(tx, "held"),
        safe_mode=(safe_mode := get_fact(tx, "safe_mode")),
        begins_safe_mode=safe_mode is not None and not was_safe,
    )


def end(tx: Transaction, claims: ClaimService, acts: ActivityEvents, epoch: int) -> None:
    """End this epoch in order: its calls become in doubt, its open records are closed, its claims are handed back, and
    its row is written."""
    acts.mark_interrupted(tx)
    Recorder().release_open(tx, epoch, SHUT_DOWN)
    claims.release_epoch(tx, epoch)
    ClockTrust().store_time(tx)
    end_epoch(tx, epoch, tx.now)


def mark_restored(
    tx: Transaction,
    acts: ActivityEvents,
    process: Process,
    why: str,
    *,
    until: float | None,
    last_seen: LastSeen | None,
) -> RestoreMark:
    """Mark a file that is about to be restored, as a boot marks one that was restored without craftcore; `why` is
    shown to people. Its calls become in doubt, and all live work is held. `until`: the moment up to which it goes.

    It takes an epoch, beyond those of the file and `last_seen`, and ends it; and it takes the greater call mark. So
    the next boot finds nothing to be older than, and what a person released stays released.
    """
    database_id = get_fact(tx, "database_id")
    seen = last_seen if last_seen is not None and last_seen.database_id == database_id else None
    epoch = max(newest_epoch(tx) or 0, seen.epoch if seen else 0) + 1
    begin_epoch(tx, epoch, process)
    end_epoch(tx, epoch, tx.now)
    mark = _catch_up(tx, call_mark(tx), seen)
    _hold_restored(tx, why, epoch, until)
    return RestoreMark(epoch=epoch, call_mark=mark, database_id=database_id, in_doubt=acts.mark_interrupted(tx))


def _was_end_unrecorded(last: Row, seen: LastSeen | None) -> bool:
    """Return whether the last epoch ended in order, and the disk was too full for the database to say so."""
    return last["ended_at"] is None and seen is not None and seen.epoch == last["epoch"] and seen.ended_at is not None


def _restored_reason(seen: LastSeen, next_epoch: int, mark: int) -> str | None:
    """Return how a database is behind its lock file; None when it is not.

    The lock file never has a mark before the database has it, so a crash between the two writes looks like no restore.
    """
    if seen.epoch >= next_epoch:
        return f"epoch {seen.epoch}"
    if seen.call_mark > mark:
        return f"call mark {seen.call_mark}, and the database has {mark}"
    return None


def _catch_up(tx: Transaction, mark: int, seen: LastSeen | None) -> int:
    """Return the greater of both marks, in the database from now on: a copy that is put back once more is found out
    again."""
    if seen is not None and seen.call_mark > mark:
        mark = seen.call_mark
        set_fact(tx, CALL_MARK, str(mark))
    return mark


def _hold_restored(tx: Transaction, why: str, epoch: int, until: float | None) -> None:
    set_fact(tx, "held", why)
    begin_doubt(tx, epoch, until)


def notify(tx: Transaction, app: Registry, triggers: TriggerService, boot: Boot) -> str | None:
    """Emit one restart notice where tasks were resumed and a workflow takes SYSTEM; why it cannot take it, or None.

    Its payload: `kind` ("restart"), `resumed` and `stale` (how many), `tasks` (the ids of the first of them).
    """
    workflow = app.by_source.get(TriggerSource.SYSTEM)
    if workflow is None or not boot.resumed.is_anything:
        return None
    row = triggers.accept(
        TriggerSpec(
            source=TriggerSource.SYSTEM,
            payload=boot.resumed.notice(),
            dedup_key=system_key("restart", boot.epoch),
            description="The daemon was started, and these tasks go on where they were.",
        )
    )
    try:
        app.check(row._replace(workflow=workflow))
    except InvalidInput as error:
        return error.message
    triggers.emit_all(tx, [row])
    return None
