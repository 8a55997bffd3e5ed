"""The note inside the lock file, one line of JSON: for people, for `status`, and for the next boot.

The line has a fixed length, so a write in place changes no length and no other block of the disk.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from craftcore.clock import YEAR_10000
from craftcore.storage.facts import LastSeen

NOTE_BYTES = 512
"""Length of a line, filled up with spaces: one sector, which a disk writes whole or not at all. Longer with a long host
name only."""

NOTE_MAX_BYTES = 4096

CALL_MARK_MAX = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class LockNote:
    """Who holds, or last held, the lock. `database_id`, `epoch` and `call_mark` are None until the database was opened
    once.

    call_mark  that of the newest irreversible calls that may have been made (`storage/facts.py`)
    inodes     the numbers of the files that the holder has open: database, WAL, shared memory. None while it starts or
               stops, and for a command that holds the lock
    ended_at   when that epoch ended in order on a disk that was too full for the database to say so; None otherwise
    """

    pid: int
    host: str
    started_at: float
    database_id: str | None = None
    epoch: int | None = None
    inodes: tuple[int, ...] | None = None
    call_mark: int | None = None
    ended_at: float | None = None

    @property
    def last_seen(self) -> LastSeen | None:
        """How far the database had come; None: it was never opened under this lock."""
        if self.database_id is None or self.epoch is None:
            return None
        return LastSeen(self.database_id, self.epoch, self.call_mark or 0, self.ended_at)

    @property
    def since(self) -> str:
        """When it started, in ISO UTC."""
        return datetime.fromtimestamp(self.started_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def note_line(note: LockNote) -> bytes:
    return json.dumps(asdict(note)).encode().ljust(NOTE_BYTES - 1) + b"\n"


def note_from(content: bytes) -> LockNote | None:
    """None for whatever is not a whole note: a reader may meet half a line, or somebody else's file."""
    try:
        found = json.loads(content.split(b"\n", 1)[0])
    except (ValueError, RecursionError):
        return None
    return _checked(found) if isinstance(found, dict) else None


def _checked(found: dict[str, Any]) -> LockNote | None:
    pid: Any = found.get("pid")
    host: Any = found.get("host")
    started_at: Any = found.get("started_at")
    database_id: Any = found.get("database_id")
    epoch: Any = found.get("epoch")
    inodes: Any = found.get("inodes")
    call_mark: Any = found.get("call_mark")
    ended_at: Any = found.get("ended_at")
    sound = (
        type(pid) is int
        and 0 < pid < 2**31
        and type(host) is str
        and len(host) <= 255
        and host.isprintable()
        and _is_time(started_at)
        and type(database_id) in (str, type(None))
        and type(epoch) in (int, type(None))
        and (inodes is None or (type(inodes) is list and all(type(number) is int for number in inodes)))
        and (call_mark is None or (type(call_mark) is int and 0 <= call_mark < CALL_MARK_MAX))
        and (ended_at is None or _is_time(ended_at))
    )
    if not sound:
        return None
    return LockNote(
        pid=pid,
        host=host,
        started_at=float(started_at),
        database_id=database_id,
        epoch=epoch,
        inodes=None if inodes is None else tuple(inodes),
        call_mark=call_mark,
        ended_at=None if ended_at is None else float(ended_at),
    )


def _is_time(found: Any) -> bool:
    return type(found) in (int, float) and 0 <= found < YEAR_10000
