"""Where a trigger goes after an attempt, or after a crash. Pure: decides only; the store writes it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from craftcore.error_codes import Backoff, ErrorCode, find_code
from craftcore.serialization.plurals import format_count
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.model import Claim, TriggerStatus

INTERRUPTED = "interrupted by a crash"
UNSTARTED = "reclaimed before its start"
SHUT_DOWN = "released at shutdown"
RELEASED = "shutdown"
HANDED_BACK = (SHUT_DOWN, RELEASED)
RECLAIMED = (INTERRUPTED, UNSTARTED)
"""Why a trigger that was claimed is PENDING again."""

EXPECTED = "expected"
"""The reason of a trigger that FAILED as its workflow expects: no person has to look at it."""

CRASHES_BEFORE_ALONE = 2
"""A trigger that was running in this many crashes runs alone at its next start."""


RESTARTS_PER_CRASH = 2
"""Restarts of the machine during a trigger's run that count as one crash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Succeeded:
    """The workflow returned. `result_json` is the canonical text of what it returned, or, where that could not be put
    on record, of why (`is_stored` False)."""

    result_json: str = "null"
    is_stored: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The attempt failed. `retry_after` is the least wait in seconds, None when none was asked for; `no_later` the
    moment at which it comes back in any case, because its task has a deadline.

    `effect_possible` False is a promise: of the irreversible actions that the attempt came to, none has had its effect,
    nor can it have any more. True: one has, or that is unknown. An action that was not declared irreversible does not
    count. `expected`: the workflow said that it is a result of the business.
    """

    code: str
    message: str
    retryable: bool
    retry_after: float | None = None
    details: dict[str, Any] = field(default_factory=dict)
    no_later: float = math.inf
    effect_possible: bool = False
    expected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Snoozed:
    """It is run again at `until` (epoch seconds), because the workflow asked for that or the machine is short of
    something; the attempt is given back. `no_later` as in Failed."""

    until: float
    no_later: float = math.inf
    reason: str = "snoozed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The engine handed it back without an outcome (shutdown); the attempt is given back."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerouted:
    """A router chose a session whose lane is busy: it waits there, and the attempt is given back."""

    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """A person or program cancelled it while it ran. `effect_possible` as in Failed."""

    effect_possible: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Continued:
    """Its task goes on: the next turn has a trigger of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended:
    """Its turn waits, and has a trigger of its own when that is over. `event`: what a record says of the wait."""

    reason: str
    event: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """It was a message to a live task, and is in its mailbox."""

    task_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Obsolete:
    """The trigger is not needed any more; no code was run."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrupt:
    """The row cannot be read as a trigger; no code was run."""

    message: str


Outcome = (
    Succeeded
    | Failed
    | Snoozed
    | Released
    | Rerouted
    | Cancelled
    | Continued
    | Suspended
    | Delivered
    | Obsolete
    | Corrupt
)


class SettleFacts(Protocol):
    """The facts of a settle: those of a `Settlement`, or of the end of an entry on a cluster."""

    @property
    def status(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def not_before(self) -> float | None: ...
    @property
    def gives_back(self) -> int: ...
    @property
    def error_code(self) -> str | None: ...
    @property
    def error_message(self) -> str | None: ...


class Settlement(NamedTuple):
    """The decided move. `gives_back` is 1 when the attempt does not count."""

    status: TriggerStatus
    reason: str
    not_before: float | None = None
    gives_back: int = 0
    error_code: str | None = None
    error_message: str | None = None


_SUCCEEDED = Settlement(TriggerStatus.DONE, "succeeded")
_CONTINUED = Settlement(TriggerStatus.DONE, "continued")
SUSPENDED = "suspended: "
_DELIVERED = Settlement(TriggerStatus.DONE, "delivered")
CANCELLED = Settlement(TriggerStatus.DONE, "cancelled", error_code=ErrorCode.WORKFLOW_ABORTED)


def cancel_settlement(reason: str) -> Settlement:
    """Settle a trigger that was cancelled while it ran, for the reason of the request."""
    return CANCELLED._replace(reason=reason)


def is_cancellation(move: SettleFacts) -> bool:
    """Return whether a started trigger ends because of a request to cancel it."""
    return (move.status, move.error_code) == (CANCELLED.status, CANCELLED.error_code)


def has_next_turn(status: str, reason: str | None) -> bool:
    """Return whether a settled trigger was a turn of a task that went on after it."""
    has_next = reason is not None and (reason == _CONTINUED.reason or reason.startswith(SUSPENDED))
    return status == TriggerStatus.DONE and has_next


def outcome_label(move: SettleFacts) -> str:
    """Return the label of a settled attempt in the metrics.

    `done`, `failed` and `dead` are final. `retried` comes again, `released` comes again without having counted, and
    `cancelled` is a DONE that a person wanted.
    """
    if is_cancellation(move):
        return "cancelled"
    if move.gives_back:
        return "released"
    return "retried" if move.status == TriggerStatus.PENDING else move.status.lower()


def settle(claim: Claim, outcome: Outcome, policy: RetryPolicy, now: float) -> Settlement:
    """Decide where a started trigger goes.

    CLAIMED -> DONE      it succeeded, or was cancelled; its turn continues or is suspended; it was delivered
            -> FAILED    it failed, and trying again cannot help
            -> DEAD      it failed, and its attempts are spent; or the row is corrupt: a dead letter
            -> PENDING   it failed, and comes back after a backoff; or it was snoozed or released

    `claim.attempts` counts this attempt. Attempts that ended with the process (`crash_count`) spend nothing here:
    they are what `reclaim` judges.
    """
    match outcome:
        case Succeeded():
            return _SUCCEEDED
        case Cancelled():
            return CANCELLED
        case Continued():
            return _CONTINUED
        case Suspended(reason=reason):
            return Settlement(TriggerStatus.DONE, SUSPENDED + reason)
        case Delivered():
            return _DELIVERED
        case Obsolete(reason=reason):
            return Settlement(TriggerStatus.DONE, f"obsolete: {reason}")
        case Snoozed():
            not_before = min(outcome.until, outcome.no_later)
            return Settlement(TriggerStatus.PENDING, outcome.reason, not_before=not_before, gives_back=1)
        case Released(reason=reason):
            return Settlement(TriggerStatus.PENDING, reason, gives_back=1)
        case Rerouted(session_id=session_id):
            return Settlement(TriggerStatus.PENDING, f"waits for session {session_id}", gives_back=1)
        case Corrupt(message=message):
            return Settlement(TriggerStatus.DEAD, "corrupt row", error_message=message)
        case Failed(retryable=False):
            reason = EXPECTED if outcome.expected else outcome.code
            return Settlement(TriggerStatus.FAILED, reason, None, 0, outcome.code, outcome.message)
        case Failed():
            spent = claim.attempts - claim.crash_count
            if spent >= (claim.max_attempts or policy.max_attempts):
                return Settlement(TriggerStatus.DEAD, "attempts spent", None, 0, outcome.code, outcome.message)
            not_before = min(now + _wait(outcome, policy.backoff(claim.id, spent)), outcome.no_later)
            return Settlement(TriggerStatus.PENDING, outcome.code, not_before, 0, outcome.code, outcome.message)


def _wait(failed: Failed, backoff: float) -> float:
    """Return the seconds until another attempt: for RATE_LIMIT as long as the provider asked, even if that is less
    than the backoff; for other failures the longer of the two."""
    asked = failed.retry_after or 0.0
    code = find_code(failed.code)
    if asked and code is not None and code.backoff is Backoff.RETRY_AFTER:
        return asked
    return max(backoff, asked)


def is_poison(crash_count: int, started_alone: bool) -> bool:
    """Return whether a crash buries the trigger. `crash_count` includes this crash.

    Only one that took the process down while it ran alone is guilty; those beside it, and a job that was hit by
    other crashes, survive.
    """
    return started_alone and crash_count > CRASHES_BEFORE_ALONE


def make_poison(crashes: int, machine_restarts: int) -> Settlement:
    """Return the settlement of a trigger that is poison: after how many crashes, and restarts of the machine."""
    message = (
        f"the process died {format_count(crashes, 'time')} while this ran, "
        f"the last time with nothing beside it (it runs alone after {CRASHES_BEFORE_ALONE} crashes)"
    )
    if machine_restarts:
        message += f". The machine restarted {format_count(machine_restarts, 'time')}: two of those count as one"
    return Settlement(TriggerStatus.DEAD, "poison", error_code=ErrorCode.POISON, error_message=message)


def counts_as_crash(machine_restarts: int | None) -> bool:
    """Return whether the end of the process blames what ran. `machine_restarts`: in how many restarts of the machine
    it was, this one included; None: the machine ran on.

    A power cut hits whatever runs, and a long job again and again. So only every second restart counts.
    """
    return machine_restarts is None or machine_restarts % RESTARTS_PER_CRASH == 0


def must_run_alone(claim: Claim) -> bool:
    """Return whether it was in too many crashes to be started beside others."""
    return claim.crash_count >= CRASHES_BEFORE_ALONE
