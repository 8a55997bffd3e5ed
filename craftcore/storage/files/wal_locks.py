"""Which processes read or write a database at this moment: each holds a lock on the index of its WAL while it does.

Linux lists those locks. Nothing is opened here: closing a file drops every lock that this process holds on it, those of
its own connections too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

WRITE_BYTE = 120
"""The byte of the `-shm` file that a writer locks: WALINDEX_LOCK_OFFSET in SQLite's wal.c."""

READ_MARKS = range(123, 128)
"""The bytes of it that a reader locks one of, for as long as its snapshot is open."""

LOCKS = Path("/proc/locks")


class WalLocks(NamedTuple):
    """The processes that hold a lock, of one look at the list, which takes the kernel some milliseconds.

    `readers`: they have a snapshot open, by number. `writer`: it holds the write lock; None: no process does. Both are
    empty where the system does not tell. A process in another container is not seen.
    """

    readers: Sequence[int]
    writer: int | None


def list_wal_locks(path: Path) -> WalLocks:
    """Return who holds the locks of a database now."""
    locks = list(_locks(path))
    readers = {pid for kind, pid, first, last in locks if kind == "READ" and {first, last} <= {*READ_MARKS}}
    writers = (pid for kind, pid, first, last in locks if kind == "WRITE" and first == last == WRITE_BYTE)
    return WalLocks(sorted(readers), next(writers, None))


def _locks(path: Path) -> Iterator[tuple[str, int, int, int]]:
    """Yield the kind, the process, the first and the last byte of each lock."""
    real = path.resolve()
    try:
        index = real.with_name(f"{real.name}-shm").stat().st_ino
        lines = LOCKS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:  # 3: POSIX  ADVISORY  READ 15053 fe:00:2212282 124 124
        match line.split():
            case [_, "POSIX", _, kind, pid, file, first, last] if file.endswith(f":{index}"):
                if pid.isdigit() and first.isdigit() and last.isdigit() and int(pid) > 0:
                    yield kind, int(pid), int(first), int(last)
