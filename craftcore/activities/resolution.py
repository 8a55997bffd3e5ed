"""The resolution of an activity whose outcome is unknown. Decides only."""

from __future__ import annotations

import math
from dataclasses import dataclass

from craftcore.activities.ledger_rules import RESTORED_OTHER_KEY
from craftcore.activities.model import ActionTerms, Activity, Decision, OnUnknown


@dataclass(frozen=True, slots=True)
class Resend:
    """Call again with the same key: the provider drops what it has had. Not after `until`: it may forget."""

    until: float = math.inf


@dataclass(frozen=True, slots=True)
class ResendLater:
    """The same, at the next attempt: this one has just seen it fail."""


@dataclass(frozen=True, slots=True)
class Reconcile:
    """Ask the provider. A negative answer is trusted only after this moment."""

    at: float


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask a person. `why` tells what else was tried."""

    why: str | None = None


@dataclass(frozen=True, slots=True)
class AssumeDone:
    """Take it as done."""


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A person gave it up."""


Course = Resend | ResendLater | Reconcile | Ask | AssumeDone | Abandoned


def resolve(activity: Activity, terms: ActionTerms, *, can_reconcile: bool, is_fresh: bool, now: float) -> Course:
    """Return the course for an UNKNOWN activity. `is_fresh`: it has become so in this attempt.

    A policy applies only if the activity was called under it: code that has changed since may have called it in another
    way.
    """
    if activity.decision is Decision.GIVE_UP:
        return Abandoned()
    if activity.policy is not terms.on_unknown:
        return Ask(f"its policy was {activity.policy} when it was called, and is {terms.on_unknown} now")
    if activity.reason == RESTORED_OTHER_KEY and terms.on_unknown in (OnUnknown.RECONCILE, OnUnknown.RESEND):
        return Ask("its task had another id before the restore, so the provider may know the call by another key")
    match terms.on_unknown:
        case OnUnknown.ASK:
            return Ask()
        case OnUnknown.ASSUME_DONE:
            return AssumeDone()
        case OnUnknown.RECONCILE:
            if not can_reconcile:
                return Ask("nothing declares how to ask the provider")
            # It may have taken its whole time: what counts is when it was in doubt. And a clock may go back.
            waits = min(activity.updated_at + terms.settle_after - now, terms.settle_after)
            return Reconcile(at=now + max(0.0, waits))
        case OnUnknown.RESEND:
            return _resend(activity, terms, is_fresh, now)


def _resend(activity: Activity, terms: ActionTerms, is_fresh: bool, now: float) -> Course:
    if not terms.idempotent_provider:
        return Ask("its provider does not drop a second call")
    if not activity.may_retry:
        return Ask("a second call with the same key was refused, which tells nothing of the first")
    window = terms.idempotency_window
    until = math.inf
    if window is not None:
        # The provider counts from when it got the key, and this call may be on its way for as long as the timeout.
        until = activity.first_call_at + window - terms.timeout
        age = now - activity.first_call_at
        if age < 0 or now > until:
            return Ask(
                f"its first call was {age:.0f} s ago, another may take {terms.timeout:g} s, "
                f"and the provider remembers a key for {window:g} s"
            )
    return ResendLater() if is_fresh else Resend(until)
