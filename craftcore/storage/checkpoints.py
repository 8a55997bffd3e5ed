"""Checkpoints of the daemon's writer: they move the WAL into the database file, and a failure is never silent.

SQLite's automatic checkpoint runs inside COMMIT and drops its error, because the commit itself is on disk. So the
daemon's writer does its own, after the commit was answered.
"""

from __future__ import annotations

import time
from pathlib import Path

import apsw

from craftcore.errors import StorageBusy, StorageError, StorageFull
from craftcore.log import get_logger
from craftcore.storage.connection import CHECKPOINT_PAGES, limit_wal
from craftcore.storage.files.file_size import wal_bytes
from craftcore.storage.sqlite_errors import CHECKPOINTS_FAIL_SECONDS as FAILS_SECONDS
from craftcore.storage.sqlite_errors import translate

log = get_logger(__name__)

IDLE_SECONDS = 1.0
"""After this long without work the WAL is moved into the file."""

TRUNCATE_SECONDS = 10.0
"""After this long without a write a WAL longer than WAL_KEPT is truncated; while a reader keeps it, tried as often."""

WAL_KEPT = 1 << 20

RETRY_SECONDS = 5.0
"""How often a checkpoint that failed is tried again."""


class Checkpoints:
    """The checkpoints of one connection, all on its thread.

    `failed`: why the last checkpoint failed, None when it did not. `holds_work`: the WAL has commits that the database
    file does not have.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: apsw.Connection
        self._pages = 0
        self._wal_is_long = False
        self._written_at = 0.0
        self._failing_since = 0.0
        self._retry_at = 0.0
        self.failed: str | None = None
        self.holds_work = False

    def attach(self, connection: apsw.Connection) -> None:
        """Use this connection, whose `on_wal` is `note_pages`."""
        self._connection = connection

    @property
    def is_due(self) -> bool:
        """True when the WAL has reached the length at which it is moved beside running work."""
        return self._pages >= CHECKPOINT_PAGES

    @property
    def idle_seconds(self) -> float | None:
        """The seconds without work after which the WAL is moved or truncated. None: there is nothing to do."""
        if self.holds_work:
            return IDLE_SECONDS
        return max(0.0, self._written_at + TRUNCATE_SECONDS - time.monotonic()) if self._wal_is_long else None

    def note_pages(self, pages: int) -> None:
        """Note how many pages the WAL has. SQLite calls this after each commit."""
        self._pages = pages

    def note_commit(self, *, has_changes: bool) -> None:
        """Note a commit. A transaction that wrote nothing does not put off the truncation."""
        self.holds_work = True
        if has_changes:
            self._written_at = time.monotonic()

    def run(self, *, truncates: bool = False) -> None:
        """Run a checkpoint, as far as readers and other writers allow, without waiting for them.

        Raises StorageError once checkpoints have failed for FAILS_SECONDS. A full disk is only waited for.
        """
        self._pages = 0
        self.holds_work = True
        if self.failed is not None and time.monotonic() < self._retry_at:
            return
        try:
            limit_wal(self._connection)  # Litestream may have come since
            mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if truncates else apsw.SQLITE_CHECKPOINT_PASSIVE
            frames, moved = self._connection.wal_checkpoint(mode=mode)
        except apsw.Error as error:
            self.holds_work = not self._is_over(translate(error, self._path, self._connection))
            return
        self.holds_work = False
        if self.failed is not None and moved == frames:  # less says only that a reader is in the way
            log.warning("checkpoint.recovered", seconds=round(time.monotonic() - self._failing_since, 3))
            self.failed = None

    def note_truncation(self) -> None:
        """Note that a truncation is tried: the next one is TRUNCATE_SECONDS away."""
        self._written_at = time.monotonic()

    def measure(self) -> None:
        """Note whether the WAL is long enough to be truncated."""
        self._wal_is_long = wal_bytes(self._path) > WAL_KEPT

    def _is_over(self, error: StorageError) -> bool:
        """Return False when the checkpoint has to be tried again. Raises StorageError, as `run` does."""
        if isinstance(error, (StorageBusy, StorageFull)):
            log.debug("checkpoint.postponed", error=error.message)
            return isinstance(error, StorageBusy)  # the process that holds it up moves the WAL as well
        now = time.monotonic()
        self._retry_at = now + RETRY_SECONDS
        if self.failed is None:
            self._failing_since = now
            log.error("checkpoint.failed", reason=error.message, advice=f"ends after {FAILS_SECONDS:g} s; see dmesg")
        self.failed = error.message
        if now - self._failing_since >= FAILS_SECONDS:
            raise StorageError(
                f"{error.message}. Checkpoints have failed for {now - self._failing_since:.0f} s. All that was "
                f"committed is in {self._path}-wal: keep both files together, and check the disk"
            )
        return False
