"""`/schedules/{id}`: the strip of a schedule, the account of its occurrences, what comes next, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from craftcore.daemon.lock import read_note
from craftcore.diagnostics.documents import schedule_document
from craftcore.diagnostics.reasons.schedule_reasons import schedule_reasons
from craftcore.diagnostics.text.schedule_text import (
    command_line,
    expression_text,
    local_time_text,
    moment_note,
    next_occurrence_finding,
    upcoming_rows,
)
from craftcore.errors import ScheduleInvalid
from craftcore.schedules.model import Schedule, ScheduleStatus
from craftcore.schedules.occurrence_end_store import ALL_LINES, OccurrenceEndStore
from craftcore.schedules.occurrence_store import AccountStore
from craftcore.storage.damaged_rows import Damaged, list_damaged, omit_damaged, try_read
from craftcore.storage.transaction import Reader
from craftcore.triggers.model import Trigger
from craftcore.triggers.store import TriggerStore
from craftcore.web.actions.subjects import find_schedule
from craftcore.web.links import change_query, read_number
from craftcore.web.occurrence_text import NOT_PLANNED, describe_line, format_moments
from craftcore.web.page import Page
from craftcore.web.strip import MarkedLine, Strip, draw_strip, mark_line
from craftcore.web.visit import Visit

SHOWN, NOTABLE_SHOWN, NEXT_SHOWN = 50, 20, 10
LINES_READ = 750
"""Lines of the account that a strip is drawn from: the newest. A month of hours has fewer."""


class Account(NamedTuple):
    """Lines of the account of a schedule, newest first, and those that are damaged."""

    lines: Sequence[MarkedLine]
    damaged: Sequence[Damaged]

    @property
    def length(self) -> int:
        """How many lines were read."""
        return len(self.lines) + len(self.damaged)


class AccountStrip(NamedTuple):
    """A strip, and what it was drawn from."""

    strip: Strip
    account: Account


class LineText(NamedTuple):
    """A line of the account in words."""

    line: MarkedLine
    moments: str
    text: str
    dead: Trigger | None = None


def show_schedule(visit: Visit) -> Page:
    """Return the page of a schedule. Raises NotFound."""
    id, now = visit.path["id"], visit.now
    before = read_number(visit, "before")
    _, daemon_runs = read_note(visit.services.database.path)
    with visit.reading() as reader:
        schedule = find_schedule(reader, id)
        reading = read_strip(reader, schedule, LINES_READ, now)
        account = reading.account if before is None else _read_account(reader, schedule, SHOWN + 1, before)
        shown = account.lines[:SHOWN]
        notable = [line for line in reading.account.lines if line.mark in NOT_PLANNED][:NOTABLE_SHOWN]
        facts: dict[str, Any] = {
            "reasons": schedule_reasons(reader, schedule, now, daemon_runs=daemon_runs),
            "running": AccountStore().running_occurrence(reader, id),
            "notable": [_describe(reader, line, schedule, finds_dead=True) for line in notable],
        }
        facts["account"] = [_describe(reader, line, schedule) for line in shown]
    return Page(
        template="schedule.html",
        title=id,
        facts={
            **facts,
            **_list_upcoming(schedule, now),
            "schedule": schedule,
            "document": schedule_document(schedule),
            "expression": expression_text(schedule.expression, schedule.timing, schedule.timezone),
            "command": command_line(schedule) if visit.shows_payloads else None,
            "next": next_occurrence_finding(schedule, now),
            "strip": reading.strip,
            "since": local_time_text(reading.strip.since, schedule.timezone),
            "damaged_lines": reading.account.damaged,
            "older": change_query(visit, before=shown[-1].occurrence.seq) if shown and account.length > SHOWN else None,
            "actions": list_actions(schedule, is_ahead=any(one.code == "ahead" for one in facts["reasons"])),
        },
    )


def read_strip(reader: Reader, schedule: Schedule, limit: int, now: float) -> AccountStrip:
    """Return the strip of a schedule, drawn from the newest lines of its account, `limit` at most."""
    account = _read_account(reader, schedule, limit)
    return AccountStrip(draw_strip(schedule, account.lines, now, is_whole=account.length < limit), account)


def _read_account(reader: Reader, schedule: Schedule, limit: int, before: int = ALL_LINES) -> Account:
    found = OccurrenceEndStore().list_lines(reader, schedule.id, limit, before=before)
    return Account([mark_line(line, schedule) for line in omit_damaged(found)], list_damaged(found))


def list_actions(schedule: Schedule, *, is_ahead: bool) -> list[str]:
    """Return the names of the operator actions that fit the state of a schedule."""
    names = {
        ScheduleStatus.ACTIVE: ["schedule run-now", "schedule pause", "schedule skip-next"],
        ScheduleStatus.PAUSED: ["schedule resume", "schedule run-now"],
        ScheduleStatus.DISABLED: ["schedule resume", "schedule run-now"],
        ScheduleStatus.FINISHED: ["schedule run-now"],
        ScheduleStatus.REMOVED: [],
    }[schedule.status]
    if schedule.next_at is None:
        names = [name for name in names if name != "schedule skip-next"]
    if is_ahead:
        names = [*names, "schedule reanchor"]
    is_declared = schedule.origin.is_declared and schedule.status in (ScheduleStatus.ACTIVE, ScheduleStatus.PAUSED)
    if is_declared or schedule.status is ScheduleStatus.REMOVED:
        return names
    return [*names, "schedule remove"]


def _describe(reader: Reader, line: MarkedLine, schedule: Schedule, *, finds_dead: bool = False) -> LineText:
    zone, trigger_id, started_at = schedule.timezone, line.occurrence.trigger_id, None
    if line.late is not None and trigger_id is not None:
        started_at = OccurrenceEndStore().find_daemon_start(reader, trigger_id)
    dead = _find_dead(reader, line) if finds_dead else None
    return LineText(line, format_moments(line, zone), describe_line(line, zone, started_at), dead)


def _find_dead(reader: Reader, line: MarkedLine) -> Trigger | None:
    """Return the dead letter that an occurrence has become; None for any other end, or a damaged row."""
    id = line.occurrence.trigger_id
    if id is None or line.end is None or not line.end.is_dead:
        return None
    found = try_read(id, lambda: TriggerStore().get(reader, id))
    return None if isinstance(found, Damaged) else found


def _list_upcoming(schedule: Schedule, now: float) -> dict[str, Any]:
    """Return the next occurrences in words; where the machine does not know the zone, that instead."""
    if schedule.status is not ScheduleStatus.ACTIVE:
        return {"upcoming": [], "zone_problem": None}
    try:
        rows = upcoming_rows(schedule, now, NEXT_SHOWN)
    except ScheduleInvalid as error:
        return {"upcoming": [], "zone_problem": error.message}
    zone = schedule.timezone
    upcoming = [
        {"at": row["nominal_at"], "there": local_time_text(row["nominal_at"], zone), "note": moment_note(row)}
        for row in rows
    ]
    return {"upcoming": upcoming, "zone_problem": None}
