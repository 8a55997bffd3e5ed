"""A disk that fails on demand: a thin SQLite file system over the real one.

    with FaultyDisk() as disk:          # every database opened in this process from now on lies on it
        disk.fill(after_bytes=0)        # SQLITE_FULL from the first write on, as long as the disk is full
        disk.refuse_writes(EDQUOT)      # every write fails with this errno: a spent quota, a file-size limit, EIO
        disk.refuse_checkpoints()       # EIO on the database file; its WAL is written as ever
        disk.fail_syncs()               # SQLITE_IOERR from the next flush on
        disk.slow_syncs(5.0)            # every flush takes five seconds
        disk.free()                     # healthy again

The call of SQLite itself fails, so everything above it is real: the rollback, the result codes, the file that is left.
"""

from __future__ import annotations

import errno
import math
import os
import time
from typing import Self

import apsw

NAME = "craftcore-faulty"


class FaultyDisk(apsw.VFS):
    """The default file system while the block lasts. Connections opened on it must be closed before its end."""

    def __init__(self) -> None:
        self.space_left: float = math.inf
        self.syncs_left: float = math.inf
        self.sync_seconds = 0.0
        self.write_errno = 0
        self.checkpoint_errno = 0
        self.refused_writes = 0
        self.refused_checkpoints = 0
        self.refused_syncs = 0
        self.last_errno = 0
        self.real = str(apsw.vfs_details()[0]["zName"])
        super().__init__(NAME, self.real, makedefault=False)

    def __enter__(self) -> Self:
        apsw.set_default_vfs(NAME)
        return self

    def __exit__(self, *_: object) -> None:
        self.free()
        apsw.set_default_vfs(self.real)
        self.unregister()

    def fill(self, *, after_bytes: int = 0) -> None:
        """Leave room for `more` bytes, then for none."""
        self.space_left = after_bytes

    def refuse_writes(self, number: int) -> None:
        """Refuse every write with this errno."""
        self.write_errno = number

    def refuse_checkpoints(self, number: int = errno.EIO) -> None:
        """Refuse every write to a database file with this errno. Its WAL is written and flushed as ever."""
        self.checkpoint_errno = number

    def fail_syncs(self, *, after: int = 0) -> None:
        """Let `more` flushes succeed, then fail every one."""
        self.syncs_left = after

    def slow_syncs(self, seconds: float) -> None:
        """Let every flush take `seconds`."""
        self.sync_seconds = seconds

    def free(self) -> None:
        """Make the disk healthy again."""
        self.space_left = self.syncs_left = math.inf
        self.write_errno = self.checkpoint_errno = 0
        self.sync_seconds = 0.0

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        """Open a file for SQLite."""
        return _FaultyFile(self, name, flags)

    def xGetLastError(self) -> tuple[int, str]:
        """Return the errno of the call that failed."""
        return self.last_errno, os.strerror(self.last_errno)


class _FaultyFile(apsw.VFSFile):
    """One open file; the room is the disk's."""

    def __init__(self, disk: FaultyDisk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        self._is_database = bool(flags[0] & apsw.SQLITE_OPEN_MAIN_DB)
        super().__init__(disk.real, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        """Write, or fail once the room is used up. Every write takes room, overwriting included."""
        disk = self._disk
        if self._is_database and disk.checkpoint_errno:
            disk.refused_checkpoints += 1
            raise self._refusal(disk.checkpoint_errno)
        if disk.write_errno:
            disk.refused_writes += 1
            raise self._refusal(disk.write_errno)
        if len(data) > disk.space_left:
            disk.refused_writes += 1
            raise apsw.FullError("the faulty disk is full")
        disk.space_left -= len(data)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        """Flush, or fail once the armed number of flushes has passed."""
        disk = self._disk
        if disk.syncs_left < 1:
            disk.refused_syncs += 1
            disk.last_errno = errno.EIO
            raise apsw.IOError("the faulty disk cannot flush")
        disk.syncs_left -= 1
        time.sleep(disk.sync_seconds)
        super().xSync(flags)

    def xLock(self, level: int) -> None:
        """Lock. The last reader asks for a lock that a file opened for reading cannot have, and accepts a refusal.
        Refused as an I/O error, apsw would report it to the caller of close, unlike SQLite."""
        try:
            super().xLock(level)
        except apsw.IOError as error:
            raise apsw.BusyError("not lockable") from error

    def _refusal(self, number: int) -> apsw.Error:
        """Return what SQLite makes of a write that failed with this errno."""
        self._disk.last_errno = number
        error = apsw.IOError(f"the faulty disk refuses the write: {os.strerror(number)}")
        error.extendedresult = apsw.SQLITE_IOERR_WRITE  # type: ignore[attr-defined]  # apsw reads it
        return error
