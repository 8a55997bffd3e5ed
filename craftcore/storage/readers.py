"""Which processes read a database at this moment: each holds a lock on the index of its WAL while it does.

Linux lists those locks. Nothing is opened here: closing a file drops every lock that this process holds on it, those of
its own connections too.
"""

from __future__ import annotations

from pathlib import Path

READ_MARKS = range(123, 128)
"""The bytes of the `-shm` file that a reader locks one of, for as long as its snapshot is open."""

LOCKS = Path("/proc/locks")


def reading_pids(path: Path) -> list[int]:
    """The processes that have a snapshot of it open, by number. Empty where the system does not say; one in another
    container is not seen."""
    try:
        index = path.resolve().with_name(f"{path.resolve().name}-shm").stat().st_ino
        lines = LOCKS.read_text().splitlines()
    except OSError:
        return []
    return sorted({pid for line in lines if (pid := _reader_of(line, index)) is not None})


def _reader_of(line: str, index: int) -> int | None:
    """The process of a line like `3: POSIX  ADVISORY  READ 15053 fe:00:2212282 124 124`, if it reads that file."""
    match line.split():
        case [_, "POSIX", _, "READ", pid, file, first, last] if file.endswith(f":{index}"):
            within = first.isdigit() and last.isdigit() and int(first) in READ_MARKS and int(last) in READ_MARKS
            return int(pid) if within and int(pid) > 0 else None
    return None
