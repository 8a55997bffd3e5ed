"""Schedules of a cluster as its workers tell them: one that a person means, or all."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from craftcore.cli.lookup import single_match
from craftcore.cli.session import Session, hint
from craftcore.cli.temporal.cluster_calls import call_cluster
from craftcore.cli.temporal.cluster_options import read_cluster_settings
from craftcore.clock import SystemClock
from craftcore.errors import NotFound, StateRefused, StillWaiting
from craftcore.schedules.model import Occurrence, Schedule
from craftcore.schedules.occurrence_store import RunningOccurrence

if TYPE_CHECKING:
    from craftcore.temporal.schedules.schedule_client import ScheduleClient
    from craftcore.temporal.temporal_client import TemporalClient
    from craftcore.temporal.workflow.schedule_messages import ScheduleBook

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
    now: float

    def require(self) -> Schedule:
        """Return the schedule. Raises StateRefused where there is none to show."""
        if self.schedule is None:
            raise StateRefused(f"schedule {self.id} is not declared yet: {self.error or 'a worker begins it'}")
        return self.schedule

    @property
    def running(self) -> RunningOccurrence | None:
        """The task of an earlier occurrence that has not ended."""
        return None if self.live_task is None else RunningOccurrence("task", self.live_task)


def see(id: str, book: ScheduleBook) -> SeenSchedule:
    """Return what is in a book."""
    from craftcore.temporal.schedules.schedule_client import account_in, schedule_in

    schedule, lines, error = None, [], book.error
    try:
        if book.row is not None:
            schedule, lines = schedule_in(book, id), account_in(book)
    except (ValueError, TypeError, KeyError) as damage:
        error = error or f"it is damaged, or of a newer craftcore: {damage}"
    return SeenSchedule(
        id=id,
        schedule=schedule,
        lines=lines,
        live_task=next(iter(book.running.values()), None),
        error=error,
        now=SystemClock().now(),
    )


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


def read_schedule(session: Session, given: str) -> SeenSchedule:
    """Return a schedule. Raises as `find_schedule` and `call_cluster`."""

    async def read(client: TemporalClient) -> SeenSchedule:
        from craftcore.temporal.schedules.schedule_client import ScheduleClient

        return await find_schedule(ScheduleClient(client.connection), given)

    return call_cluster(session, read)


def read_all(session: Session, limit: int) -> tuple[list[SeenSchedule], list[str], bool]:
    """Return the first schedules by id, the ids of those whose workers do not answer, and whether there are more."""
    queue = read_cluster_settings(session).task_queue or ""

    async def read(client: TemporalClient) -> tuple[list[SeenSchedule], list[str], bool]:
        from craftcore.temporal.schedules.schedule_client import ScheduleClient

        calls, places = ScheduleClient(client.connection), asyncio.Semaphore(ASKED_AT_ONCE)
        ids = await calls.list_ids(queue)
        silent: list[str] = []

        async def look(id: str) -> SeenSchedule | None:
            try:
                async with places:
                    return see(id, await calls.view(id))
            except NotFound:  # it ended meanwhile
                return None
            except StillWaiting:
                silent.append(id)
                return None

        seen = await asyncio.gather(*[look(id) for id in ids[:limit]])
        return [one for one in seen if one is not None], sorted(silent), len(ids) > limit

    return call_cluster(session, read)
