"""Checkpoints of the daemon's writer: they move the WAL into the database file, and a failure is never silent.

SQLite's automatic checkpoint runs inside COMMIT and drops its error, because the commit itself is on disk. So the
daemon's writer does its own, after the commit was answered.
"""

from __future__ import annotations

import time
from pathlib import Path

import apsw
import structlog

from craftcore.errors import StorageBusy, StorageError, StorageFull
from craftcore.storage.connection import limit_wal
from craftcore.storage.sqlite_errors import CHECKPOINTS_FAIL_SECONDS, translate

log = structlog.get_logger(__name__)

RETRY_SECONDS = 5.0
"""How often a checkpoint that failed is tried again."""

FAILS_SECONDS = CHECKPOINTS_FAIL_SECONDS


class Checkpoints:
    """The checkpoints of one connection, all on its thread. `failed`: why the last one did, None when it did not."""

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._since = 0.0
        self._retry_at = 0.0
        self.failed: str | None = None

    def run(self, mode: int) -> bool:
        """Checkpoint as far as readers and other writers allow; False when that has to be tried again.

        Raises StorageError once checkpoints have failed for FAILS_SECONDS. A full disk is only waited for.
        """
        if self.failed is not None and time.monotonic() < self._retry_at:
            return False
        try:
            limit_wal(self._connection)  # Litestream may have come since
            frames, moved = self._connection.wal_checkpoint(mode=mode)
        except apsw.Error as error:
            return self._is_over(translate(error, self._path, self._connection))
        if self.failed is not None and moved == frames:  # less says only that a reader is in the way
            log.warning("checkpoint.recovered", seconds=round(time.monotonic() - self._since, 3))
            self.failed = None
        return True

    def _is_over(self, error: StorageError) -> bool:
        if isinstance(error, (StorageBusy, StorageFull)):
            log.debug("checkpoint.postponed", error=error.message)
            return isinstance(error, StorageBusy)  # whoever holds it up moves the WAL as well
        now = time.monotonic()
        self._retry_at = now + RETRY_SECONDS
        if self.failed is None:
            self._since = now
            log.error(
                "checkpoint.failed",
                reason=error.message,
                advice=f"ends after {FAILS_SECONDS:g} s; see dmesg",
            )
        self.failed = error.message
        if now - self._since >= FAILS_SECONDS:
            raise StorageError(
                f"{error.message}. Checkpoints have failed for {now - self._since:.0f} s. All that was committed is in "
                f"{self._path}-wal: keep both files together, and check the disk"
            )
        return False
