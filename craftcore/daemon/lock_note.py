"""The note inside the lock file, one line of JSON: for people, for `status`, and for the next boot."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from craftcore.clock import YEAR_10000

NOTE_MAX_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class LockNote:
    """Who holds, or last held, the lock. `database_id` and `epoch` are None until the database was opened once.

    `inodes` are the numbers of the files that the holder has open: database, WAL, shared memory. None while it starts
    or stops, and for a command that holds the lock.
    """

    pid: int
    host: str
    started_at: float
    database_id: str | None = None
    epoch: int | None = None
    inodes: tuple[int, ...] | None = None

    @property
    def since(self) -> str:
        """When it started, in ISO UTC."""
        return datetime.fromtimestamp(self.started_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def note_line(note: LockNote) -> bytes:
    return json.dumps(asdict(note)).encode() + b"\n"


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
    sound = (
        type(pid) is int
        and 0 < pid < 2**31
        and type(host) is str
        and len(host) <= 255
        and host.isprintable()
        and type(started_at) in (int, float)
        and 0 <= started_at < YEAR_10000
        and type(database_id) in (str, type(None))
        and type(epoch) in (int, type(None))
        and (inodes is None or (type(inodes) is list and all(type(number) is int for number in inodes)))
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
    )
