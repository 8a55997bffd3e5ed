"""The two commits of the main path: attempts begin, are routed, and end.

On the writer's thread; each method is a rule over a transaction it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from craftcore.engine.attempt import Attempt
from craftcore.engine.held_tasks import HeldTasks
from craftcore.engine.routing import OWN, Delivery, Routes
from craftcore.errors import LeaseLost
from craftcore.executions.recorder import AttemptInfo, Record, Recorder, Routed
from craftcore.registry.registry import Registry
from craftcore.registry.workflow import Workflow
from craftcore.services import Services
from craftcore.storage.transaction import Transaction
from craftcore.tasks.fallback_store import Agents
from craftcore.tasks.model import Entry, Task, entry_text
from craftcore.tasks.outcomes import Continues
from craftcore.tasks.turn_end import NOTHING, Followed, TurnEnd
from craftcore.tasks.turn_start import StaleTurn, TurnStart
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.claim_service import Started
from craftcore.triggers.model import Claim
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
    """Starts and settles for one engine. `may_claim_next(run)`: the next turn of its task may be born claimed."""

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
        self._entering = services.entering
        self._turns = services.turns
        self._recorder = recorder
        self._held_tasks = held_tasks
        self._epoch = epoch
        self._may_claim_next = may_claim_next
        self._routes = Routes(app)
        self._agents = Agents()

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
        entries = self._entering.enter_all(
            tx, [self._start(claim, route) for claim, route in zip(started, routes, strict=True)]
        )
        routes = [self._next_agent_route(route, entry) for route, entry in zip(routes, entries, strict=True)]
        attempts = [attempt_of(*found) for found in zip(started, routes, entries, strict=True)]
        records = self._recorder.open_all(tx, self._epoch, attempts)
        runs = []
        for attempt, route, entry, record in zip(attempts, routes, entries, records, strict=True):
            run = Attempt(attempt.claim, record, attempt.routed, entry if isinstance(entry, Entry) else None)
            if isinstance(entry, StaleTurn):
                run.outcome = Obsolete(reason=entry.reason)
            elif isinstance(route, Delivery):
                run.outcome = Delivered(task_id=route.task_id)
            runs.append(run)
        return runs

    def settle_all(self, tx: Transaction, runs: list[Attempt]) -> list[Settled | Exception]:
        """Settle triggers, records and tasks of attempts that have ended; an answer each."""
        outcomes = [limited_outcome(run.deadline_at, self._release_undeliverable(tx, _outcome(run))) for run in runs]
        ends = [(run.claim, outcome) for run, outcome in zip(runs, outcomes, strict=True)]
        by_seq = {run.claim.seq: run for run in runs}

        def policy(claim: Claim) -> RetryPolicy:
            routed = by_seq[claim.seq].routed
            return self._app.policy_of(routed.intent or routed.workflow if routed else None)

        moves = self._claims.settle_all(tx, ends, policy)
        settled: list[tuple[Attempt, Outcome, Settlement]] = []
        for run, outcome, move in zip(runs, outcomes, moves, strict=True):
            if isinstance(move, Settlement):
                if is_cancellation(move):
                    outcome = Cancelled(effect_possible=bool(run.acted))
                settled.append((run, outcome, move))
        self._recorder.close_all(tx, [(run.record, outcome) for run, outcome, _ in settled])
        followed = self._follow_all(tx, settled)
        return [
            move if isinstance(move, Exception) else Settled(move, followed.get(run.claim.seq, NOTHING))
            for run, move in zip(runs, moves, strict=True)
        ]

    def settle_and_start(
        self, tx: Transaction, runs: list[Attempt], claims: list[Claim]
    ) -> tuple[list[Settled | Exception], list[Attempt]]:
        """Settle attempts that have ended, and then start claims; both or neither."""
        return self.settle_all(tx, runs), self.start_all(tx, claims, alone=False, outlived=None)

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
        for run, outcome, move in settled:
            if run.entry is not None:
                self._settle_agents(tx, run, run.entry.task, outcome)
                steps, is_stalled = (run.turn.spent, run.turn.asked_at > 0) if run.turn is not None else (0, False)
                mine = None if isinstance(outcome, Cancelled) else run.move
                ends.append(
                    TurnEnd(run.entry, move, mine, steps, self._may_claim_next(run), is_stalled or run.was_stalled)
                )
                turned.append(run.claim.seq)
            elif isinstance(outcome, Delivered):
                followed[run.claim.seq] = self._turns.deliver(tx, run.claim, outcome.task_id)
        if ends:
            followed.update(zip(turned, self._turns.settle_all(tx, self._epoch, ends), strict=True))
        return followed

    def _settle_agents(self, tx: Transaction, run: Attempt, task: Task, outcome: Outcome) -> None:
        """Return the agent that continues a task after a FALLBACK."""
        routed = run.routed
        if task.agent is None or routed is None:
            return
        if isinstance(outcome, Failed):
            self._agents.start_over(tx, task)
        elif isinstance(run.move, Continues):
            self._agents.keep(tx, task, routed.agents, task.agent)

    def _release_undeliverable(self, tx: Transaction, outcome: Outcome) -> Outcome:
        """Return a message to the queue when its task cannot take it any more."""
        if isinstance(outcome, Delivered):
            return self._turns.delivery_refusal(tx, outcome.task_id) or outcome
        return outcome

    def decide(
        self, tx: Transaction, run: Attempt, routed: Routed, session_id: str | None
    ) -> tuple[Record, Entry | StaleTurn | None]:
        """Note what a router decided, and enter the turn: the record as it goes on, and what the turn finds."""
        if session_id is not None:
            self._claims.join_lane(tx, run.claim, session_id)
        [entry] = self._entering.enter_all(tx, [self._start(run.claim._replace(lane=run.lane), routed)])
        if routed.agents and isinstance(entry, Entry):
            self._agents.choose(tx, entry.task, routed.agents)
        return self._recorder.record_decision(
            tx, run.record, attempt_of(run.claim, self._next_agent_route(routed, entry), entry)
        ), entry

    def fall_back(self, tx: Transaction, run: Attempt, failed: Failed, agent: str) -> Record | None:
        """Note that the agent which ran has failed, and that the next one is tried. None, and nothing written,
        when its task has begun an irreversible action. Raises LeaseLost."""
        assert run.routed is not None, run.claim
        self._claims.require_held(tx, run.claim)
        if run.entry is not None and not self._agents.fall_back(tx, run.entry.task, run.routed.agents, agent):
            return None
        routed = run.routed._replace(workflow=agent, intent=run.routed.intent or run.routed.workflow)
        return self._recorder.record_fallback(tx, run.record, failed, AttemptInfo(run.claim, routed))

    def _next_agent_route(
        self, route: Routed | Delivery | None, entry: Entry | StaleTurn | None
    ) -> Routed | Delivery | None:
        """Return the route with the agents that are tried, and the one of them that it has come to."""
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
        elif claim.task_id != claim.id and claim.source not in OWN:
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


def _outcome(run: Attempt) -> Outcome:
    """Return what it came to; of a failure also whether it may have had an effect."""
    assert run.outcome is not None, run.claim
    if run.acted and isinstance(run.outcome, Failed):
        return replace(run.outcome, effect_possible=True)
    return run.outcome
