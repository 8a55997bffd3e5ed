"""The engine: feeder, consumer, workers and settler of one database, from their start to the end of the drain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import anyio

from craftcore.engine.attempt import Attempt
from craftcore.engine.attempt_commits import AttemptCommits, Settled
from craftcore.engine.claim_window import ClaimWindow
from craftcore.engine.client import EngineClient
from craftcore.engine.consumer import Consumer
from craftcore.engine.durable_commit import Corruption, DurableCommits
from craftcore.engine.engine_end import EngineEnd, grace_left
from craftcore.engine.events import Observer, Unobserved
from craftcore.engine.feeder import Feeder
from craftcore.engine.held_tasks import HeldTasks
from craftcore.engine.limits.shortages import Shortages
from craftcore.engine.limits.workflow_limits import Limits
from craftcore.engine.live_state import LiveState, keep_live_state, state_of
from craftcore.engine.loop.blocked_loop import blocked_loop_warning
from craftcore.engine.loop.loop_end import loop_end
from craftcore.engine.runner import Runner
from craftcore.engine.scheduler import Scheduler
from craftcore.engine.stream_commits import StreamCommits
from craftcore.engine.turn.sqlite_journal import SqliteJournal, SqliteTables
from craftcore.engine.turn.stall_watch import StallWatch
from craftcore.engine.turn.turn import TurnServices
from craftcore.engine.workers.encoded import require_small
from craftcore.engine.workers.thread_pool import ThreadPool
from craftcore.engine.workers.worker_pool import WorkerPool
from craftcore.errors import CraftcoreError, StorageFull
from craftcore.executions.recorder import Recorder
from craftcore.log import get_logger
from craftcore.registry.registry import Registry
from craftcore.results.engine_waits import ResultWaits
from craftcore.schedules.runtime import RuntimeSchedules
from craftcore.schedules.tick_service import Ticked
from craftcore.services import Services
from craftcore.storage.event_loop import get_current_loop
from craftcore.storage.transaction import Transaction
from craftcore.storage.writer import Writer
from craftcore.triggers.model import Claim, NewTrigger, TriggerSpec, TriggerStatus

log = get_logger(__name__)

STEP_THREADS = 64
"""How many plain steps of all turns run at once; more wait for a thread."""

DRAIN_SECONDS = 5.0
"""How long cancelled workflows may take to unwind after the grace; then they are left behind for the next boot."""


class Engine:
    """Runs one app on one database, for one epoch. `run` it in a task group; `stop` drains it.

    It implements `EngineEvents` by its methods.
    """

    def __init__(
        self,
        app: Registry,
        services: Services,
        writer: Writer,
        held_tasks: HeldTasks,
        *,
        epoch: int,
        write_mark: Callable[[int], None],
        observer: Observer | None = None,
        owns_loop: bool = False,
    ) -> None:
        """Set up the engine. `owns_loop`: nothing else runs on its event loop, so only `stop` may end it."""
        config = services.config
        self.app = app
        self._triggers = services.triggers
        self.epoch = epoch
        self.counts: Counter[str] = Counter()
        """How many attempts were settled since the start, by status; those given back are RELEASED."""
        self._observer = observer or Unobserved()
        self.writer = writer
        self._grace, self._concurrency = config.daemon.shutdown_grace, config.daemon.concurrency
        self._workers = WorkerPool(config.daemon.worker_processes)
        self._threads = ThreadPool(get_current_loop(), config.daemon.concurrency)
        self._step_threads = ThreadPool(get_current_loop(), STEP_THREADS)
        self._window = ClaimWindow(services.claims.rank)
        self.limits = Limits(app.workflows.values(), app.by_source)
        recorder = Recorder(
            response_max_bytes=config.records.response_max_bytes, overdue_after=config.triggers.overdue_after
        )
        commits = DurableCommits(writer, Corruption(services.tasks, services.claims))
        self.feeder = Feeder(services, commits, self._window, self.limits, self, epoch=epoch)
        self.scheduler = Scheduler(services, commits, self, epoch=epoch)
        self.results = ResultWaits(services, get_current_loop())
        schedule_rules = RuntimeSchedules(services.schedules, services.clock, lambda _, spec: app.check(spec))
        self._streams = StreamCommits(commits, services.streams, get_current_loop())
        turn_services = TurnServices(
            journal=SqliteJournal(services, commits, write_mark, self.feeder.notify_due, self.on_changed),
            streams=self._streams,
            tables=SqliteTables(services, commits, schedule_rules, self.on_changed),
            actions=app.actions,
            in_flight={},
            epoch=epoch,
            clock=services.clock,
            accept=self.accept,
            loop=get_current_loop(),
            threads=self._step_threads,
            workers=self._workers,
            settings=config.tasks,
            bounded=recorder.truncate_result,
            require_small=require_small,
        )
        self._runner = Runner(
            app, turn_services, self._threads, config, services.database.real_path, Shortages(services.clock)
        )
        self.stall_watch = StallWatch(self._running_attempts, turn_services)
        attempts = AttemptCommits(app, services, recorder, held_tasks, epoch=epoch, may_claim_next=self._may_claim_next)
        self.consumer = Consumer(
            app, services, writer, attempts, commits, self._window, self.feeder, self._runner, self, epoch=epoch
        )
        self.client = EngineClient(
            app, services, writer, self.accept, self.feeder, self.consumer, self.results, schedule_rules, self
        )
        self._end = EngineEnd(self._running_attempts, self.stop, owns_loop=owns_loop)

    async def round_trip(self) -> None:
        """Loop -> writer -> SQLite -> loop: proof that the engine makes progress, be the disk full or not."""
        with suppress(StorageFull):
            await self.writer.commit(Transaction.fetch_value, "SELECT 1")

    def accept(self, spec: TriggerSpec) -> NewTrigger:
        """Return the row of a spec, before anything is written. Raises InvalidInput for one that the app could only
        fail."""
        row = self._triggers.accept(spec)
        self.app.check(row)
        return row

    # Life

    async def run(self) -> None:
        """Run until `stop`, then drain. Raises what ended it otherwise: the StorageError that made the database
        unusable, EngineCrashed, or KeyboardInterrupt for a Ctrl-C that came while code of this engine ran."""
        async with (
            loop_end(self._end.on_loop_end),
            blocked_loop_warning(get_current_loop()),
            self._workers,
            self._threads,
            self._step_threads,
            anyio.create_task_group() as tasks,
        ):
            loops = (
                self.scheduler.schedule,
                self.feeder.feed,
                self.consumer.consume,
                self.consumer.settle,
                self.stall_watch.watch,
                self.consumer.exclusive.watch,
                self._runner.shortages.watch,
                self.results.serve,
                self._streams.serve,
                self._streams.serve_threads,
                partial(keep_live_state, self.writer, self.live_state),
            )
            for task in loops:
                tasks.start_soon(self.guard, task)
            for _ in range(self._concurrency):
                tasks.start_soon(self.guard, self.consumer.work)
            try:
                await self._end.stopping.wait()
                if not self._end.ends_now:
                    await self._drain()
            finally:
                self.results.close()
                self.consumer.leave()  # a thread that does not return is not waited for
                tasks.cancel_scope.cancel()
        if self.failure is not None:
            raise self.failure
        if self._end.interrupted_by is not None:
            raise KeyboardInterrupt from self._end.interrupted_by

    def live_state(self) -> LiveState:
        """Return what only this engine knows of itself."""
        return state_of(self.writer, self.consumer.exclusive, self._runner.shortages.current, self.epoch)

    def stop(self) -> None:
        """Claim nothing more, let running workflows finish within the grace, then cancel and release them."""
        self.pause()
        self.consumer.stopping = True
        self._end.stopping.set()

    def stop_now(self) -> None:
        """Stop, and do not wait for the grace."""
        self._end.stop_now()

    def fail(self, error: CraftcoreError) -> None:
        """Stop at once, because the database or the engine can no longer be trusted. The first error counts."""
        self._end.fail(error)

    async def wait_for_settle(self) -> None:
        """Wait until another attempt is settled."""
        await self._end.wait_for_settle()

    async def guard(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task that the engine cannot do without: an error in it ends the engine."""
        await self._end.guard(task)

    def pause(self) -> None:
        """Claim nothing and fire nothing from now on."""
        self.feeder.paused = self.scheduler.paused = True

    def hold_starts(self) -> None:
        """Start nothing before `begin`; what is due is claimed meanwhile. Called before `run`."""
        self.consumer.held_back = True

    def begin(self) -> None:
        """Start what was held back, if anything was."""
        self.consumer.held_back = False
        self.consumer.wake()

    def ring(self, *, schedules: bool) -> None:
        """Poll the table after a change from outside, and the schedules when they are named."""
        self.feeder.ring()
        self.results.note_change()
        if schedules:
            self.scheduler.ring()

    @property
    def failure(self) -> CraftcoreError | None:
        """The error that ended it; None when it ended in order."""
        return self._end.failure

    @property
    def running(self) -> int:
        """How many workflows run now."""
        return len(self.consumer.running)

    @property
    def is_stopping(self) -> bool:
        """It claims nothing more, and drains."""
        return self._end.stopping.is_set()

    @property
    def is_held(self) -> bool:
        """It claims nothing, or not all, until a person says so."""
        feeder = self.feeder
        return feeder.paused or feeder.holds.everything is not None or feeder.holds.safe_mode is not None

    @property
    def is_idle(self) -> bool:
        """Nothing is claimed, nothing runs, and the last looks left nothing behind that may fire or be claimed."""
        is_drained = self.scheduler.is_drained and self.feeder.is_drained and not self.feeder.is_polling
        return is_drained and not len(self._window) and self.consumer.is_idle

    async def _drain(self) -> None:
        with anyio.move_on_after(grace_left(self._grace, self.writer.group_commit.flushes.longest)):
            while not self.consumer.is_idle and not self._end.is_hurried:
                await self._end.wait_for_news()
        self.consumer.leave()
        with anyio.move_on_after(DRAIN_SECONDS):
            while not self.consumer.is_idle and not self._end.ends_now:
                await self.wait_for_settle()
        if self.running:
            log.warning("engine.left_behind", running=self.running)

    def _running_attempts(self) -> list[Attempt]:
        return list(self.consumer.running.values())

    def _may_claim_next(self, attempt: Attempt) -> bool:
        """Return whether the next turn of the task may be claimed in the commit that creates it."""
        workflow = attempt.entry.task.workflow if attempt.entry is not None else None
        is_bound = self._end.stopping.is_set() or self.limits.is_limited(workflow)
        return not is_bound and self.feeder.may_claim_turn(workflow)

    # Events of the loops

    @property
    def held_claims(self) -> list[Claim]:
        """Every claim in the window, and those taken out of it that are not settled."""
        return [*self._window.claims(), *self.consumer.held_claims()]

    @property
    def running_claims(self) -> list[Claim]:
        """The claims that have started and are not settled."""
        return [attempt.claim for attempt in self.consumer.running.values()]

    def on_claimed(self) -> None:
        self.consumer.wake()

    def on_due(self, due_at: float) -> None:
        self.feeder.notify_due(due_at)

    def on_ticked(self, ticked: Ticked) -> None:
        self._observer.on_ticked(ticked)

    def on_changed(self) -> None:
        self.ring(schedules=True)

    def on_emit_refused(self) -> None:
        self._end.announce_settled()

    def crash(self, why: str, cause: BaseException | None = None) -> None:
        self._end.crash(why, cause)

    def on_cancel_requests(self, seqs: list[int]) -> None:
        for seq in seqs:
            if attempt := self.consumer.running.get(seq):
                attempt.stop("cancelled")
            else:
                self.feeder.ring()  # it is being started: its attempt is here at the next look

    def on_start_failed(self, _claim: Claim) -> None:
        self.counts[TriggerStatus.FAILED] += 1
        self._end.announce_settled()

    def on_start_refused(self, claim: Claim) -> None:
        self.feeder.ring()
        if claim.schedule_id is not None:
            self.scheduler.ring()
        self._end.announce_settled()

    def on_settled(self, attempt: Attempt, answer: Settled | Exception) -> None:
        if isinstance(answer, Settled):
            move, followed = answer
            self.counts["RELEASED" if move.gives_back else move.status] += 1
            if move.status is TriggerStatus.PENDING:
                self.feeder.notify_due(max(attempt.claim.fire_at, move.not_before or 0.0))
            if followed.claim is not None:
                self.feeder.push_claimed(followed.claim)
            if followed.due_at is not None:
                self.feeder.notify_due(followed.due_at)
        if attempt.lane is not None or self.limits.is_slot_freed(attempt.claim):
            self.feeder.ring()
        if _schedule_of(attempt) is not None:
            self.scheduler.ring()  # another occurrence may have waited for this one
        self._end.announce_settled()
        self._observer.on_settled(attempt, answer)


def _schedule_of(attempt: Attempt) -> str | None:
    return attempt.claim.schedule_id or (attempt.entry.task.schedule_id if attempt.entry is not None else None)
