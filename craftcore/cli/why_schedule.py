"""What a schedule waits for: why it does not fire or when it will, each reason with the query that proves it."""

from __future__ import annotations

from craftcore.cli.moments import clock_time, from_now, span
from craftcore.cli.proof import Reason, shown
from craftcore.cli.schedule.view import next_firing, wall_and_utc
from craftcore.cli.session import hint
from craftcore.cli.why import EPOCH, HELD, SAFE_MODE, paused
from craftcore.engine.engine_facts import is_paused
from craftcore.errors import ScheduleInvalid
from craftcore.schedules.clock_step_store import TOLERANCE
from craftcore.schedules.model import CatchUp, Overlap, Schedule, ScheduleStatus
from craftcore.schedules.occurrence_store import AccountStore
from craftcore.schedules.recurrence.timezones import zone_named
from craftcore.schedules.recurrence.timing import Cron, Startup
from craftcore.schedules.tick_plan import MISFIRE_GRACE, upcoming
from craftcore.schedules.transitions import read_at
from craftcore.serialization.plurals import counted
from craftcore.storage.facts import fact, number
from craftcore.storage.transaction import Reader

ROW = """SELECT status, reason, kind, next_at, high_water_at, skip_to_at, start_at, until_at, runs, max_runs
  FROM schedules WHERE id = :id"""
CLOCK = "SELECT value FROM facts WHERE name = 'clock_held'"
AT_WORK = """SELECT 'task' AS noun, id, status FROM tasks
 WHERE schedule_id = :id AND schedule_id IS NOT NULL AND status IN ('RUNNING', 'WAITING')
 UNION ALL SELECT 'trigger', id, status FROM triggers
 WHERE schedule_id = :id AND schedule_id IS NOT NULL AND status IN ('PENDING', 'CLAIMED')"""
BUFFERED = """SELECT nominal_at, reason FROM schedule_occurrences
 WHERE schedule_id = :id AND outcome = 'buffered' ORDER BY nominal_at"""
LAST = """SELECT nominal_at, last_at, count, outcome, reason, trigger_id, decided_at FROM schedule_occurrences
 WHERE schedule_id = :id ORDER BY seq DESC LIMIT 1"""
DECLARED = "SELECT count(*) AS declared, max(name = :workflow) AS is_declared FROM workflows"
SLOW_SECONDS = 60.0
"""An occurrence that is due is fired at the scheduler's next look, which it takes at least every 30 s."""


def schedule_reasons(reader: Reader, schedule: Schedule, now: float, *, daemon_runs: bool) -> list[Reason]:
    """What holds, the most telling first; never empty."""
    if schedule.status is not ScheduleStatus.ACTIVE:
        return [_stands(schedule), *_last(reader, schedule, now)]
    found = [
        *_broken(schedule),
        *_held(reader, now),
        *_ahead(schedule, now),
        *_delayed(schedule, now),
        *_overlap(reader, schedule, now),
        *_comes(schedule, now, daemon_runs=daemon_runs),
    ]
    if not daemon_runs:
        found.append(_no_daemon())
    elif is_paused(reader):
        found.insert(0, paused())
    return [*found, *_undeclared(reader, schedule), *_last(reader, schedule, now)]


def _stands(schedule: Schedule) -> Reason:
    """Nothing comes of it as its row is now."""
    query = shown(ROW, id=schedule.id)
    why = "" if schedule.reason in (None, schedule.status.lower()) else f": {schedule.reason}"
    match schedule.status:
        case ScheduleStatus.PAUSED:
            text = f"paused{why}. To let it go on: {hint('schedule', 'resume', schedule.id)}"
        case ScheduleStatus.DISABLED:
            text = f"disabled{why}. Put it right, then: {hint('schedule', 'resume', schedule.id)}"
        case ScheduleStatus.FINISHED:
            text = f"finished{why}; nothing comes of it any more. Once more: {hint('schedule', 'run-now', schedule.id)}"
        case _:
            text = "removed; its history stays"
    return Reason(code=schedule.status.lower(), text=text, query=query)


def _broken(schedule: Schedule) -> list[Reason]:
    """Its zone is gone from this machine: the next tick disables it."""
    if not isinstance(schedule.timing, Cron):
        return []
    try:
        zone_named(schedule.timing.timezone)
    except ScheduleInvalid as error:
        return [Reason(code="zone", text=error.message, query=shown(ROW, id=schedule.id))]
    return []


def _held(reader: Reader, now: float) -> list[Reason]:
    found = []
    if (held := fact(reader, "held")) is not None:
        text = f"everything is held: {held}. To let it go on: {hint('release')}"
        found.append(Reason(code="held", text=text, query=shown(HELD)))
    if (safe_mode := fact(reader, "safe_mode")) is not None:
        text = f"safe mode, no schedule fires: {safe_mode}. Find out why it dies, then: {hint('release')}"
        found.append(Reason(code="safe mode", text=text, query=shown(SAFE_MODE)))
    until = number(reader, "clock_held")
    if until is not None and until > now:
        seen = f"the clock has shown {clock_time(until)} here and now shows {clock_time(now)}"
        text = f"schedules are held: {seen}. Set it, or if it is right: {hint('schedule', 'trust-clock')}"
        found.append(Reason(code="clock held", text=text, query=shown(CLOCK)))
    return found


def _ahead(schedule: Schedule, now: float) -> list[Reason]:
    """A wrong clock has been here: what comes until its mark was accounted for already."""
    begins = schedule.start_at is not None and schedule.high_water_at < schedule.start_at
    if schedule.is_one_time or isinstance(schedule.timing, Startup) or begins or schedule.high_water_at <= now:
        return []
    mark = f"{clock_time(schedule.high_water_at)}, {from_now(schedule.high_water_at, now)}"
    go_on = hint("schedule", "reanchor", schedule.id)
    text = f"ahead of the clock: accounted for up to {mark}. To let it go on from now: {go_on}"
    return [Reason(code="ahead", text=text, query=shown(ROW, id=schedule.id))]


def _delayed(schedule: Schedule, now: float) -> list[Reason]:
    """A clock that was ahead has set the moment of `in 17m`."""
    began = read_at(schedule)
    if began is None or began <= now + TOLERANCE:
        return []
    text = f"a clock that was ahead has set its time: {schedule.expression} was counted from {clock_time(began)}"
    text = f"{text}. If the clock is right now: {hint('schedule', 'trust-clock')}"
    return [Reason(code="clock", text=text, query=shown(ROW, id=schedule.id))]


def _overlap(reader: Reader, schedule: Schedule, now: float) -> list[Reason]:
    """What an earlier occurrence that is not over means for the next."""
    account = AccountStore()
    blocker = None if schedule.overlap is Overlap.ALLOW else account.at_work(reader, schedule.id)
    if blocker is None:
        return []
    waiting = account.buffered(reader, schedule.id)
    see = f"See: {hint(blocker.noun, 'why' if blocker.noun == 'trigger' else 'show', blocker.id)}"
    if waiting:
        since = from_now(waiting[0].nominal_at, now)
        text = f"its occurrence of {clock_time(waiting[0].nominal_at)}, {since}, waits: {blocker.is_not_over}. {see}"
        return [Reason(code="buffered", text=text, query=shown(BUFFERED, id=schedule.id))]
    then = "waits for it" if schedule.overlap is Overlap.BUFFER_ONE or schedule.is_one_time else "is skipped"
    text = f"{blocker.is_not_over}: what comes before it is over {then} (overlap {schedule.overlap}). {see}"
    return [Reason(code="at work", text=text, query=shown(AT_WORK, id=schedule.id))]


def _comes(schedule: Schedule, now: float, *, daemon_runs: bool) -> list[Reason]:
    query = shown(ROW, id=schedule.id)
    if isinstance(schedule.timing, Startup):
        return [Reason(code="startup", text="fires when a daemon starts, and at no other time", query=query)]
    moment = next_firing(schedule)
    if moment is None:
        return [Reason(code="nothing left", text="nothing comes any more: what was left is skipped", query=query)]
    if schedule.next_at is not None and moment != schedule.next_at:
        until = clock_time(schedule.skip_to_at)
        text = f"what comes up to {until} is skipped, as was asked (skip-next); then {_at(schedule, moment, now)}"
        return [Reason(code="skipped", text=text, query=query)]
    if moment > now:
        late = f", and up to {span(schedule.jitter)} later" if schedule.jitter else ""
        return [Reason(code="not due", text=f"fires at {_at(schedule, moment, now)}{late}", query=query)]
    if now - moment > max(SLOW_SECONDS, MISFIRE_GRACE) or not daemon_runs:
        return [Reason(code="due", text=f"due since {clock_time(moment)}: {_caught_up(schedule, now)}", query=query)]
    return [Reason(code="due", text="due; it fires at the next look of the scheduler, within 30 s", query=query)]


def _caught_up(schedule: Schedule, now: float) -> str:
    """What the next tick makes of what was missed, in words."""
    if schedule.is_one_time:
        return "it fires at the next tick"
    after = _next_after(schedule, now)
    match schedule.catch_up:
        case CatchUp.ALL:
            what = f"the next tick fires the latest {schedule.catch_up_max} of what was missed"
        case CatchUp.LATEST:
            what = "the next tick fires the latest of what was missed"
        case CatchUp.NONE:
            return f"the next tick skips what was missed (catch-up none){after}"
    return f"{what}, not older than {span(schedule.catch_up_window)}{after}"


def _next_after(schedule: Schedule, now: float) -> str:
    try:
        moment = upcoming(schedule, after=now)
    except ScheduleInvalid:
        return ""
    return "" if moment is None else f"; then comes {_at(schedule, moment, now)}"


def _no_daemon() -> Reason:
    text = f"no daemon runs on this database, and nothing else fires. Start one: {hint('run', 'MODULE:APP')}"
    return Reason(code="no daemon", text=text, query=shown(EPOCH))


def _undeclared(reader: Reader, schedule: Schedule) -> list[Reason]:
    declared = reader.one(DECLARED, workflow=schedule.workflow) or {}
    if not declared["declared"] or declared["is_declared"]:
        return []
    text = f"the last daemon declared no workflow {schedule.workflow}: what it fires now would fail"
    return [Reason(code="unknown workflow", text=text, query=shown(DECLARED, workflow=schedule.workflow))]


def _last(reader: Reader, schedule: Schedule, now: float) -> list[Reason]:
    """What became of the newest occurrence; none when there was none."""
    last = next(iter(AccountStore().history(reader, schedule.id, 1)), None)
    if last is None:
        return []
    several = f"{counted(last.count, 'occurrence')} up to" if last.count > 1 else "the last occurrence,"
    became = f"fired as trigger {last.trigger_id}" if last.trigger_id else f"{last.outcome}: {last.reason}"
    text = f"before: {several} {clock_time(last.last_at)}, {from_now(last.last_at, now)}, {became}"
    return [Reason(code="before", text=text, query=shown(LAST, id=schedule.id))]


def _at(schedule: Schedule, moment: float, now: float) -> str:
    return wall_and_utc(moment, schedule.timezone, now)
