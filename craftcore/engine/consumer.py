"""The main path: what is claimed is started, routed, run and settled.

    window -> start (attempt, record and turn in one commit) -> route -> run
           -> settle (trigger, record, task and what follows in one commit)

Starts and settles go to the writer in batches, whatever has gathered while the last batch was on its way;
a worker never waits for a settle, except with a concurrency of 1, which settles each before it starts the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import structlog

from craftcore.clock import Clock, utc_iso
from craftcore.engine.attempt import Run
from craftcore.engine.attempt_commits import Attempts, Settled
from craftcore.engine.claim_window import TriggerQueue
from craftcore.engine.durable_commit import SetAside, insist
from craftcore.engine.exclusive_run import Solitude
from craftcore.engine.fallback import Fallback
from craftcore.engine.faults import fault, report
from craftcore.engine.routing import Routes, ask
from craftcore.engine.runner import Runner
from craftcore.errors import ErrorCode, LeaseLost
from craftcore.executions.recorder import Routed
from craftcore.failpoints import CutPoint, reach
from craftcore.registry.registry import Registry
from craftcore.registry.router import Route, unroutable
from craftcore.storage.event_loop import Loop
from craftcore.storage.writer import Writer
from craftcore.tasks.turn_start import Gone
from craftcore.triggers.claim_service import ClaimService
from craftcore.triggers.model import Claim, TriggerStatus
from craftcore.triggers.settlement import (
    RELEASED,
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


class Consumer:
    """Starts, runs and settles for one engine, at most `concurrency` at a time."""

    def __init__(
        self,
        app: Registry,
        attempts: Attempts,
        claims: ClaimService,
        writer: Writer,
        queue: TriggerQueue,
        runner: Runner,
        clock: Clock,
        loop: Loop,
        *,
        concurrency: int,
        set_aside: SetAside,
        on_room: Callable[[], None],
        on_refused: Callable[[Claim], None],
        on_failed_start: Callable[[Claim], None],
        on_settled: Callable[[Run, Settled | Exception], None],
        on_lane_left: Callable[[], None],
        on_lost: Callable[[], None],
        on_started: Callable[[Sequence[Run]], None],
    ) -> None:
        self._app = app
        self._attempts = attempts
        self._claims = claims
        self._writer = writer
        self._queue = queue
        self._fallback = Fallback(attempts, runner, clock, self._insist)
        self._loop = loop
        self._concurrency = concurrency
        self._set_aside = set_aside
        self._on_room = on_room
        self._on_started = on_started
        self._on_refused = on_refused
        self._on_failed_start = on_failed_start
        self._on_settled = on_settled
        self._on_lane_left = on_lane_left
        self._on_lost = on_lost
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
        self.solitude = Solitude(self.wake, clock.now, is_bounded=concurrency > 1)
        self.stopping = False
        self.held_back = False
        """Nothing is started yet."""
        self._is_leaving = False
        self._may_have_started = False
        """An error came up while claims were started, perhaps after their commit: then nobody holds them."""

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
            runs = await self._start_all(claims)
            self._starting = []
            self._give_up_places(claims, runs)
            if self._may_have_started:
                self._may_have_started = False
                self._tell(self._on_lost)
            for run in runs:
                self.running[run.claim.seq] = run
                if self._is_leaving:
                    run.outcome = run.outcome or Released(reason=RELEASED)
                self._hand_over(run)
            self._tell(self._on_started, runs)
            reach(CutPoint.START_COMMITTED)
            self._tell(self._on_room)

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
            answers = await self._settle_all(self._settling)
            reach(CutPoint.SETTLE_COMMITTED)
            for run, answer in zip(self._settling, answers, strict=True):
                self._settled(run, answer)
            self._settling = []

    # Steps

    async def _start_all(self, claims: list[Claim]) -> list[Run]:
        """Start these claims in one commit. After an error of ours each is started by itself, and fails by itself."""
        try:
            alone, outlived = self.solitude.is_on, self.solitude.outlived
            runs: list[Run] = await self._insist(self._attempts.start_all, claims, alone, outlived)
            if outlived is not None:
                self.solitude.joined(outlived)
            return runs
        except BaseException as error:
            failed = fault(error, "start")
            self._may_have_started = True
            if len(claims) == 1:
                report(claims[0], "start", error)
        if len(claims) > 1:
            return [run for claim in claims for run in await self._start_all([claim])]
        await self._insist(self._attempts.fail, claims[0], failed)
        self._tell(self._on_failed_start, claims[0])
        return []

    async def _settle_all(self, runs: list[Run]) -> list[Settled | Exception]:
        """Settle these runs in one commit. After an error of ours each is settled by itself: as it ended, else as
        failed, else by the fewest statements. An error in the last of these ends the engine."""
        try:
            return await self._settled_together(runs)
        except BaseException as error:
            failed = fault(error, "settle")
            if len(runs) == 1:
                report(runs[0].claim, "settle", error)
        if len(runs) > 1:
            return [answer for run in runs for answer in await self._settle_all([run])]
        runs[0].outcome, runs[0].move = failed, None
        try:
            return await self._settled_together(runs)
        except BaseException as error:
            fault(error, "settle")
        return [await self._insist(self._attempts.fail, runs[0].claim, failed)]

    async def _settled_together(self, runs: list[Run]) -> list[Settled | Exception]:
        answers: list[Settled | Exception] = await self._insist(self._attempts.settle_all, runs)
        return answers

    def _startable(self) -> list[Claim]:
        """The best claims there are places for. One that was in too many crashes waits until nothing else runs."""
        claims: list[Claim] = []
        while not (self.stopping or self.held_back or self.solitude.is_on) and (best := self._best()) is not None:
            if must_run_alone(best) and not (self._taken or self.running):
                self.solitude.begin(best)
            elif self._taken >= self._concurrency or (must_run_alone(best) and not self.solitude.has_waited(best)):
                break
            else:
                self.solitude.started_beside(best)
            claims.append(self._queue.pop(best))
            self._taken += 1
        return claims

    def _best(self) -> Claim | None:
        """Who starts next: while nothing runs, one that must run alone, so that nothing has to end for it."""
        suspect = None if self._taken or self.running else self._queue.best_suspect()
        return suspect or self._queue.best()

    async def _route_and_run(self, run: Run) -> Outcome:
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
            return failed

    async def _route(self, run: Run) -> Outcome | None:
        """Ask the app's router and note its decision; an outcome when the trigger ends here."""
        claim, router = run.claim, self._app.router
        if router is None:
            return unroutable(claim, None, self._app.workflows)
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
            return unroutable(claim, route.workflow, self._app.workflows)
        if session_id is not None and session_id != run.lane:
            if not self._queue.take_lane(session_id):
                return Rerouted(session_id=session_id)
            left, run.lane = run.lane, session_id
            self._leave_lane(left)
        if route.workflow is None:
            assert task is not None
            return Delivered(task_id=task.id)
        routed = Routed(route.workflow, "router", agents=route.agents)
        run.record, entry = await self._insist(self._attempts.decide, run, routed, session_id)
        run.routed = run.record.routed
        reach(CutPoint.ROUTE_DECIDED)
        if isinstance(entry, Gone):
            return Obsolete(reason=entry.reason)
        run.entry = entry
        return None

    def _tell(self, listener: Callable[..., None], *facts: Any) -> None:
        """Tell the engine what was committed. An error there changes nothing of what is on disk: it is logged, and the
        table is looked at for what was lost."""
        try:
            listener(*facts)
        except Exception:
            log.exception("listener.failed", listener=getattr(listener, "__name__", ""))
            self._on_lost()

    def _leave_lane(self, lane: str | None) -> None:
        if lane is not None:
            self._queue.free(lane)
            self._on_lane_left()

    def _settled(self, run: Run, answer: Settled | Exception) -> None:
        self.running.pop(run.claim.seq, None)
        self._queue.free(run.lane)
        self.solitude.end(run.claim)
        if self._concurrency == 1:
            self._free_place()
        if isinstance(answer, Exception):
            log.warning("settle.refused", trigger=run.claim.id, reason=str(answer))
            self._tell(self._on_lost)  # it may be settled, and what follows it in nobody's hands
        else:
            self._tell(_log_settled, run, answer.move)
        self._loop.wake(self._work_came)
        self._tell(self._on_settled, run, answer)

    async def _insist(self, work: Callable[..., Any], *args: Any) -> Any:
        return await insist(self._writer, self._set_aside, work, *args)

    def leave(self) -> None:
        """Stop what runs, and begin nothing of what is on its way to its start: all of it is given back."""
        self.stopping = self._is_leaving = True
        for run in list(self.running.values()):
            run.stop("shutdown")

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
                self.solitude.end(claim)
                self._free_place()
                self._tell(self._on_refused, claim)

    def _free_place(self) -> None:
        self._taken -= 1
        self._loop.wake(self._work_came)


def _log_settled(run: Run, move: Settlement) -> None:
    if move.status is TriggerStatus.DONE:
        return  # its record says it; a line each would cost more than the work
    if move.gives_back:
        log.info("trigger.released", trigger=run.claim.id, reason=move.reason, not_before=utc_iso(move.not_before))
        return
    log.warning(
        "trigger.retried" if move.status is TriggerStatus.PENDING else "trigger.settled",
        trigger=run.claim.id,
        workflow=run.claim.workflow if run.routed is None else run.routed.workflow,
        attempt=run.claim.attempts,
        status=move.status,
        reason=move.reason,
        error=move.error_message,
        not_before=utc_iso(move.not_before),
        **_raised(run.outcome),
    )


def _raised(outcome: Outcome | None) -> dict[str, Any]:
    """What exception it was, and where it was raised: of one that is none of ours."""
    details = outcome.details if isinstance(outcome, Failed) else {}
    return {name: details[name] for name in ("exception_type", "where") if name in details}
