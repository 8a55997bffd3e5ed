"""Which files a connection has open: the database, its WAL and its shared memory, by device and inode.

A file that was deleted or replaced goes on working for the process that has it open, and what is written to it is lost
with its last descriptor. So the names are compared with the open files before and after each commit.

Nothing is opened here: closing any descriptor of a file drops every POSIX lock that the process holds on that file,
those of its own connections included. The next foreign SQLite then believes that it is alone and deletes the WAL.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from craftcore.errors import DatabaseInvalid, StorageError

SIDES = ("", "-wal", "-shm")
"""The suffixes of the three files of a database."""

DESCRIPTORS = "/proc/self/fd"

Inode = tuple[int, int]
"""Device and number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFiles:
    """The three files of one connection: `inodes` and `names` in the order of SIDES. The first name may be a link,
    which may lead elsewhere by now."""

    path: Path
    real: str
    inodes: tuple[Inode, ...]
    names: tuple[str, ...]

    @classmethod
    def from_connection(cls, path: Path) -> OpenFiles:
        """Return the files of a connection that was opened just now. Raises as `refuse_replaced`."""
        real = os.path.realpath(path)
        own = _own(real)
        inodes = []
        for side in SIDES:
            inode = _inode(f"{real}{side}")
            if inode is None or (own is not None and inode not in own):
                raise _replaced_error(path, real, side, "while it was opened. Nothing was written. Try again")
            inodes.append(inode)
        names = (os.fspath(path), *(f"{real}{side}" for side in SIDES[1:]))
        return cls(path=path, real=real, inodes=tuple(inodes), names=names)

    @property
    def inode_numbers(self) -> tuple[int, ...]:
        """The numbers alone, for another process on this machine."""
        return tuple(inode[1] for inode in self.inodes)

    def find_replaced(self) -> str | None:
        """Return which of SIDES is not the open file any more. None when all are, or the system does not say."""
        for side, name, inode in zip(SIDES, self.names, self.inodes, strict=True):
            try:
                status = os.stat(name)
            except (FileNotFoundError, NotADirectoryError):
                return side
            except OSError:
                continue  # a folder that cannot be entered just now says nothing about the file in it
            if (status.st_dev, status.st_ino) != inode:
                return side
        return None

    def refuse_replaced(self, then: str) -> None:
        """Raise DatabaseInvalid when the database was deleted or replaced, StorageError for its WAL or shared memory.

        The codes are 65 and 74. With 65 a service manager does not restart the daemon, because the file is empty or
        foreign. With 74 it does: the database is still there, and the next start recovers. `then` ends the message with
        the outcome of the write and what to do.
        """
        if (side := self.find_replaced()) is not None:
            raise _replaced_error(self.path, self.real, side, then)


def unreachable_reason(path: Path) -> str | None:
    """Return why this name cannot be looked up, as in a directory that cannot be entered. None for a missing name."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return None


def _replaced_error(path: Path, real: str, side: str, then: str) -> StorageError:
    kind = StorageError if side else DatabaseInvalid
    return kind(f"{path}: {real}{side} was deleted or replaced {then}")


def inode_numbers(path: Path) -> tuple[int | None, ...]:
    """Return the inode numbers of the three files of that name. None for a missing file."""
    real = os.path.realpath(path)
    return tuple(None if (inode := _inode(f"{real}{side}")) is None else inode[1] for side in SIDES)


def _inode(name: str) -> Inode | None:
    try:
        status = os.stat(name)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _own(real: str) -> set[Inode] | None:
    """Return the files that this process has open under these names. None where the system does not list them."""
    try:
        numbers = os.listdir(DESCRIPTORS)
    except OSError:
        return None
    own = set()
    for number in numbers:
        link = f"{DESCRIPTORS}/{number}"
        try:
            if not os.readlink(link).startswith(real):  # asked first: the stat of a file on a dead share may not return
                continue
        except OSError:
            continue  # closed meanwhile
        if (inode := _inode(link)) is not None:
            own.add(inode)
    return own
