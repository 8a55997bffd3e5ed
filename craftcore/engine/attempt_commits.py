"""The two commits of the main path: attempts begin, are routed, and end.

`AttemptCommits` has their rules, which run on the writer's thread. `AttemptBatches` commits them from the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import anyio

from craftcore.engine.attempt import Attempt
from craftcore.engine.durable_commit import DurableCommits
from craftcore.engine.exclusive_run import ExclusiveRun
from craftcore.engine.faults import fault, report
from craftcore.engine.held_tasks import HeldTasks
from craftcore.engine.limits.shortages import HAND_BACKS_MAX, LOOK_SECONDS, Shortages
from craftcore.engine.routing import Delivery, Routes
from craftcore.errors import LeaseLost
from craftcore.executions.recorder import AttemptInfo, Record, Recorder, Routed
from craftcore.registry.registry import Registry
from craftcore.registry.workflow import Workflow
from craftcore.services import Services
from craftcore.storage.transaction import Transaction
from craftcore.tasks.fallback_store import FallbackStore
from craftcore.tasks.model import Entry, Task, entry_text
from craftcore.tasks.outcomes import Continues
from craftcore.tasks.turn_end import NOTHING, Followed, TurnEnd
from craftcore.tasks.turn_start import StaleTurn, TurnStart
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.claim_service import Started
from craftcore.triggers.model import OWN_SOURCES, Claim
from craftcore.triggers.settlement import (
    Cancelled,
    Delivered,
    Failed,
    Obsolete,
    Outcome,
    Settlement,
    Snoozed,
    is_cancellation,
)


class Settled(NamedTuple):
    """A settled trigger, and what follows it."""

    move: Settlement
    followed: Followed


class AttemptCommits:
    """Starts and settles for one engine. Each method is a rule over a transaction it is given.

    `may_claim_next(attempt)`: the next turn of its task may be claimed in the commit that creates it.
    """

    def __init__(
        self,
        app: Registry,
        services: Services,
        recorder: Recorder,
        held_tasks: HeldTasks,
        *,
        epoch: int,
        may_claim_next: Callable[[Attempt], bool],
    ) -> None:
        self._app = app
        self._claims = services.claims
        self._turn_starter = services.turn_starter
        self._turns = services.turns
        self._recorder = recorder
        self._held_tasks = held_tasks
        self._epoch = epoch
        self._may_claim_next = may_claim_next
        self._routes = Routes(app)
        self._agents = FallbackStore()

    def start_all(self, tx: Transaction, claims: list[Claim], alone: bool, outlived: Claim | None) -> list[Attempt]:
        """Count the attempts, enter the turns and open the records of claims that still hold their leases. Those of
        tasks that are held are put off instead.

        `outlived`: the suspect beside which they start, which has run alone until now.
        """
        if outlived is not None:
            self._claims.note_joined(tx, outlived)
        if self._held_tasks:
            claims = self._held_tasks.select_startable(tx, claims)
        answers = self._claims.start_all(tx, claims, alone=alone)
        started = [answer.claim for answer in answers if isinstance(answer, Started)]
        routes = [self._routes.known_route(tx, claim) for claim in started]
        entries = self._turn_starter.enter_all(
            tx, [self._start(claim, route) for claim, route in zip(started, routes, strict=True)]
        )
        routes = [self._next_agent_route(route, entry) for route, entry in zip(routes, entries, strict=True)]
        infos = [attempt_of(*parts) for parts in zip(started, routes, entries, strict=True)]
        records = self._recorder.open_all(tx, self._epoch, infos)
        attempts = []
        for info, route, entry, record in zip(infos, routes, entries, records, strict=True):
            attempt = Attempt(info.claim, record, info.routed, entry if isinstance(entry, Entry) else None)
            if isinstance(entry, StaleTurn):
                attempt.outcome = Obsolete(reason=entry.reason)
            elif isinstance(route, Delivery):
                attempt.outcome = Delivered(task_id=route.task_id)
            attempts.append(attempt)
        return attempts

    def settle_all(self, tx: Transaction, attempts: list[Attempt]) -> list[Settled | Exception]:
        """Settle triggers, records and tasks of attempts that have ended; an answer each."""
        outcomes = [
            limited_outcome(attempt.deadline_at, self._release_undeliverable(tx, _outcome(attempt)))
            for attempt in attempts
        ]
        ends = [(attempt.claim, outcome) for attempt, outcome in zip(attempts, outcomes, strict=True)]
        by_seq = {attempt.claim.seq: attempt for attempt in attempts}

        def policy(claim: Claim) -> RetryPolicy:
            routed = by_seq[claim.seq].routed
            return self._app.policy_of(routed.intent or routed.workflow if routed else None)

        moves = self._claims.settle_all(tx, ends, policy)
        settled: list[tuple[Attempt, Outcome, Settlement]] = []
        for attempt, outcome, move in zip(attempts, outcomes, moves, strict=True):
            if isinstance(move, Settlement):
                if is_cancellation(move):
                    outcome = Cancelled(effect_possible=bool(attempt.acted))
                settled.append((attempt, outcome, move))
        self._recorder.close_all(tx, [(attempt.record, outcome) for attempt, outcome, _ in settled])
        followed = self._follow_all(tx, settled)
        return [
            move if isinstance(move, Exception) else Settled(move, followed.get(attempt.claim.seq, NOTHING))
            for attempt, move in zip(attempts, moves, strict=True)
        ]

    def settle_and_start(
        self, tx: Transaction, attempts: list[Attempt], claims: list[Claim]
    ) -> tuple[list[Settled | Exception], list[Attempt]]:
        """Settle attempts that have ended, and then start claims; both or neither."""
        return self.settle_all(tx, attempts), self.start_all(tx, claims, alone=False, outlived=None)

    def fail(self, tx: Transaction, claim: Claim, failed: Failed) -> Settled | Exception:
        """Settle as FAILED what can be neither started nor settled as it should. Its record, if one is open, stays
        incomplete."""
        try:
            return Settled(self._claims.fail(tx, claim, failed), Followed(due_at=tx.now))
        except LeaseLost as error:
            return error

    def _follow_all(self, tx: Transaction, settled: list[tuple[Attempt, Outcome, Settlement]]) -> dict[int, Followed]:
        """Return what the settled triggers mean for their tasks; what follows each, by the trigger's seq."""
        followed: dict[int, Followed] = {}
        ends: list[TurnEnd] = []
        turned: list[int] = []
        for attempt, outcome, move in settled:
            if attempt.entry is not None:
                self._settle_agents(tx, attempt, attempt.entry.task, outcome)
                steps, is_stalled = (
                    (attempt.turn.spent, attempt.turn.asked_at > 0) if attempt.turn is not None else (0, False)
                )
                turn_move = None if isinstance(outcome, Cancelled) else attempt.move
                ends.append(
                    TurnEnd(
                        attempt.entry,
                        move,
                        turn_move,
                        steps,
                        self._may_claim_next(attempt),
                        is_stalled or attempt.was_stalled,
                        () if attempt.turn is None else attempt.turn.messages,
                    )
                )
                turned.append(attempt.claim.seq)
            elif isinstance(outcome, Delivered):
                followed[attempt.claim.seq] = self._turns.deliver(tx, attempt.claim, outcome.task_id)
        if ends:
            followed.update(zip(turned, self._turns.settle_all(tx, self._epoch, ends), strict=True))
        return followed

    def _settle_agents(self, tx: Transaction, attempt: Attempt, task: Task, outcome: Outcome) -> None:
        """Note which agent the next turn begins with: after a failure the first, after a Continue the one that ran."""
        routed = attempt.routed
        if task.agent is None or routed is None:
            return
        if isinstance(outcome, Failed):
            self._agents.start_over(tx, task)
        elif isinstance(attempt.move, Continues):
            self._agents.keep(tx, task, routed.agents, task.agent)

    def _release_undeliverable(self, tx: Transaction, outcome: Outcome) -> Outcome:
        """Return a message to the queue when its task cannot take it any more."""
        if isinstance(outcome, Delivered):
            return self._turns.delivery_refusal(tx, outcome.task_id) or outcome
        return outcome

    def decide(
        self, tx: Transaction, attempt: Attempt, routed: Routed, session_id: str | None
    ) -> tuple[Record, Entry | StaleTurn | None]:
        """Note what a router decided, and enter the turn: the record as it goes on, and what the turn finds."""
        if session_id is not None:
            self._claims.join_lane(tx, attempt.claim, session_id)
        [entry] = self._turn_starter.enter_all(tx, [self._start(attempt.claim._replace(lane=attempt.lane), routed)])
        if routed.agents and isinstance(entry, Entry):
            self._agents.choose(tx, entry.task, routed.agents)
        return self._recorder.record_decision(
            tx, attempt.record, attempt_of(attempt.claim, self._next_agent_route(routed, entry), entry)
        ), entry

    def fall_back(self, tx: Transaction, attempt: Attempt, failed: Failed, agent: str) -> Record | None:
        """Note that the agent which ran has failed, and that the next one is tried. None, and nothing written,
        when its task has begun an irreversible action. Raises LeaseLost."""
        assert attempt.routed is not None, attempt.claim
        self._claims.require_held(tx, attempt.claim)
        if attempt.entry is not None and not self._agents.fall_back(
            tx, attempt.entry.task, attempt.routed.agents, agent
        ):
            return None
        routed = attempt.routed._replace(workflow=agent, intent=attempt.routed.intent or attempt.routed.workflow)
        return self._recorder.record_fallback(tx, attempt.record, failed, AttemptInfo(attempt.claim, routed))

    def _next_agent_route(
        self, route: Routed | Delivery | None, entry: Entry | StaleTurn | None
    ) -> Routed | Delivery | None:
        """Return the route with the agents that may run, and the agent that runs next."""
        if not isinstance(route, Routed):
            return route
        task = entry.task if isinstance(entry, Entry) else None
        workflow = self._app.workflows.get(route.workflow)
        agents = (task.agents if task is not None else None) or route.agents or (workflow.agents if workflow else ())
        if not agents:
            return route
        agent = (task.agent if task is not None else None) or agents[0]
        return Routed(agent, route.reason, None if agent == route.workflow else route.workflow, agents)

    def _start(self, claim: Claim, route: Routed | Delivery | None) -> TurnStart:
        """Return what a turn must know of a started claim. A trigger advances the task that it names only when it is a
        continuation or a resume. A new task belongs to the session that a router chose, and is in its lane."""
        if claim.task_id is None:
            if claim.session_id is None and claim.lane is not None:
                claim = claim._replace(session_id=claim.lane)
        elif claim.task_id != claim.id and claim.source not in OWN_SOURCES:
            claim = claim._replace(task_id=None)
        workflow = self._app.workflows.get(route.workflow) if isinstance(route, Routed) else None
        if workflow is None:
            return TurnStart(claim, "", False, None)
        return TurnStart(claim, workflow.name, self._is_task(workflow, route, claim.payload_json), workflow.deadline)

    def _is_task(self, workflow: Workflow, route: Routed | Delivery | None, payload_json: str) -> bool:
        """Return whether any of the agents that may run makes a task of it."""
        agents = (route.agents if isinstance(route, Routed) else ()) or workflow.agents
        others = (self._app.workflows.get(name) for name in agents[1:])
        return workflow.is_task(payload_json) or any(other and other.is_task(payload_json) for other in others)


class AttemptBatches:
    """Batches of starts and settles: one commit each. After a fault each member is committed by itself.

    `on_start_failed(claim)` is called after the commit of a trigger that failed because it could not be started.
    """

    def __init__(
        self,
        attempts: AttemptCommits,
        commits: DurableCommits,
        exclusive: ExclusiveRun,
        shortages: Shortages,
        on_start_failed: Callable[[Claim], None],
    ) -> None:
        self._shortages = shortages
        self._attempts = attempts
        self._commits = commits
        self._exclusive = exclusive
        self._on_start_failed = on_start_failed
        self.may_have_started = False
        """An error was raised while claims were started, perhaps after their commit: then no attempt holds them."""

    async def start(self, claims: list[Claim]) -> list[Attempt]:
        """Start these claims in one commit. After an error of craftcore each is started alone, and fails alone."""
        try:
            alone, outlived = self._exclusive.is_on, self._exclusive.outlived
            attempts: list[Attempt] = await self._commits.commit(self._attempts.start_all, claims, alone, outlived)
            if outlived is not None:
                self._exclusive.note_joined(outlived)
            return attempts
        except BaseException as error:
            failed = fault(error, "start")
            self.may_have_started = True
            if self._shortages.note(error) is not None:
                return []  # they are claimed again
            if len(claims) == 1:
                report(claims[0], "start", error)
        if len(claims) > 1:
            return [attempt for claim in claims for attempt in await self.start([claim])]
        await self._commits.commit(self._attempts.fail, claims[0], failed)
        self._on_start_failed(claims[0])
        return []

    async def settle_and_start(
        self, attempts: list[Attempt], claims: list[Claim]
    ) -> tuple[list[Settled | Exception], list[Attempt]]:
        """Settle these attempts and start these claims in one commit. After an error of craftcore each has its own."""
        try:
            answers: tuple[list[Settled | Exception], list[Attempt]] = await self._commits.commit(
                self._attempts.settle_and_start, attempts, claims
            )
            return answers
        except BaseException as error:
            fault(error, "settle")
            self.may_have_started = True
        return await self.settle(attempts), await self.start(claims)

    async def settle(self, attempts: list[Attempt]) -> list[Settled | Exception]:
        """Settle these attempts in one commit. After an error of craftcore each is settled alone: as it ended, else as
        failed, else by the fewest statements. An error in the last of these ends the engine."""
        try:
            return await self._settle_together(attempts)
        except BaseException as error:
            failed = fault(error, "settle")
            if len(attempts) == 1:
                report(attempts[0].claim, "settle", error)
        if len(attempts) > 1:
            return [answer for attempt in attempts for answer in await self.settle([attempt])]
        attempts[0].outcome, attempts[0].move = failed, None
        try:
            return await self._settle_together(attempts)
        except BaseException as error:
            fault(error, "settle")
        return [await self._commits.commit(self._attempts.fail, attempts[0].claim, failed)]

    async def _settle_together(self, attempts: list[Attempt]) -> list[Settled | Exception]:
        for left in reversed(range(HAND_BACKS_MAX)):
            try:
                answers: list[Settled | Exception] = await self._commits.commit(self._attempts.settle_all, attempts)
                return answers
            except BaseException as error:
                if not left or self._shortages.note(error) is None:
                    raise
                await anyio.sleep(LOOK_SECONDS)
        raise AssertionError(attempts)


def attempt_of(claim: Claim, route: Routed | Delivery | None, entry: Entry | StaleTurn | None) -> AttemptInfo:
    """Return what a record is opened of."""
    routed = route if isinstance(route, Routed) else None
    if not isinstance(entry, Entry):
        return AttemptInfo(claim, routed)
    return AttemptInfo(claim, routed, entry.task.id, entry.task.turn, entry_text(entry))


def limited_outcome(deadline_at: float | None, outcome: Outcome) -> Outcome:
    """Return the outcome of a task's turn: what is tried again is tried again at the task's deadline in any case, to
    fail."""
    if deadline_at is None or not isinstance(outcome, (Failed, Snoozed)):
        return outcome
    return replace(outcome, no_later=deadline_at)


def _outcome(attempt: Attempt) -> Outcome:
    """Return what it came to; of a failure also whether it may have had an effect."""
    assert attempt.outcome is not None, attempt.claim
    if attempt.acted and isinstance(attempt.outcome, Failed):
        return replace(attempt.outcome, effect_possible=True)
    return attempt.outcome
