"""The moves of an activity, as pure functions: the value before and the value after.

Whatever keeps the ledger uses them. A store writes a move only while the activity still is as it was seen.

begin    open_activity, or by the answer of `judge_reentry`: begin_again, leave_behind, or what is on record
settle   what a call came to
decide   a person or a policy ends a doubt
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from craftcore.activities.model import Activity, ActivityStatus, CallOutcome, Decision, NewIntent, StartedCall
from craftcore.activities.result_shape import read_result
from craftcore.errors import IdempotencyConflict

LEFT_BEHIND = CallOutcome(ActivityStatus.UNKNOWN, "the process ended before it knew", may_retry=True)

ABOUT_TO_BE_CALLED = "about to be called"

RESTORED = "the database was restored: it may be done"
"""The reason of an activity that the lost file may know more about: it has no row, or could have been called again."""

RESTORED_OTHER_KEY = "the database was restored: it may be done, under another key"
"""The same of work that has another id than in the lost file: a provider does not know its key."""


class Reentry(StrEnum):
    """The course of an act whose key has an activity on record."""

    CALL_AGAIN = "call again"
    LEAVE_BEHIND = "leave behind"  # nobody attends to its intent any more
    TAKE = "take"  # it is DONE, refused for good, or in doubt


def open_activity(seq: int, intent: NewIntent, now: float) -> Activity:
    """Return a new activity: its first call is about to be made."""
    return Activity(
        seq=seq,
        **intent._asdict(),
        status=ActivityStatus.INTENT,
        reason=ABOUT_TO_BE_CALLED,
        result_json=None,
        result_unstored=None,
        provider_ref=None,
        error_code=None,
        error_message=None,
        may_retry=False,
        calls=1,
        in_doubt=False,
        decision=None,
        first_call_at=now,
        last_call_at=now,
        created_at=now,
        updated_at=now,
        settled_at=None,
    )


def find_conflict(before: Activity, intent: NewIntent) -> IdempotencyConflict | None:
    """Return the refusal of an intent whose key belongs to another task, action or arguments; None: it fits."""
    if before.task_seq != intent.task_seq:  # ids may hold colons, and so may keys
        return conflict(intent.key, f"{before.action} of task {before.task_id}", intent.action)
    if (before.action, before.args_hash) != (intent.action, intent.args_hash):
        return conflict(intent.key, before.action, intent.action)
    return None


def judge_reentry(before: Activity) -> Reentry:
    """Return the course of an act that comes to this activity: it was begun before."""
    if before.status is ActivityStatus.INTENT:
        return Reentry.LEAVE_BEHIND
    if before.status is ActivityStatus.FAILED and before.may_retry:
        return Reentry.CALL_AGAIN
    if before.status is ActivityStatus.UNKNOWN and before.decision is Decision.RESEND:
        return Reentry.CALL_AGAIN
    return Reentry.TAKE


def begin_again(before: Activity, intent: NewIntent, now: float) -> Activity:
    """Return an activity that FAILED or is UNKNOWN with the intent of its next call."""
    assert before.status in (ActivityStatus.FAILED, ActivityStatus.UNKNOWN), before
    return replace(
        before,
        status=ActivityStatus.INTENT,
        reason="about to be called again",
        policy=intent.policy,
        result_json=None,
        error_code=None,
        error_message=None,
        may_retry=False,
        calls=before.calls + 1,
        in_doubt=before.in_doubt and before.decision is not Decision.RESEND,
        decision=None,
        execution_seq=intent.execution_seq,
        epoch=intent.epoch,
        last_call_at=now,
        updated_at=now,
        settled_at=None,
    )


def settle(before: Activity, begun: StartedCall, end: CallOutcome, now: float) -> Activity | None:
    """Return an activity after a call of it. None when it is not that call's intent any more: nothing changes."""
    if before.status is not ActivityStatus.INTENT or before.calls != begun.calls:
        return None
    written = end._asdict() | end_marks(end, now)._asdict()
    if end.provider_ref is None:
        written["provider_ref"] = before.provider_ref
    return replace(before, **written)


class EndMarks(NamedTuple):
    """The marks that follow from the outcome of a call. `settled_at` None: it may be called again, or is in doubt."""

    in_doubt: bool
    updated_at: float
    settled_at: float | None


def end_marks(end: CallOutcome, now: float) -> EndMarks:
    """Return what follows from an outcome that is written now."""
    is_unknown = end.status is ActivityStatus.UNKNOWN
    return EndMarks(is_unknown, now, None if is_unknown or end.may_retry else now)


def decide(
    before: Activity, decision: Decision, *, decided_by: str, reference: str | None, now: float
) -> Activity | None:
    """Return an activity after a decision. None when there is nothing to decide: only what is UNKNOWN is in doubt, and
    what FAILED may only be called again.

    Raises InvalidInput for what happened without the result that its task needs.
    """
    is_failed = before.status is ActivityStatus.FAILED
    if before.status is not ActivityStatus.UNKNOWN and not (is_failed and decision is Decision.RESEND):
        return None
    after = replace(
        before,
        reason=f"{decision}: decided by {decided_by}",
        decision=None if is_failed else decision,
        may_retry=is_failed or before.may_retry,
        provider_ref=before.provider_ref if reference is None else reference,
        updated_at=now,
        settled_at=None if decision is Decision.RESEND else now,
    )
    if decision is not Decision.HAPPENED:
        return after
    result = read_result(before.result_shape, reference, before.action)
    return replace(after, status=ActivityStatus.DONE, in_doubt=False, result_json=result)


def put_in_doubt(before: Activity, *, epoch: int, reason: str, now: float) -> Activity:
    """Return an activity that could be called again, and may have been, as one in doubt."""
    assert before.status in (ActivityStatus.FAILED, ActivityStatus.UNKNOWN), before
    return replace(
        before,
        status=ActivityStatus.UNKNOWN,
        reason=reason,
        in_doubt=True,
        may_retry=True,
        decision=None,
        epoch=epoch,
        updated_at=now,
        settled_at=None,
    )


def conflict(key: str, before: str, now: str) -> IdempotencyConflict:
    """Return the refusal of a key that was used for something else."""
    what = "with other arguments" if before == now else f"for {before}"
    return IdempotencyConflict(
        f"{now} was not called: its key {key} was used before {what}. Make arguments that change at each entry of the "
        "turn in a ctx.step, or give the act a key=… of its own",
        key=key,
    )


def describe_status(activity: Activity) -> str:
    """Return `is DONE: the provider answered`"""
    match activity.status:
        case ActivityStatus.INTENT:
            return "is being called; a daemon that starts finds out when its process has died"
        case ActivityStatus.FAILED:
            return f"is FAILED: {activity.reason}. It can only be sent again"
        case _:
            return f"is {activity.status}: {activity.reason}"
