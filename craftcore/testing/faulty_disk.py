"""A disk that can be told to fail: a thin SQLite file system over the real one.

    with FaultyDisk() as disk:      # every database opened in this process from now on lies on it
        disk.fill(after_bytes=0)    # SQLITE_FULL from the first write on, as long as the disk is full
        disk.free()                 # there is space again
        disk.fail_syncs()           # SQLITE_IOERR from the next flush on

What fails is SQLite's own call, so everything above it is real: the rollback, the result codes, the file that is left.
"""

from __future__ import annotations

import math
from types import TracebackType
from typing import Self

import apsw

NAME = "craftcore-faulty"


class FaultyDisk(apsw.VFS):
    """The default file system while the block lasts. Connections opened on it must be closed before its end."""

    def __init__(self) -> None:
        self.space_left: float = math.inf
        self.syncs_left: float = math.inf
        self.refused_writes = 0
        self.refused_syncs = 0
        self.real = str(apsw.vfs_details()[0]["zName"])
        super().__init__(NAME, self.real, makedefault=False)

    def __enter__(self) -> Self:
        apsw.set_default_vfs(NAME)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.free()
        apsw.set_default_vfs(self.real)
        self.unregister()

    def fill(self, *, after_bytes: int = 0) -> None:
        """Room for so many more bytes, then none."""
        self.space_left = after_bytes

    def fail_syncs(self, *, after: int = 0) -> None:
        """So many more flushes succeed, then every one fails."""
        self.syncs_left = after

    def free(self) -> None:
        """Healthy again."""
        self.space_left = self.syncs_left = math.inf

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        """SQLite opens a file."""
        return _FaultyFile(self, name, flags)


class _FaultyFile(apsw.VFSFile):
    """One open file; the room is the disk's."""

    def __init__(self, disk: FaultyDisk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        super().__init__(disk.real, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        """Refused once the room is used up; every write takes room, overwriting included."""
        disk = self._disk
        if len(data) > disk.space_left:
            disk.refused_writes += 1
            raise apsw.FullError("the faulty disk is full")
        disk.space_left -= len(data)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        """Refused once the armed number of flushes has passed."""
        disk = self._disk
        if disk.syncs_left < 1:
            disk.refused_syncs += 1
            raise apsw.IOError("the faulty disk cannot flush")
        disk.syncs_left -= 1
        super().xSync(flags)

    def xLock(self, level: int) -> None:
        """The last reader asks for a lock that a file opened for reading cannot have, and takes no for an answer.
        Of the two ways to say no, apsw reports an I/O error to the caller of close, as SQLite would not."""
        try:
            super().xLock(level)
        except apsw.IOError as error:
            raise apsw.BusyError("not lockable") from error
