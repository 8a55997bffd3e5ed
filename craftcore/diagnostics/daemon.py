"""Checks of `craftcore doctor` on the daemon: one runs, has booted, and answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from craftcore.daemon.doorbell_probe import answers_doorbell
from craftcore.daemon.lock import read_note
from craftcore.daemon.lock_note import LockInfo
from craftcore.diagnostics.conditions import RUN
from craftcore.diagnostics.finding import Finding, fail, make_passed, warn
from craftcore.diagnostics.health import checkpoint_text, slow_text, unreachable_text
from craftcore.diagnostics.write_lock import Holder, write_lock_holder
from craftcore.engine.live_state import LiveState
from craftcore.serialization.time_text import clock_time
from craftcore.storage.doorbell_client import doorbell_path
from craftcore.storage.files.daemon_files import lost_text, name_lost_by_daemon
from craftcore.storage.files.wal_locks import list_wal_locks

ANSWER_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonState:
    """The state of a daemon. `note` and `held`: the content of the lock file, and whether a process holds it.
    `has_bell`: there is a doorbell. `is_heard`: it answered a wake-up. `keeper`: another process that keeps the write
    lock. `replaced`: the name of a file that the daemon has open, and that was deleted or replaced.
    `readers`: the processes that read the file at that moment."""

    note: LockInfo | None
    held: bool
    has_bell: bool
    is_heard: bool
    keeper: Holder | None = None
    replaced: str | None = None
    readers: tuple[int, ...] = ()

    @property
    def pid(self) -> int | None:
        """The pid of the process that holds the lock; None when there is none."""
        return self.note.pid if self.held and self.note is not None else None

    def is_starting(self, booted_at: float | None) -> bool:
        """Return whether who holds the lock has not come to its own epoch yet; the bell is that of the one before."""
        return self.held and self.note is not None and (booted_at is None or booted_at < self.note.started_at)

    def is_stuck(self, booted_at: float | None) -> bool:
        """Return whether its event loop does not take a ring."""
        return self.held and self.has_bell and not self.is_heard and not self.is_starting(booted_at)


def find_daemon(path: Path) -> DaemonState:
    """Look, and ring. Raises PermissionRefused, StorageError."""
    note, held = read_note(path)
    has_bell = Path(doorbell_path(path)).is_socket()
    heard = held and answers_doorbell(path, ANSWER_SECONDS)
    locks = list_wal_locks(path)
    return DaemonState(
        note=note,
        held=held,
        has_bell=has_bell,
        is_heard=heard,
        keeper=write_lock_holder(path, note.pid if held and note is not None else None, locks.writer),
        replaced=name_lost_by_daemon(path),
        readers=tuple(locks.readers),
    )


def daemon_findings(running: DaemonState, booted_at: float | None, live: LiveState) -> Iterator[Finding]:
    """Check the daemon. `booted_at`: when the last epoch began; None: there was none. `live`: what its engine left."""
    if running.keeper is not None:
        text = f"{running.keeper} keeps it, perhaps in an open transaction: nothing is written before it lets go"
        yield fail("write lock", text)
    if not running.held:
        yield warn("daemon", "none runs on this database", *RUN)
        if running.has_bell:
            yield make_passed("doorbell", "is left of a daemon that died; the next one takes its place")
        return
    if live.checkpoint_failed is not None:
        yield fail("checkpoints", checkpoint_text(live.checkpoint_failed))
    if live.flush_seconds is not None:
        yield warn("flushes", slow_text(live.flush_seconds))
    if live.unreachable is not None:
        yield fail("open files", unreachable_text(live.unreachable))
    if running.replaced is not None:
        yield fail(
            "open files", f"{lost_text(running.replaced)}: it ends, or restart it, and find out which program did that"
        )
    note = running.note
    who = "somebody" if note is None else f"pid {note.pid} on {note.host}, since {clock_time(note.started_at)}"
    if running.is_heard:
        yield make_passed("daemon", f"{who}, answers")
        yield make_passed("doorbell", "is heard")
    elif running.is_stuck(booted_at):
        yield fail("daemon", f"{who}: it holds the lock and does not answer, so its event loop is stuck. Restart it")
    elif running.is_starting(booted_at):
        yield warn("daemon", f"{who}: it is starting, and has not come to its work")
    else:
        yield fail("doorbell", f"{who}: its doorbell is gone, so it learns late of new triggers. Restart it")
