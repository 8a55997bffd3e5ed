"""Modes of a database's files, changed without opening them, and of its folders.

Closing any descriptor of a file that SQLite has open drops the locks of this process on it. An O_PATH descriptor does
not open the file, and closing it drops no lock.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


def close_to_others(real: str) -> None:
    """Give mode 0600 to a database and to SQLite's files beside it, where they have a wider one.

    A link, a file with a second name, another user's file and a special file stay as they are: another user may have
    created the name.
    """
    for name in (real, f"{real}-wal", f"{real}-shm"):
        try:
            descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            status = os.fstat(descriptor)
            if status.st_mode & 0o077 and is_own_file(status):
                os.chmod(f"/proc/self/fd/{descriptor}", 0o600)
        finally:
            os.close(descriptor)


def make_folders(folder: Path) -> None:
    """Make a folder and those above it with mode 0700, where they are missing. Raises OSError."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):  # one by one: mkdir(parents=True) leaves all but the last to the umask
        one.mkdir(mode=0o700, exist_ok=True)


def is_own_file(status: os.stat_result) -> bool:
    """Return whether this is a regular file of this user with one name."""
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_uid == os.geteuid()
