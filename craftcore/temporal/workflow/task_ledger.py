"""The ledger of one task in its workflow: the rules of `activities/ledger_rules.py` over values in memory."""

from __future__ import annotations

from dataclasses import replace

from craftcore.activities.ledger_rules import (
    LEFT_BEHIND,
    Reentry,
    begin_again,
    decide,
    describe_status,
    find_conflict,
    judge_reentry,
    open_activity,
    settle,
)
from craftcore.activities.model import Activity, ActivityStatus, CallOutcome, Decision, NewIntent, OnUnknown
from craftcore.errors import InvalidInput
from craftcore.temporal.workflow.journal_messages import NOT_FOUND, STATE_REFUSED, Intent, JournalAnswer, Outcome
from craftcore.temporal.workflow.messages import LateDone, TaskState

LATE_MAX = 100
"""Notes about late outcomes that a task carries. All of them are in its history."""


def begin_call(state: TaskState, token: int, given: Intent, now: float) -> JournalAnswer:
    """Write an intent, or return what is on record."""
    task = state.task
    intent = NewIntent(
        given.key,
        task.id,
        task.seq,
        task.turn,
        given.action,
        OnUnknown(given.policy),
        given.args_hash,
        given.request_json,
        token,
        0,
        given.result_shape,
    )
    before = state.acts.get(given.key)
    if before is None:
        state.acts_made += 1
        return _write_intent(state, open_activity(state.acts_made, intent, now), given)
    if (refusal := find_conflict(before, intent)) is not None:
        return JournalAnswer(error=refusal.name, message=refusal.message)
    if given.again_calls is not None:
        is_as_seen = before.is_open and before.calls == given.again_calls
        return _write_intent(state, begin_again(before, intent, now), given) if is_as_seen else _on_record(before)
    match judge_reentry(before):
        case Reentry.TAKE:
            return _on_record(before)
        case Reentry.LEAVE_BEHIND:
            return _on_record(_leave(state, before, now))
        case Reentry.CALL_AGAIN:
            return _write_intent(state, begin_again(before, intent, now), given)


def settle_call(state: TaskState, key: str, calls: int, given: Outcome, now: float) -> JournalAnswer:
    """Write the outcome of a call. One of a lost entry, whose call was put in doubt meanwhile, ends that doubt, unless
    it has been decided, or called again: then the task keeps a note."""
    end = CallOutcome(
        ActivityStatus(given.status),
        given.reason,
        given.result_json,
        given.result_unstored,
        given.provider_ref,
        given.error_code,
        given.error_message,
        given.may_retry,
    )
    before = state.acts.get(key)
    if before is None:  # its turn is over, for it was decided
        return _note_late(state, key, calls, end, "its turn is over", now)
    if before.calls == calls and before.is_open and before.reason == LEFT_BEHIND.reason:
        before = replace(before, status=ActivityStatus.INTENT)
    after = settle(before, before.last_call._replace(calls=calls), end, now)
    if after is not None:
        state.acts[key] = after
    elif before.status is not ActivityStatus.DONE:
        return _note_late(state, key, calls, end, before.reason, now)
    return _on_record(state.acts[key])


def _note_late(state: TaskState, key: str, calls: int, end: CallOutcome, noted: str, now: float) -> JournalAnswer:
    """Note that a call was done, when it was. It changes no decision."""
    if end.status is not ActivityStatus.DONE:
        return JournalAnswer(activity=state.acts.get(key))
    if not any(one.key == key and one.call == calls for one in state.late):
        state.late.append(LateDone(key=key, call=calls, noted=noted, provider_ref=end.provider_ref, at=now))
        del state.late[:-LATE_MAX]
    return JournalAnswer(activity=state.acts.get(key), is_late=True)


def decide_doubt(
    state: TaskState, key: str, decision: str, *, by: str, reference: str | None, calls: int | None, now: float
) -> JournalAnswer:
    """Decide a doubt. `calls`: those of the activity as its policy saw it; None: a person decides it as it is."""
    before = state.acts.get(key)
    if before is None:
        return JournalAnswer(error=NOT_FOUND, message=f"no activity {key}")
    is_as_seen = calls is None or (before.is_open and before.calls == calls)
    try:
        after = decide(before, Decision(decision), decided_by=by, reference=reference, now=now) if is_as_seen else None
    except InvalidInput as error:
        return JournalAnswer(error=STATE_REFUSED, message=error.message)
    if after is None:
        message = f"{key} {describe_status(before)}; nothing was written"
        return JournalAnswer(error=STATE_REFUSED, message=message)
    state.acts[key] = after
    return _on_record(after)


def leave_behind(state: TaskState, token: int | None, now: float) -> float:
    """Put the calls of an entry that died in doubt; None: of all entries. Return until when one of them may be on its
    way, beside those whose provider drops a second call; 0.0: none may."""
    until = 0.0
    for key in list_intents(state, token):
        before = state.acts[key]
        _leave(state, before, now)
        if before.policy is not OnUnknown.RESEND:
            until = max(until, state.ends_at[key])
    return until


def list_intents(state: TaskState, token: int | None = None) -> list[str]:
    """Return the keys of the activities that are being called, as far as is known: by an entry; None: by any."""
    return [
        key
        for key, one in state.acts.items()
        if one.status is ActivityStatus.INTENT and token in (None, one.execution_seq)
    ]


def _leave(state: TaskState, before: Activity, now: float) -> Activity:
    """Put a call in doubt that its entry has left."""
    left = settle(before, before.last_call, LEFT_BEHIND, now)
    assert left is not None, before
    state.acts[before.key] = left
    return left


def _write_intent(state: TaskState, activity: Activity, given: Intent) -> JournalAnswer:
    state.acts[given.key] = activity
    state.ends_at[given.key] = given.ends_at
    return JournalAnswer(activity=activity, is_begun=True)


def _on_record(activity: Activity) -> JournalAnswer:
    return JournalAnswer(activity=activity)
