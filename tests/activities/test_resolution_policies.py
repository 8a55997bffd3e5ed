"""Resolution of activities in doubt by their declared policy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from craftcore.activities.model import ActionTerms, Activity, ActivityStatus, Decision, OnUnknown
from craftcore.activities.resolution import (
    Abandoned,
    Ask,
    AssumeDone,
    Course,
    Reconcile,
    Resend,
    ResendLater,
    resolve,
)
from tests.support.fakes import NEW_YEAR

CALLED = NEW_YEAR

RESENDS = ActionTerms(on_unknown=OnUnknown.RESEND, idempotent_provider=True, timeout=10.0)
WINDOWED = replace(RESENDS, idempotency_window=100.0)
RECONCILES = ActionTerms(on_unknown=OnUnknown.RECONCILE, timeout=10.0, settle_after=30.0)


def make_doubt(terms: ActionTerms, **changes: Any) -> Activity:
    """Return an activity called at CALLED and UNKNOWN ten seconds later."""
    row = Activity(
        seq=1,
        key="activity:t:1.1",
        task_id="t",
        task_seq=1,
        turn=1,
        action="pay",
        status=ActivityStatus.UNKNOWN,
        reason="it did not answer in time",
        policy=terms.on_unknown,
        args_hash="hash",
        request_json="{}",
        result_json=None,
        result_unstored=None,
        provider_ref=None,
        error_code=None,
        error_message=None,
        may_retry=True,
        calls=1,
        in_doubt=True,
        decision=None,
        execution_seq=1,
        epoch=1,
        first_call_at=CALLED,
        last_call_at=CALLED,
        created_at=CALLED,
        updated_at=CALLED + 10,
        settled_at=None,
    )
    return replace(row, **changes)


def resolve_after(
    terms: ActionTerms, *, at: float = 20.0, fresh: bool = False, reconciles: bool = True, **changes: Any
) -> Course:
    """Return the course for an activity in doubt, `at` seconds after the call."""
    activity = make_doubt(terms, **changes)
    return resolve(activity, terms, can_reconcile=reconciles, is_fresh=fresh, now=CALLED + at)


def reason_to_ask(found: Course) -> str:
    """Return the reason for a question to a person, or "" if the policy is the only reason."""
    assert isinstance(found, Ask), found
    return found.why or ""


def test_policy_ask_resolves_to_a_question():
    assert resolve_after(ActionTerms()) == Ask()
    assert resolve_after(ActionTerms(), fresh=True) == Ask()


def test_policy_assume_done_resolves_at_once():
    terms = ActionTerms(on_unknown=OnUnknown.ASSUME_DONE)
    assert [resolve_after(terms), resolve_after(terms, fresh=True)] == [AssumeDone(), AssumeDone()]


def test_policy_resend_calls_again_but_not_in_the_failed_attempt():
    assert resolve_after(RESENDS) == Resend()
    assert resolve_after(RESENDS, fresh=True) == ResendLater()


def test_resend_without_a_window_is_allowed_at_any_time():
    assert resolve_after(RESENDS, at=1e9) == Resend()


@pytest.mark.parametrize("at", [0.0, 50.0, 89.9, 90.0])
def test_resend_is_allowed_while_the_call_surely_ends_within_the_window(at):
    """The window is 100 s, and a call may take 10 s."""
    assert resolve_after(WINDOWED, at=at) == Resend(until=CALLED + 90)


@pytest.mark.parametrize("at", [90.1, 100.0, 1e6])
def test_doubt_beyond_the_window_is_put_to_a_person(at):
    reason = reason_to_ask(resolve_after(WINDOWED, at=at))
    assert reason.endswith("s ago, another may take 10 s, and the provider remembers a key for 100 s")


@pytest.mark.parametrize("fresh", [False, True])
def test_idempotency_window_counts_from_the_first_call(fresh):
    found = resolve_after(WINDOWED, at=95.0, fresh=fresh, calls=4, last_call_at=CALLED + 94, updated_at=CALLED + 94)
    assert "its first call was 95 s ago" in reason_to_ask(found)


def test_call_time_in_the_future_proves_nothing_about_a_window():
    assert "its first call was -1 s ago" in reason_to_ask(resolve_after(WINDOWED, at=-1.0))
    assert resolve_after(RESENDS, at=-1.0) == Resend()


def test_resend_is_refused_when_the_provider_no_longer_dedupes():
    changed_terms = replace(RESENDS, idempotent_provider=False)
    assert "does not drop a second call" in reason_to_ask(resolve_after(changed_terms))


def test_refused_second_call_is_put_to_a_person():
    """A provider refuses each call with an expired key, so the refusal proves nothing about the first call."""
    assert "was refused" in reason_to_ask(resolve_after(RESENDS, may_retry=False))


def test_reconcile_asks_the_provider_when_a_negative_answer_is_final():
    """The doubt begins 10 s after the call. A negative answer is final 30 s later."""
    assert resolve_after(RECONCILES, at=20.0) == Reconcile(at=CALLED + 40)
    assert resolve_after(RECONCILES, at=40.0) == Reconcile(at=CALLED + 40)
    assert resolve_after(RECONCILES, at=70.0) == Reconcile(at=CALLED + 70)


def test_call_that_timed_out_is_reconciled_after_a_second_timeout():
    """A negative answer at the moment of the timeout is too early, so the default wait is as long as the timeout."""
    terms = replace(RECONCILES, settle_after=10.0)
    assert resolve_after(terms, at=10.0) == Reconcile(at=CALLED + 20)


def test_call_time_in_the_future_does_not_lengthen_the_wait():
    assert resolve_after(RECONCILES, at=-5_000.0) == Reconcile(at=CALLED - 5_000 + 30)


def test_doubt_without_a_reconcile_is_put_to_a_person():
    assert "nothing declares how to ask the provider" in reason_to_ask(resolve_after(RECONCILES, reconciles=False))


@pytest.mark.parametrize("terms", [ActionTerms(), RESENDS, RECONCILES, ActionTerms(on_unknown=OnUnknown.ASSUME_DONE)])
def test_given_up_activity_stays_given_up_under_every_policy(terms):
    assert resolve_after(terms, decision=Decision.GIVE_UP) == Abandoned()


@pytest.mark.parametrize("now", [ActionTerms(), RESENDS, RECONCILES, ActionTerms(on_unknown=OnUnknown.ASSUME_DONE)])
@pytest.mark.parametrize("then", list(OnUnknown))
def test_changed_policy_after_the_call_is_put_to_a_person(now, then):
    found = resolve_after(now, policy=then)
    if then is now.on_unknown:
        assert not isinstance(found, Ask) or found.why is None
    else:
        assert reason_to_ask(found) == f"its policy was {then} when it was called, and is {now.on_unknown} now"


def test_given_up_under_another_policy_is_given_up():
    assert resolve_after(RESENDS, policy=OnUnknown.ASK, decision=Decision.GIVE_UP) == Abandoned()
