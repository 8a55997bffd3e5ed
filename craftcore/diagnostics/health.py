"""The first line of `craftcore status`: healthy, degraded and why, or down. Pure: judges what status tells.

down       no daemon runs
degraded   the daemon runs, and something needs a person or will soon
healthy    neither
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

from craftcore.diagnostics.conditions import (
    RUN,
    clock_held_finding,
    held_finding,
    paused_finding,
    safe_mode_finding,
    target_findings,
)
from craftcore.diagnostics.disk_space import DiskSpace
from craftcore.diagnostics.finding import Finding, fail, warn
from craftcore.diagnostics.write_lock import Holder
from craftcore.retention.size_limit import is_near
from craftcore.serialization.plurals import format_count
from craftcore.serialization.time_text import clock_time, format_span, relative_text
from craftcore.storage.files.daemon_files import lost_text
from craftcore.storage.files.file_size import WAL_LONG
from craftcore.storage.sqlite_errors import CHECKPOINTS_FAIL_SECONDS
from craftcore.triggers.listing_store import LATELY
from craftcore.triggers.start_holds import HoldTarget

WAL_LARGE_BYTES = 64 << 20
"""Bytes to which the WAL is truncated after a checkpoint. A longer WAL is kept by a reader."""


NAMES_SHOWN = 5
"""Schedules that a finding names."""

DIED_WORTH_SAYING = 3600.0
"""Seconds after a start for which it is worth a word that the daemon before it had died."""


class Health(StrEnum):
    """How it is, in a word."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    DOWN = "down"


def health_of(found: dict[str, Any]) -> tuple[Health, list[Finding]]:
    """Return how it is, and why; the most telling first, none when it is healthy."""
    findings = [
        *_down_findings(found),
        *_replaced_findings(found),
        *_stuck_findings(found),
        *_lock_findings(found),
        *_disk_findings(found),
        *_held_findings(found),
        *_exclusive_findings(found),
        *_idle_findings(found),
        *_full_findings(found),
        *_slow(found),
        *_open(found),
        *_space_findings(found),
        *_crash_findings(found),
    ]
    if not findings:
        return Health.HEALTHY, []
    return (Health.DEGRADED if found["daemon"]["running"] else Health.DOWN), findings


def verdict(health: Health, first: str | None, found: dict[str, Any]) -> str:
    """Return the first line of `status`: `healthy: 2 at work, 0 due`, or `degraded:` and the text of the first
    finding. `first` None: there is no finding."""
    if first is not None:
        return f"{health}: {first}"
    counts = found["counts"]
    dead = f", {format_count(counts['dead'], 'dead letter')}" if counts["dead"] else ""
    return f"{health}: {counts['running']:,} at work, {counts['due'] + counts['claimed']:,} due{dead}"


def _down_findings(found: dict[str, Any]) -> Iterator[Finding]:
    if found["daemon"]["running"]:
        return
    waiting = found["counts"]["due"]
    died = "" if found["epoch"] is None or found["ended_in_order"] else "; the last one died"
    text = f"no daemon runs on {found['database']}{died}; {waiting:,} due. Start one"
    yield fail("no daemon", text, *RUN)


def _replaced_findings(found: dict[str, Any]) -> Iterator[Finding]:
    if (name := found["replaced"]) is not None:
        text = f"{lost_text(name)}: it ends, or restart it, and find out which program did that"
        yield fail("replaced", text)


def _stuck_findings(found: dict[str, Any]) -> Iterator[Finding]:
    if found["daemon"]["stuck"]:
        who = f" (pid {found['daemon']['pid']})" if "pid" in found["daemon"] else ""
        what = "it does not answer, or extends no lease"
        text = f"the daemon{who} runs and does nothing: {what}. Restart it; what it was at"
        yield fail("stuck", text, "craftcore", "inspect", "--list", "--status", "incomplete")


def _lock_findings(found: dict[str, Any]) -> Iterator[Finding]:
    if (keeper := found["locked_by"]) is not None:
        who = Holder(**keeper)
        text = f"{who} keeps the write lock, perhaps in an open transaction: nothing is written before it lets go"
        yield fail("locked", text)


def _disk_findings(found: dict[str, Any]) -> Iterator[Finding]:
    """Yield what the running engine has noticed of its disk."""
    engine = found["engine"]
    if (why := engine["checkpoint_failed"]) is not None:
        yield fail("checkpoint", f"checkpoints fail: {checkpoint_text(why)}")
    if (seconds := engine["flush_seconds"]) is not None:
        yield warn("slow disk", f"the disk is slow: {slow_text(seconds)}")
    if (why := engine["unreachable"]) is not None:
        yield fail("directory", unreachable_text(why))
    if (why := engine["shortage"]) is not None:
        yield fail("shortage", describe_shortage(why))


def _exclusive_findings(found: dict[str, Any]) -> Iterator[Finding]:
    if (suspect := found["engine"]["alone"]) is not None:
        text = exclusive_run_text(suspect, found["engine"]["alone_until"])
        yield warn("alone", f"{text}. See", "craftcore", "trigger", "why", suspect)


def exclusive_run_text(suspect: str, until: float) -> str:
    """Return which trigger runs alone, why, and for how long the others wait."""
    why = f"trigger {suspect} was in crashes, so it runs alone"
    return f"{why}: nothing else starts before it ends, or before {clock_time(until)}"


def checkpoint_text(why: str) -> str:
    """Return why checkpoints fail, and what follows from it."""
    ends = f"the daemon ends after {CHECKPOINTS_FAIL_SECONDS:g} s of it"
    return f"{why}. Commits are in the WAL and go on; {ends}. Check the disk"


def unreachable_text(why: str) -> str:
    """Return why the daemon cannot enter the directory of its database, and what follows from it."""
    waits = "retention and irreversible actions wait, other work goes on in its open files"
    return f"the daemon cannot enter the directory of its database: {why}; {waits}. Let its user enter it again"


def describe_shortage(why: str) -> str:
    """Return the resource that the machine is short of, and what follows from it."""
    waits = "attempts that met it are handed back, and nothing starts before it is over"
    return f"the daemon lacks descriptors, threads or memory: {why}; {waits}. Raise the limit, or restart what leaks"


def slow_text(seconds: float) -> str:
    """Return how slow a disk is, and what follows from it."""
    return f"a flush takes about {seconds:g} s, and every commit waits for one. Check the disk"


def _held_findings(found: dict[str, Any]) -> Iterator[Finding]:
    yield from held_finding(found["held"])
    if found["paused"]:
        yield paused_finding()
    yield from safe_mode_finding(found["safe_mode"])
    yield from target_findings({HoldTarget(each["kind"], each["name"]): each["reason"] for each in found["holds"]})
    yield from _clock_findings(found)


def _clock_findings(found: dict[str, Any]) -> Iterator[Finding]:
    """Yield why schedules wait for a person: the clock went back, or their times are ahead of it."""
    if held := clock_held_finding(found["clock"]["held_until"], found["now"]):
        yield from (replace(finding, code="clock") for finding in held)
    elif ahead := found["schedules"]["ahead"]:
        names = ", ".join(ahead[:NAMES_SHOWN]) + (", …" if len(ahead) > NAMES_SHOWN else "")
        waiting = format_count(len(ahead), "schedule waits", "schedules wait")
        text = f"{waiting}, ahead of the clock: {names}. If it is right"
        yield warn("clock", text, "craftcore", "schedule", "reanchor")


def _idle_findings(found: dict[str, Any]) -> Iterator[Finding]:
    if (waits := found["idle"]) is not None:
        places = f"{waits['running']:,} of {waits['places']:,} places are taken"
        text = f"idle: a trigger is due since {format_span(waits['seconds'])}, {places}, and nothing starts"
        yield fail("idle", f"{text}. See", "craftcore", "trigger", "why", waits["id"])


def _full_findings(found: dict[str, Any]) -> Iterator[Finding]:
    if (waits := found["full"]) is not None:
        still = (
            f"all {waits['places']:,} places are taken, and nothing has ended for {format_span(waits['still_seconds'])}"
        )
        text = f"full: {still}. A trigger is due since {format_span(waits['seconds'])}; what runs may wait for it. See"
        yield warn("full", text, "craftcore", "trigger", "list", "--status", "CLAIMED")


def _slow(found: dict[str, Any]) -> Iterator[Finding]:
    oldest = found["behind"]
    is_held = found["held"] is not None or found["holds"] or found["paused"]
    if not found["daemon"]["running"] or is_held or oldest["id"] is None:
        return
    if oldest["seconds"] > oldest["allowed_seconds"]:
        text = f"behind: a trigger is due since {format_span(oldest['seconds'])}. See"
        yield warn("behind", text, "craftcore", "trigger", "why", oldest["id"])


def _open(found: dict[str, Any]) -> Iterator[Finding]:
    """Yield what a person has to decide."""
    if count := found["tasks"]["held"]:
        tasks = format_count(count, "live task")
        text = f"{tasks} held: the code of the last start does not fit. Start the code that does, or decide"
        yield warn("held tasks", text, "craftcore", "task", "list", "--held")
    if count := found["in_doubt"]["count"]:
        text = f"in doubt: {format_count(count, 'irreversible action')}, undecided. See"
        yield warn("in doubt", text, "craftcore", "inbox", "list")
    if count := found["failed_lately"]["count"]:
        code = found["failed_lately"]["newest_code"]
        last = "" if code is None else f", the last with {code}"
        text = f"{format_count(count, 'trigger')} failed within {format_span(LATELY)}{last}. See"
        yield warn("failed", text, "craftcore", "trigger", "list", "--status", "FAILED")
    if count := found["dead_lately"]:
        text = f"{format_count(count, 'new dead letter')} within {format_span(LATELY)}. See"
        yield warn("dead letters", text, "craftcore", "dead", "list")


def _space_findings(found: dict[str, Any]) -> Iterator[Finding]:
    disk = found["disk"]
    if disk is not None and (room := DiskSpace(bytes=disk["free_bytes"], inodes=disk["free_inodes"])).is_low:
        yield warn("disk", f"the disk is nearly full: {room}. Make room on it")
    size, readers = found["wal_in_use_bytes"], found["wal_readers"]
    if is_pinned(size, readers):
        why = f"{reader_text(readers)}, and nothing is cut off it until that ends"
        yield warn("wal", f"the WAL holds {size // 1_000_000:,} MB: {why}. See", "craftcore", "doctor")
    if is_near(found["retention"]["used_bytes"], found["retention"]["max_bytes"]):
        yield warn("size", f"{size_limit_text(found['retention'])}. See", "craftcore", "db", "stats")
    if (failed := found["retention_failed"]) is not None:
        yield warn("retention", retention_failed_text(failed["function"], failed["error"]))


def is_pinned(in_use_bytes: int, readers: Sequence[int]) -> bool:
    """Return whether the WAL is longer than it should be. Below WAL_LARGE_BYTES only a reader can be the cause."""
    return in_use_bytes > (WAL_LONG if readers else WAL_LARGE_BYTES)


def reader_text(readers: Sequence[int]) -> str:
    """Return which processes keep a snapshot open: `process 4711 keeps a snapshot open`."""
    if not readers:
        return "something keeps a snapshot open"
    numbers = ", ".join(map(str, readers))
    one = len(readers) == 1
    return f"process {numbers} keeps a snapshot open" if one else f"processes {numbers} keep snapshots open"


def retention_failed_text(function: str, error: str) -> str:
    """Return which function of the app retention could not use, and what follows from it."""
    return f"rows were removed without the function {function} of app.on_retention, which failed: {error}"


def size_limit_text(size: Mapping[str, Any]) -> str:
    """Return how near the database is to its limit, and what the ages of retention would need."""
    used, most, needed = size["used_bytes"], size["max_bytes"], size["needed_bytes"]
    needs = "" if needed is None else f"; the ages of [retention] would need about {_megabytes(needed)}"
    return f"the database holds {_megabytes(used)} of the {_megabytes(most)} that retention.max_bytes allows{needs}"


def _megabytes(size: int) -> str:
    return f"{size // 1_000_000:,} MB"


def _crash_findings(found: dict[str, Any]) -> Iterator[Finding]:
    since, now = found["epoch_started_at"], found["now"]
    if found["daemon"]["running"] and found["died_before"] and since is not None and now - since < DIED_WORTH_SAYING:
        text = f"the daemon before this one died; this one started {relative_text(since, now)}. Its log says why"
        yield warn("died", text)
