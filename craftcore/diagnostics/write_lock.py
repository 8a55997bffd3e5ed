"""The holder of the write lock of a database, as the kernel names it. A shell with an open transaction stops every
writer.

We look, and lock nothing.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from craftcore.storage.files.wal_locks import list_wal_locks

KEPT_SECONDS = 1.0
"""A commit holds it for some milliseconds."""

LOOK_SECONDS = 0.002
"""So often that it is seen free between the commits of a process that makes one after the other."""


class Holder(NamedTuple):
    """A process, and its program where the system tells it."""

    pid: int
    program: str

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.program})" if self.program else f"pid {self.pid}"


def write_lock_holder(path: Path, daemon: int | None, first: int | None) -> Holder | None:
    """Return the process, other than the daemon of that pid, that holds the write lock at every look within a second.
    None when there is none, or the system does not tell. `first`: who held it at the first look."""
    until = time.monotonic() + KEPT_SECONDS
    while first is not None and first != daemon:
        if time.monotonic() > until:
            return Holder(first, _program(first))
        time.sleep(LOOK_SECONDS)
        if list_wal_locks(path).writer != first:
            return None
    return None


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
