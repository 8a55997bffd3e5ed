"""The owner of the daemon lock, as the kernel names it and not as the note does, and a safe way to signal it.

A note may be of an earlier daemon, and its pid may belong to another process by now, which SIGHUP would end. Only what
every user may read is read: the daemon's own files in /proc are closed, also to its user.
"""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from craftcore.daemon.lock import read_note
from craftcore.daemon.lock_file import lock_path
from craftcore.errors import PermissionRefused, StateRefused
from craftcore.storage.files.wal_locks import LOCKS


@contextmanager
def open_daemon_process(db_path: str | os.PathLike[str]) -> Iterator[int]:
    """Open the daemon of this database as a pidfd, which refers to that process even when its pid is reused.

    In the ExecReload= of the daemon's own unit systemd passes the pid (MAINPID). A sandbox with private users hides
    that process from /proc, so the passed pid is used. Raises StateRefused when none runs here, or what runs does not
    catch SIGHUP; PermissionRefused for another user's.
    """
    note, held = read_note(db_path)
    if not held:
        start = f"craftcore --db {shlex.quote(os.fspath(db_path))} run MODULE:APP"
        raise StateRefused(
            f"no daemon runs on {os.fspath(db_path)}, so there is no process to signal. Start one: {start}"
        )
    gone = StateRefused(f"the daemon of {os.fspath(db_path)} is just starting or ending. Try again")
    if note is None:
        raise gone
    try:
        process = os.pidfd_open(note.pid)
    except OSError:
        raise StateRefused(
            f"the daemon runs as pid {note.pid} on {note.host}, which cannot be seen from here"
        ) from None
    try:
        if os.environ.get("MAINPID") != str(note.pid) and not _is_the_holder(note.pid, lock_path(db_path)):
            raise gone
        yield process
    except PermissionError:
        raise PermissionRefused(
            f"may not look at or signal the daemon, pid {note.pid}: run this as its user or as root"
        ) from None
    except (FileNotFoundError, ProcessLookupError):
        raise gone from None
    finally:
        os.close(process)


def _is_the_holder(pid: int, lock: str) -> bool:
    """Return whether that process holds the lock. Raises for one that may not be signalled, or must not be."""
    owner = int(_status(pid, "Uid").split()[1])
    if os.geteuid() not in (0, owner):
        raise PermissionRefused(f"the daemon, pid {pid}, belongs to user id {owner}: ask as that user")
    if not _has_lock(pid, lock):
        return False
    if not _has_handler(pid, signal.SIGHUP):
        text = f"pid {pid} runs the engine in a program of its own, which SIGHUP would end. Restart that program"
        raise StateRefused(text)
    return True


def _has_lock(pid: int, path: str) -> bool:
    """Return whether that process has this very file locked."""
    inode = os.stat(path).st_ino
    for line in LOCKS.read_text("utf-8").splitlines():  # 3: FLOCK  ADVISORY  WRITE 15053 fe:00:2212282 0 EOF
        match line.split():
            case [_, "FLOCK", _, "WRITE", holder, file, *_] if holder == str(pid) and file.endswith(f":{inode}"):
                return True
    return False


def _has_handler(pid: int, number: signal.Signals) -> bool:
    """Return whether the process has a handler of its own for that signal."""
    return bool(int(_status(pid, "SigCgt"), 16) >> (number - 1) & 1)


def _status(pid: int, wanted: str) -> str:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name == wanted:
            return value
    raise ProcessLookupError(pid)
