"""What an activity is: one irreversible action, known by its key, whatever becomes of the process that calls it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ActivityStatus(StrEnum):
    """INTENT  -> DONE      the provider answered
            -> FAILED    it is certain that nothing happened, or the provider refused for good
            -> UNKNOWN   a crash, a timeout, a cancellation, any other error: nobody knows
    FAILED  -> INTENT    called again, where that may help
    UNKNOWN -> INTENT    called again with the same key: the provider drops a second one, or a decision says it may be
            -> DONE      a decision says that it happened
    """

    INTENT = "INTENT"
    DONE = "DONE"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"


class OnUnknown(StrEnum):
    """What becomes of an activity when nobody knows whether it happened."""

    ASK = "ask"
    """A person decides."""
    RESEND = "resend"
    """Call again with the same key: the provider drops what it has had, as long as its window lasts."""
    RECONCILE = "reconcile"
    """Ask the provider; when it does not know, a person."""
    ASSUME_DONE = "assume_done"
    """Take it as done: better not at all than twice."""


class Decision(StrEnum):
    """What was decided of an activity in doubt, by a person or by its policy."""

    HAPPENED = "happened"
    RESEND = "resend"
    """It did not happen, or a second call does no harm."""
    GIVE_UP = "give up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On which terms an action is called. Times in seconds.

    irreversible          it goes into the ledger
    on_unknown            what to do when nobody knows whether it happened
    idempotent_provider   the provider does one thing once for each key that it is given
    idempotency_window    how long it remembers a key; None: for ever
    timeout               how long a call may take
    settle_after          how long after a call the provider's "no" is believed
    """

    irreversible: bool = True
    on_unknown: OnUnknown = OnUnknown.ASK
    idempotent_provider: bool = False
    idempotency_window: float | None = None
    timeout: float = 60.0
    settle_after: float = 60.0
