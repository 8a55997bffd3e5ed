"""The end of an epoch: claims are handed back, and the lock file keeps what the disk has no room for."""

from __future__ import annotations

import anyio

from craftcore.daemon.lock import DaemonLock
from craftcore.engine import boot as booting
from craftcore.engine.engine import Engine
from craftcore.errors import StorageError, StorageFull
from craftcore.log import get_logger
from craftcore.services import Services

log = get_logger(__name__)


def clear_files(lock: DaemonLock) -> None:
    """Forget the files before they are closed: the WAL is removed with its last connection, and that is in order."""
    try:
        lock.note_files(None)
    except StorageError as error:
        log.warning("lock.not_cleared", lock=lock.path, why=str(error))


async def end_epoch(core: Services, engine: Engine, lock: DaemonLock) -> None:
    """Release the claims and note that the epoch ended in order. A failed database is left alone, and so is one whose
    engine ended by itself: the next boot counts that as a crash.

    On a full disk the lock file says that it ended in order, and the next boot hands back.
    """
    if engine.failure is None:
        with anyio.CancelScope(shield=True):
            try:
                await engine.writer.commit(booting.end, core.claims, core.acts, engine.epoch)
            except StorageFull as full:
                if not note_end(lock, core, full):
                    raise


def note_end(lock: DaemonLock, core: Services, full: StorageFull) -> bool:
    """Return whether the lock file says now that the epoch ended in order."""
    try:
        lock.note_end(core.clock.now())
    except StorageError as error:
        log.error("engine.end_not_noted", lock=lock.path, why=str(error), advice="the next start counts a crash")
        return False
    log.warning("engine.end_noted", lock=lock.path, why=full.message, hands_back="the next start")
    return True
