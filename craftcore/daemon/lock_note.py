"""The note in the lock file, one line of JSON: for people, for `craftcore status`, and for the next boot.

The line has a fixed length, so a write in place changes neither the length of the file nor another block of the disk.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from types import NoneType
from typing import Any

from craftcore.clock import YEAR_10000
from craftcore.storage.facts import LastSeen

NOTE_BYTES = 512
"""Length of a line, filled up with spaces: one sector, which a disk writes whole or not at all. Longer with a long host
name only."""

NOTE_MAX_BYTES = 4096

CALL_MARK_MAX = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class LockInfo:
    """The process that holds, or last held, the lock. `database_id`, `epoch` and `call_mark` are None before the first
    open of the database.

    call_mark  the mark of the newest irreversible calls that may have been made (`storage/facts.py`)
    inodes     the numbers of the files that the holder has open: database, WAL, shared memory. None while it starts or
               stops, and for a command that holds the lock
    ended_at   the end of an epoch that stopped in order, on a disk too full for the database to record it
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
        """The last known state of the database. None when it was never opened under this lock."""
        if self.database_id is None or self.epoch is None:
            return None
        return LastSeen(self.database_id, self.epoch, self.call_mark or 0, self.ended_at)

    @property
    def since(self) -> str:
        """The start of the holder, in ISO UTC."""
        return datetime.fromtimestamp(self.started_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def note_line(note: LockInfo) -> bytes:
    """Return the note as the one line of the lock file."""
    return json.dumps(asdict(note)).encode().ljust(NOTE_BYTES - 1) + b"\n"


def note_from(content: bytes) -> LockInfo | None:
    """Read a note. None for any other content: a reader may meet half a line, or the file of another program."""
    try:
        found = json.loads(content.split(b"\n", 1)[0])
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not _is_sound(found):
        return None
    note = LockInfo(**{name: found[name] for name in TYPES if found.get(name) is not None})
    return note if note.inodes is None else replace(note, inodes=tuple(note.inodes))


TYPES: dict[str, tuple[type, ...]] = {
    "pid": (int,),
    "host": (str,),
    "started_at": (int, float),
    "database_id": (str, NoneType),
    "epoch": (int, NoneType),
    "inodes": (list, NoneType),
    "call_mark": (int, NoneType),
    "ended_at": (int, float, NoneType),
}
"""The fields of a note, and the types of JSON that each may have."""


def _is_sound(found: dict[str, Any]) -> bool:
    return (
        all(type(found.get(name)) in types for name, types in TYPES.items())
        and 0 < found["pid"] < 2**31
        and len(found["host"]) <= 255
        and found["host"].isprintable()
        and 0 <= found["started_at"] < YEAR_10000
        and 0 <= (found.get("ended_at") or 0) < YEAR_10000
        and 0 <= (found.get("call_mark") or 0) < CALL_MARK_MAX
        and all(type(number) is int for number in found.get("inodes") or [])
    )
