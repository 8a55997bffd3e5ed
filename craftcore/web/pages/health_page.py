"""`/health`: the verdict and its reasons, the starts of the daemon, disk, WAL, retention and clock.

Each part is read separately: one that cannot be read says why, and the others are shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from craftcore.diagnostics.disk_space import disk_space_of
from craftcore.diagnostics.starts import list_clock_events, list_starts
from craftcore.diagnostics.status import list_other_readers
from craftcore.diagnostics.text.clock_text import clock_event_text
from craftcore.errors import CraftcoreError
from craftcore.retention.service import Retention
from craftcore.serialization.display import format_bytes
from craftcore.storage.damaged_rows import UNREADABLE
from craftcore.storage.files.file_size import wal_bytes, wal_in_use
from craftcore.storage.files.wal_locks import list_wal_locks
from craftcore.web.page import Page
from craftcore.web.visit import Visit

STARTS, EVENTS = 20, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of the page. `problem`: why it could not be read; then there is no value."""

    value: Any = None
    problem: str | None = None


def show_health(visit: Visit) -> Page:
    """Return the page of the health. It is shown whatever fails."""
    verdict = visit.verdicts.read()
    facts = {
        "status": None if verdict.status is None else verdict.status.document,
        "findings": [] if verdict.status is None else verdict.status.findings,
        "starts": read_part(visit, read_starts),
        "disk": read_part(visit, read_disk),
        "file": read_part(visit, read_file),
        "retention": read_part(visit, read_retention),
        "clock": read_part(visit, read_clock),
        "has_holds": verdict.status is not None and _has_holds(verdict.status.document),
        "is_clock_held": verdict.status is not None and verdict.status.document["clock"]["held_until"] is not None,
    }
    return Page(template="health.html", title="Health", facts=facts)


def read_part(visit: Visit, read: Callable[[Visit], Any]) -> Part:
    """Read one part, or say why that fails."""
    try:
        return Part(value=read(visit))
    except CraftcoreError as error:
        return Part(problem=error.message)
    except OSError as error:
        return Part(problem=error.strerror or str(error))
    except (*UNREADABLE, LookupError) as error:
        return Part(problem=f"a damaged row cannot be read: {error}")


def read_starts(visit: Visit) -> Any:
    """Return the newest starts of the daemon."""
    status = visit.verdicts.read().status
    runs = status is not None and status.document["daemon"]["running"]
    with visit.reading() as reader:
        return list_starts(reader, STARTS, runs=runs)


def read_disk(visit: Visit) -> Any:
    """Return the free space of the disk."""
    return disk_space_of(visit.services.database.path)


def read_file(visit: Visit) -> Any:
    """Return the sizes of the file and its WAL, and the processes that keep a snapshot open."""
    path = visit.services.database.path
    return {
        "path": str(path),
        "size": format_bytes(path.stat().st_size),
        "wal": format_bytes(wal_bytes(path)),
        "in_use": format_bytes(wal_in_use(path)),
        "readers": list_other_readers(list_wal_locks(path).readers, None),
    }


def read_retention(visit: Visit) -> Any:
    """Return how much the database holds, and of how much."""
    with visit.reading() as reader:
        size = Retention(visit.services.config.retention).size(reader, visit.now)
    return {
        "used": format_bytes(size.used_bytes),
        "limit": format_bytes(size.max_bytes) if size.max_bytes else None,
        "needed": None if size.needed_bytes is None else format_bytes(size.needed_bytes),
    }


def read_clock(visit: Visit) -> Any:
    """Return what the clocks of the machine did lately."""
    with visit.reading() as reader:
        events = list_clock_events(reader, EVENTS)
    return [(row["at"], clock_event_text(row["kind"], row["seconds"])) for row in events]


def _has_holds(status: dict[str, Any]) -> bool:
    return bool(status["held"] is not None or status["safe_mode"] is not None or status["holds"])
