"""The POSIX locks on a database, as the kernel lists them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

SHARED_FIRST = 0x40000002
"""The first of the 510 bytes of the database file that every connection in WAL mode keeps locked, shared."""

INDEX_IN_USE = 128
"""The byte of the `-shm` file that every process with a connection keeps locked, shared."""


class Lock(NamedTuple):
    side: str
    first: int


HELD = {Lock("", SHARED_FIRST), Lock("-shm", INDEX_IN_USE)}
"""The locks that show a foreign SQLite that it is not the last connection. Readers and writers briefly lock more."""


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
