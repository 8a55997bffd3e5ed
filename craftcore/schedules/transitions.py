"""How a schedule changes, as values. Pure: decides only; the service writes it.

          ┌──────── resume ────────┐
declare ─▶ ACTIVE ── pause ──▶ PAUSED
             │ └─── not declared any more, cannot go on ──▶ DISABLED ── declared again ──▶ ACTIVE
             └───── fired once, end, last run ──▶ FINISHED ── other end or number of runs ──▶ ACTIVE
any of them ── remove ──▶ REMOVED ── declare ──▶ ACTIVE, in the next generation
"""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from typing import Any, NoReturn

from craftcore.errors import StateRefused
from craftcore.schedules.model import Declared, Origin, Schedule, ScheduleSpec, ScheduleStatus
from craftcore.schedules.recurrence import natural_language
from craftcore.schedules.recurrence.timing import Every, Once, Startup, Timing
from craftcore.schedules.tick_plan import next_upcoming

MISSED = "had passed when it was declared"


def new_schedule(declared: Declared, timing: Timing, origin: Origin, before: Schedule | None, now: float) -> Schedule:
    """Return a schedule from now on: nothing of it is accounted for, and nothing that is past will fire.

    `before` is what its id stood for until now, None when it is new; what was paused stays so.
    """
    mark = now
    if isinstance(timing, Once):
        mark = min(now, timing.at - 1)
    elif declared.start_at is not None:
        mark = max(now, declared.start_at - 1)
        timing = replace(timing, anchor_at=int(declared.start_at)) if isinstance(timing, Every) else timing
    schedule = Schedule(
        **_columns_of(declared),
        origin=origin,
        generation=0 if before is None else before.generation + 1,
        status=ScheduleStatus.ACTIVE,
        reason=None,
        timing=timing,
        high_water_at=mark,
        skip_to_at=None,
        next_at=None,
        runs=0,
        last_nominal_at=None,
        created_at=now if before is None else before.created_at,
        updated_at=now,
    )
    if isinstance(timing, Once) and timing.at < now:
        return replace(schedule, status=ScheduleStatus.FINISHED, reason=MISSED)
    going = activate(schedule)
    if before is not None and before.status is ScheduleStatus.PAUSED and going.status is ScheduleStatus.ACTIVE:
        return replace(going, status=ScheduleStatus.PAUSED, reason=before.reason, next_at=None)
    return going


def apply_edit(before: Schedule, declared: Declared, origin: Origin, now: float) -> Schedule:
    """Return the schedule with the new declaration, its timing and history unchanged."""
    columns = {**_columns_of(declared), "timezone": before.timezone}
    return replace(before, **columns, origin=origin, updated_at=now)


def has_timing_changed(before: Schedule, declared: Declared) -> bool:
    """Return whether what was declared comes at other times: another expression, start, or chosen zone."""
    chosen = (
        before.timezone if before.timezone_given else None,
        declared.timezone if declared.timezone_given else None,
    )
    return chosen[0] != chosen[1] or (before.expression, before.start_at) != (declared.expression, declared.start_at)


def activate(schedule: Schedule) -> Schedule:
    """Return the schedule as ACTIVE with its next occurrence; as FINISHED when there is none."""
    next_at = next_upcoming(schedule, after=schedule.high_water_at)
    going = replace(schedule, status=ScheduleStatus.ACTIVE, reason=None, next_at=next_at)
    if schedule.max_runs is not None and schedule.runs >= schedule.max_runs:
        return replace(going, status=ScheduleStatus.FINISHED, reason=exhausted_reason(schedule), next_at=None)
    if next_at is None and not isinstance(schedule.timing, Startup):
        return replace(going, status=ScheduleStatus.FINISHED, reason="its end comes before its next occurrence")
    return going


def exhausted_reason(schedule: Schedule) -> str:
    """Return why one that has run as often as it may is finished."""
    return "its one run is spent" if schedule.max_runs == 1 else f"all its {schedule.max_runs} runs are spent"


def reanchor(schedule: Schedule, now: float) -> Schedule:
    """Return the schedule anchored at now, in a new generation; an interval keeps its phase."""
    timing = schedule.timing
    mark = now if schedule.start_at is None else max(now, schedule.start_at - 1)
    if isinstance(timing, Every) and timing.anchor_at > mark + 1:
        steps = math.ceil((timing.anchor_at - now) / timing.step_seconds)
        timing = replace(timing, anchor_at=timing.anchor_at - steps * timing.step_seconds)
    moved = replace(
        schedule,
        timing=timing,
        generation=schedule.generation + 1,
        high_water_at=mark,
        skip_to_at=None,
        updated_at=now,
    )
    return activate(moved)


def read_at(schedule: Schedule) -> float | None:
    """Return what the clock showed when `in 17m` was read. None for a schedule with a time of its own."""
    if not isinstance(schedule.timing, Once):
        return None
    try:
        delay = natural_language.delay(schedule.expression.lower())
    except natural_language.Unreadable:  # it was read by an older program, or changed by hand
        return None
    return None if delay is None else schedule.timing.at - delay


def set_back(schedule: Schedule, step: float, now: float) -> Schedule:
    """Let a one-time schedule come `step` seconds earlier: its clock was ahead by that. It begins a generation.

    The mark of a generation never goes back, and what comes now is before the mark of the old one.
    """
    assert isinstance(schedule.timing, Once), schedule
    at = max(0.0, schedule.timing.at - step)
    moved = replace(
        schedule,
        timing=Once(at=at),
        generation=schedule.generation + 1,
        high_water_at=min(now, at - 1),
        skip_to_at=None if schedule.skip_to_at is None else at,
        created_at=min(schedule.created_at, now),
        updated_at=now,
    )
    return replace(moved, next_at=None if schedule.next_at is None else next_upcoming(moved, after=moved.high_water_at))


def spec_of(schedule: Schedule) -> ScheduleSpec:
    """Return the declaration of a schedule, to be changed and put again."""
    columns = _columns_of(schedule)
    named_alike = {field.name: columns[field.name] for field in fields(ScheduleSpec) if field.name in columns}
    changed = {
        "when": schedule.expression,
        "payload": json.loads(schedule.payload_json),
        "timezone": schedule.timezone if schedule.timezone_given else None,
        "start": schedule.start_at,
        "until": schedule.until_at,
    }
    return ScheduleSpec(**{**named_alike, **changed})


def _columns_of(declared: Declared) -> dict[str, Any]:
    return {field.name: getattr(declared, field.name) for field in fields(Declared)}


def refuse_finished(schedule: Schedule) -> NoReturn:
    """Raise StateRefused for a declaration that would revive a finished schedule."""
    raise StateRefused(
        f"schedule {schedule.id} has finished ({schedule.reason}); remove it to use its id again, or see run-now"
    )


def require_status(schedule: Schedule, *allowed: ScheduleStatus, verb: str) -> None:
    """Raise StateRefused unless the schedule has one of these statuses."""
    if schedule.status not in allowed:
        why = "" if schedule.reason in (None, schedule.status.lower()) else f" ({schedule.reason})"
        raise StateRefused(f"schedule {schedule.id} is {schedule.status}{why} and cannot be {verb}")


def place_of(origin: Origin) -> str:
    """Return where a person finds the declaration."""
    return {
        Origin.CODE: "code",
        Origin.FILE: "the configuration file",
        Origin.OPERATOR: "the command line",
        Origin.API: "a program",
    }[origin]
