"""One attempt on its way from start to settle."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Literal, cast

import anyio

from craftcore.clock import utc_iso
from craftcore.engine.turn.turn_state import TurnState
from craftcore.executions.recorder import Record, Routed
from craftcore.log import get_logger
from craftcore.results.own_work import CURRENT_CODE
from craftcore.tasks.model import Entry
from craftcore.tasks.outcomes import Move
from craftcore.triggers.model import Claim, TriggerStatus
from craftcore.triggers.settlement import EXPECTED, Failed, Outcome, SettleFacts

log = get_logger(__name__)

Why = Literal["cancelled", "shutdown", "parked"]

CURRENT = cast("ContextVar[Attempt | None]", CURRENT_CODE)
"""Whose code runs: set in the code of a workflow, and in the tasks and threads that it starts."""


class Attempt:
    """A started trigger, its open record, and the handle to stop it.

    entry  the entry of its turn; None: it belongs to no task
    turn   the turn, while user code runs in it
    calls  calls of irreversible actions: only a person, a shutdown or their timeout interrupts them
    move   the move of the turn; None: it has only an outcome
    """

    __slots__ = (
        "_scope",
        "acted",
        "blocked_loop",
        "calls",
        "cancels_ignored",
        "claim",
        "entry",
        "holds_loop",
        "home",
        "interrupted_by",
        "is_left_behind",
        "lane",
        "move",
        "on_shutdown",
        "outcome",
        "record",
        "routed",
        "stopped_by",
        "turn",
        "was_stalled",
    )

    def __init__(self, claim: Claim, record: Record, routed: Routed | None, entry: Entry | None = None) -> None:
        self.claim = claim
        self.record = record
        self.routed = routed
        self.entry = entry
        self.home: str | None = None
        """The database, or the task queue, whose engine runs its code."""
        self.turn: TurnState | None = None
        self.move: Move | None = None
        self.was_stalled = False
        """A person was asked about it while an agent ran that has failed since."""
        self.lane = claim.lane
        self.outcome: Outcome | None = None
        self.stopped_by: Why | None = None
        self.interrupted_by: Why | None = None
        """Why its calls are interrupted, whatever stopped its code before."""
        self.calls: set[anyio.CancelScope] = set()
        self.acted: set[str] = set()
        """Keys of the irreversible actions it came to that have had their effect, or may have."""
        self.cancels_ignored = 0
        """How often its code was cancelled at its end."""
        self.blocked_loop = False
        """Its code held the event loop while its deadline passed, so that nothing could cancel it then."""
        self.holds_loop = False
        """Its code was seen to hold the event loop before it was cancelled; in a task that it started, too."""
        self.is_left_behind = False
        """The engine shuts down without waiting for this attempt."""
        self.on_shutdown: list[Callable[[], None]] = []
        """Called at a shutdown, also when the run was stopped for another reason before."""
        self._scope: anyio.CancelScope | None = None

    @property
    def workflow(self) -> str:
        """The workflow that runs, else the one that was asked for."""
        return (self.routed.workflow if self.routed is not None else self.claim.workflow) or self.claim.source

    @property
    def is_settling(self) -> bool:
        """Its code has ended."""
        return self.outcome is not None

    @property
    def deadline_at(self) -> float | None:
        """When its task is to have ended; None: it has no deadline."""
        return None if self.entry is None else self.entry.task.deadline_at

    def enter(self, scope: anyio.CancelScope) -> None:
        """Run user code in this scope from now on."""
        self._scope = scope
        self.cancels_ignored, self.blocked_loop, self.holds_loop = 0, False, False
        if self.stopped_by is not None:
            scope.cancel()

    @property
    def is_over(self) -> bool:
        """Its code was stopped, or its time is over; the code may still run."""
        return self._scope is not None and self._scope.cancel_called

    def judge_block(self, now: float) -> None:
        """Note, where its code was seen to hold the loop, whether its time was over before it let go. `now` is on the
        clock of the loop."""
        if self.holds_loop:
            self.holds_loop = False
            if self._scope is not None and self._scope.deadline <= now:
                self.blocked_loop = True

    def stop(self, why: Why) -> None:
        """Cancel the user code at its next await. The first reason given is the one that counts."""
        if self.stopped_by is None:
            self.stopped_by = why
            if self._scope is not None:
                self._scope.cancel()
        if why != "parked":
            self.interrupted_by = self.interrupted_by or why
            for call in self.calls:
                call.cancel()
        if why == "shutdown":
            self.is_left_behind = True
            for let_go in self.on_shutdown:
                let_go()


def log_settled(attempt: Attempt, move: SettleFacts, logs_successes: bool) -> None:
    """Log a settle. A plain success only when that is asked for: its record says it, and a line each costs more than
    the work."""
    if move.status == TriggerStatus.DONE:
        if logs_successes:
            log.info("trigger.done", **_subject(attempt), attempt=attempt.claim.attempts, reason=move.reason)
        return
    if move.gives_back:
        log.info("trigger.released", trigger=attempt.claim.id, reason=move.reason, not_before=utc_iso(move.not_before))
        return
    facts = {
        **_subject(attempt),
        "attempt": attempt.claim.attempts,
        "status": move.status,
        "reason": move.reason,
        "error": move.error_message,
        "not_before": utc_iso(move.not_before),
        **_exception_fields(attempt.outcome),
    }
    if move.reason == EXPECTED:
        log.info("trigger.settled", **facts)
    else:
        log.warning("trigger.retried" if move.status == TriggerStatus.PENDING else "trigger.settled", **facts)


def _subject(attempt: Attempt) -> dict[str, Any]:
    """Return the trigger, its workflow, and its schedule where it has one."""
    workflow = attempt.claim.workflow if attempt.routed is None else attempt.routed.workflow
    schedule = {} if attempt.claim.schedule_id is None else {"schedule": attempt.claim.schedule_id}
    return {"trigger": attempt.claim.id, "workflow": workflow, **schedule}


def _exception_fields(outcome: Outcome | None) -> dict[str, Any]:
    """Return the type of an exception of user code, and where it was raised."""
    details = outcome.details if isinstance(outcome, Failed) else {}
    return {name: details[name] for name in ("exception_type", "where") if name in details}
