"""The mapping of apsw exceptions to errors of craftcore. No apsw exception leaves storage and the stores."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
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
from craftcore.serialization.untrusted import message_of

NO_ROOM = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is spent",
    errno.EFBIG: "a file has reached the file-size limit of this process",
}
"""Why a write found no room. SQLite says "full" of the first only; of the others it says "disk I/O error"."""

PROBE_BYTES = 64 << 10
"""The bytes that a WAL and its index need at their beginning."""

CHECKPOINTS_FAIL_SECONDS = 60.0
"""Seconds of failed checkpoints after which the daemon ends: the WAL grows without bound, and the disk is failing."""

READ_ONLY = "the file system is mounted read-only; nothing was written. Mount it writable (dmesg may say why it is not)"


def translate(error: apsw.Error, path: str | Path, connection: apsw.Connection | None = None) -> StorageError:
    """Return the StorageError of an error of SQLite: what was refused, why, and what to do.

    `connection`, the one that raised, tells why a write failed. Without it a spent quota reads as an I/O error.
    """
    message = message_of(error)  # a function of user code may raise one
    if connection is not None and is_write_refused(error):
        number = connection.system_errno
        if number in NO_ROOM:
            return storage_full_error(path, NO_ROOM[number])
        if number == errno.EROFS:
            return StorageError(f"{path}: {READ_ONLY}")
        if number:
            message = f"{message}: {os.strerror(number)}"
    match error:
        case apsw.FullError():
            return storage_full_error(path, NO_ROOM[errno.ENOSPC])
        case apsw.IOError() if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE:
            return storage_full_error(path, "the disk has no room for the shared memory file (-shm)")
        case apsw.BusyError() | apsw.LockedError():
            return StorageBusy(f"{path}: another process holds the write lock; nothing was written. Try again")
        case apsw.ConstraintError():
            return RowInvalid(f"{path}: {message}; nothing was written")
        case apsw.NotADBError():
            return DatabaseInvalid(f"{path}: not an SQLite database; nothing was changed")
        case apsw.CorruptError():
            advice = "Restore a backup: craftcore db restore FILE"
            return DatabaseInvalid(f"{path}: the database is corrupt ({message}). {advice}")
        case apsw.ReadOnlyError() | apsw.CantOpenError() if is_read_only(path):
            return StorageError(f"{path}: {READ_ONLY}")
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.AuthError():
            return PermissionRefused(f"{path}: cannot be written by this user ({message})")
        case apsw.CantOpenError() if (why := full_disk_reason(path)) is not None:
            return storage_full_error(path, why)
        case apsw.CantOpenError():
            return CannotCreate(f"{path}: cannot be opened ({message})")
        case _:
            return StorageError(f"{path}: {message}")


def translate_os(error: OSError, path: str | Path) -> StorageError:
    """Return the same for what the operating system says while a file or directory is made."""
    match error.errno:
        case errno.EACCES | errno.EPERM:
            return PermissionRefused(describe_refusal(path))
        case errno.EROFS:
            return StorageError(f"{path}: {READ_ONLY}")
        case number if number in NO_ROOM:
            return storage_full_error(path, NO_ROOM[number])
        case _:
            return CannotCreate(f"{path}: cannot be created ({error.strerror})")


def describe_refusal(path: str | Path) -> str:
    """Return that a user may not use a path: the mode and the owner of the file, or of the folder that is closed."""
    for place in (Path(path), *Path(path).absolute().parents):
        try:
            status = place.stat()
        except OSError:  # missing, or in a folder that is closed
            continue
        is_folder = stat.S_ISDIR(status.st_mode)
        if os.access(place, os.W_OK | (os.X_OK if is_folder else os.R_OK), effective_ids=True):
            if is_folder:  # and so are the folders above it: it could be looked at
                break
            continue
        name = "it" if place == Path(path) else str(place)
        owned = f"{name} has mode {stat.S_IMODE(status.st_mode):03o} and belongs to user id {status.st_uid}"
        return f"{path}: permission denied ({owned}; this user id is {os.geteuid()})"
    return f"{path}: permission denied"


def is_undone(error: apsw.Error, connection: apsw.Connection) -> bool:
    """Return whether a COMMIT that failed so has surely written nothing, once it is rolled back.

    The commit record is the last thing that a transaction writes to the WAL. One that found no room for it, or was
    refused on a read-only file system, has not happened. After an I/O error or a failed flush that is unknown.
    """
    if isinstance(error, apsw.FullError):
        return True
    return is_write_refused(error) and (connection.system_errno in NO_ROOM or connection.system_errno == errno.EROFS)


def is_write_refused(error: apsw.Error) -> bool:
    """Return whether the operating system refused to write to a file; `system_errno` of the connection says why."""
    return isinstance(error, apsw.IOError) and getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_WRITE


def storage_full_error(path: str | Path, why: str) -> StorageFull:
    """Return the error of a write that found no room."""
    return StorageFull(f"{path}: {why}; nothing was written. Free some space and try again")


def full_disk_reason(path: str | Path) -> str | None:
    """Return why no file can be made and written beside this path. None when one can, or for any other reason.

    SQLite says "unable to open" when it finds no room to create the WAL, and leaves no errno. A file without a name is
    tried instead. No descriptor of the database is involved.
    """
    try:
        with tempfile.TemporaryFile(dir=os.path.dirname(os.path.realpath(path)), buffering=0) as file:
            file.write(bytes(PROBE_BYTES))
            os.fsync(file.fileno())
    except OSError as error:
        return NO_ROOM.get(error.errno or 0)
    return None


def is_read_only(path: str | Path) -> bool:
    """Return whether the file system of this path, or of its directory, is mounted read-only."""
    for place in (path, Path(path).parent):
        try:
            return bool(os.statvfs(place).f_flag & os.ST_RDONLY)
        except OSError:
            continue
    return False
