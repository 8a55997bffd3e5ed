"""The POSIX locks on a database, read from the kernel's list."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

SHARED_FIRST = 0x40000002
"""The first of the 510 bytes of the database file on which each connection in WAL mode keeps a shared lock."""

INDEX_IN_USE = 128
"""The byte of the `-shm` file on which each process with a connection keeps a shared lock."""


class Lock(NamedTuple):
    side: str
    first: int


HELD = {Lock("", SHARED_FIRST), Lock("-shm", INDEX_IN_USE)}
"""The locks by which another SQLite knows that it is not the last connection. Reads and writes add short locks."""


def locks_of(pid: int, database: Path) -> set[Lock]:
    """Return the locks of HELD that this process holds."""
    real = os.path.realpath(database)
    sides = {os.stat(real + side).st_ino: side for side in ("", "-shm") if os.path.exists(real + side)}
    found = set()
    for line in Path("/proc/locks").read_text().splitlines():
        match line.split():
            case [_, "POSIX", _, _, holder, file, first, _] if int(holder) == pid:
                if (side := sides.get(int(file.rpartition(":")[2]))) is not None:
                    found.add(Lock(side, int(first)))
    return found & HELD
