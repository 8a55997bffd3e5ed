"""Which processes read or write a database at this moment: each holds a lock on the index of its WAL while it does.

Linux lists those locks. Nothing is opened here: closing a file drops every lock that this process holds on it, those of
its own connections too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

WRITE_BYTE = 120
"""The byte of the `-shm` file that a writer locks: WALINDEX_LOCK_OFFSET in SQLite's wal.c."""

READ_MARKS = range(123, 128)
"""The bytes of it that a reader locks one of, for as long as its snapshot is open."""

LOCKS = Path("/proc/locks")


def reader_pids(path: Path) -> list[int]:
    """Return the processes that have a snapshot of it open, by number. Empty where the system does not say; one in
    another container is not seen."""
    return sorted({pid for pid, first, last in _locks(path, "READ") if first in READ_MARKS and last in READ_MARKS})


def writer_pid(path: Path) -> int | None:
    """Return the process that holds the write lock; None when no process does, or the system does not tell."""
    return next((pid for pid, first, last in _locks(path, "WRITE") if first == last == WRITE_BYTE), None)


def _locks(path: Path, kind: str) -> Iterator[tuple[int, int, int]]:
    """Yield the process, the first and the last byte of each lock of that kind."""
    real = path.resolve()
    try:
        index = real.with_name(f"{real.name}-shm").stat().st_ino
        lines = LOCKS.read_text().splitlines()
    except OSError:
        return
    for line in lines:  # 3: POSIX  ADVISORY  READ 15053 fe:00:2212282 124 124
        match line.split():
            case [_, "POSIX", _, found, pid, file, first, last] if found == kind and file.endswith(f":{index}"):
                if pid.isdigit() and first.isdigit() and last.isdigit() and int(pid) > 0:
                    yield int(pid), int(first), int(last)
