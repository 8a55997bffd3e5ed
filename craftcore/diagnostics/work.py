"""Checks of `craftcore doctor` on the work: held, abandoned, in doubt, dead, or impossible to schedule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from craftcore.activities.listing_store import ActivityListStore
from craftcore.clock import BEFORE_1970
from craftcore.diagnostics.conditions import RUN, clock_held_text, paused_finding, start_hold_findings
from craftcore.diagnostics.finding import Finding, fail, make_passed, warn
from craftcore.diagnostics.health import retention_failed_text, size_limit_text
from craftcore.engine.engine_facts import is_paused
from craftcore.errors import ScheduleInvalid
from craftcore.retention.failed_functions import RetentionFailure, read_failure
from craftcore.retention.service import Retention
from craftcore.retention.size_limit import Size, is_near
from craftcore.schedules.clock_store import ClockStepStore
from craftcore.schedules.recurrence.timezones import find_zone
from craftcore.schedules.store import ScheduleStore
from craftcore.serialization.plurals import format_count
from craftcore.serialization.time_text import clock_time, format_span, relative_text
from craftcore.storage.damaged_rows import Damaged
from craftcore.storage.epochs import newest_epoch
from craftcore.storage.facts import get_fact
from craftcore.storage.transaction import Reader
from craftcore.tasks.hold_store import HoldStore
from craftcore.triggers.listing_store import LATELY, FailedLately, TriggerLists
from craftcore.triggers.start_holds import StartHolds, read_holds

CLAIMS = """
SELECT count(*)                                         AS claimed,
       count(*) FILTER (WHERE claimed_epoch <> :epoch)  AS of_earlier,
       min(lease_until)                                 AS lease_until
  FROM triggers
 WHERE status = 'CLAIMED'
"""
DEAD = "SELECT count(*) AS count, max(settled_at) AS newest FROM triggers WHERE status = 'DEAD'"
POISON = "SELECT count(*) FROM triggers WHERE status = 'DEAD' AND reason = 'poison'"
STOPPED = (
    "SELECT id, reason FROM schedules WHERE status = 'DISABLED' AND reason LIKE 'cannot go on%' ORDER BY id LIMIT 6"
)
AHEAD_SHOWN = 6
LIVE = "SELECT count(*) FROM schedules WHERE status IN ('ACTIVE', 'PAUSED')"
ZONES = "SELECT DISTINCT timezone FROM schedules WHERE status IN ('ACTIVE', 'PAUSED') ORDER BY timezone"
SET_BACK = "SELECT at, seconds FROM clock_events WHERE kind IN ('backward', 'held') ORDER BY seq DESC LIMIT 1"

EVENT_WORTH_SAYING = 7 * 86_400.0
"""Seconds for which a step of the clock is worth a line."""

LEASES_MISSED = 10
"""A lease that was not extended for this many times its length is lost: no suspend or busy machine explains that."""

DELAYED_NAMED = 6
"""How many schedules a finding names."""

CLOCK_STEP_MIN = 5.0
"""Seconds that the clock may be behind what was stored without a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The state of the work. `booting`: the running daemon has reclaimed nothing yet. `lease_until`: the earliest end
    of a lease. `delayed`: one-time schedules whose time a clock ahead has set. `last_seen`: the latest wall time that
    was stored here. `set_back`: when a clock was last seen to go back, and by how many seconds. None: there is none."""

    now: float
    daemon_runs: bool
    booting: bool
    lease_seconds: float
    holds: StartHolds
    paused: bool
    claimed: int
    of_earlier: int
    lease_until: float | None
    in_doubt: int
    oldest_in_doubt: str | None
    dead: int
    poison: int
    newest_dead_at: float | None
    schedules: int
    stopped: list[tuple[str, str]]
    ahead: list[str]
    unknown_zones: list[str]
    zones: int
    clock_held_until: float | None
    stamped_ahead: int
    delayed: list[str]
    last_seen: float | None
    set_back: tuple[float, float] | None
    held_tasks: int
    failed: FailedLately
    size: Size | None = None
    retention_failed: RetentionFailure | None = None


def work_of(
    reader: Reader,
    now: float,
    *,
    daemon_runs: bool,
    lease_seconds: float,
    retention: Retention,
    booting: bool = False,
) -> Work:
    """Read the state of the work from one snapshot."""
    epoch = newest_epoch(reader) or 0
    claims, dead = reader.fetch_one(CLAIMS, epoch=epoch) or {}, reader.fetch_one(DEAD) or {}
    count, oldest = ActivityListStore().count_in_doubt(reader)
    zones = [zone for (zone,) in reader.fetch_tuples(ZONES)]
    back = reader.fetch_one(SET_BACK)
    held_until, seen = get_fact(reader, "clock_held"), get_fact(reader, "clock_seen_at")
    return Work(
        now=now,
        daemon_runs=daemon_runs,
        booting=booting,
        lease_seconds=lease_seconds,
        holds=read_holds(reader),
        paused=daemon_runs and is_paused(reader),
        claimed=claims["claimed"],
        of_earlier=claims["of_earlier"],
        lease_until=claims["lease_until"],
        in_doubt=count,
        oldest_in_doubt=None if oldest is None else oldest.id if isinstance(oldest, Damaged) else oldest.key,
        dead=dead["count"],
        poison=reader.fetch_value(POISON),
        newest_dead_at=dead["newest"],
        schedules=reader.fetch_value(LIVE),
        stopped=[(row["id"], row["reason"]) for row in reader.fetch_all(STOPPED)],
        ahead=ScheduleStore().list_ids_ahead(reader, now)[:AHEAD_SHOWN],
        unknown_zones=[zone for zone in zones if not _is_known(zone)],
        zones=len(zones),
        clock_held_until=None if held_until is None else float(held_until),
        last_seen=None if seen is None else float(seen),
        stamped_ahead=ClockStepStore().count_ahead(reader, now),
        delayed=[schedule.id for _, schedule in ClockStepStore().list_schedules_ahead(reader, now)],
        failed=TriggerLists().count_failed_since(reader, now - LATELY),
        held_tasks=HoldStore().count(reader),
        size=retention.size(reader, now),
        retention_failed=read_failure(reader),
        set_back=None if back is None else (back["at"], back["seconds"]),
    )


def work_findings(work: Work) -> Iterator[Finding]:
    """Yield every rule about it."""
    yield from held_findings(work)
    yield claims(work)
    yield held_tasks(work)
    yield doubt_finding(work)
    yield failure_finding(work)
    yield dead_letters(work)
    yield size_of_file(work)
    yield from retention_functions(work)
    yield from schedules(work)
    yield zones(work)
    yield clock(work)


def retention_functions(work: Work) -> Iterator[Finding]:
    """Check that no function of the app failed that retention calls."""
    if (failed := work.retention_failed) is not None:
        yield warn("retention functions", retention_failed_text(failed.function, failed.error))


def held_findings(work: Work) -> Iterator[Finding]:
    """Check that nothing waits for a release."""
    found = [*start_hold_findings(work.holds), *([paused_finding()] if work.paused else [])]
    yield from (replace(finding, code="held") for finding in found)
    if not found:
        yield make_passed("held", "nothing is")


def claims(work: Work) -> Finding:
    """Return what is claimed is held by a daemon that lives."""
    if not work.claimed:
        return make_passed("claims", "none")
    if not work.daemon_runs:
        text = f"{work.claimed:,} left by a daemon that died; the next start takes them back"
        return warn("claims", text, *RUN)
    if work.booting:
        return warn("claims", f"{work.claimed:,} left by a daemon that died; the one that boots takes them back")
    if work.of_earlier:
        those = format_count(work.of_earlier, "is", "are")
        text = f"{those} of a daemon that died, and the one that runs took nothing back. Restart it"
        return fail("claims", text)
    if work.lease_until is not None and work.now - work.lease_until > LEASES_MISSED * work.lease_seconds:
        late = format_span(work.now - work.lease_until)
        return fail("claims", f"a lease ended {late} ago, and the daemon did not extend it: it is stuck. Restart it")
    return make_passed("claims", f"{work.claimed:,}, all of the daemon that runs")


def held_tasks(work: Work) -> Finding:
    """Check that the code of the last start fits every live task."""
    if not work.held_tasks:
        return make_passed("held tasks", "the code of the last start fits every live task")
    tasks = format_count(work.held_tasks, "live task")
    text = f"{tasks} that the code of the last start does not fit. Start the code that does, or decide"
    return warn("held tasks", text, "craftcore", "task", "list", "--held")


def doubt_finding(work: Work) -> Finding:
    """Check that the outcome of every irreversible action is known."""
    if work.oldest_in_doubt is None:
        return make_passed("in doubt", "no irreversible action is")
    text = f"{work.in_doubt:,} irreversible, undecided; the one for longest"
    return warn("in doubt", text, "craftcore", "activity", "show", work.oldest_in_doubt)


def failure_finding(work: Work) -> Finding:
    """Check that nothing has failed lately."""
    if not work.failed.count:
        return make_passed("failed", f"nothing within {format_span(LATELY)}")
    last = "" if work.failed.newest_code is None else f", the last with {work.failed.newest_code}"
    text = f"{format_count(work.failed.count, 'trigger')} within {format_span(LATELY)}{last}"
    return warn("failed", text, "craftcore", "trigger", "list", "--status", "FAILED")


def dead_letters(work: Work) -> Finding:
    """Check that there are no dead letters."""
    if work.newest_dead_at is None:
        return make_passed("dead letters", "none")
    poison = f", {work.poison:,} of them because the daemon died of it" if work.poison else ""
    text = f"{work.dead:,}{poison}, the newest {relative_text(work.newest_dead_at, work.now)}"
    return warn("dead letters", text, "craftcore", "dead", "list")


def size_of_file(work: Work) -> Finding:
    """Check that the database is not about to be cut to its size limit."""
    if work.size is None or not is_near(work.size.used_bytes, work.size.max_bytes):
        return make_passed("retention", "the database is well below retention.max_bytes")
    text = f"{size_limit_text(work.size._asdict())}. Raise the limit, or shorten the ages"
    return warn("retention", text, "craftcore", "db", "stats")


def schedules(work: Work) -> Iterator[Finding]:
    """Check that each of them can fire."""
    for schedule_id, reason in work.stopped:
        text = f"{schedule_id} was disabled, it {reason}. Put it right, and resume it"
        yield fail("schedules", text, "craftcore", "schedule", "why", schedule_id)
    if work.ahead:
        text = f"ahead of the clock, so they wait: {', '.join(work.ahead)}. If the clock is right"
        yield warn("schedules", text, "craftcore", "schedule", "reanchor")
    if not work.stopped and not work.ahead:
        yield make_passed("schedules", f"{work.schedules:,}, all of which can come")


def zones(work: Work) -> Finding:
    """Check that this machine knows the zones of all schedules."""
    if work.unknown_zones:
        return fail(
            "time zones", f"this machine does not know {', '.join(work.unknown_zones)}; install or update tzdata"
        )
    return make_passed("time zones", f"{work.zones:,} in use, all known here")


def clock(work: Work) -> Finding:
    """Check that the wall clock is where it was and beyond, and nothing waits for a time that it set while it was
    ahead."""
    if work.now < 0:
        return fail("clock", BEFORE_1970)
    parked = _parked_text(work)
    waits = f"; it was ahead, and {parked} wait for a time set then" if parked else ""
    until = work.clock_held_until
    if until is not None and until > work.now:
        text = f"schedules are held: {clock_held_text(until, work.now)}{waits}"
        return warn("clock", f"{text}. Set it, or if it is right", "craftcore", "schedule", "trust-clock")
    if parked:
        text = f"it was ahead, and {parked} wait for a time set then. If it is right now"
        return warn("clock", text, "craftcore", "schedule", "trust-clock")
    if work.last_seen is not None and work.last_seen - work.now > CLOCK_STEP_MIN:
        text = f"it is {format_span(work.last_seen - work.now)} behind the latest time that was seen here"
        return warn("clock", f"{text}: schedules wait. Set it; timedatectl says whether it is synchronized")
    if work.set_back is not None and work.now - work.set_back[0] < EVENT_WORTH_SAYING:
        at, seconds = work.set_back
        return warn(
            "clock",
            f"it went back by {format_span(seconds)} {relative_text(at, work.now)}: see that it is synchronized",
        )
    return make_passed("clock", f"{clock_time(work.now)}")


def _parked_text(work: Work) -> str:
    """Return the triggers and schedules that wait for a time set by a clock ahead. An empty text when none does."""
    parts = [f"triggers ({work.stamped_ahead:,})"] if work.stamped_ahead else []
    if work.delayed:
        more = f" and {len(work.delayed) - DELAYED_NAMED:,} more" if len(work.delayed) > DELAYED_NAMED else ""
        parts.append(f"one-time schedules ({', '.join(work.delayed[:DELAYED_NAMED])}{more})")
    return " and ".join(parts)


def _is_known(zone: str) -> bool:
    try:
        find_zone(zone)
    except ScheduleInvalid:
        return False
    return True
