"""The files that the running daemon has open, by the note in its lock file.

A producer that finds other files under the names would write where no daemon looks, or into a WAL whose index the
daemon does not share. So it is refused before it opens, or creates, anything.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from craftcore.errors import DatabaseInvalid, StorageError
from craftcore.storage.files.open_files import SIDES, inode_numbers

NOTE_MAX_BYTES = 4096


def name_lost_by_daemon(path: Path) -> str | None:
    """Return the name under which the running daemon has another file open, or had one that is gone.

    None when no daemon runs, when it is starting or stopping, and when it has all three files open.
    """
    real = os.path.realpath(path)
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(f"{real}.lock", flags)
    except OSError:
        return None
    try:
        while (noted := _read_noted(descriptor)) is not None:
            numbers = inode_numbers(path)
            if numbers == noted or not _is_held(descriptor):
                return None
            if _read_noted(descriptor) == noted:  # a daemon that stops clears its note before it closes its files
                return next(f"{real}{side}" for side, one, now in zip(SIDES, noted, numbers, strict=True) if one != now)
        return None
    finally:
        os.close(descriptor)


def lost_text(name: str) -> str:
    """Say it."""
    return f"{name} was deleted or replaced under the running daemon"


def refuse_lost_by_daemon(path: Path) -> None:
    """Raise DatabaseInvalid or StorageError, as `OpenFiles` does, when the running daemon has lost one of its files."""
    if (name := name_lost_by_daemon(path)) is not None:
        kind = DatabaseInvalid if name == os.path.realpath(path) else StorageError
        raise kind(
            f"{path}: {lost_text(name)}. Nothing was written. The daemon ends within seconds; try again "
            "after its next start"
        )


def _read_noted(descriptor: int) -> tuple[int, ...] | None:
    try:
        document: Any = json.loads(os.pread(descriptor, NOTE_MAX_BYTES, 0).split(b"\n", 1)[0])
    except (OSError, ValueError, RecursionError):
        return None
    numbers = document.get("inodes") if isinstance(document, dict) else None
    if not isinstance(numbers, list) or len(numbers) != len(SIDES) or not all(type(one) is int for one in numbers):
        return None
    return tuple(numbers)


def _is_held(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False
