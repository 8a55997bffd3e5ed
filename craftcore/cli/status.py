"""`craftcore status` and `craftcore release`: is it alive, does it move, and does it wait for a person?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from craftcore.cli.activity_status import read_in_doubt, say_in_doubt
from craftcore.cli.moments import clock_time, from_now, span
from craftcore.cli.output import with_iso
from craftcore.cli.root import ByHand, Command
from craftcore.cli.schedule_status import read_schedules, say_schedules, schedules_alarm
from craftcore.cli.session import Session
from craftcore.cli.task_status import read_tasks, say_tasks
from craftcore.daemon.lock import read_note
from craftcore.engine import boot
from craftcore.storage.facts import fact
from craftcore.triggers.store import TriggerStore

OLDEST_DUE = "SELECT min(due_at) FROM triggers WHERE status = 'PENDING' AND due_at <= :now"
LAST_EPOCH = "SELECT epoch, started_at, ended_at FROM epochs ORDER BY epoch DESC LIMIT 1"


@click.command(cls=Command)
@click.pass_obj
def status(session: Session) -> None:
    """Whether the daemon runs and keeps up."""
    found = read_status(session)
    if session.json:
        session.out.document(found)
        return
    now, counts, daemon = found["now"], found["counts"], found["daemon"]
    out = session.out
    out.line(found["verdict"], style="good" if found["ok"] else "bad")
    if "pid" in daemon:
        out.line(f"daemon    pid {daemon['pid']} on {daemon['host']}, since {clock_time(daemon['started_at'])}")
    if found["epoch"]:
        ended = "" if daemon["running"] else f", {'ended in order' if found['ended_in_order'] else 'died'}"
        out.line(f"epoch     {found['epoch']}, started {from_now(found['epoch_started_at'], now)}{ended}")
    out.line(f"database  {found['database']} ({found['bytes']:,} bytes, WAL {found['wal_bytes']:,})")
    out.line("triggers  " + ", ".join(f"{name} {counts[name]}" for name in ("due", "later", "claimed", "running")))
    if counts["running"] and not daemon["running"]:
        see = "craftcore inspect --list --status incomplete"
        out.line(f"cut off   {counts['running']} when the daemon ended (see: {see})", style="warn")
    if found["oldest_due_at"] is not None:
        out.line(f"oldest    due since {span(now - found['oldest_due_at'])}")
    say_tasks(out, found)
    say_in_doubt(out, found)
    say_schedules(out, found)
    if (alarm := schedules_alarm(found)) is not None and alarm != found["verdict"]:
        out.line(alarm, style="bad")
    if counts["dead"]:
        out.line(f"dead      {counts['dead']} (see: craftcore dead list)", style="warn")


def read_status(session: Session) -> dict[str, Any]:
    """Everything `status` says, as its JSON document. Raises NotFound when there is no database."""
    core = session.core()
    now = core.clock.now()
    with core.reading() as reader:
        counts = TriggerStore().live_counts(reader, now)
        oldest = reader.value(OLDEST_DUE, now=now)
        epoch = reader.one(LAST_EPOCH) or {"epoch": None, "started_at": None, "ended_at": None}
        held = fact(reader, "held")
        scheduled = read_schedules(reader, now)
        tasks = read_tasks(reader, epoch["epoch"])
        in_doubt = read_in_doubt(reader)
    note, running = read_note(core.database.path)
    daemon: dict[str, Any] = {"running": running}
    if running and note is not None:
        daemon |= with_iso({"pid": note.pid, "host": note.host, "started_at": note.started_at})
    found = with_iso(
        {
            "verdict": "",
            "ok": False,
            "now": now,
            "daemon": daemon,
            "epoch": epoch["epoch"],
            "epoch_started_at": epoch["started_at"],
            "ended_in_order": epoch["ended_at"] is not None,
            "held": held,
            **scheduled,
            **tasks,
            **in_doubt,
            "counts": counts,
            "oldest_due_at": oldest,
            "oldest_due_seconds": None if oldest is None else now - oldest,
            "database": str(core.database.path),
            "bytes": core.database.path.stat().st_size,
            "wal_bytes": _size(core.database.path.with_name(core.database.path.name + "-wal")),
        }
    )
    found["ok"], found["verdict"] = _verdict(found)
    return found


def _verdict(found: dict[str, Any]) -> tuple[bool, str]:
    """Whether all is well, and the sentence that says so. What needs a person comes first."""
    counts = found["counts"]
    if found["held"] is not None:
        return False, f"held: {found['held']}. Look at it, then: craftcore release"
    if found["safe_mode"] is not None:
        what = f"{found['safe_mode']}; scheduled and resumed work waits"
        return False, f"safe mode: {what}. Find out why it dies, then: craftcore release"
    if not found["daemon"]["running"]:
        waiting = counts["due"] + counts["claimed"] + counts["running"]
        return False, f"no daemon runs on {found['database']}; {waiting} due. Start one: craftcore run MODULE:APP"
    if (alarm := schedules_alarm(found)) is not None:
        return False, alarm
    dead = f", {counts['dead']} dead letters" if counts["dead"] else ""
    return True, f"running: {counts['running']} at work, {counts['due'] + counts['claimed']} due{dead}"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@click.command(cls=ByHand)
@click.pass_obj
def release(session: Session) -> None:
    """Let what is held, or waits in safe mode, go on.

    Why it does is in `craftcore status`.
    """
    with session.changing(session.core()) as (tx, did):
        reason = boot.release(tx)
        if reason is not None:
            did(held_because=reason)
    if session.json:
        session.out.document({"released": reason is not None, "reason": reason})
    elif reason is None:
        session.out.line("nothing was held")
    else:
        session.out.line(f"released; it was held because {reason}")
