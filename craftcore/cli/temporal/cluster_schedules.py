"""The calls of commands on the schedules of a cluster. A worker answers for each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from craftcore.audit.caller import actor
from craftcore.cli.exit_codes import TRY_LATER
from craftcore.cli.lookup import single_match
from craftcore.cli.schedule.schedule_card import HISTORY_SHOWN, NONE_FIRED, ScheduleList, Shown, line_document
from craftcore.cli.session import Session, hint
from craftcore.cli.temporal.cluster_calls import call_cluster
from craftcore.cli.temporal.cluster_options import read_cluster_settings
from craftcore.clock import SystemClock
from craftcore.errors import NotFound, StateRefused, StillWaiting
from craftcore.schedules.firing import FiringResult
from craftcore.schedules.model import Occurrence, Outcome, Schedule
from craftcore.schedules.occurrence_store import RunningOccurrence
from craftcore.temporal.cluster_connection import Client
from craftcore.temporal.schedules.schedule_client import ScheduleClient, account_in, list_placed, schedule_in
from craftcore.temporal.workflow.schedule_messages import ScheduleAnswer, ScheduleBook, ScheduleCall

ASKED_AT_ONCE = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenSchedule:
    """One schedule. `schedule` None: its declaration was not read yet, or cannot be. `lines`: its account, newest
    first. `error`: why it does not fire."""

    id: str
    schedule: Schedule | None
    lines: list[Occurrence]
    live_task: str | None
    error: str | None

    def require(self) -> Schedule:
        """Return the schedule. Raises StateRefused where there is none to show."""
        if self.schedule is None:
            raise StateRefused(f"schedule {self.id} is not declared yet: {self.error or 'a worker begins it'}")
        return self.schedule

    def list_account(self, limit: int) -> list[dict[str, Any]]:
        """Return lines of the account. The present status of a trigger is not looked up: `trigger show` says it."""
        return [line_document(line, None) for line in self.lines[:limit]]

    @property
    def running(self) -> RunningOccurrence | None:
        """The task of an earlier occurrence that has not ended."""
        return None if self.live_task is None else RunningOccurrence("task", self.live_task)

    @property
    def last_trigger(self) -> dict[str, Any]:
        """The last trigger that it fired, as a list shows it."""
        fired = next((line for line in self.lines if line.outcome is Outcome.FIRED), None)
        if fired is None:
            return NONE_FIRED
        return {**NONE_FIRED, "last_trigger_id": fired.trigger_id, "last_fired_at": fired.nominal_at}


class ClusterSchedules:
    """The calls on the schedules of a cluster. Each raises StillWaiting without a worker."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list_all(self, limit: int, *, removed: bool = False) -> ScheduleList:
        queue = read_cluster_settings(self._session).task_queue or ""
        silent: list[str] = []

        async def read(client: Client) -> tuple[list[SeenSchedule | None], bool]:
            calls, places = ScheduleClient(client), asyncio.Semaphore(ASKED_AT_ONCE)
            ids = await calls.list_ids(queue)

            async def look(id: str) -> SeenSchedule | None:
                try:
                    async with places:
                        return see(id, await calls.view(id))
                except NotFound:  # it ended meanwhile
                    return None
                except StillWaiting:
                    silent.append(id)
                    return None

            return await asyncio.gather(*[look(id) for id in ids[:limit]]), len(ids) > limit

        found, has_more = call_cluster(self._session, read)
        seen = [one for one in found if one is not None]
        return ScheduleList(
            found=[one.schedule for one in seen if one.schedule is not None],
            latest={one.id: one.last_trigger for one in seen if one.schedule is not None},
            has_more=has_more,
            problems=[
                *(f"{one.id} does not fire: {one.error}" for one in seen if one.error is not None),
                *(f"{id} cannot be shown: no worker answers for it" for id in sorted(silent)),
            ],
            exit_code=TRY_LATER if silent else 0,
        )

    def read(self, given: str) -> Shown:
        seen = self._find(given)
        return Shown(
            now=SystemClock().now(),
            schedule=seen.require(),
            account=seen.list_account(HISTORY_SHOWN),
            live_task=seen.live_task,
            problem=None if seen.error is None else f"it does not fire, and tries again every minute: {seen.error}",
        )

    def read_account(self, given: str, limit: int) -> tuple[list[dict[str, Any]], str]:
        seen = self._find(given)
        return seen.list_account(limit), seen.require().timezone

    def pause(self, given: str, reason: str) -> tuple[Schedule, Schedule, RunningOccurrence | None]:
        before, after, _ = self._apply(given, "pause", reason=reason, note=reason)
        return before.require(), after, before.running

    def resume(self, given: str) -> tuple[Schedule, Schedule, int | None, float]:
        before, after, answer = self._apply(given, "resume")
        skipped = [line["count"] for line in answer.lines if line["outcome"] == "skipped"]
        return before.require(), after, skipped[-1] if skipped else None, SystemClock().now()

    def run_now(self, given: str) -> tuple[FiringResult, RunningOccurrence | None, Sequence[str]]:
        before, _, answer = self._apply(given, "run-now")
        [placed] = list_placed(answer)
        return placed, before.running, ()

    def skip_next(self, given: str) -> tuple[Schedule, float, float]:
        _, after, answer = self._apply(given, "skip-next")
        assert answer.moment is not None, given
        return after, answer.moment, SystemClock().now()

    def backfill(self, given: str, first: float, last: float) -> tuple[Schedule, Sequence[FiringResult]]:
        _, after, answer = self._apply(given, "backfill", since=first, until=last)
        return after, list_placed(answer)

    def _find(self, given: str) -> SeenSchedule:
        return call_cluster(self._session, lambda client: find_schedule(ScheduleClient(client), given))

    def _apply(
        self, given: str, kind: str, *, note: str = "", **values: Any
    ) -> tuple[SeenSchedule, Schedule, ScheduleAnswer]:
        """Do something with a schedule. Return it before and after, and the answer. Raises what the rules refuse."""

        async def send(client: Client) -> tuple[SeenSchedule, Schedule, ScheduleAnswer]:
            calls = ScheduleClient(client)
            before = await find_schedule(calls, given)
            before.require()
            call = ScheduleCall(kind=kind, by=actor().text, note=note or f"schedule {kind}", **values)
            answer = await calls.apply_call(before.id, call)
            return before, see(before.id, answer.book).require(), answer

        return call_cluster(self._session, send)


def see(id: str, book: ScheduleBook) -> SeenSchedule:
    """Return what is in a book."""
    schedule, lines, error = None, [], book.error
    try:
        if book.row is not None:
            schedule, lines = schedule_in(book, id), account_in(book)
    except (ValueError, TypeError, KeyError) as damage:
        error = error or f"it is damaged, or of a newer craftcore: {damage}"
    live_task = next(iter(book.running.values()), None)
    return SeenSchedule(id=id, schedule=schedule, lines=lines, live_task=live_task, error=error)


async def find_schedule(client: ScheduleClient, given: str) -> SeenSchedule:
    """Return the schedule of that id, or the only one whose id begins so. Raises NotFound, and StillWaiting without a
    worker."""
    try:
        return see(given, await client.view(given))
    except NotFound:
        found = [id for id in await client.list_ids() if id.startswith(given)][:11]
        nobody = f"no schedule has the id {given!r:.80}; see: {hint('schedule', 'list')}"
        whole = single_match(found, given, nobody)
        return see(whole, await client.view(whole))
