"""The starts of the daemon, the newest first, and how each of them ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from craftcore.storage.facts import number
from craftcore.storage.transaction import Reader, Row

EPOCHS = """
SELECT epoch, machine_boot_id, pid, host, version, started_at, ended_at
  FROM epochs
 ORDER BY epoch DESC
 LIMIT :limit
"""
CLOCK_EVENTS = "SELECT at, kind, seconds FROM clock_events ORDER BY seq DESC LIMIT :limit"


class End(StrEnum):
    """How a run of the daemon ended."""

    RUNS = "runs"
    IN_ORDER = "ended in order"
    DIED = "died"
    MACHINE = "ended with the machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start. `ended_at` None: it runs, or died and could not write it. `seen_at`: the last sign of one that died
    and that no other followed."""

    epoch: int
    pid: int
    host: str
    version: str
    started_at: float
    ended_at: float | None
    seen_at: float | None
    end: End

    @property
    def has_crashed(self) -> bool:
        return self.end in (End.DIED, End.MACHINE)


def list_starts(reader: Reader, limit: int, *, runs: bool) -> list[Start]:
    """Return the newest starts. `runs`: a daemon runs now, which is the newest."""
    rows = reader.fetch_all(EPOCHS, limit=limit)
    seen = number(reader, "clock_seen_at")
    return [_make_start(row, rows[index - 1] if index else None, seen, runs=runs) for index, row in enumerate(rows)]


def list_clock_events(reader: Reader, limit: int) -> list[Row]:
    """Return what the clocks of the machine did, the newest first: moment, kind, and by how many seconds."""
    return reader.fetch_all(CLOCK_EVENTS, limit=limit)


def _make_start(row: Row, later: Row | None, seen: float | None, *, runs: bool) -> Start:
    """Return a start. `later`: the one after it, by which a restart of the machine shows."""
    end = End.IN_ORDER
    if row["ended_at"] is None:
        end = End.RUNS if later is None and runs else End.DIED
        if later is not None and None is not row["machine_boot_id"] != later["machine_boot_id"] is not None:
            end = End.MACHINE
    last = seen if later is None and end is End.DIED and seen is not None and seen >= row["started_at"] else None
    names = ("epoch", "pid", "host", "version", "started_at", "ended_at")
    return Start(**{name: row[name] for name in names}, seen_at=last, end=end)
