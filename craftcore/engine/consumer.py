"""The main path: what is claimed is started, routed, run and settled.

    window -> start (attempt, record and turn in one commit) -> route -> run
           -> settle (trigger, record, task and what follows in one commit)

Starts and settles go to the writer in batches: all that gathered during the last commit. A worker never waits for a
settle, except with a concurrency of 1. Then the settle of a trigger and the start of the next one are one commit. A
trigger that is emitted while a slot is free is started by its emit (`due_emits.py`), and comes in by `take_started`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import partial
from typing import Any

from craftcore.engine.attempt import Attempt
from craftcore.engine.attempt_batches import AttemptBatches
from craftcore.engine.attempt_commits import AttemptCommits, Settled
from craftcore.engine.claim_window import TriggerQueue
from craftcore.engine.durable_commit import DurableCommits
from craftcore.engine.engine_log import log_settled
from craftcore.engine.events import EngineEvents, announce
from craftcore.engine.exclusive_run import ExclusiveRun
from craftcore.engine.fallback import Fallback
from craftcore.engine.faults import fault, report
from craftcore.engine.router_call import RouterCall
from craftcore.engine.runner import Runner
from craftcore.engine.slots import Slots
from craftcore.errors import LeaseLost
from craftcore.failpoints import Failpoint, hit
from craftcore.log import get_logger
from craftcore.registry.registry import Registry
from craftcore.registry.router import unroutable_failure
from craftcore.services import Services
from craftcore.storage.event_loop import get_current_loop
from craftcore.tasks.outcomes import Continues
from craftcore.triggers.model import Claim
from craftcore.triggers.settlement import RELEASED, Outcome, Released, Snoozed

log = get_logger(__name__)


class Consumer:
    """Starts, runs and settles for one engine, at most `concurrency` at a time."""

    def __init__(
        self,
        app: Registry,
        services: Services,
        attempts: AttemptCommits,
        commits: DurableCommits,
        queue: TriggerQueue,
        runner: Runner,
        events: EngineEvents,
    ) -> None:
        self._app = app
        self._attempts = attempts
        self._events = events
        self._concurrency = services.config.daemon.concurrency
        self._logs_successes = services.config.log.successes
        self._loop = get_current_loop()
        self.solitude = ExclusiveRun(self.wake, services.clock.now, is_bounded=self._concurrency > 1)
        self.slots = Slots(queue, self.solitude, self._concurrency)
        self._shortages = runner.shortages
        self._shortages.on_end = self.wake
        self._batches = AttemptBatches(attempts, commits, self.solitude, self._shortages, events)
        self._router = RouterCall(app, attempts, commits, self.slots, events)
        self._fallback = Fallback(runner, partial(commits.commit, attempts.fall_back), services.clock)
        self._starting: list[Claim] = []
        self._ready: deque[Attempt] = deque()
        self._idle: list[Any] = []
        self._ended: list[Attempt] = []
        self._settling: list[Attempt] = []
        self._work_came: Any = self._loop.create_waiter()
        self._end_came: Any = self._loop.create_waiter()
        self.running: dict[int, Attempt] = {}
        self.stopping = False
        self.held_back = False
        """Nothing is started yet."""
        self._is_leaving = False

    # The main path, top to bottom

    async def consume(self) -> None:
        """Start what may be started, whenever there is a claim and a free place; until cancelled."""
        while True:
            claims = self._startable_claims()
            if not claims:
                self._work_came = self._loop.create_waiter()
                await self._loop.wait(self._work_came)
                continue
            self._starting = claims
            self._after_start(claims, await self._batches.start(claims))

    async def work(self) -> None:
        """Run started attempts until cancelled, as one of `concurrency` workers."""
        while True:
            run = await self._next_run()
            run.outcome = await self._route_and_run(run)
            await self._loop.forget_cancel()
            self._ended.append(run)
            if self._concurrency > 1:
                self.release_slot()
            self._loop.wake(self._end_came)

    async def settle(self) -> None:
        """Settle everything that ended since the last batch, in one commit; until cancelled."""
        while True:
            if not self._ended:
                self._end_came = self._loop.create_waiter()
                await self._loop.wait(self._end_came)
            self._settling, self._ended = self._ended, []
            hit(Failpoint.SETTLE_BEGUN)
            if claims := self._next_claims(self._settling):
                self._starting = claims
                answers, started = await self._batches.settle_and_start(self._settling, claims)
            else:
                answers, started = await self._batches.settle(self._settling), []
            hit(Failpoint.SETTLE_COMMITTED)
            for run, answer in zip(self._settling, answers, strict=True):
                self._after_settle(run, answer)
            self._settling = []
            if claims:
                self._after_start(claims, started)

    # Steps

    def _startable_claims(self) -> list[Claim]:
        if not self._may_start():
            return []
        return self.slots.reserve(is_running=bool(self.running))

    def _next_claims(self, ended: list[Attempt]) -> list[Claim]:
        """Take the claim that starts in the commit which settles these; with a concurrency of 1 only.

        A further turn of the task may rank before it: that is known after the commit, and then nothing is taken."""
        if self._concurrency > 1 or not self._may_start() or any(isinstance(run.move, Continues) for run in ended):
            return []
        return self.slots.reserve_next()

    def _after_start(self, claims: list[Claim], runs: list[Attempt]) -> None:
        """Note what a commit of this loop has started."""
        self._starting = []
        if self._batches.may_have_started:
            self._batches.may_have_started = False
            announce(self._events, self._events.on_claims_lost)
        self.take_started(claims, runs)
        announce(self._events, self._events.on_window_shrunk)

    def take_started(self, claims: list[Claim], runs: list[Attempt]) -> None:
        """Give the started attempts to the workers. Each claim has a slot."""
        self._drop_unstarted(claims, runs)
        for run in runs:
            self.running[run.claim.seq] = run
            if self._is_leaving:
                run.outcome = run.outcome or Released(reason=RELEASED)
            self._offer_claims(run)
        announce(self._events, self._events.on_started, runs)
        hit(Failpoint.START_COMMITTED)

    async def _route_and_run(self, run: Attempt) -> Outcome:
        if run.outcome is not None:  # known by its start: there is no code to run
            return run.outcome
        try:
            if run.routed is None and (refused := await self._route(run)) is not None:
                return refused
            return await self._fallback.run(run)
        except LeaseLost as error:  # somebody settled it under our hands; the settle will be refused, too
            return Released(reason=str(error))
        except BaseException as error:
            failed = fault(error, "run")
            report(run.claim, "run", error)
            run.move = None
            handed_back = self._shortages.judge(run.claim.id, error, replace(failed, retryable=True))
            return handed_back if isinstance(handed_back, Snoozed) else failed

    async def _route(self, run: Attempt) -> Outcome | None:
        if self._app.router is None:
            return unroutable_failure(run.claim, None, self._app.workflows)
        return await self._router.route(run, self._app.router)

    def _after_settle(self, run: Attempt, answer: Settled | Exception) -> None:
        self.running.pop(run.claim.seq, None)
        self.slots.leave(run.claim, run.lane)
        if self._concurrency == 1:
            self.release_slot()
        if isinstance(answer, Exception):
            log.warning("settle.refused", trigger=run.claim.id, reason=str(answer))
            announce(
                self._events, self._events.on_claims_lost
            )  # it may be settled, and what follows it in nobody's hands
        else:
            announce(self._events, log_settled, run, answer.move, self._logs_successes)
        self._loop.wake(self._work_came)
        announce(self._events, self._events.on_settled, run, answer)

    def leave(self) -> None:
        """Stop what runs, and begin nothing of what is on its way to its start: all of it is given back."""
        self.stopping = self._is_leaving = True
        for run in list(self.running.values()):
            run.stop("shutdown")

    # Places and hand-over

    def wake(self) -> None:
        """Wake the start loop: the window has new claims."""
        self._loop.wake(self._work_came)

    def reserve_slot(self) -> bool:
        """Take a slot for a trigger that starts in the commit of its emit. False: it may not start now."""
        return self._may_start() and self.slots.reserve_new()

    def _may_start(self) -> bool:
        return not (self.stopping or self.held_back) and self._shortages.current is None

    def release_slot(self) -> None:
        """Release the slot of a trigger that ended, or was not started, and wake the start loop."""
        self.slots.release()
        self._loop.wake(self._work_came)

    def held_claims(self) -> list[Claim]:
        """Return every claim that was taken out of the window and is not settled."""
        return [*self._starting, *(run.claim for run in self.running.values())]

    @property
    def is_idle(self) -> bool:
        """Nothing is started, running or being settled."""
        return self.is_idle_beside(0)

    def is_idle_beside(self, running: int) -> bool:
        """Return whether nothing is started or being settled, and at most this number of attempts run."""
        taken = max(len(self.running), self.slots.taken)
        return taken <= running and not (self._starting or self._ended or self._settling)

    def _offer_claims(self, run: Attempt) -> None:
        self._ready.append(run)
        if self._idle:
            self._loop.wake(self._idle.pop())

    async def _next_run(self) -> Attempt:
        while not self._ready:
            waiter = self._loop.create_waiter()
            self._idle.append(waiter)
            await self._loop.wait(waiter)
        return self._ready.popleft()

    def _drop_unstarted(self, claims: list[Claim], runs: list[Attempt]) -> None:
        """Release the slot and the lane of a trigger that was cancelled, superseded, replaced or stale before its
        start."""
        if len(runs) == len(claims):
            return
        started = {(run.claim.seq, run.claim.lease_token) for run in runs}
        for claim in claims:
            if (claim.seq, claim.lease_token) not in started:
                log.debug("start.refused", trigger=claim.id)
                self.slots.leave(claim, claim.lane)
                self.release_slot()
                announce(self._events, self._events.on_start_refused, claim)
