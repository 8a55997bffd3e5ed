"""The lock file: opened safely, locked by the kernel, and read and written in place.

The file is opened and not replaced, because a lock on a file that another process replaces locks nothing.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from craftcore.daemon.lock_note import NOTE_MAX_BYTES, LockInfo, note_from, note_line
from craftcore.errors import CannotCreate, DaemonRunning, PermissionRefused, StorageError, StorageFull
from craftcore.storage.files.whole_file import flush_folder
from craftcore.storage.sqlite_errors import NO_ROOM, storage_full_error

ENDS = ".lock"

PROBES_OUTLIVED = 100
PROBE_WAIT_SECONDS = 0.005
"""`probe` holds a shared lock for an instant: a daemon that starts just then tries again before it gives up."""


def lock_path(db_path: str | os.PathLike[str]) -> str:
    """Return the path of the lock file. It is beside the real file: two links to one database are one database."""
    return os.path.realpath(db_path) + ENDS


def probe(path: str) -> tuple[LockInfo | None, bool]:
    """Return the note, and whether another process holds the file. (None, False) for a missing or unsafe file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None, False
    except PermissionError as error:
        raise PermissionRefused(f"may not read the lock file {path}", path=path) from error
    except OSError as error:
        raise StorageError(f"cannot read the lock file {path}: {error.strerror}", path=path) from error
    try:
        if refusal(descriptor, path) is not None or is_open_to_others(descriptor):
            return None, False
        held = not _try_lock(descriptor, path, fcntl.LOCK_SH)
        return read_note_at(descriptor), held
    finally:
        os.close(descriptor)


def open_lock(path: str) -> int:
    """Open or create the lock file. Raises PermissionRefused for an unsafe one, else CannotCreate or StorageFull."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except PermissionError as error:
        if os.path.lexists(path):
            raise PermissionRefused(f"may not open the lock file {path}", path=path) from error
        raise CannotCreate(f"may not create the lock file {path}", path=path) from error
    except OSError as error:
        if error.errno in NO_ROOM:
            raise storage_full_error(path, NO_ROOM[error.errno]) from error
        raise CannotCreate(f"cannot create the lock file {path}: {error.strerror}", path=path) from error
    if (why := refusal(descriptor, path)) is not None:
        os.close(descriptor)
        raise PermissionRefused(why, path=path)
    return descriptor


def take_lock(path: str) -> int:
    """Open the lock file and hold it, with a mode for its owner alone. Raises DaemonRunning."""
    for _ in range(PROBES_OUTLIVED):
        descriptor = open_lock(path)
        try:
            if not lock_exclusively(descriptor, path):
                raise DaemonRunning(describe_holder(read_note_at(descriptor), path), path=path)
            if is_at(descriptor, path):
                return renew(descriptor, path) if is_open_to_others(descriptor) else descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # it was replaced while this process waited for it
    raise DaemonRunning(f"the lock file {path} is replaced again and again. Find out by whom", path=path)


def refusal(descriptor: int, path: str) -> str | None:
    """Return the reason why this file must not be used as the lock. None for a sound one.

    A link to another file would overwrite it, and another user could hold a file of theirs.
    """
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        return f"the lock file {path} is not a regular file with one name. Remove it"
    with suppress(OSError):  # no database yet, or a folder that cannot be entered just now
        owner = os.lstat(path.removesuffix(ENDS)).st_uid
        if found.st_uid not in (0, os.geteuid(), owner):
            return f"the lock file {path} belongs to user id {found.st_uid}, the database to {owner}. Remove it"
    return None


def is_open_to_others(descriptor: int) -> bool:
    """Return whether other users can open the file: reading is enough to hold it."""
    return bool(os.fstat(descriptor).st_mode & 0o066)


def renew(held: int, path: str) -> int:
    """Replace a held file by a new one with the same note, hold it, and close the old one.

    A process that has the old file open cannot hold the new one.
    """
    beside: str | None = None
    descriptor = -1
    try:
        descriptor, beside = tempfile.mkstemp(prefix=".craftcore-", dir=os.path.dirname(path))
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.pwrite(descriptor, os.pread(held, NOTE_MAX_BYTES, 0), 0)
        if os.geteuid() == 0:
            found = os.fstat(held)
            os.fchown(descriptor, found.st_uid, found.st_gid)
        os.fsync(descriptor)
        os.rename(beside, path)
        beside = None
        flush_folder(Path(path).parent)
    except BaseException as error:
        if beside is not None:
            with suppress(OSError):
                os.unlink(beside)
        if descriptor >= 0:
            os.close(descriptor)
        if isinstance(error, OSError):
            if error.errno in NO_ROOM:
                raise storage_full_error(path, NO_ROOM[error.errno]) from error
            if isinstance(error, PermissionError):
                why = f"others can open the lock file {path}, and this user may not replace it (permission denied)"
                raise PermissionRefused(why, path=path) from error
            raise StorageError(f"cannot replace the lock file {path}: {error.strerror}", path=path) from error
        raise
    os.close(held)
    return descriptor


def is_at(descriptor: int, path: str) -> bool:
    """Return whether the path still names the open file. Raises StorageError when this cannot be found out."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False
    except OSError as error:  # as in a folder that cannot be entered just now
        raise StorageError(f"cannot look for the lock file {path}: {error.strerror}", path=path) from error


def lock_exclusively(descriptor: int, path: str) -> bool:
    """Lock the file for this process. Return False when another process holds it."""
    for attempt in range(PROBES_OUTLIVED):
        if attempt:
            time.sleep(PROBE_WAIT_SECONDS)
        if _try_lock(descriptor, path, fcntl.LOCK_EX):
            return True
    return False


def _try_lock(descriptor: int, path: str, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise StorageError(f"cannot lock {path}: {error.strerror}", path=path) from error
    return True


def write_note(descriptor: int, path: str, note: LockInfo, *, flush: bool = True, is_new: bool = False) -> None:
    """Write the note in place, durably unless `flush` is False, and with its name on disk when `is_new`."""
    # The old note is overwritten first and cut after, so the first line is always one of the two.
    line = note_line(note)
    try:
        os.pwrite(descriptor, line, 0)
        if os.fstat(descriptor).st_size != len(line):
            os.ftruncate(descriptor, len(line))
        if flush:
            os.fdatasync(descriptor)
        if is_new:
            flush_folder(Path(path).parent)
    except OSError as error:
        failure = StorageFull if error.errno in NO_ROOM else StorageError
        raise failure(f"cannot write the lock file {path}: {error.strerror}", path=path) from error


def read_note_at(descriptor: int) -> LockInfo | None:
    """Return the note of an open lock file. None when it has none that can be read."""
    try:
        return note_from(os.pread(descriptor, NOTE_MAX_BYTES, 0))
    except OSError:
        return None


def describe_holder(note: LockInfo | None, path: str) -> str:
    """Return the message of DaemonRunning."""
    if note is None:
        return f"another daemon holds this database and has not yet said who it is (lock {path}). Stop that one first"
    who = f"pid {note.pid} on {note.host} since {note.since}"
    return f"another daemon holds this database: {who} (lock {path}). Stop that one first"
