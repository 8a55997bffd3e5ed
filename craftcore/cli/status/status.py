"""`craftcore status` and `craftcore release`: is it alive, does it move, and does it wait for a person?"""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from craftcore.cli.base import Command, OperatorCommand
from craftcore.cli.doctor_daemon import find_daemon
from craftcore.cli.doctor_work import LEASES_MISSED
from craftcore.cli.health import Health, health_of, verdict
from craftcore.cli.output import add_iso_times
from craftcore.cli.session import Session, hint
from craftcore.cli.status.activity_section import read_in_doubt, say_in_doubt
from craftcore.cli.status.schedule_section import read_schedules, say_schedules
from craftcore.cli.status.task_section import read_tasks, say_tasks
from craftcore.diagnostics.disk_space import disk_space_of
from craftcore.diagnostics.idle import Idle, find_idle, idle
from craftcore.diagnostics.live_counts import has_not_booted
from craftcore.engine.engine_facts import is_paused
from craftcore.engine.live_state import LiveState, live_state
from craftcore.operations import maintenance
from craftcore.retention.service import Retention
from craftcore.serialization.time_text import clock_time, format_span, relative_text
from craftcore.services import Services
from craftcore.storage.facts import get_fact
from craftcore.storage.file_size import wal_bytes, wal_in_use
from craftcore.storage.transaction import Reader
from craftcore.storage.wal_locks import reader_pids
from craftcore.triggers.cut_off import counts_document
from craftcore.triggers.listing_store import LATELY, TriggerLists

OLDEST_DUE = "SELECT min(due_at) FROM triggers WHERE status = 'PENDING' AND due_at <= :now"
OLDEST_CLAIMED = "SELECT min(due_at) FROM triggers WHERE status = 'CLAIMED'"
LAST_EPOCH = "SELECT epoch, started_at, ended_at FROM epochs ORDER BY epoch DESC LIMIT 1"
DIED_BEFORE = """
SELECT ended_at IS NULL FROM epochs WHERE epoch < :epoch ORDER BY epoch DESC LIMIT 1
"""
OLDEST_LEASE = "SELECT min(lease_until) FROM triggers WHERE status = 'CLAIMED'"
DEAD_LATELY = "SELECT count(*) FROM triggers WHERE status = 'DEAD' AND settled_at > :since"
BEHIND = """
SELECT id, due_at
  FROM triggers
 WHERE seq = (SELECT seq
                FROM triggers
               WHERE status = 'PENDING'
                 AND due_at <= :now
                 AND (lane IS NULL
                      OR lane NOT IN (SELECT lane FROM triggers WHERE status = 'CLAIMED' AND lane IS NOT NULL))
               ORDER BY due_at, seq
               LIMIT 1)
"""
"""Whose lane is at work waits for that, however long, and is not late by our fault."""


@click.command(
    cls=Command,
    examples=("craftcore status", "craftcore --db agent.db status --json"),
    see=("craftcore doctor", "craftcore top", "craftcore trigger why", "docs/how-to/monitor.md"),
)
@click.pass_obj
def status(session: Session) -> None:
    """Whether all is well: healthy, degraded and why, or down.

    The first line is the verdict. Then what is due, running, cut off, dead or held; tasks; irreversible actions in
    doubt; schedules and the clock. The exit code is 0 whatever the verdict: a program reads "health" of --json.
    """
    found = read_status(session)
    if session.json:
        session.out.document(found)
        return
    now, counts, daemon = found["now"], found["counts"], found["daemon"]
    out = session.out
    out.line(found["verdict"], style="good" if found["ok"] else "bad")
    for reason in found["reasons"][1:]:
        out.line(f"also      {reason['text']}", style="bad")
    if "pid" in daemon:
        out.line(f"daemon    pid {daemon['pid']} on {daemon['host']}, since {clock_time(daemon['started_at'])}")
    if found["epoch"]:
        ended = "" if daemon["running"] else f", {'ended in order' if found['ended_in_order'] else 'died'}"
        out.line(f"epoch     {found['epoch']}, started {relative_text(found['epoch_started_at'], now)}{ended}")
    out.line(f"database  {found['database']} ({found['bytes']:,} bytes, WAL {found['wal_bytes']:,})")
    kinds = ["due", "later", "claimed", "running"][: 4 if daemon["running"] else 2]  # without one nothing is
    out.line("triggers  " + ", ".join(f"{name} {counts[name]:,}" for name in kinds))
    if counts["cut_off"]:
        see = hint("inspect", "--list", "--status", "incomplete")
        what = f"{counts['cut_off']:,} of those due ran when the daemon ended"
        out.line(f"cut off   {what} (see: {see})", style="warn")
    if found["oldest_due_at"] is not None:
        out.line(f"oldest    due since {format_span(now - found['oldest_due_at'])}")
    say_tasks(out, found)
    say_in_doubt(out, found)
    say_schedules(out, found)
    if found["failed_lately"]["count"]:
        see = hint("trigger", "list", "--status", "FAILED")
        out.line(
            f"failed    {found['failed_lately']['count']:,} within {format_span(LATELY)} (see: {see})", style="warn"
        )
    if counts["dead"]:
        out.line(f"dead      {counts['dead']} (see: {hint('dead', 'list')})", style="warn")


def read_status(session: Session) -> dict[str, Any]:
    """Return everything `status` says, as its JSON document. Raises NotFound when there is no database."""
    core = session.core()
    now = core.clock.now()
    with core.reading() as reader:
        counts = TriggerLists().live_counts(reader, now)
        oldest, oldest_claimed = reader.fetch_value(OLDEST_DUE, now=now), reader.fetch_value(OLDEST_CLAIMED)
        epoch = reader.fetch_one(LAST_EPOCH) or {"epoch": None, "started_at": None, "ended_at": None}
        held = get_fact(reader, "held")
        paused = is_paused(reader)
        live = live_state(reader)
        scheduled = read_schedules(reader, now)
        tasks = read_tasks(reader, epoch["epoch"])
        in_doubt = read_in_doubt(reader)
        behind = _oldest_due(reader, now, core.config.triggers.overdue_after)
        failed_lately = TriggerLists().count_failed_since(reader, now - LATELY)
        dead_lately = reader.fetch_value(DEAD_LATELY, since=now - LATELY)
        size = Retention(core.config.retention).size(reader, now)
        died_before = bool(reader.fetch_value(DIED_BEFORE, epoch=epoch["epoch"]))
        lease_until = reader.fetch_value(OLDEST_LEASE)
    looked = find_daemon(core.database.path)
    note, running = looked.note, looked.held
    claims_live = running and not has_not_booted(epoch["started_at"], note, held=running)
    if not claims_live and oldest_claimed is not None:
        oldest = oldest_claimed if oldest is None else min(oldest, oldest_claimed)
    unextended = lease_until is not None and now - lease_until > LEASES_MISSED * core.config.triggers.lease_seconds
    daemon: dict[str, Any] = {
        "running": running,
        "booting": running and not claims_live,
        "stuck": running and (looked.is_stuck(epoch["started_at"]) or (claims_live and unextended)),
    }
    if running and note is not None:
        daemon |= add_iso_times({"pid": note.pid, "host": note.host, "started_at": note.started_at})
    held_back = not claims_live or paused or held is not None or live.alone is not None
    held_back = held_back or scheduled["safe_mode"] is not None or scheduled["clock"]["held_until"] is not None
    found = add_iso_times(
        {
            "verdict": "",
            "ok": False,
            "health": "",
            "reasons": [],
            "now": now,
            "daemon": daemon,
            "epoch": epoch["epoch"],
            "epoch_started_at": epoch["started_at"],
            "ended_in_order": epoch["ended_at"] is not None,
            "died_before": died_before,
            "held": held,
            "paused": running and paused,
            "engine": _status_document(live if running else LiveState(epoch=live.epoch)),
            "replaced": looked.replaced,
            "locked_by": None if looked.keeper is None else looked.keeper._asdict(),
            **scheduled,
            **tasks,
            **in_doubt,
            "counts": counts_document(counts, claims_live=claims_live),
            "failed_lately": asdict(failed_lately),
            "dead_lately": dead_lately,
            "behind": behind,
            "idle": None if held_back else _idle_document(core, now),
            "oldest_due_at": oldest,
            "oldest_due_seconds": None if oldest is None else now - oldest,
            "database": str(core.database.path),
            "bytes": core.database.path.stat().st_size,
            "wal_bytes": wal_bytes(core.database.path),
            "wal_in_use_bytes": wal_in_use(core.database.path),
            "wal_readers": other_reader_pids(core.database.path, note.pid if running and note is not None else None),
            "retention": size._asdict(),
            "disk": _disk(core.database.path),
        }
    )
    health, troubles = health_of(found)
    found["health"], found["ok"] = health.value, health is Health.HEALTHY
    found["verdict"] = verdict(health, troubles, found)
    found["reasons"] = [asdict(trouble) for trouble in troubles]
    return found


def _status_document(live: LiveState) -> dict[str, Any]:
    return add_iso_times({name: value for name, value in asdict(live).items() if name != "epoch"})


def _oldest_due(reader: Reader, now: float, allowed: float) -> dict[str, Any]:
    """Return the trigger that is due for longest with nothing of its own lane before it; `id` None: there is none."""
    oldest = reader.fetch_one(BEHIND, now=now) or {"id": None, "due_at": None}
    seconds = None if oldest["due_at"] is None else now - oldest["due_at"]
    return {"id": oldest["id"], "seconds": seconds, "allowed_seconds": allowed}


def _idle_document(core: Services, now: float) -> dict[str, Any] | None:
    """Return the trigger that is not started although places are free; None: there is none."""

    def look() -> Idle | None:
        with core.reading() as reader:
            return find_idle(reader, core.clock)

    if (found := idle(look)) is None:
        return None
    return {"id": found.id, "seconds": now - found.due_at, "places": found.places, "running": found.running}


def _disk(path: Path) -> dict[str, int | None] | None:
    """Return None where the system does not say."""
    try:
        room = disk_space_of(path)
    except OSError:
        return None
    return {"free_bytes": room.bytes, "free_inodes": room.inodes}


def other_reader_pids(path: Path, daemon: int | None) -> list[int]:
    """Return the processes that read it now, besides this one and, while there is another, the daemon."""
    pids = [pid for pid in reader_pids(path) if pid != os.getpid()]
    return [pid for pid in pids if pid != daemon] or pids


@click.command(
    cls=OperatorCommand,
    examples=("craftcore release",),
    see=("craftcore status", "craftcore db restore", "docs/how-to/back-up-and-restore.md#restore"),
)
@click.pass_obj
def release(session: Session) -> None:
    """Let what is held, or waits in safe mode, go on.

    An engine is held after a restore, and in safe mode after 6 unclean starts within 10 minutes; `craftcore status`
    says which. Look at what is in doubt before: it may start work that the world has seen already.
    """
    core = session.core()
    with session.write(core) as (tx, scope):
        reason = maintenance.release(tx, scope)
    if session.json:
        session.out.document({"released": reason is not None, "reason": reason})
    elif reason is None:
        session.out.line("nothing was held")
    else:
        session.out.line(f"released; it was held because {reason}")
        session.say_without_daemon(core)
