"""The snapshot of `craftcore status`: counts, the daemon, what waits, and the health that follows from them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from craftcore.activities.listing_store import ActivityListStore
from craftcore.diagnostics.daemon import DaemonState, find_daemon
from craftcore.diagnostics.disk_space import disk_space_of
from craftcore.diagnostics.documents import activity_document
from craftcore.diagnostics.finding import Finding
from craftcore.diagnostics.health import Health, health_of
from craftcore.diagnostics.idle import BEHIND, Idle, find_full, find_idle, idle
from craftcore.diagnostics.live_counts import has_not_booted
from craftcore.diagnostics.reasons.limit_reasons import find_reached_limit
from craftcore.diagnostics.work import LEASES_MISSED
from craftcore.engine.engine_facts import EngineFacts, read_engine_facts
from craftcore.engine.live_state import LiveState, live_state
from craftcore.retention.failed_functions import read_failure
from craftcore.retention.service import Retention
from craftcore.schedules.clock_store import last_clock_event
from craftcore.schedules.model import ScheduleStatus
from craftcore.schedules.store import ScheduleStore
from craftcore.serialization.canonical import canonicalize
from craftcore.serialization.time_text import add_iso_times
from craftcore.services import Services
from craftcore.storage.damaged_rows import map_rows, readable_row, row_document
from craftcore.storage.facts import get_fact, number
from craftcore.storage.files.file_size import wal_bytes, wal_in_use
from craftcore.storage.transaction import Reader
from craftcore.tasks.hold_store import HoldStore
from craftcore.tasks.listing_store import TaskLists
from craftcore.triggers.listing_store import LATELY, TriggerLists, counts_document
from craftcore.triggers.start_holds import read_holds

OLDEST_DUE = "SELECT min(due_at) FROM triggers WHERE status = 'PENDING' AND due_at <= :now"
OLDEST_CLAIMED = "SELECT min(due_at) FROM triggers WHERE status = 'CLAIMED'"
LAST_EPOCH = "SELECT epoch, started_at, ended_at FROM epochs ORDER BY epoch DESC LIMIT 1"
DIED_BEFORE = "SELECT ended_at IS NULL FROM epochs WHERE epoch < :epoch ORDER BY epoch DESC LIMIT 1"
OLDEST_LEASE = "SELECT min(lease_until) FROM triggers WHERE status = 'CLAIMED'"
SCHEDULE_COUNTS = "SELECT status, count(*) FROM schedules GROUP BY status"
NEXT_SCHEDULE = "SELECT id, next_at FROM schedules WHERE next_at IS NOT NULL ORDER BY next_at, id LIMIT 1"

SCHEDULE_STATUSES = (
    ScheduleStatus.ACTIVE,
    ScheduleStatus.PAUSED,
    ScheduleStatus.DISABLED,
    ScheduleStatus.FINISHED,
)
"""The statuses that are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One look at a database: its JSON document, its health, and why it is not healthy, the most telling first."""

    document: dict[str, Any]
    health: Health
    findings: list[Finding]


def read_status(core: Services, *, within: float | None = None) -> Status:
    """Read the status; `within` as for `Database.reading`. Raises NotFound when there is no database."""
    path, now = core.database.path, core.clock.now()
    with core.reading(within=within) as reader:
        row = _read_rows(core, reader, now)
        epoch, live = row.pop("epoch"), row.pop("live")
        oldest_claimed, lease_until = row.pop("oldest_claimed"), row.pop("lease_until")
    looked = find_daemon(path)
    running = looked.held
    claims_live = running and not has_not_booted(epoch["started_at"], looked.note, held=running)
    oldest = row.pop("oldest_due")
    if not claims_live and oldest_claimed is not None:
        oldest = oldest_claimed if oldest is None else min(oldest, oldest_claimed)
    lease_lost = lease_until is not None and now - lease_until > LEASES_MISSED * core.config.triggers.lease_seconds
    held_back = not claims_live or row["paused"] or row["held"] is not None or live.alone is not None
    held_back = held_back or row["safe_mode"] is not None or row["clock"]["held_until"] is not None or row["holds"]
    counts = counts_document(row.pop("counts"), claims_live=claims_live)
    document = add_iso_times(
        {
            "verdict": "",
            "ok": False,
            "health": "",
            "reasons": [],
            "now": now,
            "daemon": _daemon_document(looked, epoch, claims_live=claims_live, lease_lost=lease_lost),
            "epoch": epoch["epoch"],
            "epoch_started_at": epoch["started_at"],
            "ended_in_order": epoch["ended_at"] is not None,
            "died_before": row["died_before"],
            "held": row["held"],
            "holds": row["holds"],
            "paused": running and row["paused"],
            "engine": _engine_document(live if running else LiveState(epoch=live.epoch)),
            "restored_at": row["restored_at"],
            "replaced": looked.replaced,
            "locked_by": None if looked.keeper is None else looked.keeper._asdict(),
            **{name: row[name] for name in ("schedules", "safe_mode", "clock", "tasks", "restart", "in_doubt")},
            "counts": counts,
            **{name: row[name] for name in ("failed_lately", "dead_lately", "behind")},
            "full": row["full"] if claims_live else None,
            "idle": None if held_back else _idle_document(core, now, within),
            "oldest_due_at": oldest,
            "oldest_due_seconds": None if oldest is None else now - oldest,
            "database": str(path),
            "bytes": path.stat().st_size,
            "wal_bytes": wal_bytes(path),
            "wal_in_use_bytes": wal_in_use(path),
            "wal_readers": list_other_readers(looked.readers, looked.pid),
            "retention": row["retention"],
            "retention_failed": row["retention_failed"],
            "disk": _disk_document(path),
        }
    )
    health, findings = health_of(document)
    document["health"], document["ok"] = health.value, health is Health.HEALTHY
    return Status(document=document, health=health, findings=findings)


def _read_rows(core: Services, reader: Reader, now: float) -> dict[str, Any]:
    """Return all that comes from the tables, of one snapshot."""
    holds, facts = read_holds(reader), read_engine_facts(reader)
    overdue_after = core.config.triggers.overdue_after
    epoch = reader.fetch_one(LAST_EPOCH) or {"epoch": None, "started_at": None, "ended_at": None}
    return {
        "epoch": epoch,
        "died_before": bool(reader.fetch_value(DIED_BEFORE, epoch=epoch["epoch"])),
        "held": holds.everything,
        "safe_mode": holds.safe_mode,
        "holds": [{"kind": target.kind, "name": target.name, "reason": why} for target, why in holds.targets.items()],
        "paused": facts is not None and facts.paused,
        "live": live_state(reader),
        "counts": TriggerLists().live_counts(reader, now),
        "oldest_due": reader.fetch_value(OLDEST_DUE, now=now),
        "oldest_claimed": reader.fetch_value(OLDEST_CLAIMED),
        "lease_until": reader.fetch_value(OLDEST_LEASE),
        "behind": _behind_document(reader, facts, now, overdue_after),
        "full": None if facts is None else find_full(reader, facts.places, now, overdue_after),
        "failed_lately": asdict(TriggerLists().count_failed_since(reader, now - LATELY)),
        "dead_lately": TriggerLists().count_dead_since(reader, now - LATELY),
        "schedules": _schedules_document(reader, now),
        "clock": _clock_document(reader, now),
        "tasks": {**TaskLists().counts(reader), "held": HoldStore().count(reader)},
        "restart": _restart_document(get_fact(reader, "restart"), epoch["epoch"]),
        "in_doubt": _doubt_document(reader),
        "restored_at": number(reader, "restored_at"),
        "retention": Retention(core.config.retention).size(reader, now)._asdict(),
        "retention_failed": _retention_failed_document(reader),
    }


def _daemon_document(
    looked: DaemonState, epoch: dict[str, Any], *, claims_live: bool, lease_lost: bool
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "running": looked.held,
        "booting": looked.held and not claims_live,
        "stuck": looked.held and (looked.is_stuck(epoch["started_at"]) or (claims_live and lease_lost)),
    }
    if looked.held and (note := looked.note) is not None:
        document |= add_iso_times({"pid": note.pid, "host": note.host, "started_at": note.started_at})
    return document


def _engine_document(live: LiveState) -> dict[str, Any]:
    return add_iso_times({name: value for name, value in asdict(live).items() if name != "epoch"})


def _behind_document(reader: Reader, facts: EngineFacts | None, now: float, allowed: float) -> dict[str, Any]:
    """Return the trigger that is due for longest with nothing of its own lane before it, and no limit of its workflow
    reached; `id` None: there is none."""
    at_limit: list[str] = []
    while True:
        sources = [source for name in at_limit if facts for source in facts.limits[name]["sources"]]
        given = {"workflows": canonicalize(at_limit), "sources": canonicalize(sources)}
        oldest = readable_row(reader.fetch_one(BEHIND, before=now, **given) or {"id": None, "due_at": None})
        if facts is None or oldest["id"] is None or now - oldest["due_at"] <= allowed:
            break
        limit = find_reached_limit(reader, oldest["workflow"], oldest["source"], facts, now)
        if limit is None:
            break
        at_limit.append(limit)
    seconds = None if oldest["due_at"] is None else now - oldest["due_at"]
    return {"id": oldest["id"], "seconds": seconds, "allowed_seconds": allowed}


def _idle_document(core: Services, now: float, within: float | None) -> dict[str, Any] | None:
    """Return the trigger that is not started although slots are free; None: there is none."""

    def look() -> Idle | None:
        with core.reading(within=within) as reader:
            return find_idle(reader, core.clock)

    if (found := idle(look)) is None:
        return None
    return {"id": found.id, "seconds": now - found.due_at, "places": found.places, "running": found.running}


def _schedules_document(reader: Reader, now: float) -> dict[str, Any]:
    counts = dict(tuple(row) for row in reader.fetch_tuples(SCHEDULE_COUNTS))
    following = reader.fetch_one(NEXT_SCHEDULE) or {"id": None, "next_at": None}
    return add_iso_times(
        {
            **{status.value.lower(): counts.get(status, 0) for status in SCHEDULE_STATUSES},
            "next_id": following["id"],
            "next_at": following["next_at"],
            "ahead": ScheduleStore().list_ids_ahead(reader, now),
        }
    )


def _clock_document(reader: Reader, now: float) -> dict[str, Any]:
    until, event = number(reader, "clock_held"), last_clock_event(reader)
    held_until = None if until is None or until <= now else until
    return add_iso_times({"held_until": held_until, "last_event": None if event is None else add_iso_times(event)})


def _restart_document(notice: str | None, epoch: int | None) -> dict[str, Any] | None:
    """Return what the start of this epoch left. None for an earlier one, and for what is damaged."""
    try:
        found = json.loads(notice or "null")
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("epoch") != epoch:
        return None
    sound = all(type(found.get(name)) is int for name in ("epoch", "resumed", "stale"))
    return add_iso_times(found) if sound and type(found.get("at")) in (int, float) else None


def _retention_failed_document(reader: Reader) -> dict[str, Any] | None:
    failure = read_failure(reader)
    return None if failure is None else add_iso_times(asdict(failure))


def _doubt_document(reader: Reader) -> dict[str, Any]:
    """Return how many irreversible actions are undecided, and the one that was called first."""
    count, oldest = ActivityListStore().count_in_doubt(reader)
    if oldest is None:
        return {"count": count, "oldest": None}
    [read] = map_rows([oldest], activity_document)
    return {"count": count, "oldest": row_document(read, dict)}


def _disk_document(path: Path) -> dict[str, int | None] | None:
    """Return the free space of the disk; None where the system does not tell."""
    try:
        free = disk_space_of(path)
    except OSError:
        return None
    return {"free_bytes": free.bytes, "free_inodes": free.inodes}


def list_other_readers(found: Iterable[int], daemon: int | None) -> list[int]:
    """Return the processes that read the file now, besides this one and, while there is another, the daemon."""
    pids = [pid for pid in found if pid != os.getpid()]
    return [pid for pid in pids if pid != daemon] or pids
