"""A second name of a database: SQLite's WAL and locks, and those of the daemon, go by name, so two names are two
databases over one file. Each would run all work."""

from __future__ import annotations

import glob
import os
import stat
from pathlib import Path

from craftcore.errors import CannotCreate

KEPT = ".before-restore-"
"""The end of the name that a restore gives the old file. One that is killed may leave two names of the file."""

MOUNTS = Path("/proc/self/mountinfo")
"""The mounts that this process sees; the fifth field is where, with some characters as octal escapes."""


def find_second_name(real: str) -> str | None:
    """Return the fault of a database file that may have another name, and what to do; None for one without fault.
    `real`: its path without links. A name that a killed restore left does not count, because no process opens it."""
    try:
        status = os.stat(real)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    if status.st_nlink > 1 and status.st_nlink > 1 + _count_left_by_restore(Path(real)):
        return (
            f"the file has {status.st_nlink} names (hard links), and each would be a database that runs all work. Find "
            f"the others with find -inum {status.st_ino}, and remove them or make them copies"
        )
    if _is_mount_point(real):
        return (
            "the file is mounted alone, so its WAL and its lock are not seen by others that mount it, and each would "
            "run all work: mount its folder"
        )
    return None


def refuse_second_name(path: Path) -> None:
    """Raise CannotCreate for a database file that may have another name: nothing is opened."""
    if (fault := find_second_name(os.path.realpath(path))) is not None:
        raise CannotCreate(f"{path}: {fault}. Nothing was changed")


def _count_left_by_restore(real: Path) -> int:
    return sum(one.samefile(real) for one in real.parent.glob(f"{glob.escape(real.name)}{KEPT}*"))


def _is_mount_point(real: str) -> bool:
    try:
        mounts = MOUNTS.read_text("utf-8", errors="surrogateescape")
    except OSError:  # not Linux
        return False
    escaped = "".join(f"\\{ord(sign):03o}" if sign in " \t\n\\" else sign for sign in real)
    return any(line.split(" ", 5)[4] == escaped for line in mounts.splitlines() if escaped in line)
