"""The run of one entry of a turn, by the code of the engine. Its journal is the history of the task's workflow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from temporalio.client import Client

from craftcore.client.backend import Capability
from craftcore.clock import Clock, SystemClock
from craftcore.config import Config
from craftcore.engine import router_call
from craftcore.engine.attempt import Attempt, log_settled
from craftcore.engine.limits.shortages import Shortages
from craftcore.engine.runner import Fallback, Runner
from craftcore.engine.turn.stream_buffer import StreamBuffer
from craftcore.engine.turn.turn import Turn, TurnServices
from craftcore.engine.workers.thread_pool import ThreadPool
from craftcore.engine.workers.worker_pool import WorkerPool
from craftcore.errors import ErrorCode, InvalidInput, LeaseLost
from craftcore.executions.recorder import Record, Routed
from craftcore.registry.registry import Registry
from craftcore.registry.router import Route, RoutingContext, route_by_source, unroutable_failure
from craftcore.schedules.runtime import RuntimeSchedules
from craftcore.storage.event_loop import get_current_loop
from craftcore.tasks.model import Entry, NewWait, QuestionKind, Resume, Task, WaitKind
from craftcore.tasks.outcomes import Continues, Returned, Suspends
from craftcore.tasks.resume import make_stale_question
from craftcore.tasks.session_message_store import SessionMessageStore
from craftcore.tasks.stream_chunks import OpenStream
from craftcore.tasks.turn_event_store import NewEvent, split_failures
from craftcore.temporal.addressee import look_for
from craftcore.temporal.cluster_lacks import LACKS
from craftcore.temporal.entries.accept import make_accept
from craftcore.temporal.entries.declared_limits import refuse_other_limits, report_start
from craftcore.temporal.entries.open_entry import OpenEntry
from craftcore.temporal.entries.sent_size import RECORD_MAX_BYTES, refuse_large, require_sendable, truncate_sent
from craftcore.temporal.entries.update_journal import TemporalJournal
from craftcore.temporal.entries.update_sender import UpdateSender
from craftcore.temporal.ids import queue_name
from craftcore.temporal.workflow.messages import LIMITED, ROLLOVER, EntryEnd, EntryStart, MemoPage
from craftcore.triggers.model import Claim
from craftcore.triggers.settlement import Failed, Outcome, Released, Succeeded, settle

T = TypeVar("T")

STEP_THREADS = 64
"""How many plain steps of all turns run at once; more wait for a thread."""


class ClusterClock(SystemClock):
    """The time of the cluster: `now` at the start of an entry, and the seconds that have passed since.

    An irreversible call must end before the moment until which its doubt waits, so this clock must not be late. It
    begins when the entry starts, because the entry may have waited long for a place in a worker. It counts by the boot
    time of `machine`, which goes on while the machine is suspended.
    """

    def __init__(self, now: float, machine: Clock) -> None:
        super().__init__()
        self._machine = machine
        self._booted_at = now - machine.boot_time()

    def now(self) -> float:
        return self._booted_at + self._machine.boot_time()


NO_SCHEDULES = (
    "ctx.schedules is not there on a cluster: its rows are in a database. Declare the schedule in the app, or use "
    "craftcore temporal schedule"
)


NO_HISTORY = (
    "ctx.history is not there on a cluster: its rows are in a database. Keep the newest messages in the state, and all "
    "of them in a database of your own, in a ctx.step"
)
NO_WAITS = "on a cluster a turn waits for one thing at a time: await it in the turn's own task, or use ctx.wait_any"
"""The refusal of a wait in a task beside the turn's own. Acts in doubt there are asked about one by one."""


class NoTables:
    """The tables of a turn on a cluster, which has no database: each use is refused."""

    @property
    def schedules(self) -> RuntimeSchedules:
        raise InvalidInput(NO_SCHEDULES)

    async def write_user(
        self, fn: Callable[..., Any], args: tuple[Any, ...], event_of: Callable[[Any], tuple[NewEvent, T]]
    ) -> T:
        raise InvalidInput(
            "ctx.transaction is not there on a cluster: write to your own database in a ctx.step, under ctx.task_id"
        )

    async def write_own(
        self, call: Callable[..., Any], args: tuple[Any, ...], event_of: Callable[[Any], tuple[NewEvent, T]]
    ) -> T:
        raise InvalidInput(NO_SCHEDULES)

    @property
    def messages(self) -> SessionMessageStore:
        raise InvalidInput(NO_HISTORY)

    async def read_recorded(
        self, call: Callable[..., Any], args: tuple[Any, ...], event_of: Callable[[Any], tuple[NewEvent, T]]
    ) -> T:
        raise InvalidInput(NO_HISTORY)

    async def read(self, call: Callable[..., T], *args: Any) -> T:
        raise InvalidInput(NO_SCHEDULES)


class NoStreams:
    """The streams of a turn on a cluster, which keeps none: each use is refused."""

    async def open(self, claim: Claim, task: Task, name: str) -> OpenStream:
        raise InvalidInput(LACKS[Capability.STREAMS])

    def schedule(self, buffer: StreamBuffer) -> None:
        raise InvalidInput(LACKS[Capability.STREAMS])

    async def save(self, buffer: StreamBuffer) -> None:
        return  # nothing was written

    def call(self, write: Callable[[], Awaitable[None]]) -> None:
        raise InvalidInput(LACKS[Capability.STREAMS])


class EntryRunner:
    """Runs entries of turns of one app, on the loop that it was made on."""

    def __init__(
        self,
        app: Registry,
        client: Client,
        config: Config,
        threads: ThreadPool,
        step_threads: ThreadPool,
        workers: WorkerPool,
    ) -> None:
        self.app = app
        self._client = client
        self._config = config
        self._threads = threads
        self._step_threads = step_threads
        self._workers = workers
        self._shortages = Shortages(SystemClock())

    def has_workflow(self, task: Task) -> bool:
        """Return whether the app declares the workflow of a task, or chooses it."""
        return not task.workflow or task.workflow in self.app.workflows

    @property
    def resume_max_age(self) -> float:
        """The seconds after which interrupted work goes on only after a person agrees."""
        return self._config.tasks.resume_max_age

    def make_attempt(self, given: EntryStart) -> Attempt:
        """Return the attempt of an entry, as the engine keeps one of a claimed trigger."""
        start, task = given.start, given.task
        claim = Claim(
            seq=0,
            id=task.id,
            lease_token=str(given.token),
            source=start.source,
            workflow=start.workflow or None,
            lane=start.session_id,
            session_id=start.session_id,
            task_id=task.id,
            priority=start.priority,
            fire_at=start.due_at,
            due_at=start.due_at,
            expires_at=None,
            description=start.description,
            payload_json=start.payload_json,
            attempts=given.attempts,
            starts=given.starts,
            crash_count=given.crashes,
            max_attempts=start.max_attempts,
        )
        routed = self._route_of(given)
        record = Record(given.token, f"exec-{task.id}.{given.token}", given.now, routed, given.now)
        return Attempt(claim, record, routed)

    async def run(
        self, opened: OpenEntry, task_queue: str, given: EntryStart, attempt: Attempt, clock: ClusterClock
    ) -> EntryEnd:
        """Run an entry to its end, and log its settlement. An entry that waits for a gate has none."""
        try:
            end = await self._run_opened(opened, task_queue, given, attempt, clock)
        except LeaseLost as error:
            end = self._end_of(given, attempt, Released(reason=error.message), clock.now())
        if end.move != LIMITED:
            log_settled(attempt, end, self._config.log.successes)
        return end

    async def _run_opened(
        self, opened: OpenEntry, task_queue: str, given: EntryStart, attempt: Attempt, clock: ClusterClock
    ) -> EntryEnd:
        await report_start(
            self._client, opened.workflow_id, given.limits, given.gates, lambda: attempt.stopped_by is not None
        )
        if opened.mark_begun is not None:
            await opened.mark_begun()
        if given.is_paged:
            given = await fetch_pages(UpdateSender(opened), given)
        journal = self._open_journal(opened, given, attempt)
        if not given.task.workflow:
            task = await choose_workflow(self.app, journal, given.task, attempt)
            if not isinstance(task, Task):
                return self._end_of(given, attempt, task, clock.now())
            if (end := refuse_other_limits(self.app, given, task.workflow, task_queue)) is not None:
                return end  # an entry with the recorded workflow follows, after it has passed these limits
            given = replace(given, task=task)
            attempt.routed = self._route_of(given)
        attempt.entry = make_entry(self.app, given)
        outcome = await self._run_agents(journal, attempt, clock, queue_name(self._client.namespace, task_queue))
        if is_lost(outcome) or opened.has_lost_lease():  # the turn goes on in the next entry
            outcome = Released(reason="no heartbeat was acknowledged in time")
        return refuse_large(self._end_of(given, attempt, outcome, clock.now()), given)

    def _open_journal(self, opened: OpenEntry, given: EntryStart, attempt: Attempt) -> TemporalJournal:
        def roll_over() -> None:
            if isinstance(attempt.turn, Turn):
                attempt.turn.suspend_with(NewWait(name=f"{ROLLOVER}{given.token}", kind=WaitKind.TIMER))

        return TemporalJournal(opened, given.start, roll_over, partial(look_for, self._client))

    async def _run_agents(self, journal: TemporalJournal, attempt: Attempt, clock: ClusterClock, home: str) -> Outcome:
        settings = self._config.tasks
        services = TurnServices(
            journal=journal,
            streams=NoStreams(),
            tables=NoTables(),
            actions=self.app.actions,
            in_flight={},
            epoch=0,
            clock=clock,
            accept=make_accept(self.app, clock, self._config),
            loop=get_current_loop(),
            threads=self._step_threads,
            workers=self._workers,
            settings=replace(settings, result_max_bytes=min(settings.result_max_bytes, RECORD_MAX_BYTES)),
            bounded=truncate_sent,
            require_small=require_sendable,
            no_waits=NO_WAITS,
        )
        runner = Runner(self.app, services, self._threads, self._config, home, self._shortages, has_own_task=True)

        async def note_fallback(attempt: Attempt, failed: Failed, agent: str) -> Record | None:
            routed = attempt.routed
            if routed is None or is_lost(failed) or not await journal.fall_back(routed.agents, agent):
                return None
            routed = routed._replace(workflow=agent, intent=routed.intent or routed.workflow)
            return attempt.record._replace(routed=routed, agent_since=clock.now())

        return await Fallback(runner, note_fallback, clock).run(attempt)

    def _route_of(self, given: EntryStart) -> Routed:
        name = given.task.workflow
        workflow = self.app.workflows.get(name)
        agents = given.task.agents or (() if workflow is None else workflow.agents)
        agent = given.task.agent or next(iter(agents), name)
        return Routed(agent, "explicit workflow", None if agent == name else name, tuple(agents))

    def _end_of(self, given: EntryStart, attempt: Attempt, outcome: Outcome, now: float) -> EntryEnd:
        attempt.outcome = outcome
        settlement = settle(attempt.claim, outcome, self.app.policy_of(given.task.workflow), now)
        end = EntryEnd(
            status=settlement.status,
            reason=settlement.reason,
            gives_back=bool(settlement.gives_back),
            not_before=settlement.not_before,
            error_code=settlement.error_code,
            error_message=settlement.error_message,
            steps=0 if attempt.turn is None else attempt.turn.spent,
            deadline_at=attempt.deadline_at,
            ended_at=now,
            is_task=attempt.entry is not None,
        )
        match attempt.move:
            case Returned(result_json=result):
                return replace(end, move="returned", result_json=result)
            case Continues(state_json=state, wait=wait):
                return replace(end, move="continues", state_json=state, wait=wait)
            case Suspends(wait=wait):
                return replace(end, move="suspends", wait=wait)
        if isinstance(outcome, Succeeded):
            return replace(end, move="returned", result_json=truncate_sent(outcome.result_json))
        return end


def make_entry(app: Registry, given: EntryStart) -> Entry | None:
    """Return the entry of a turn. None: it runs without a context, or the app has no workflow of this name."""
    workflow, task = app.workflows.get(given.task.workflow), given.task
    if workflow is None:
        return None
    others = (app.workflows.get(name) for name in task.agents or workflow.agents)
    if not any(one is not None and one.is_task(given.start.payload_json) for one in (workflow, *others)):
        return None
    if task.deadline_at is None and workflow.deadline is not None:
        task = replace(task, deadline_at=given.first_at + workflow.deadline)
    memo, failures = split_failures(given.memo, given.attempt_entry)
    return Entry(
        task=task,
        resume=Resume(given.resume),
        memo=memo,
        failures=failures,
        waits={wait.name: wait for wait in given.waits},
    )


def ask_stale(app: Registry, given: EntryStart, max_age: float, now: float) -> EntryEnd | None:
    """Return the end of an entry that asks a person, because its task was interrupted more than `max_age` seconds ago.

    None: the entry goes on. A workflow without a context has nothing on record, and begins again.
    """
    if given.touched_at is None or now - given.touched_at <= max_age or make_entry(app, given) is None:
        return None
    wait = NewWait(
        name=f"{QuestionKind.STALE}:{given.token}",
        kind=WaitKind.QUESTION,
        question=make_stale_question(given.task, now - given.touched_at),
    )
    return EntryEnd(status="DONE", reason="stale: waits for an answer", move="suspends", wait=wait, is_task=True)


async def choose_workflow(app: Registry, journal: TemporalJournal, task: Task, attempt: Attempt) -> Task | Outcome:
    """Choose the workflow of a task by its source, or else by the router, and record it.

    Return the task with it, or the outcome of the attempt when none was chosen. The router sees no sessions, and may
    choose none.
    """
    claim = attempt.claim
    by_source = route_by_source(claim, app.by_source)
    if by_source is not None:
        route: Route | Outcome = Route(workflow=by_source.workflow)
    elif app.router is None:
        return unroutable_failure(claim, None, app.workflows)
    else:
        context = RoutingContext(workflows=tuple(app.workflows), by_source=app.by_source)
        route = await router_call.ask(app.router, attempt, context)
    if not isinstance(route, Route):
        return route
    if route.workflow is None or route.session_id is not None:
        message = "the router chose a session or a task; on a cluster it must return a Route with a workflow only"
        return Failed(code=ErrorCode.ROUTING_ERROR, message=message, retryable=False)
    if route.workflow not in app.workflows:
        return unroutable_failure(claim, route.workflow, app.workflows)
    await journal.note_route(route.workflow, route.agents)
    return replace(task, workflow=route.workflow, agents=route.agents or None)


def is_lost(outcome: Outcome) -> bool:
    """Return whether an entry ended because the cluster may have given it up."""
    return isinstance(outcome, Failed) and outcome.code == ErrorCode.LEASE_LOST


async def fetch_pages(updates: UpdateSender, given: EntryStart) -> EntryStart:
    """Return an entry with all that its turn has on record, which is too much for one message."""
    memo, waits, first = dict(given.memo), list(given.waits), 0
    while True:
        page: MemoPage = await updates.query("read_memo", [first], MemoPage)
        memo.update(page.memo)
        waits.extend(page.waits)
        if page.following is None:
            return replace(given, memo=memo, waits=waits)
        first = page.following


@asynccontextmanager
async def opening_runner(app: Registry, client: Client, config: Config) -> AsyncIterator[EntryRunner]:
    """Open the runner of the entries of an app on this event loop, and close it."""
    loop = get_current_loop()
    async with (
        WorkerPool(config.daemon.worker_processes) as workers,
        ThreadPool(loop, config.daemon.concurrency) as threads,
        ThreadPool(loop, STEP_THREADS) as step_threads,
    ):
        yield EntryRunner(app, client, config, threads, step_threads, workers)
