"""Who keeps the write lock of a database, as the kernel knows it: a shell with an open transaction stops everybody.

SQLite locks one byte of the `-shm` file for as long as somebody writes. We look, and lock nothing.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

LOCKS = Path("/proc/locks")
WRITE_LOCK_BYTE = "120"
"""WALINDEX_LOCK_OFFSET in SQLite's wal.c: the first of its lock bytes is that of whoever writes."""

KEPT_SECONDS = 1.0
"""A commit holds it for some milliseconds."""

LOOK_SECONDS = 0.002
"""So often that it is seen free between the commits of a process that makes one after the other."""


class Holder(NamedTuple):
    """A process, and its program where that can be told."""

    pid: int
    program: str

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.program})" if self.program else f"pid {self.pid}"


def kept_by(path: Path, daemon: int | None) -> Holder | None:
    """Who, other than the daemon of that pid, holds it each time that it is looked at for a second; None when nobody
    does, or this system does not say."""
    until = time.monotonic() + KEPT_SECONDS
    first = _holder(path)
    while first is not None and first != daemon:
        if time.monotonic() > until:
            return Holder(first, _program(first))
        time.sleep(LOOK_SECONDS)
        if _holder(path) != first:
            return None
    return None


def _holder(path: Path) -> int | None:
    try:
        inode = str(os.stat(f"{os.path.realpath(path)}-shm").st_ino)
        lines = LOCKS.read_text().splitlines()
    except OSError:
        return None
    for line in lines:  # 1: POSIX  ADVISORY  WRITE 4711 fd:01:131 120 120
        words = line.split()
        if len(words) == 8 and words[1] == "POSIX" and words[3] == "WRITE" and words[6] == words[7] == WRITE_LOCK_BYTE:
            pid = words[4]
            if words[5].rpartition(":")[2] == inode and pid.isdigit() and int(pid) > 0:
                return int(pid)
    return None


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return ""
