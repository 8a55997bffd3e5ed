"""The lock of a daemon: one daemon per database, by an `flock` on `<db>.lock`.

The lock ends with the process that holds it, however that dies. The file is never removed, and put back when it is
missing. Its note proves nothing about the holder. It shows how far the database had come, so the next boot recognises
an older copy of the database.
"""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import suppress
from dataclasses import replace
from typing import Any, Self

from craftcore.daemon.lock_file import (
    describe_holder,
    is_at,
    is_open_to_others,
    lock_exclusively,
    lock_path,
    open_lock,
    probe,
    read_note_at,
    renew,
    take_lock,
    write_note,
)
from craftcore.daemon.lock_note import LockInfo
from craftcore.errors import DaemonRunning
from craftcore.forks import run_in_forked_children
from craftcore.storage.files.open_files import OpenFiles


class DaemonLock:
    """The held lock. `previous` is what an earlier daemon left, None when there is nothing readable."""

    def __init__(self, descriptor: int, path: str, note: LockInfo, previous: LockInfo | None) -> None:
        self._descriptor: int | None = descriptor
        self._note = note
        self._one_writes = threading.Lock()
        self.path = path
        self.previous = previous
        self._forget_forks = run_in_forked_children(self._close_copy)

    @classmethod
    def acquire(cls, db_path: str | os.PathLike[str], *, pid: int, host: str, now: float) -> DaemonLock:
        """Take the lock and put our name on it; what is noted of the database stays until `write`.

        Raises DaemonRunning, naming the holder, when it is held; CannotCreate or PermissionRefused when the file cannot
        be made or opened, or another user could hold it.
        """
        path = lock_path(db_path)
        descriptor = take_lock(path)
        try:
            previous = read_note_at(descriptor)
            note = LockInfo(pid=pid, host=host, started_at=now)
            if previous is not None:
                note = replace(previous, pid=pid, host=host, started_at=now, inodes=None)
            write_note(descriptor, path, note, is_new=previous is None)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(descriptor, path, note, previous)

    def write(self, *, database_id: str, epoch: int, call_mark: int) -> None:
        """Note, durably, which database this is, and which epoch and call mark it has come to."""
        self._write(database_id=database_id, epoch=epoch, call_mark=call_mark, ended_at=None)

    def note_files(self, files: OpenFiles | None) -> None:
        """Name the files that the engine has open, for producers to compare. None: before it closes them.

        Not flushed: the numbers mean nothing once the lock has fallen.
        """
        with self._one_writes:
            self._write(flush=False, inodes=None if files is None else files.inode_numbers)

    def note_end(self, at: float) -> None:
        """Note, durably, that the epoch ended in order at this wall time. The note is written in place, so a full disk
        has room for it.

        Raises as `mark` does. The next boot then counts a crash for what was running.
        """
        with self._one_writes:
            self._put_back()
            self._write(ended_at=at)

    def mark(self, call_mark: int) -> None:
        """Note, durably, that irreversible calls up to this mark may have been made. It never goes back.

        For a thread beside the event loop. A lock file that was removed is put back first: a mark in a file without a
        name would be lost. Raises as `keep` does, and StorageError or StorageFull when it cannot be written. The calls
        must not be made then.
        """
        with self._one_writes:
            self._put_back()
            if call_mark > (self._note.call_mark or 0):
                self._write(call_mark=call_mark)

    def fileno(self) -> int:
        """Return the open lock file."""
        assert self._descriptor is not None, "the lock was released"
        return self._descriptor

    def keep(self) -> bool:
        """Put the lock back when its file was removed or opened to other users. Return False when it was in order. Call
        this regularly: a missing file keeps no second daemon out.

        Raises DaemonRunning when another one took it meanwhile, also when that has ended since.
        """
        if not self._one_writes.acquire(blocking=False):
            return False  # `mark` looks at the file itself, and the event loop does not wait for its flush
        try:
            return self._put_back()
        finally:
            self._one_writes.release()

    def _write(self, *, flush: bool = True, **changes: Any) -> None:
        note = replace(self._note, **changes)
        write_note(self.fileno(), self.path, note, flush=flush)
        self._note = note

    def _put_back(self) -> bool:
        held = self.fileno()
        if is_at(held, self.path):
            if not is_open_to_others(held):
                return False
            self._descriptor = renew(held, self.path)
            return True
        descriptor = open_lock(self.path)
        try:
            other = read_note_at(descriptor)
            if other is not None or not lock_exclusively(descriptor, self.path):
                raise DaemonRunning(f"{self.path} was removed, and {describe_holder(other, self.path)}", path=self.path)
            write_note(descriptor, self.path, self._note, is_new=True)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(held)
        self._descriptor = descriptor
        return True

    def _close_copy(self) -> None:
        """Close the descriptor in a forked child: its copy would hold the lock for as long as the child lives."""
        self._one_writes = threading.Lock()  # a thread that is not in the child may have held it
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def remove_file(self) -> None:
        """Remove the lock file of a database that was not made. A process that waits for it looks whether the file it
        locked still has its name."""
        with self._one_writes, suppress(OSError):
            if is_at(self.fileno(), self.path):
                os.unlink(self.path)

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

    def __exit__(self, *_: object) -> None:
        self.release()


def read_note(db_path: str | os.PathLike[str]) -> tuple[LockInfo | None, bool]:
    """Return the note of the lock file, and whether a daemon holds it now. Creates no file. Raises PermissionRefused.

    A file that another user made or can open is ignored: its holder need not be a daemon. A running daemon replaces
    such a file within a second (`keep`).
    """
    return probe(lock_path(db_path))
