"""The status line of the daemon in `systemctl status`: one line, problems first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from craftcore.engine.engine import Engine
from craftcore.storage.files.file_size import wal_in_use

LOCK_WAIT_WORTH_SAYING = 1.0
WAL_WORTH_SAYING = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """The state of an engine. `due` None: not counted. `lock_wait` in seconds, None when the writer does not wait.
    `wal_in_use`: the bytes of the WAL that count, however long its file is. `flush_seconds`: None on a fast disk.
    `unreadable`: why the file cannot be opened once more; None when it can, or was not tried."""

    running: int
    due: int | None
    settled: Mapping[str, int]
    held: str | None = None
    safe_mode: str | None = None
    shortage: str | None = None
    holds: Sequence[str] = ()
    schedules_held: bool = False
    paused: bool = False
    storage_full: bool = False
    unreadable: str | None = None
    checkpoint_failed: bool = False
    flush_seconds: float | None = None
    alone: str | None = None
    lock_wait: float | None = None
    wal_in_use: int = 0


def condition_of(engine: Engine, database: Path) -> Condition:
    """Return what a running engine knows of itself; the due triggers are not counted."""
    live = engine.live_state()
    return Condition(
        running=engine.running,
        due=None,
        settled=engine.counts,
        held=engine.feeder.holds.everything,
        safe_mode=engine.feeder.holds.safe_mode,
        shortage=live.shortage,
        schedules_held=engine.scheduler.held and not engine.scheduler.paused,
        storage_full=engine.writer.group_commit.full,
        checkpoint_failed=live.checkpoint_failed is not None,
        flush_seconds=live.flush_seconds,
        alone=live.alone,
        wal_in_use=wal_in_use(database),
    )


def status_text(now: Condition) -> str:
    """Return, for example: `disk full, claiming nothing; running 2, due 14; settled DONE 120, DEAD 1`."""
    parts = [*list_troubles(now), f"running {now.running}" + ("" if now.due is None else f", due {now.due}")]
    if settled := ", ".join(
        f"{status} {count}" for status, count in sorted(now.settled.items()) if status != "PENDING"
    ):
        parts.append(f"settled {settled}")
    return "; ".join(parts)


def list_troubles(now: Condition) -> list[str]:
    """Return what is wrong with an engine, or keeps it from starting work."""
    trouble = []
    if now.storage_full:
        trouble.append("disk full, claiming nothing")
    if now.unreadable is not None:
        trouble.append(f"degraded, the database cannot be opened: {now.unreadable}")
    if now.checkpoint_failed:
        trouble.append("checkpoints fail: the database file cannot be written")
    if now.flush_seconds is not None:
        trouble.append(f"slow disk: a flush takes about {now.flush_seconds:g} s")
    if now.lock_wait is not None and now.lock_wait > LOCK_WAIT_WORTH_SAYING:
        trouble.append("waiting for another process that holds the write lock")
    if now.wal_in_use > WAL_WORTH_SAYING:
        trouble.append(f"{now.wal_in_use >> 20} MiB in the WAL: a reader keeps an old snapshot open")
    if now.shortage is not None:
        trouble.append(f"the daemon lacks descriptors, threads or memory: {now.shortage}")
    if now.alone is not None:
        trouble.append(f"trigger {now.alone} was in crashes and runs alone, the others wait")
    if now.held is not None:
        trouble.append(f"held: {now.held}")
    elif now.safe_mode is not None:
        trouble.append(f"safe mode, scheduled work waits: {now.safe_mode}")
    elif now.holds:
        trouble.append(f"held: {', '.join(now.holds)}")
    elif now.schedules_held:
        trouble.append("schedules wait for the clock")
    if now.paused:
        trouble.append("paused, claiming nothing")
    return trouble
