"""The reasons why a trigger does not run: all that hold now, each with the query that proves it."""

from __future__ import annotations

from typing import Any

from craftcore.diagnostics.conditions import (
    DECLARED,
    RUN,
    TRUST_CLOCK,
    daemon_finding,
    held_finding,
    paused_finding,
    safe_mode_finding,
    target_findings,
)
from craftcore.diagnostics.finding import Finding, show_query
from craftcore.diagnostics.reasons.limit_reasons import key_findings, limit_findings
from craftcore.diagnostics.reasons.task_reasons import (
    continuation_findings,
    held_task,
    task_findings,
    task_questions,
    wait_findings,
)
from craftcore.engine.engine_facts import read_engine_facts
from craftcore.engine.live_state import live_state
from craftcore.schedules.clock_store import TOLERANCE
from craftcore.serialization.plurals import format_count
from craftcore.serialization.time_text import clock_time, format_span, relative_text
from craftcore.storage.transaction import Reader
from craftcore.tasks.hold_store import HoldStore
from craftcore.tasks.lineage_store import task_of
from craftcore.tasks.model import Task
from craftcore.triggers.model import LIMITED_UNTIL, Trigger, TriggerStatus
from craftcore.triggers.settlement import CRASHES_BEFORE_ALONE
from craftcore.triggers.start_holds import SAFE_MODE_SOURCES, read_holds
from craftcore.triggers.store import TriggerStore

ROW = "SELECT status, due_at, not_before, started_at, reason FROM triggers WHERE id = :id"
STARTED_AT = "SELECT started_at FROM triggers WHERE id = :id"
LIVE_STATE = "SELECT value FROM facts WHERE name = 'live_state'"
LANE = """SELECT id, status, started_at FROM triggers
 WHERE lane = :lane AND status = 'CLAIMED' AND id <> :id"""
LANE_EARLIER = """SELECT id, status, due_at FROM triggers
 WHERE lane = :lane AND status = 'PENDING' AND due_at <= :now
   AND (due_at + :weight * priority, seq) < (:rank, :seq) ORDER BY due_at + :weight * priority, seq LIMIT 1"""
AT_WORK = """SELECT count(*) FILTER (WHERE started_at IS NOT NULL) AS running,
       count(*) FILTER (WHERE started_at IS NULL) AS claimed
  FROM triggers WHERE status = 'CLAIMED'"""
LATE_SECONDS = 60.0
"""A daemon that is well starts what is due and free to go in no time; looks for it every few seconds at the latest."""


def list_reasons(
    reader: Reader,
    trigger: Trigger,
    now: float,
    *,
    daemon_runs: bool,
    priority_weight: float,
    booting: bool = False,
) -> list[Finding]:
    """Return the reasons that hold, the most telling first; at least one. `booting`: no claim was taken back yet."""
    task = task_of(reader, trigger)
    if trigger.status.is_settled:
        return [
            _settled_finding(trigger),
            *(continuation_findings(reader, trigger, task, now) if task is not None else []),
        ]
    held = held_task(reader, task) if task is not None else []
    if trigger.status is TriggerStatus.CLAIMED:
        found = _claim_findings(reader, trigger, now, daemon_runs=daemon_runs, booting=booting)
        return [*found, *(task_questions(reader, task, now) if task is not None else [])]
    found = [*held, *_pending_findings(reader, trigger, task, now, daemon_runs=daemon_runs, weight=priority_weight)]
    return found or [_queue_finding(reader, trigger, now)]


def task_reasons(
    reader: Reader, task: Task, now: float, *, daemon_runs: bool, priority_weight: float, booting: bool = False
) -> list[Finding]:
    """Return what a task waits for, be it by its trigger or without one; how it ended. Never empty."""
    if task.status.is_live and task.trigger_id is not None:
        trigger = TriggerStore().get(reader, task.trigger_id)
        if trigger is not None and not trigger.status.is_settled:
            weight = priority_weight
            return list_reasons(reader, trigger, now, daemon_runs=daemon_runs, priority_weight=weight, booting=booting)
    found = [*held_task(reader, task), *task_findings(reader, task, now)]
    return [*found, daemon_finding()] if task.status.is_live and not daemon_runs else found


def _settled_finding(trigger: Trigger) -> Finding:
    reason = trigger.reason
    if trigger.error_message:
        code = "" if reason == trigger.error_code else f"{trigger.error_code}: "
        reason = f"{reason}: {code}{trigger.error_message}"
    text = f"settled {trigger.status} at {clock_time(trigger.settled_at)}, reason: {reason}"
    return Finding(code="settled", text=text, query=show_query(ROW, id=trigger.id))


def _claim_findings(reader: Reader, trigger: Trigger, now: float, *, daemon_runs: bool, booting: bool) -> list[Finding]:
    query = show_query(ROW, id=trigger.id)
    asked = trigger.cancel_requested_at
    if not daemon_runs or booting:
        at = f"the daemon of epoch {trigger.claimed_epoch}"
        due = "due when the one that boots now has booted" if daemon_runs else "due when a daemon starts"
        start = () if daemon_runs else (RUN,)
        text = f"claimed by {at}, which is gone; {due}"
        if trigger.started_at is not None:
            attempt = f"attempt {trigger.attempts}, started {relative_text(trigger.started_at, now)}"
            text = f"cut off: {attempt}, ended with {at}; {due}"
        if asked is not None:
            text = (
                f"its cancellation was asked for {relative_text(asked, now)}; the daemon is gone, the "
                "next start settles it"
            )
        code = "cut off" if trigger.is_started and asked is None else "no daemon"
        return [Finding(code=code, text=text, remedies=start if asked is None else (), query=query)]
    if trigger.started_at is None:
        if (suspect := _suspect(reader, trigger)) is not None:
            return [Finding(code="claimed", text=f"claimed; {suspect}", query=show_query(LIVE_STATE))]
        busy = reader.fetch_one(AT_WORK) or {}
        text = f"claimed, in the window; waits for a free place ({busy.get('running')} running)"
        if trigger.crash_count >= CRASHES_BEFORE_ALONE:
            text = f"claimed; was in {format_count(trigger.crash_count, 'crash', 'crashes')}, so it waits to run alone"
        return [Finding(code="claimed", text=text, query=show_query(AT_WORK))]
    lasted = format_span(now - trigger.started_at)
    since = f"since {clock_time(trigger.started_at)}, for {lasted}, attempt {trigger.attempts}"
    found = [Finding(code="running", text=f"running {since}", query=query)]
    if asked is not None:
        text = f"its cancellation was asked for {relative_text(asked, now)}; code is cancelled at its next await"
        found.insert(0, Finding(code="cancelling", text=text, query=query))
    return found


def _pending_findings(
    reader: Reader, trigger: Trigger, task: Task | None, now: float, *, daemon_runs: bool, weight: float
) -> list[Finding]:
    found = []
    if now < trigger.due_at < LIMITED_UNTIL:
        is_timer = task is not None and task.trigger_id == trigger.id
        found += (wait_findings(reader, task, now) if task is not None and is_timer else []) or [
            _due_finding(trigger, now)
        ]
    holds = read_holds(reader)
    found += held_finding(holds.everything)
    if trigger.source in SAFE_MODE_SOURCES or trigger.schedule_id is not None:
        found += safe_mode_finding(holds.safe_mode)
    workflow = trigger.workflow or (None if task is None else task.workflow)
    found += target_findings(holds.find_holds(trigger.source, workflow, trigger.schedule_id))
    engine = read_engine_facts(reader) if daemon_runs else None
    if not daemon_runs:
        found.append(daemon_finding())
    elif engine is not None and engine.paused:
        found.append(paused_finding())
    if trigger.lane is not None and (busy := _lane(reader, trigger, now, weight)) is not None:
        found.append(busy)
    if trigger.due_at <= now and daemon_runs and (suspect := _suspect(reader, trigger)) is not None:
        found.append(Finding(code="alone", text=suspect, query=show_query(LIVE_STATE)))
    found += key_findings(reader, trigger, engine)
    if trigger.due_at <= now:
        found += limit_findings(reader, trigger, engine, now)
    declared = reader.fetch_one(DECLARED, workflow=trigger.workflow) or {}
    is_held = task is not None and HoldStore().is_held(reader, task.id)  # which was said, with what is wrong
    if trigger.workflow is not None and not is_held and declared["declared"] and not declared["is_declared"]:
        text = f"the last daemon declared no workflow {trigger.workflow}: run now, it would fail"
        query = show_query(DECLARED, workflow=trigger.workflow)
        found.append(Finding(code="unknown workflow", text=text, query=query))
    return found


def _suspect(reader: Reader, trigger: Trigger) -> str | None:
    """Say which suspect the trigger waits for, since when, and until when. None when it waits for none."""
    live = live_state(reader)
    if live.alone is None or live.alone == trigger.id:
        return None
    assert live.alone_since is not None, live
    assert live.alone_until is not None, live
    runs = reader.fetch_value(STARTED_AT, id=live.alone) is not None
    does = "runs alone" if runs else "waits to run alone"
    since, until = clock_time(live.alone_since), clock_time(live.alone_until)
    return f"waits for trigger {live.alone}, which was in crashes and {does} since {since}, until {until} at the latest"


def _due_finding(trigger: Trigger, now: float) -> Finding:
    until = f"{clock_time(trigger.due_at)}, {relative_text(trigger.due_at, now)}"
    query = show_query(ROW, id=trigger.id)
    ahead = max(trigger.created_at, trigger.updated_at) > now + TOLERANCE
    if ahead and not (trigger.at_given and trigger.not_before is None):
        text = f"a clock that was ahead has set its time; not due until {until}. If the clock is right now"
        return Finding(code="clock", text=text, remedies=(TRUST_CLOCK,), query=query)
    if trigger.not_before is None or trigger.not_before < trigger.due_at or trigger.reason == "requeued":
        return Finding(code="not due", text=f"not due until {until}", query=query)
    if trigger.schedule_id is not None and trigger.reason is None and trigger.attempts == 0:
        text = f"schedule {trigger.schedule_id} spaces what it catches up; not due until {until}"
        return Finding(code="spaced", text=text, query=query)
    if trigger.reason == "snoozed":
        return Finding(code="snoozed", text=f"the workflow asked to be run again at {until}", query=query)
    error = f" with {trigger.error_code}: {trigger.error_message}" if trigger.error_code else f": {trigger.reason}"
    text = f"in backoff until {until}; attempt {trigger.attempts} failed{error}"
    return Finding(code="backoff", text=text, query=query)


def _lane(reader: Reader, trigger: Trigger, now: float, weight: float) -> Finding | None:
    holder = reader.fetch_one(LANE, lane=trigger.lane, id=trigger.id)
    if holder is not None:
        doing = "runs" if holder["started_at"] is not None else "is claimed"
        text = f"its lane {trigger.lane} is busy: trigger {holder['id']} {doing}"
        return Finding(code="lane busy", text=text, query=show_query(LANE, lane=trigger.lane, id=trigger.id))
    given: dict[str, Any] = {
        "lane": trigger.lane,
        "seq": trigger.seq,
        "now": now,
        "weight": weight,
        "rank": trigger.due_at + weight * trigger.priority,
    }
    earlier = reader.fetch_one(LANE_EARLIER, **given)
    if earlier is None:
        return None
    text = f"trigger {earlier['id']} of its lane {trigger.lane} comes first"
    return Finding(code="lane order", text=text, query=show_query(LANE_EARLIER, **given))


def _queue_finding(reader: Reader, trigger: Trigger, now: float) -> Finding:
    busy = reader.fetch_one(AT_WORK) or {}
    late = now - trigger.due_at
    if late > LATE_SECONDS and not busy.get("running") and not busy.get("claimed"):
        text = f"due since {format_span(late)}; nothing is in its way, nothing is at work, and it was not started"
        see = (("craftcore", "doctor"),)
        return Finding(code="not started", text=f"{text}. See", remedies=see, query=show_query(AT_WORK))
    text = (
        f"due since {format_span(late)}; nothing is in its way but its turn "
        f"({busy.get('running')} running, {busy.get('claimed')} claimed before it)"
    )
    return Finding(code="its turn", text=text, query=show_query(AT_WORK))
