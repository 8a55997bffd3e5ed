"""One daemon per database, proven by the kernel.

The proof is an `flock` on `<db>.lock`, a side file that we never remove, and put back when somebody does; it falls with
the process that holds it, however that dies. Inside is a note, which proves nothing about the holder. It shows how far
the database had come, so the next boot recognises an older copy of the file.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from craftcore.daemon.lock_note import NOTE_MAX_BYTES, LockNote, note_from, note_line
from craftcore.errors import CannotCreate, DaemonRunning, PermissionRefused, StorageError, StorageFull
from craftcore.forks import in_forked_children
from craftcore.storage.error_mapping import NO_ROOM, no_room
from craftcore.storage.open_files import OpenFiles
from craftcore.storage.whole_file import flush_folder

ENDS = ".lock"

PROBES_OUTLIVED = 100
PROBE_WAIT_SECONDS = 0.005
"""`read_note` holds the lock, shared, for an instant; a daemon that starts just then asks again before it gives up."""


class DaemonLock:
    """The held lock. `previous` is what an earlier daemon left, None when there is nothing readable."""

    def __init__(self, descriptor: int, path: str, note: LockNote, previous: LockNote | None) -> None:
        self._descriptor: int | None = descriptor
        self._note = note
        self._one_writes = threading.Lock()
        self.path = path
        self.previous = previous
        self._forget_forks = in_forked_children(self._close_copy)

    @classmethod
    def acquire(cls, db_path: str | os.PathLike[str], *, pid: int, host: str, now: float) -> DaemonLock:
        """Take the lock and put our name on it; what is noted of the database stays until `write`.

        Raises DaemonRunning, naming the holder, when it is held; CannotCreate or PermissionRefused when the file cannot
        be made or opened, or another user could hold it.
        """
        path = lock_path(db_path)
        descriptor = _locked(path)
        try:
            previous = _read(descriptor)
            note = replace(
                previous or LockNote(pid=pid, host=host, started_at=now),
                pid=pid,
                host=host,
                started_at=now,
                inodes=None,
            )
            _write(descriptor, path, note, is_new=previous is None)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(descriptor, path, note, previous)

    def write(self, *, database_id: str, epoch: int, call_mark: int) -> None:
        """Note, durably, which database this is, and which epoch and call mark it has come to."""
        assert self._descriptor is not None, "the lock was released"
        self._note = replace(self._note, database_id=database_id, epoch=epoch, call_mark=call_mark, ended_at=None)
        _write(self._descriptor, self.path, self._note)

    def note_files(self, files: OpenFiles | None) -> None:
        """Name the files that the engine has open, for producers to compare. None: before it closes them.

        Not flushed: the numbers mean nothing once the lock has fallen.
        """
        with self._one_writes:
            assert self._descriptor is not None, "the lock was released"
            self._note = replace(self._note, inodes=None if files is None else files.inode_numbers)
            _write(self._descriptor, self.path, self._note, flush=False)

    def note_end(self, at: float) -> None:
        """Note, durably, that the epoch ended in order at this wall time. The note is written in place, so a full disk
        has room for it.

        Raises as `mark` does. The next boot then counts a crash for what was running.
        """
        with self._one_writes:
            self._put_back()
            assert self._descriptor is not None, "the lock was released"
            note = replace(self._note, ended_at=at)
            _write(self._descriptor, self.path, note)
            self._note = note

    def mark(self, call_mark: int) -> None:
        """Note, durably, that irreversible calls up to this mark may have been made. It never goes back.

        For a thread beside the event loop. A lock file that was removed is put back first: a mark in a file without a
        name is found by nobody. Raises as `keep` does, and StorageError or StorageFull when it cannot be written. The
        calls must not be made then.
        """
        with self._one_writes:
            self._put_back()
            if call_mark <= (self._note.call_mark or 0):
                return
            note = replace(self._note, call_mark=call_mark)
            assert self._descriptor is not None, "the lock was released"
            _write(self._descriptor, self.path, note)
            self._note = note

    def fileno(self) -> int:
        """The open lock file."""
        assert self._descriptor is not None, "the lock was released"
        return self._descriptor

    def keep(self) -> bool:
        """Put the lock back where somebody removed its file, or opened it to others; False when it was in order. To be
        asked again and again: a file that is gone keeps no second daemon out.

        Raises DaemonRunning when another one took it meanwhile, also when that has ended since.
        """
        if not self._one_writes.acquire(blocking=False):
            return False  # `mark` looks at the file itself, and the event loop does not wait for its flush
        try:
            return self._put_back()
        finally:
            self._one_writes.release()

    def _put_back(self) -> bool:
        assert self._descriptor is not None, "the lock was released"
        if _is_at(self._descriptor, self.path):
            if not _is_open_to_others(self._descriptor):
                return False
            self._descriptor = _renewed(self._descriptor, self.path)
            return True
        descriptor = _open(self.path)
        try:
            other = _read(descriptor)
            if other is not None or not _flock(descriptor, self.path, fcntl.LOCK_EX, tries=PROBES_OUTLIVED):
                raise DaemonRunning(f"{self.path} was removed, and {_held_by(other, self.path)}", path=self.path)
            _write(descriptor, self.path, self._note, is_new=True)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(self._descriptor)
        self._descriptor = descriptor
        return True

    def _close_copy(self) -> None:
        """In a forked child: a copy of the descriptor would hold the lock for as long as the child lives."""
        self._one_writes = threading.Lock()  # a thread that is not in the child may have held it
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def release(self) -> None:
        """Let the next daemon in. The file and its note stay."""
        with self._one_writes:
            if self._descriptor is not None:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # also for copies of the descriptor in forked children
                os.close(self._descriptor)
                self._descriptor = None
        self._forget_forks()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def lock_path(db_path: str | os.PathLike[str]) -> str:
    """Beside the real file: two links to one database are one database."""
    return os.path.realpath(db_path) + ENDS


def read_note(db_path: str | os.PathLike[str]) -> tuple[LockNote | None, bool]:
    """What the lock file says, and whether a daemon holds it now. Makes no file. Raises PermissionRefused.

    A file that another user made or can open says nothing: whoever holds it need not be a daemon. A running daemon
    replaces such a file within a second (`keep`).
    """
    path = lock_path(db_path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None, False
    except PermissionError as error:
        raise PermissionRefused(f"may not read the lock file {path}", path=path) from error
    except OSError as error:
        raise StorageError(f"cannot read the lock file {path}: {error.strerror}", path=path) from error
    try:
        if _refusal(descriptor, path) is not None or _is_open_to_others(descriptor):
            return None, False
        held = not _flock(descriptor, path, fcntl.LOCK_SH, tries=1)
        return _read(descriptor), held
    finally:
        os.close(descriptor)


def _open(path: str) -> int:
    # Opened, not replaced: a lock on a file that somebody else replaces locks nothing.
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except PermissionError as error:
        if os.path.lexists(path):
            raise PermissionRefused(f"may not open the lock file {path}", path=path) from error
        raise CannotCreate(f"may not create the lock file {path}", path=path) from error
    except OSError as error:
        if error.errno in NO_ROOM:
            raise no_room(path, NO_ROOM[error.errno]) from error
        raise CannotCreate(f"cannot create the lock file {path}: {error.strerror}", path=path) from error
    if (why := _refusal(descriptor, path)) is not None:
        os.close(descriptor)
        raise PermissionRefused(why, path=path)
    return descriptor


def _locked(path: str) -> int:
    """The lock file, held, and for its owner alone. Raises DaemonRunning."""
    for _ in range(PROBES_OUTLIVED):
        descriptor = _open(path)
        try:
            if not _flock(descriptor, path, fcntl.LOCK_EX, tries=PROBES_OUTLIVED):
                raise DaemonRunning(_held_by(_read(descriptor), path), path=path)
            if _is_at(descriptor, path):
                return _renewed(descriptor, path) if _is_open_to_others(descriptor) else descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # it was replaced while this process waited for it
    raise DaemonRunning(f"the lock file {path} is replaced again and again. Find out by whom", path=path)


def _refusal(descriptor: int, path: str) -> str | None:
    """Why this is no lock file of ours; None when it is. A link to a file of somebody's would be written over, and a
    file of another user could be held by that user."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        return f"the lock file {path} is no regular file with one name. Remove it"
    with suppress(OSError):  # no database yet, or a folder that cannot be entered just now
        owner = os.lstat(path.removesuffix(ENDS)).st_uid
        if found.st_uid not in (0, os.geteuid(), owner):
            return f"the lock file {path} belongs to user id {found.st_uid}, the database to {owner}. Remove it"
    return None


def _is_open_to_others(descriptor: int) -> bool:
    """Whether other users can open the file. To read is enough to hold it."""
    return bool(os.fstat(descriptor).st_mode & 0o066)


def _renewed(held: int, path: str) -> int:
    """Put a new file, with the same note, in the place of a held one, and hold that: who has the old one open cannot
    hold the new one. Closes the old one."""
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
                raise no_room(path, NO_ROOM[error.errno]) from error
            if isinstance(error, PermissionError):
                why = f"others can open the lock file {path}, and this user may not replace it (permission denied)"
                raise PermissionRefused(why, path=path) from error
            raise StorageError(f"cannot replace the lock file {path}: {error.strerror}", path=path) from error
        raise
    os.close(held)
    return descriptor


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False
    except OSError as error:  # nobody knows: a folder that cannot be entered just now, a share that does not answer
        raise StorageError(f"cannot look for the lock file {path}: {error.strerror}", path=path) from error


def _flock(descriptor: int, path: str, how: int, *, tries: int) -> bool:
    """True when it is ours now, False when another process has it."""
    for attempt in range(tries):
        if attempt:
            time.sleep(PROBE_WAIT_SECONDS)
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            continue
        except OSError as error:
            raise StorageError(f"cannot lock {path}: {error.strerror}", path=path) from error
    return False


def _write(descriptor: int, path: str, note: LockNote, *, flush: bool = True, is_new: bool = False) -> None:
    """On disk when it returns, unless `flush` is False; with `is_new` its name, too."""
    # Overwritten first and cut after: the first line is the old note or the new one, and never nothing.
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


def _read(descriptor: int) -> LockNote | None:
    try:
        return note_from(os.pread(descriptor, NOTE_MAX_BYTES, 0))
    except OSError:
        return None


def _held_by(note: LockNote | None, path: str) -> str:
    if note is None:
        return f"another daemon holds this database and has not yet said who it is (lock {path}). Stop that one first"
    who = f"pid {note.pid} on {note.host} since {note.since}"
    return f"another daemon holds this database: {who} (lock {path}). Stop that one first"
