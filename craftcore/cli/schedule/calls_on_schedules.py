"""The calls of commands on schedules, in a database file or on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from craftcore.cli.schedule.id_lookup import find_schedule, resolve_schedule_id
from craftcore.cli.schedule.schedule_card import HISTORY_SHOWN, ScheduleList, Shown, line_document
from craftcore.cli.schedule.view import schedules_held_text
from craftcore.cli.session import Session, hint
from craftcore.daemon.lock import read_note
from craftcore.diagnostics.text.schedule_text import local_time_text
from craftcore.operations import schedules
from craftcore.schedules.firing import FiringResult
from craftcore.schedules.model import Outcome, Schedule, ScheduleStatus
from craftcore.schedules.occurrence_store import TRIGGER_STATUS, AccountStore, RunningOccurrence
from craftcore.schedules.store import ScheduleStore
from craftcore.storage.damaged_rows import Damaged, omit_damaged, try_read
from craftcore.storage.facts import get_fact
from craftcore.storage.transaction import Reader, Row


class ScheduleCalls(Protocol):
    """The calls on schedules. `given`: an id, or the beginning of one. `pause` and `resume` return it before and
    after; `run_now` returns the earlier occurrence that is not over, and why it starts later."""

    def list_all(self, limit: int, *, removed: bool = False) -> ScheduleList: ...

    def read(self, given: str) -> Shown: ...

    def read_account(self, given: str, limit: int) -> tuple[list[dict[str, Any]], str]: ...

    def pause(self, given: str, reason: str) -> tuple[Schedule, Schedule, RunningOccurrence | None]: ...

    def resume(self, given: str) -> tuple[Schedule, Schedule, int | None, float]: ...

    def run_now(self, given: str) -> tuple[FiringResult, RunningOccurrence | None, Sequence[str]]: ...

    def skip_next(self, given: str) -> tuple[Schedule, float, float]: ...

    def backfill(self, given: str, first: float, last: float) -> tuple[Schedule, Sequence[FiringResult]]: ...


def open_schedules(session: Session) -> ScheduleCalls:
    """Return the calls on the schedules that the options name."""
    if session.cluster is None:
        return FileSchedules(session)
    from craftcore.cli.temporal.cluster_schedules import ClusterSchedules

    return ClusterSchedules(session)


class FileSchedules:
    """The calls on the schedules of a database file."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._core = session.core()

    def list_all(self, limit: int, *, removed: bool = False) -> ScheduleList:
        with self._core.reading() as reader:
            found = ScheduleStore().list_all(reader, removed=removed, limit=limit + 1)
            return ScheduleList(
                found=found[:limit],
                latest={one.id: _latest_row(reader, one.id) for one in omit_damaged(found)},
                has_more=len(found) > limit,
                note=schedules_held_text(reader, self._core.clock.now()),
            )

    def read(self, given: str) -> Shown:
        now = self._core.clock.now()
        with self._core.reading() as reader:
            schedule = find_schedule(reader, given, removed=True)
            ahead = schedule.id in ScheduleStore().list_ids_ahead(reader, now)
            return Shown(
                now=now,
                schedule=schedule,
                account=_list_account(reader, schedule, HISTORY_SHOWN),
                live_trigger=AccountStore().live_trigger(reader, schedule.id),
                live_task=AccountStore().live_task(reader, schedule.id),
                holds=schedules_held_text(reader, now) if schedule.status is ScheduleStatus.ACTIVE else None,
                ahead=ahead,
                problem=_explain_ahead(schedule) if ahead else None,
            )

    def read_account(self, given: str, limit: int) -> tuple[list[dict[str, Any]], str]:
        with self._core.reading() as reader:
            schedule = find_schedule(reader, given, removed=True)
            return _list_account(reader, schedule, limit), schedule.timezone

    def pause(self, given: str, reason: str) -> tuple[Schedule, Schedule, RunningOccurrence | None]:
        with self._session.write(self._core) as (tx, scope):
            before = find_schedule(tx, given)
            return before, *schedules.pause(tx, scope, self._core, before, reason)

    def resume(self, given: str) -> tuple[Schedule, Schedule, int | None, float]:
        with self._session.write(self._core) as (tx, scope):
            before = find_schedule(tx, given)
            return before, *schedules.resume(tx, scope, self._core, before), tx.now

    def run_now(self, given: str) -> tuple[FiringResult, RunningOccurrence | None, Sequence[str]]:
        with self._session.write(self._core) as (tx, scope):
            placed, live = schedules.run_now(tx, scope, self._core, resolve_schedule_id(tx, given))
            obstacles = _list_holds(tx)
        if placed.outcome is not Outcome.SKIPPED and not read_note(self._core.database.path)[1]:
            obstacles.append(f"no daemon runs; it starts with the next one: {hint('run', 'MODULE:APP')}")
        return placed, live, obstacles

    def skip_next(self, given: str) -> tuple[Schedule, float, float]:
        with self._session.write(self._core) as (tx, scope):
            return *schedules.skip_next(tx, scope, self._core, resolve_schedule_id(tx, given)), tx.now

    def backfill(self, given: str, first: float, last: float) -> tuple[Schedule, Sequence[FiringResult]]:
        with self._session.write(self._core) as (tx, scope):
            schedule = find_schedule(tx, given)
            return schedule, schedules.backfill(tx, scope, self._core, schedule.id, first, last)


def _latest_row(reader: Reader, schedule_id: str) -> Row | Damaged:
    return try_read(f"the last trigger of {schedule_id}", lambda: AccountStore().last_trigger(reader, schedule_id))


def _explain_ahead(schedule: Schedule) -> str:
    done = f"ahead of the clock: accounted for up to {local_time_text(schedule.high_water_at, schedule.timezone)}"
    return f"{done}. To let it go on from now: {hint('schedule', 'reanchor', schedule.id)}"


def _list_account(reader: Reader, schedule: Schedule, limit: int) -> list[dict[str, Any]]:
    """Return the lines of the account, each with what its trigger is now; None for one that is gone."""
    return [
        line_document(line, reader.fetch_one(TRIGGER_STATUS, id=line.trigger_id) if line.trigger_id else None)
        for line in AccountStore().list_history(reader, schedule.id, limit)
    ]


def _list_holds(reader: Reader) -> list[str]:
    """Return why nothing starts now, and what ends that."""
    if held := get_fact(reader, "held"):
        return [f"everything is held: {held}. It starts after: {hint('release')}"]
    if safe_mode := get_fact(reader, "safe_mode"):
        return [f"safe mode: {safe_mode}. It starts after: {hint('release')}"]
    return []
