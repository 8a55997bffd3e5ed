"""The main path: what is claimed is started, routed, run and settled.

    window -> start (attempt, record and turn in one commit) -> route -> run
           -> settle (trigger, record, task and what follows in one commit)

Starts and settles go to the writer in batches, whatever has gathered while the last batch was on its way;
a worker never waits for a settle, except with a concurrency of 1, which settles each before it starts the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import structlog

from craftcore.app import App
from craftcore.cutpoints import CutPoint, reach
from craftcore.engine.asking import ask
from craftcore.engine.insist import insist
from craftcore.engine.queue import TriggerQueue
from craftcore.engine.router import Route, unroutable
from craftcore.engine.routes import OWN, Delivery, Routes
from craftcore.engine.run import Run
from craftcore.engine.runner import Runner
from craftcore.errors import ErrorCode, LeaseLost
from craftcore.executions.recorder import Attempt, Record, Recorder, Routed
from craftcore.storage.transaction import Transaction
from craftcore.storage.waiters import Loop
from craftcore.storage.writer import Writer
from craftcore.tasks.model import Entry, entered
from craftcore.tasks.turns import NOTHING, Followed, Gone, Start, TurnEnd, TurnService
from craftcore.triggers.claims import ClaimService, Started
from craftcore.triggers.model import Claim, TriggerStatus
from craftcore.triggers.settlement import (
    CANCELLED,
    Cancelled,
    Delivered,
    Failed,
    Obsolete,
    Outcome,
    Released,
    Rerouted,
    Settlement,
    must_run_alone,
)

log = structlog.get_logger(__name__)


class Settled(NamedTuple):
    """A settled trigger, and what follows it."""

    move: Settlement
    followed: Followed


class Consumer:
    """Starts, runs and settles for one engine, at most `concurrency` at a time."""

    def __init__(
        self,
        app: App,
        claims: ClaimService,
        recorder: Recorder,
        writer: Writer,
        queue: TriggerQueue,
        runner: Runner,
        loop: Loop,
        turns: TurnService,
        *,
        epoch: int,
        concurrency: int,
        may_claim_next: Callable[[Run], bool],
        on_room: Callable[[], None],
        on_refused: Callable[[Claim], None],
        on_settled: Callable[[Run, Settled | Exception], None],
        on_lane_left: Callable[[], None],
    ) -> None:
        self._app = app
        self._claims = claims
        self._recorder = recorder
        self._writer = writer
        self._queue = queue
        self._runner = runner
        self._loop = loop
        self._turns = turns
        self._may_claim_next = may_claim_next
        self._epoch = epoch
        self._concurrency = concurrency
        self._on_room = on_room
        self._on_refused = on_refused
        self._on_settled = on_settled
        self._on_lane_left = on_lane_left
        self._starting: list[Claim] = []
        self._ready: deque[Run] = deque()
        self._idle: list[Any] = []
        self._taken = 0
        self._ended: list[Run] = []
        self._settling: list[Run] = []
        self._work_came: Any = loop.waiter()
        self._end_came: Any = loop.waiter()
        self.running: dict[int, Run] = {}
        self._routes = Routes(app)
        self._alone: int | None = None  # the seq of the trigger that nothing may run beside
        self.stopping = False

    # The main path, top to bottom

    async def consume(self) -> None:
        """Start what may be started, whenever there is a claim and a free place; until cancelled."""
        while True:
            claims = self._startable()
            if not claims:
                self._work_came = self._loop.waiter()
                await self._loop.wait(self._work_came)
                continue
            self._starting = claims
            runs = await self._insist(self._start_all, claims)
            self._starting = []
            self._give_up_places(claims, runs)
            for run in runs:
                self.running[run.claim.seq] = run
                self._hand_over(run)
            reach(CutPoint.START_COMMITTED)
            self._on_room()

    async def work(self) -> None:
        """One of `concurrency` workers: run what was started; until cancelled."""
        while True:
            run = await self._next_run()
            run.outcome = await self._route_and_run(run)
            await self._loop.forget_cancel()
            self._ended.append(run)
            if self._concurrency > 1:
                self._free_place()
            self._loop.wake(self._end_came)

    async def settle(self) -> None:
        """Settle everything that ended since the last batch, in one commit; until cancelled."""
        while True:
            if not self._ended:
                self._end_came = self._loop.waiter()
                await self._loop.wait(self._end_came)
            self._settling, self._ended = self._ended, []
            reach(CutPoint.SETTLE_BEGUN)
            answers = await self._insist(self._settle_all, self._settling)
            reach(CutPoint.SETTLE_COMMITTED)
            for run, answer in zip(self._settling, answers, strict=True):
                self._settled(run, answer)
            self._settling = []

    # What each commit writes; on the writer's thread

    def _start_all(self, tx: Transaction, claims: list[Claim]) -> list[Run]:
        answers = self._claims.start_all(tx, claims, alone=self._alone is not None)
        started = [answer.claim for answer in answers if isinstance(answer, Started)]
        routes = [self._routes.known(tx, claim) for claim in started]
        entries = self._turns.enter_all(tx, [self._start(c, route) for c, route in zip(started, routes, strict=True)])
        attempts = [attempt_of(*found) for found in zip(started, routes, entries, strict=True)]
        records = self._recorder.open_all(tx, self._epoch, attempts)
        runs = []
        for attempt, route, entry, record in zip(attempts, routes, entries, records, strict=True):
            run = Run(attempt.claim, record, attempt.routed, entry if isinstance(entry, Entry) else None)
            if isinstance(entry, Gone):
                run.outcome = Obsolete(reason=entry.reason)
            elif isinstance(route, Delivery):
                run.outcome = Delivered(task_id=route.task_id)
            runs.append(run)
        return runs

    def _settle_all(self, tx: Transaction, runs: list[Run]) -> list[Settled | Exception]:
        outcomes = [self._deliverable(tx, _outcome(run)) for run in runs]
        ends = [(run.claim, outcome) for run, outcome in zip(runs, outcomes, strict=True)]
        moves = self._claims.ack_all(tx, ends, self._policy)
        settled: list[tuple[Run, Outcome, Settlement]] = []
        for run, outcome, move in zip(runs, outcomes, moves, strict=True):
            if isinstance(move, Settlement):
                settled.append((run, Cancelled() if move is CANCELLED else outcome, move))
        self._recorder.close_all(tx, [(run.record, outcome) for run, outcome, _ in settled])
        followed = self._follow_all(tx, settled)
        return [
            move if isinstance(move, Exception) else Settled(move, followed.get(run.claim.seq, NOTHING))
            for run, move in zip(runs, moves, strict=True)
        ]

    def _follow_all(self, tx: Transaction, settled: list[tuple[Run, Outcome, Settlement]]) -> dict[int, Followed]:
        """What the settled triggers mean for their tasks; what follows each, by the trigger's seq."""
        followed: dict[int, Followed] = {}
        ends: list[TurnEnd] = []
        turned: list[int] = []
        for run, outcome, move in settled:
            if run.entry is not None:
                steps, was_stalled = (run.turn.spent, run.turn.asked_at > 0) if run.turn is not None else (0, False)
                mine = None if isinstance(outcome, Cancelled) else run.move
                ends.append(TurnEnd(run.entry, move, mine, steps, self._may_claim_next(run), was_stalled))
                turned.append(run.claim.seq)
            elif isinstance(outcome, Delivered):
                followed[run.claim.seq] = self._turns.deliver(tx, run.claim, outcome.task_id)
        if ends:
            followed.update(zip(turned, self._turns.settle_all(tx, self._epoch, ends), strict=True))
        return followed

    def _deliverable(self, tx: Transaction, outcome: Outcome) -> Outcome:
        """A message whose task cannot take it any more comes back."""
        if isinstance(outcome, Delivered):
            return self._turns.refuses_mail(tx, outcome.task_id) or outcome
        return outcome

    def _decide(
        self, tx: Transaction, run: Run, routed: Routed, session_id: str | None
    ) -> tuple[Record, Entry | Gone | None]:
        if session_id is not None:
            self._claims.join_lane(tx, run.claim, session_id)
        [entry] = self._turns.enter_all(tx, [self._start(run.claim._replace(lane=run.lane), routed)])
        return self._recorder.decided(tx, run.record, attempt_of(run.claim, routed, entry)), entry

    # Steps

    def _startable(self) -> list[Claim]:
        """The best claims there are places for. One that was in too many crashes waits until nothing else runs."""
        claims: list[Claim] = []
        while not self.stopping and self._alone is None and (best := self._queue.best()) is not None:
            if must_run_alone(best):
                if self._taken or self.running:
                    break
                self._alone = best.seq
            elif self._taken >= self._concurrency:
                break
            claims.append(self._queue.pop())
            self._taken += 1
        return claims

    async def _route_and_run(self, run: Run) -> Outcome:
        if run.outcome is not None:  # known by its start: there is no code to run
            return run.outcome
        if run.routed is None:
            try:
                refused = await self._route(run)
            except LeaseLost as error:  # somebody settled it under our hands; the settle will be refused, too
                refused = Released(reason=str(error))
            if refused is not None:
                return refused
        return await self._runner.run(run)

    async def _route(self, run: Run) -> Outcome | None:
        """Ask the app's router and note its decision; an outcome when the trigger ends here."""
        claim, router = run.claim, self._app.router
        if router is None:
            return unroutable(claim, None)
        route = await ask(router, run, await self._insist(self._routes.context))
        if not isinstance(route, Route):
            return route
        session_id = route.session_id
        if route.workflow is None:
            task = await self._insist(self._routes.live, route)
            if task is None:
                message = f"the router chose {route.session_id or route.task_id}, and no live task is there"
                return Failed(code=ErrorCode.ROUTING_ERROR, message=message, retryable=True)
            session_id = task.session_id or task.id
        elif route.workflow not in self._app.workflows:
            return unroutable(claim, route.workflow)
        if session_id is not None and session_id != run.lane:
            if not self._queue.take_lane(session_id):
                return Rerouted(session_id=session_id)
            left, run.lane = run.lane, session_id
            self._leave_lane(left)
        if route.workflow is None:
            assert task is not None
            return Delivered(task_id=task.id)
        run.routed = Routed(route.workflow, "router")
        run.record, entry = await self._insist(self._decide, run, run.routed, session_id)
        reach(CutPoint.ROUTE_DECIDED)
        if isinstance(entry, Gone):
            return Obsolete(reason=entry.reason)
        run.entry = entry
        return None

    def _leave_lane(self, lane: str | None) -> None:
        if lane is not None:
            self._queue.free(lane)
            self._on_lane_left()

    def _settled(self, run: Run, answer: Settled | Exception) -> None:
        self.running.pop(run.claim.seq, None)
        self._queue.free(run.lane)
        self._end_solitude(run.claim)
        if self._concurrency == 1:
            self._free_place()
        if isinstance(answer, Exception):
            log.warning("settle.refused", trigger=run.claim.id, reason=str(answer))
        else:
            _log_settled(run, answer.move)
        self._on_settled(run, answer)
        self._loop.wake(self._work_came)

    async def _insist(self, work: Callable[..., Any], *args: Any) -> Any:
        return await insist(self._writer, self._claims.set_aside_corrupt, work, *args)

    # Places and hand-over

    def wake(self) -> None:
        """There are new claims in the window."""
        self._loop.wake(self._work_came)

    def held(self) -> Iterator[Claim]:
        """Every claim that was taken out of the window and is not settled."""
        yield from list(self._starting)
        for run in list(self.running.values()):
            yield run.claim

    @property
    def is_idle(self) -> bool:
        """Nothing is started, running or being settled."""
        return not (self.running or self._starting or self._ended or self._settling)

    def _hand_over(self, run: Run) -> None:
        self._ready.append(run)
        if self._idle:
            self._loop.wake(self._idle.pop())

    async def _next_run(self) -> Run:
        while not self._ready:
            waiter = self._loop.waiter()
            self._idle.append(waiter)
            await self._loop.wait(waiter)
        return self._ready.popleft()

    def _give_up_places(self, claims: list[Claim], runs: list[Run]) -> None:
        """What was cancelled, superseded, replaced or stale before its start needs no place and no lane."""
        if len(runs) == len(claims):
            return
        started = {(run.claim.seq, run.claim.lease_token) for run in runs}
        for claim in claims:
            if (claim.seq, claim.lease_token) not in started:
                log.debug("start.refused", trigger=claim.id)
                self._queue.free(claim.lane)
                self._end_solitude(claim)
                self._free_place()
                self._on_refused(claim)

    def _end_solitude(self, claim: Claim) -> None:
        if self._alone == claim.seq:
            self._alone = None

    def _free_place(self) -> None:
        self._taken -= 1
        self._loop.wake(self._work_came)

    def _start(self, claim: Claim, route: Routed | Delivery | None) -> Start:
        """What a turn must know of a started claim. A task that it names is its own only when it carries on with it;
        a new one is of the session that a router chose, whose lane it is in."""
        if claim.task_id is None:
            claim = claim._replace(session_id=claim.session_id or claim.lane)
        elif claim.task_id != claim.id and claim.source not in OWN:
            claim = claim._replace(task_id=None)
        workflow = self._app.workflows.get(route.workflow) if isinstance(route, Routed) else None
        if workflow is None:
            return Start(claim, "", False, None)
        return Start(claim, workflow.name, workflow.takes_context, workflow.deadline)

    def _policy(self, claim: Claim) -> Any:
        run = self.running[claim.seq]
        return self._app.policy_of(run.routed.workflow if run.routed else None)


def attempt_of(claim: Claim, route: Routed | Delivery | None, entry: Entry | Gone | None) -> Attempt:
    """What a record is opened of."""
    routed = route if isinstance(route, Routed) else None
    if not isinstance(entry, Entry):
        return Attempt(claim, routed)
    return Attempt(claim, routed, entry.task.id, entry.task.turn, entered(entry))


def _outcome(run: Run) -> Outcome:
    assert run.outcome is not None, run.claim
    return run.outcome


def _log_settled(run: Run, move: Settlement) -> None:
    if move.status is TriggerStatus.DONE:
        return  # its record says it; a line each would cost more than the work
    if move.gives_back:
        log.info("trigger.released", trigger=run.claim.id, reason=move.reason, not_before=move.not_before)
        return
    log.warning(
        "trigger.retried" if move.status is TriggerStatus.PENDING else "trigger.settled",
        trigger=run.claim.id,
        attempt=run.claim.attempts,
        status=move.status,
        reason=move.reason,
        error=move.error_message,
        not_before=move.not_before,
    )
