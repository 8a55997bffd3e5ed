"""The activity of one entry of a turn: the engine's own code runs the user's function, over the journal of the task."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

from temporalio import activity
from temporalio.client import Client

from craftcore.clock import SystemClock
from craftcore.config import Config
from craftcore.engine.attempt import Attempt
from craftcore.engine.runner import Runner
from craftcore.engine.turn.turn import Turn, TurnServices
from craftcore.engine.workers.thread_pool import ThreadPool
from craftcore.engine.workers.worker_pool import WorkerPool
from craftcore.executions.chain.append import KnownRecord
from craftcore.executions.recorder import Record, Routed
from craftcore.executions.store import OpenHeader
from craftcore.registry.registry import Registry
from craftcore.schedules.recurrence.moment_text import read_moment
from craftcore.storage.event_loop import get_current_loop
from craftcore.tasks.model import Entry, NewWait, Resume, WaitKind
from craftcore.tasks.outcomes import Continues, Returned, Suspends
from craftcore.tasks.turn_event_store import FAILURE_MARK
from craftcore.temporal.update_journal import RECORD_MAX_BYTES, NoTables, TemporalJournal
from craftcore.temporal.update_sender import UpdateSender
from craftcore.temporal.workflow.messages import ACTIVITY, ROLLOVER, EntryEnd, EntryStart, MemoPage
from craftcore.triggers.model import Claim, NewTrigger, TriggerSpec
from craftcore.triggers.service import TriggerService
from craftcore.triggers.settlement import Outcome, Succeeded, settle

BEATS = 3
"""Heartbeats within the time after which a silent worker is dead."""


class ClusterClock(SystemClock):
    """The time of the cluster at the start of an entry, and what has passed since.

    The entry may have waited long for a place in a worker. A clock that began with its schedule would be late, and a
    call would go on after the moment until which its doubt waits.
    """

    def __init__(self, now: float) -> None:
        super().__init__()
        self._ahead = now - time.monotonic()

    def now(self) -> float:
        return self._ahead + time.monotonic()


class TurnActivity:
    """Runs entries of turns of one app, in the loop of its worker."""

    def __init__(
        self,
        app: Registry,
        client: Client,
        config: Config,
        threads: ThreadPool,
        step_threads: ThreadPool,
        workers: WorkerPool,
    ) -> None:
        self._app = app
        self._client = client
        self._config = config
        self._threads = threads
        self._step_threads = step_threads
        self._workers = workers

    @activity.defn(name=ACTIVITY)
    async def run(self, given: EntryStart) -> EntryEnd:
        """Run one entry to its end. It returns an outcome and raises none: only the death of a worker is an error."""
        clock = ClusterClock(activity.info().started_time.timestamp())
        handle = self._client.get_workflow_handle(activity.info().workflow_id or "")
        given = await fetch_pages(UpdateSender(handle, given.token), given) if given.is_paged else given
        attempt = self._attempt_of(given)
        running = asyncio.create_task(self._run(given, attempt, clock))
        beat = given.start.heartbeat_timeout / BEATS
        while not running.done():
            try:
                await asyncio.wait({running}, timeout=beat)
            except asyncio.CancelledError:
                details = activity.cancellation_details()
                is_person = details is not None and details.cancel_requested
                attempt.stop("cancelled" if is_person else "shutdown")
                if (task := asyncio.current_task()) is not None:
                    task.uncancel()
            activity.heartbeat()
        outcome = running.result()
        return self._end_of(given, attempt, outcome, clock.now())

    async def _run(self, given: EntryStart, attempt: Attempt, clock: ClusterClock) -> Outcome:
        handle = self._client.get_workflow_handle(activity.info().workflow_id or "")

        def roll_over() -> None:
            if isinstance(attempt.turn, Turn):
                attempt.turn.suspend_with(NewWait(name=f"{ROLLOVER}{given.token}", kind=WaitKind.TIMER))

        journal = TemporalJournal(handle, given.token, given.start, roll_over)
        settings = self._config.tasks
        services = TurnServices(
            journal=journal,
            tables=NoTables(),
            actions=self._app.actions,
            flights={},
            epoch=0,
            clock=clock,
            accept=make_accept(self._app, clock, self._config),
            loop=get_current_loop(),
            threads=self._step_threads,
            workers=self._workers,
            settings=replace(settings, result_max_bytes=min(settings.result_max_bytes, RECORD_MAX_BYTES)),
            bounded=lambda result_json: result_json,
        )
        return await Runner(self._app, services, self._threads, self._config).run(attempt)

    def _attempt_of(self, given: EntryStart) -> Attempt:
        start, task = given.start, given.task
        claim = Claim(
            0,
            task.id,
            str(given.token),
            start.source,
            start.workflow,
            None,
            None,
            task.id,
            0,
            start.due_at,
            start.due_at,
            None,
            start.description,
            start.payload_json,
            given.attempts,
            given.starts,
            given.crashes,
            start.max_attempts,
            None,
            None,
            None,
        )
        record_id = f"exec-{task.id}.{given.token}"
        header = OpenHeader(
            given.token, record_id, task.id, task.id, task.turn, given.attempts, 0, start.workflow, given.now, "", None
        )
        routed = Routed(start.workflow, "explicit workflow")
        workflow = self._app.workflows.get(start.workflow)
        entry = None
        if workflow is not None and workflow.is_task(start.payload_json):
            if task.deadline_at is None and workflow.deadline is not None:
                task = replace(task, deadline_at=given.now + workflow.deadline)
            failures = frozenset(name for name in given.memo if FAILURE_MARK in name)
            entry = Entry(
                task=task,
                resume=Resume(given.resume),
                memo={name: text for name, text in given.memo.items() if name not in failures},
                failures=failures,
                waits={wait.name: wait for wait in given.waits},
            )
        return Attempt(claim, Record(KnownRecord(header, "", 0), routed, given.now), routed, entry)

    def _end_of(self, given: EntryStart, attempt: Attempt, outcome: Outcome, now: float) -> EntryEnd:
        settlement = settle(attempt.claim, outcome, self._app.policy_of(given.start.workflow), now)
        end = EntryEnd(
            status=settlement.status,
            reason=settlement.reason,
            gives_back=bool(settlement.gives_back),
            not_before=settlement.not_before,
            error_code=settlement.error_code,
            error_message=settlement.error_message,
            steps=0 if attempt.turn is None else attempt.turn.spent,
            deadline_at=attempt.deadline_at,
        )
        match attempt.move:
            case Returned(result_json=result):
                return replace(end, move="returned", result_json=result)
            case Continues(state_json=state, wait=wait):
                return replace(end, move="continues", state_json=state, wait=wait)
            case Suspends(wait=wait):
                return replace(end, move="suspends", wait=wait)
        if isinstance(outcome, Succeeded):
            return replace(end, move="returned", result_json=outcome.result_json)
        return end


async def fetch_pages(updates: UpdateSender, given: EntryStart) -> EntryStart:
    """Return an entry with all that its turn has on record."""
    memo, waits, first = dict(given.memo), list(given.waits), 0
    while True:
        page: MemoPage = await updates.query("read_memo", [first], MemoPage)
        memo.update(page.memo)
        waits.extend(page.waits)
        if page.following is None:
            return replace(given, memo=memo, waits=waits)
        first = page.following


def make_accept(app: Registry | None, clock: SystemClock, config: Config) -> Callable[[TriggerSpec], NewTrigger]:
    """Return a function that refuses a spec that the app could only fail. Without an app it refuses less."""
    triggers = TriggerService(clock, read_moment, payload_max_bytes=config.triggers.payload_max_bytes)

    def accept(spec: TriggerSpec) -> NewTrigger:
        row = triggers.accept(spec)
        if app is not None:
            app.check(row)
        return row

    return accept
