"""What an apsw exception means to us. No apsw exception leaves storage and the stores."""

from __future__ import annotations

import errno
from pathlib import Path

import apsw

from craftcore.errors import (
    CannotCreate,
    DatabaseInvalid,
    PermissionRefused,
    RowInvalid,
    StorageBusy,
    StorageError,
    StorageFull,
)
from craftcore.words import message_of


def translate(error: apsw.Error, path: str | Path) -> StorageError:
    """The error of ours that says what SQLite said, where, and what to do."""
    said = message_of(error)  # a function of the user's may raise one of its own
    match error:
        case apsw.FullError():
            return StorageFull(f"{path}: the disk is full; nothing was written. Free some space and try again")
        case apsw.BusyError() | apsw.LockedError():
            return StorageBusy(f"{path}: another process holds the write lock; nothing was written. Try again")
        case apsw.ConstraintError():
            return RowInvalid(f"{path}: {said}; nothing was written")
        case apsw.NotADBError():
            return DatabaseInvalid(f"{path}: not an SQLite database; nothing was changed")
        case apsw.CorruptError():
            advice = "Restore a backup: craftcore db restore FILE"
            return DatabaseInvalid(f"{path}: the database is corrupt ({said}). {advice}")
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.AuthError():
            return PermissionRefused(f"{path}: cannot be written by this user ({said})")
        case apsw.CantOpenError():
            return CannotCreate(f"{path}: cannot be opened ({said})")
        case _:
            return StorageError(f"{path}: {said}")


def translate_os(error: OSError, path: str | Path) -> StorageError:
    """The same for what the operating system says while a file or directory is made."""
    match error.errno:
        case errno.EACCES | errno.EPERM:
            return PermissionRefused(f"{path}: permission denied")
        case errno.ENOSPC | errno.EDQUOT:
            return StorageFull(f"{path}: the disk is full; nothing was written")
        case _:
            return CannotCreate(f"{path}: cannot be created ({error.strerror})")
