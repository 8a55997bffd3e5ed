"""Which processes read or write a database at this moment: each holds a lock on the index of its WAL while it does.

Linux lists those locks. Nothing is opened here: closing a file drops every lock that this process holds on it, those of
its own connections too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

WRITE_BYTE = 120
"""The byte of the `-shm` file that a writer locks: WALINDEX_LOCK_OFFSET in SQLite's wal.c, the first of its lock
bytes."""

READ_MARKS = range(123, 128)
"""The bytes of it that a reader locks one of, for as long as its snapshot is open."""

LOCKS = Path("/proc/locks")


class _Lock(NamedTuple):
    kind: str
    pid: int
    first: int
    last: int


def reader_pids(path: Path) -> list[int]:
    """Return the processes that have a snapshot of it open, by number. Empty where the system does not say; one in
    another container is not seen."""
    held = [lock for lock in _locks(path) if lock.kind == "READ"]
    return sorted({lock.pid for lock in held if lock.first in READ_MARKS and lock.last in READ_MARKS})


def writer_pid(path: Path) -> int | None:
    """Return the process that holds the write lock; None when no process does, or the system does not tell."""
    held = (lock.pid for lock in _locks(path) if lock.kind == "WRITE" and lock.first == lock.last == WRITE_BYTE)
    return next(held, None)


def _locks(path: Path) -> Iterator[_Lock]:
    real = path.resolve()
    try:
        index = real.with_name(f"{real.name}-shm").stat().st_ino
        lines = LOCKS.read_text().splitlines()
    except OSError:
        return
    for line in lines:  # 3: POSIX  ADVISORY  READ 15053 fe:00:2212282 124 124
        match line.split():
            case [_, "POSIX", _, kind, pid, file, first, last] if file.endswith(f":{index}"):
                if pid.isdigit() and first.isdigit() and last.isdigit() and int(pid) > 0:
                    yield _Lock(kind, int(pid), int(first), int(last))
