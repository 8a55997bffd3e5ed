"""Activities: one irreversible action each, known by its key, whatever becomes of the process that calls it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

REFUSED, REFUSED_AS_EXPECTED = "it was refused", "it was refused, as expected"
"""The reasons of a FAILED activity whose action raised Fail; the second one with `expected=True`."""

NUMBERED = re.compile(r"\d+\.\d+(@.*)?")
"""The place of an act without a key of its own: its turn and its number. No later turn asks for it."""


class ActivityStatus(StrEnum):
    """INTENT  -> DONE      the provider answered
            -> FAILED    it is certain that nothing happened, or the provider refused for good
            -> UNKNOWN   a crash, a timeout, a cancellation, any other error
    FAILED  -> INTENT    called again, where that may help
    UNKNOWN -> INTENT    called again with the same key: the provider drops a second one, or a decision says it may be
            -> DONE      a decision says that it happened
    """

    INTENT = "INTENT"
    DONE = "DONE"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"


class OnUnknown(StrEnum):
    """The policy for an activity whose outcome is unknown."""

    ASK = "ask"
    """A person decides."""
    RESEND = "resend"
    """Call again with the same key: the provider drops what it has had, as long as its window lasts."""
    RECONCILE = "reconcile"
    """Ask the provider; when it does not know, a person."""
    ASSUME_DONE = "assume_done"
    """Take it as done: better not at all than twice."""


class Decision(StrEnum):
    """A decision about an activity in doubt, by an operator or by its policy."""

    HAPPENED = "happened"
    RESEND = "resend"
    """It did not happen, or a second call does no harm."""
    GIVE_UP = "give up"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionTerms:
    """The terms on which an action is called. Times in seconds.

    irreversible          it goes into the ledger
    on_unknown            what to do when its outcome is unknown
    idempotent_provider   the provider acts once for each key
    idempotency_window    how long the provider remembers a key; None: for ever
    timeout               how long a call may take
    settle_after          how long after a call is in doubt the provider's "no" is trusted
    """

    irreversible: bool = True
    on_unknown: OnUnknown = OnUnknown.ASK
    idempotent_provider: bool = False
    idempotency_window: float | None = None
    timeout: float = 60.0
    settle_after: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """The whole row.

    in_doubt       a call may have had its effect; only a decision ends that, never a later call that had none
    decision       what was decided of the doubt as it is now; None: nothing yet
    may_retry      another call may help: of a FAILED one nothing happened, of an UNKNOWN one it was not refused
    calls          how often the provider was called, or was about to be
    first_call_at  a provider's window counts from here
    """

    seq: int
    key: str
    task_id: str
    task_seq: int
    turn: int
    action: str
    status: ActivityStatus
    reason: str
    policy: OnUnknown
    args_hash: str
    request_json: str | None
    result_json: str | None
    result_unstored: str | None
    provider_ref: str | None
    error_code: str | None
    error_message: str | None
    may_retry: bool
    calls: int
    in_doubt: bool
    decision: Decision | None
    execution_seq: int
    epoch: int
    first_call_at: float
    last_call_at: float
    created_at: float
    updated_at: float
    settled_at: float | None
    result_shape: str | None = None
    """The shape of its result, as in `result_shape.py`; None: its task needs none."""

    @property
    def is_open(self) -> bool:
        """True when it is in doubt and undecided."""
        return self.status is ActivityStatus.UNKNOWN and self.decision is None

    @property
    def last_call(self) -> StartedCall:
        """The values by which its last call is settled, while it has no end."""
        return StartedCall(self.seq, self.calls, self.in_doubt)


class NewIntent(NamedTuple):
    """An intent, before its call. `request_json` None: too large to be kept."""

    key: str
    task_id: str
    task_seq: int
    turn: int
    action: str
    policy: OnUnknown
    args_hash: str
    request_json: str | None
    execution_seq: int
    epoch: int
    result_shape: str | None = None


class StartedCall(NamedTuple):
    """The intent is on disk: call the provider. `calls` is the number of this call, and proves that it is this one.
    `mark`: the call mark of its commit, which has to be beside the file before the call; 0: it is not to be called.
    """

    seq: int
    calls: int
    in_doubt: bool
    mark: int = 0


class CallOutcome(NamedTuple):
    """The outcome of a call. `may_retry`: another call may help."""

    status: ActivityStatus
    reason: str
    result_json: str | None = None
    result_unstored: str | None = None
    provider_ref: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    may_retry: bool = False


def outcome_after(ending: CallOutcome, *, in_doubt: bool) -> CallOutcome:
    """Return what a call comes to when an earlier one may have had its effect: that this one had none proves nothing
    of that.

    INTENT -> DONE      it happened: at this call or, with a provider that drops a second one, before
           -> FAILED    nothing happened, at any call
           -> UNKNOWN   the outcome is unknown
    """
    if ending.status is not ActivityStatus.FAILED or not in_doubt:
        return ending
    return ending._replace(status=ActivityStatus.UNKNOWN, reason=f"{ending.reason}, and an earlier call is in doubt")
