"""The main path: what is claimed is started, routed, run and settled.

    window -> start (attempt, record and turn in one commit) -> route -> run
           -> settle (trigger, record, task and what follows in one commit)

Starts and settles go to the writer in batches: all that gathered during the last commit. A worker never waits for a
settle, except with a concurrency of 1. Then the settle of a trigger and the start of the next one are one commit.

A trigger that is due when it is emitted need not go through the table (`emit`):

    free slot in the engine    the commit that accepts it also starts it; its code runs after that flush
    free place in the window   the commit that accepts it also claims it; it starts in the next commit

An error of craftcore while a trigger is started never refuses the trigger: it is accepted without its start, and fails
where every start fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from craftcore.engine.attempt import Attempt, log_settled
from craftcore.engine.attempt_commits import AttemptBatches, AttemptCommits, Settled
from craftcore.engine.claim_window import ClaimWindow, Slots
from craftcore.engine.durable_commit import DurableCommits
from craftcore.engine.events import EngineEvents
from craftcore.engine.exclusive_run import ExclusiveRun
from craftcore.engine.faults import fault, report
from craftcore.engine.feeder import Feeder
from craftcore.engine.router_call import RouterCall
from craftcore.engine.runner import Fallback, Runner
from craftcore.errors import LeaseLost
from craftcore.failpoints import Failpoint, hit
from craftcore.log import get_logger
from craftcore.registry.registry import Registry
from craftcore.registry.router import unroutable_failure
from craftcore.services import Services
from craftcore.storage.event_loop import get_current_loop
from craftcore.storage.transaction import Transaction
from craftcore.storage.writer import Writer
from craftcore.tasks.outcomes import Continues
from craftcore.triggers.model import Claim, NewTrigger
from craftcore.triggers.settlement import RELEASED, Outcome, Released, Snoozed

log = get_logger(__name__)


class Consumer:
    """Starts, attempts and settles for one engine, at most `concurrency` at a time."""

    def __init__(
        self,
        app: Registry,
        services: Services,
        writer: Writer,
        attempts: AttemptCommits,
        commits: DurableCommits,
        window: ClaimWindow,
        feeder: Feeder,
        runner: Runner,
        events: EngineEvents,
        *,
        epoch: int,
    ) -> None:
        self._app = app
        self._writer = writer
        self._attempts = attempts
        self._feeder = feeder
        self._events = events
        self._concurrency = services.config.daemon.concurrency
        self._logs_successes = services.config.log.successes
        self._loop = get_current_loop()
        self.exclusive = ExclusiveRun(self.wake, services.clock.now, is_bounded=self._concurrency > 1)
        self.slots = Slots(window, self.exclusive, self._concurrency)
        self._shortages = runner.shortages
        self._shortages.on_end = self.wake
        self._batches = AttemptBatches(
            attempts, commits, self.exclusive, self._shortages, partial(self._announce, events.on_start_failed)
        )
        self._router = RouterCall(app, attempts, commits, self.slots, on_lane_left=feeder.ring)
        self._fallback = Fallback(runner, partial(commits.commit, attempts.fall_back), services.clock)
        self._emit_claimed = partial(
            services.triggers.emit_claimed, epoch=epoch, lease_seconds=services.claims.lease_seconds
        )
        self._claims_in_emit = 0
        """How many claims emits are about to push into the window."""
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

    async def emit(self, row: NewTrigger) -> bool:
        """Accept a trigger that need not go through the table; it is on disk then. False: it must, and nothing was
        written."""
        if not self._feeder.may_claim_on_emit(row, self._claims_in_emit):
            return False
        if not (self._reserve_for_emit() and await self._emit_started(row)):
            await self._emit_into_window(row)
        return True

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
            attempt = await self._next_attempt()
            attempt.outcome = await self._route_and_run(attempt)
            await self._loop.forget_cancel()
            self._ended.append(attempt)
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
            for attempt, answer in zip(self._settling, answers, strict=True):
                self._after_settle(attempt, answer)
            self._settling = []
            if claims:
                self._after_start(claims, started)

    # Steps of an emit

    def _reserve_for_emit(self) -> bool:
        """Take a slot, if no claim is on its way to the window. Not beside a look, which may take back claims that the
        engine does not know yet."""
        feeder = self._feeder
        is_first = not (self._claims_in_emit or feeder.is_polling or feeder.is_heartbeat_postponed)
        return is_first and self._may_start() and self.slots.reserve_new()

    async def _emit_into_window(self, row: NewTrigger) -> None:
        """Accept a trigger as claimed, and push it into the window."""
        self._claims_in_emit += 1
        claim: Claim | None = None
        try:
            claim = await self._writer.commit_batched(self._emit_claimed, row)
            hit(Failpoint.EMIT_COMMITTED)
        finally:
            self._claims_in_emit -= 1
            if claim is not None:
                self._feeder.push_claimed(claim)

    async def _emit_started(self, row: NewTrigger) -> bool:
        """Accept and start a trigger that has a slot. False: an error of craftcore, and nothing was written."""
        starting = self._feeder.starting
        starting.add(row.id)
        try:
            await self._writer.commit_batched(self._emit_and_start, row)
        except BaseException as error:
            fault(error, "start")  # raises what concerns the storage or the caller
            log.warning("emit.not_started", trigger=row.id, exc_info=error)
            return False
        finally:
            if row.id in starting:  # nothing was written
                starting.remove(row.id)
                self.release_slot()
                self._events.on_emit_refused()
            if self._feeder.is_heartbeat_postponed and not starting:
                self._feeder.ring()
        return True

    def _emit_and_start(self, tx: Transaction, rows: Sequence[NewTrigger]) -> list[Claim | Exception]:
        """Insert and start triggers, on the writer's thread. The workers get the attempts before any caller goes on, so
        the cancellation of a caller loses nothing."""
        answers = self._emit_claimed(tx, rows)
        claims = [claim for claim in answers if isinstance(claim, Claim)]
        attempts = self._attempts.start_all(tx, claims, alone=False, outlived=None)
        tx.after_commit(self._take_emitted, claims, attempts)
        return answers

    def _take_emitted(self, claims: list[Claim], attempts: list[Attempt]) -> None:
        """Give started attempts to the workers, on the thread of the loop."""
        for claim in claims:
            if claim.id in self._feeder.starting:
                self._feeder.starting.remove(claim.id)
            else:  # its caller has ended, and gave the slot back
                self.slots.take_again()
            hit(Failpoint.EMIT_COMMITTED)
        try:
            self.take_started(claims, attempts)
        except BaseException as error:
            self._events.crash("an error of craftcore while it handed over what it had started", error)

    # Steps of a start, a run and a settle

    def _startable_claims(self) -> list[Claim]:
        if not self._may_start():
            return []
        return self.slots.reserve(is_running=bool(self.running))

    def _next_claims(self, ended: list[Attempt]) -> list[Claim]:
        """Take the claim that starts in the commit which settles these; with a concurrency of 1 only.

        A further turn of the task may rank before it: that is known after the commit, and then nothing is taken."""
        if (
            self._concurrency > 1
            or not self._may_start()
            or any(isinstance(attempt.move, Continues) for attempt in ended)
        ):
            return []
        return self.slots.reserve_next()

    def _after_start(self, claims: list[Claim], attempts: list[Attempt]) -> None:
        """Note what a commit of this loop has started."""
        self._starting = []
        if self._batches.may_have_started:
            self._batches.may_have_started = False
            self._feeder.request_reclaim()
        self.take_started(claims, attempts)
        self._announce(self._feeder.notify_slot_freed)

    def take_started(self, claims: list[Claim], attempts: list[Attempt]) -> None:
        """Give the started attempts to the workers. Each claim has a slot."""
        self._drop_unstarted(claims, attempts)
        for attempt in attempts:
            self.running[attempt.claim.seq] = attempt
            if self._is_leaving:
                attempt.outcome = attempt.outcome or Released(reason=RELEASED)
            self._offer_attempt(attempt)
        self._announce(self._feeder.note_started, attempts)
        hit(Failpoint.START_COMMITTED)

    async def _route_and_run(self, attempt: Attempt) -> Outcome:
        if attempt.outcome is not None:  # known by its start: there is no code to run
            return attempt.outcome
        try:
            if attempt.routed is None and (refused := await self._route(attempt)) is not None:
                return refused
            return await self._fallback.run(attempt)
        except LeaseLost as error:  # it was settled elsewhere meanwhile, so its settle will be refused, too
            return Released(reason=str(error))
        except BaseException as error:
            failed = fault(error, "run")
            report(attempt.claim, "run", error)
            attempt.move = None
            handed_back = self._shortages.judge(attempt.claim.id, error, replace(failed, retryable=True))
            return handed_back if isinstance(handed_back, Snoozed) else failed

    async def _route(self, attempt: Attempt) -> Outcome | None:
        if self._app.router is None:
            return unroutable_failure(attempt.claim, None, self._app.workflows)
        return await self._router.route(attempt, self._app.router)

    def _after_settle(self, attempt: Attempt, answer: Settled | Exception) -> None:
        self.running.pop(attempt.claim.seq, None)
        self.slots.leave(attempt.claim, attempt.lane)
        if self._concurrency == 1:
            self.release_slot()
        if isinstance(answer, Exception):
            log.warning("settle.refused", trigger=attempt.claim.id, reason=str(answer))
            self._feeder.request_reclaim()  # it may be settled, and no part of the engine has the claim that follows
        else:
            self._announce(log_settled, attempt, answer.move, self._logs_successes)
        self._loop.wake(self._work_came)
        self._announce(self._events.on_settled, attempt, answer)

    def leave(self) -> None:
        """Stop what attempts, and begin nothing of what is on its way to its start: all of it is given back."""
        self.stopping = self._is_leaving = True
        for attempt in list(self.running.values()):
            attempt.stop("shutdown")

    # Slots and workers

    def wake(self) -> None:
        """Wake the start loop: the window has new claims."""
        self._loop.wake(self._work_came)

    def _may_start(self) -> bool:
        return not (self.stopping or self.held_back) and self._shortages.current is None

    def release_slot(self) -> None:
        """Release the slot of a trigger that ended, or was not started, and wake the start loop."""
        self.slots.release()
        self._loop.wake(self._work_came)

    def held_claims(self) -> list[Claim]:
        """Return every claim that was taken out of the window and is not settled."""
        return [*self._starting, *(attempt.claim for attempt in self.running.values())]

    @property
    def is_idle(self) -> bool:
        """Nothing is started, running or being settled."""
        return self.is_idle_beside(0)

    def is_idle_beside(self, running: int) -> bool:
        """Return whether nothing is started or being settled, and at most this number of attempts attempt."""
        taken = max(len(self.running), self.slots.taken)
        return taken <= running and not (self._starting or self._ended or self._settling)

    def _offer_attempt(self, attempt: Attempt) -> None:
        self._ready.append(attempt)
        if self._idle:
            self._loop.wake(self._idle.pop())

    async def _next_attempt(self) -> Attempt:
        while not self._ready:
            waiter = self._loop.create_waiter()
            self._idle.append(waiter)
            await self._loop.wait(waiter)
        return self._ready.popleft()

    def _drop_unstarted(self, claims: list[Claim], attempts: list[Attempt]) -> None:
        """Release the slot and the lane of a trigger that was cancelled, superseded, replaced or stale before its
        start."""
        if len(attempts) == len(claims):
            return
        started = {(attempt.claim.seq, attempt.claim.lease_token) for attempt in attempts}
        for claim in claims:
            if (claim.seq, claim.lease_token) not in started:
                log.debug("start.refused", trigger=claim.id)
                self.slots.leave(claim, claim.lane)
                self.release_slot()
                self._announce(self._events.on_start_refused, claim)

    def _announce(self, listener: Callable[..., None], *facts: Any) -> None:
        """Call a listener after a commit. An error in it is logged, and the table is searched for lost claims."""
        try:
            listener(*facts)
        except Exception:
            log.exception("listener.failed", listener=getattr(listener, "__name__", ""))
            self._feeder.request_reclaim()
