"""The agents of one attempt: the first is run, and each that fails is followed by the next, at once.

Not once an irreversible action of its task has begun: what another agent would do instead might be done twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from craftcore.clock import Clock
from craftcore.engine.attempt import Attempt
from craftcore.engine.runner import Runner
from craftcore.executions.recorder import Record
from craftcore.failpoints import Failpoint, hit
from craftcore.log import get_logger
from craftcore.triggers.settlement import RELEASED, Cancelled, Failed, Outcome, Released

log = get_logger(__name__)


NoteFallback = Callable[[Attempt, Failed, str], Awaitable[Record | None]]
"""Notes durably that the agent of an attempt has failed, and that this one is tried next. None: it may not be."""


class Fallback:
    """Runs attempts to their end."""

    def __init__(self, runner: Runner, note: NoteFallback, clock: Clock) -> None:
        self._runner = runner
        self._note = note
        self._clock = clock

    async def run(self, run: Attempt) -> Outcome:
        """Return what the attempt comes to: as its agent ends, or the last one that was tried. Raises LeaseLost."""
        outcome = await self._runner.run(run)
        while isinstance(outcome, Failed) and (agent := self._next_agent(run)) is not None:
            if run.stopped_by == "shutdown":
                return Released(reason=RELEASED)  # the next attempt has the time to try them all
            record = await self._note(run, outcome, agent)
            if record is None:
                break
            hit(Failpoint.FELL_BACK)
            log.warning(
                "agent.fell_back",
                trigger=run.claim.id,
                from_agent=run.routed.workflow if run.routed else None,
                to_agent=agent,
                error=outcome.message,
            )
            _switch_agent(run, record, agent)
            outcome = _stopped_outcome(run) or await self._runner.run(run)
        return outcome

    def _next_agent(self, run: Attempt) -> str | None:
        """Return the agent that is tried next; None: there is none, or none may be."""
        routed = run.routed
        if routed is None or routed.workflow not in routed.agents or run.stopped_by not in (None, "shutdown"):
            return None
        if run.turn is not None and run.turn.again is not None:
            return None  # it is to come to its own act again
        if run.deadline_at is not None and run.deadline_at <= self._clock.now():
            return None  # of the whole task
        place = routed.agents.index(routed.workflow) + 1
        return routed.agents[place] if place < len(routed.agents) else None


def _stopped_outcome(run: Attempt) -> Outcome | None:
    """Return what it comes to when it was stopped while it was handed over; None: it was not."""
    match run.stopped_by:
        case "cancelled":
            return Cancelled()
        case "shutdown":
            return Released(reason=RELEASED)
        case _:
            return None


def _switch_agent(run: Attempt, record: Record, agent: str) -> None:
    """Continue the turn with the next agent, which has its own identities in the turn."""
    run.record, run.routed, run.move = record, record.routed, None
    if run.entry is not None:
        memo = run.entry.memo if run.turn is None else run.turn.memo
        run.entry = replace(run.entry, task=replace(run.entry.task, agent=agent), memo=memo)
    run.was_stalled = run.was_stalled or (run.turn is not None and run.turn.asked_at > 0)
    run.turn = None
