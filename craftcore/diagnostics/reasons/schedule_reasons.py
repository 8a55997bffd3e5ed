"""The reasons why a schedule does not fire, or when it will, each with the query that proves it."""

from __future__ import annotations

from craftcore.diagnostics.conditions import (
    DECLARED,
    TRUST_CLOCK,
    daemon_finding,
    paused_finding,
    schedules_held_findings,
    target_findings,
)
from craftcore.diagnostics.finding import Finding, show_query
from craftcore.diagnostics.text.schedule_text import format_local_and_utc, next_firing
from craftcore.engine.engine_facts import is_paused
from craftcore.errors import ScheduleInvalid
from craftcore.schedules.clock_store import TOLERANCE
from craftcore.schedules.model import CatchUp, Overlap, Schedule, ScheduleStatus
from craftcore.schedules.occurrence_store import AccountStore
from craftcore.schedules.recurrence.timezones import find_zone
from craftcore.schedules.recurrence.timing import Cron, Startup
from craftcore.schedules.tick_plan import MISFIRE_GRACE, next_upcoming
from craftcore.schedules.transitions import read_at
from craftcore.serialization.plurals import format_count
from craftcore.serialization.time_text import clock_time, format_span, relative_text
from craftcore.storage.transaction import Reader
from craftcore.triggers.start_holds import read_holds

ROW = """SELECT status, reason, kind, next_at, high_water_at, skip_to_at, start_at, until_at, runs, max_runs
  FROM schedules WHERE id = :id"""
AT_WORK = """SELECT 'task' AS noun, id, status FROM tasks
 WHERE schedule_id = :id AND schedule_id IS NOT NULL AND status IN ('RUNNING', 'WAITING')
 UNION ALL SELECT 'trigger', id, status FROM triggers
 WHERE schedule_id = :id AND schedule_id IS NOT NULL AND status IN ('PENDING', 'CLAIMED')"""
BUFFERED = """SELECT nominal_at, reason FROM schedule_occurrences
 WHERE schedule_id = :id AND outcome = 'buffered' ORDER BY nominal_at"""
LAST = """SELECT nominal_at, last_at, count, outcome, reason, trigger_id, decided_at FROM schedule_occurrences
 WHERE schedule_id = :id ORDER BY seq DESC LIMIT 1"""
SLOW_SECONDS = 60.0
"""An occurrence that is due is fired at the scheduler's next look, which it takes at least every 30 s."""


def schedule_reasons(reader: Reader, schedule: Schedule, now: float, *, daemon_runs: bool) -> list[Finding]:
    """Return what holds, the most telling first; never empty."""
    if schedule.status is not ScheduleStatus.ACTIVE:
        return [_status_finding(schedule), *_last_row(reader, schedule, now)]
    found = [
        *_broken_zone_findings(schedule),
        *schedules_held_findings(reader, now),
        *target_findings(read_holds(reader).find_holds(schedule.source, schedule.workflow, schedule.id)),
        *(ahead := _clock_ahead_findings(schedule, now)),
        *_delay_findings(schedule, now),
        *_overlap(reader, schedule, now),
        *([] if ahead else _next_findings(schedule, now, daemon_runs=daemon_runs)),
    ]
    if not daemon_runs:
        found.append(daemon_finding())
    elif is_paused(reader):
        found.insert(0, paused_finding())
    return [*found, *_undeclared_findings(reader, schedule), *_last_row(reader, schedule, now)]


def _status_finding(schedule: Schedule) -> Finding:
    """Return why the schedule does not fire in its present status."""
    query = show_query(ROW, id=schedule.id)
    why = "" if schedule.reason in (None, schedule.status.lower()) else f": {schedule.reason}"
    verb: str | None = "resume"
    match schedule.status:
        case ScheduleStatus.PAUSED:
            text = f"paused{why}. To let it go on"
        case ScheduleStatus.DISABLED:
            text = f"disabled{why}. Put it right, then"
        case ScheduleStatus.FINISHED:
            text, verb = f"finished{why}; nothing comes of it any more. Once more", "run-now"
        case _:
            text, verb = "removed; its history stays", None
    remedies = () if verb is None else (("craftcore", "schedule", verb, schedule.id),)
    return Finding(code=schedule.status.lower(), text=text, remedies=remedies, query=query)


def _broken_zone_findings(schedule: Schedule) -> list[Finding]:
    """Return the reason that its zone is gone from this machine: the next tick disables it."""
    if not isinstance(schedule.timing, Cron):
        return []
    try:
        find_zone(schedule.timing.timezone)
    except ScheduleInvalid as error:
        return [Finding(code="zone", text=error.message, query=show_query(ROW, id=schedule.id))]
    return []


def _clock_ahead_findings(schedule: Schedule, now: float) -> list[Finding]:
    """Return the reason that a wrong clock was here: occurrences until its mark are already accounted for."""
    begins = schedule.start_at is not None and schedule.high_water_at < schedule.start_at
    if schedule.is_one_time or isinstance(schedule.timing, Startup) or begins or schedule.high_water_at <= now:
        return []
    mark = f"{clock_time(schedule.high_water_at)}, {relative_text(schedule.high_water_at, now)}"
    go_on = (("craftcore", "schedule", "reanchor", schedule.id),)
    moment = next_firing(schedule)
    waits = "" if moment is None else f", so it waits until {_moment_text(schedule, moment, now)}"
    text = f"ahead of the clock: accounted for up to {mark}{waits}. To let it go on from now"
    return [Finding(code="ahead", text=text, remedies=go_on, query=show_query(ROW, id=schedule.id))]


def _delay_findings(schedule: Schedule, now: float) -> list[Finding]:
    """Return the reason that a clock which was ahead has set the moment of `in 17m`."""
    began = read_at(schedule)
    if began is None or began <= now + TOLERANCE:
        return []
    text = f"a clock that was ahead has set its time: {schedule.expression} was counted from {clock_time(began)}"
    text = f"{text}. If the clock is right now"
    return [Finding(code="clock", text=text, remedies=(TRUST_CLOCK,), query=show_query(ROW, id=schedule.id))]


def _overlap(reader: Reader, schedule: Schedule, now: float) -> list[Finding]:
    """Return what an earlier occurrence that is not over means for the next."""
    account = AccountStore()
    blocker = None if schedule.overlap is Overlap.ALLOW else account.running_occurrence(reader, schedule.id)
    if blocker is None:
        return []
    waiting = account.list_buffered(reader, schedule.id)
    see = (("craftcore", blocker.noun, "why" if blocker.noun == "trigger" else "show", blocker.id),)
    if waiting:
        since = relative_text(waiting[0].nominal_at, now)
        text = f"its occurrence of {clock_time(waiting[0].nominal_at)}, {since}, waits: {blocker.is_not_over}. See"
        return [Finding(code="buffered", text=text, remedies=see, query=show_query(BUFFERED, id=schedule.id))]
    then = "waits for it" if schedule.overlap is Overlap.BUFFER_ONE or schedule.is_one_time else "is skipped"
    text = f"{blocker.is_not_over}: what comes before it is over {then} (overlap {schedule.overlap}). See"
    return [Finding(code="at work", text=text, remedies=see, query=show_query(AT_WORK, id=schedule.id))]


def _next_findings(schedule: Schedule, now: float, *, daemon_runs: bool) -> list[Finding]:
    query = show_query(ROW, id=schedule.id)
    if isinstance(schedule.timing, Startup):
        return [Finding(code="startup", text="fires when a daemon starts, and at no other time", query=query)]
    moment = next_firing(schedule)
    if moment is None:
        return [Finding(code="nothing left", text="nothing comes any more: what was left is skipped", query=query)]
    if schedule.next_at is not None and moment != schedule.next_at:
        until = clock_time(schedule.skip_to_at)
        text = (
            f"every occurrence up to {until} is skipped, as was asked (skip-next); then "
            f"{_moment_text(schedule, moment, now)}"
        )
        return [Finding(code="skipped", text=text, query=query)]
    if moment > now:
        late = f", and up to {format_span(schedule.jitter)} later" if schedule.jitter else ""
        return [Finding(code="not due", text=f"fires at {_moment_text(schedule, moment, now)}{late}", query=query)]
    if now - moment > max(SLOW_SECONDS, MISFIRE_GRACE) or not daemon_runs:
        return [
            Finding(code="due", text=f"due since {clock_time(moment)}: {_catch_up_text(schedule, now)}", query=query)
        ]
    return [Finding(code="due", text="due; it fires at the next look of the scheduler, within 30 s", query=query)]


def _catch_up_text(schedule: Schedule, now: float) -> str:
    """Return what the next tick makes of what was missed, in words."""
    if schedule.is_one_time:
        return "it fires at the next tick"
    after = _format_next_after(schedule, now)
    match schedule.catch_up:
        case CatchUp.ALL:
            what = f"the next tick fires the latest {schedule.catch_up_max} of what was missed"
        case CatchUp.LATEST:
            what = "the next tick fires the latest of what was missed"
        case CatchUp.NONE:
            return f"the next tick skips what was missed (catch-up none){after}"
    return f"{what}, not older than {format_span(schedule.catch_up_window)}{after}"


def _format_next_after(schedule: Schedule, now: float) -> str:
    try:
        moment = next_upcoming(schedule, after=now)
    except ScheduleInvalid:
        return ""
    return "" if moment is None else f"; then comes {_moment_text(schedule, moment, now)}"


def _undeclared_findings(reader: Reader, schedule: Schedule) -> list[Finding]:
    if schedule.workflow is None:
        return []
    declared = reader.fetch_one(DECLARED, workflow=schedule.workflow) or {}
    if not declared["declared"] or declared["is_declared"]:
        return []
    text = f"the last daemon declared no workflow {schedule.workflow}: what it fires now would fail"
    return [Finding(code="unknown workflow", text=text, query=show_query(DECLARED, workflow=schedule.workflow))]


def _last_row(reader: Reader, schedule: Schedule, now: float) -> list[Finding]:
    """Return what became of the newest occurrence; none when there was none."""
    last = next(iter(AccountStore().list_history(reader, schedule.id, 1)), None)
    if last is None:
        return []
    several = f"{format_count(last.count, 'occurrence')} up to" if last.count > 1 else "the last occurrence,"
    became = f"fired as trigger {last.trigger_id}" if last.trigger_id else f"{last.outcome}: {last.reason}"
    text = f"before: {several} {clock_time(last.last_at)}, {relative_text(last.last_at, now)}, {became}"
    return [Finding(code="before", text=text, query=show_query(LAST, id=schedule.id))]


def _moment_text(schedule: Schedule, moment: float, now: float) -> str:
    return format_local_and_utc(moment, schedule.timezone, now)
