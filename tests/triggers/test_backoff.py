"""Backoff of failed triggers: growth, cap, and deterministic jitter."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from craftcore.triggers.backoff import RetryPolicy


def test_four_waits_in_a_row_grow():
    policy = RetryPolicy()

    waits = [policy.backoff("a-trigger", attempt) for attempt in (1, 2, 3, 4)]

    assert waits == sorted(set(waits))
    assert [5 <= waits[0] <= 10, 10 <= waits[1] <= 20, 20 <= waits[2] <= 40, 40 <= waits[3] <= 80] == [True] * 4


@given(st.text(min_size=1), st.integers(1, 10**6), st.floats(0, 1e4), st.floats(1, 1e4))
def test_backoff_is_in_the_upper_half_of_its_doubling_and_below_the_cap(trigger_id, attempt, base, factor):
    policy = RetryPolicy(base=base, cap=base * factor)

    longest = min(policy.cap, base * 2.0 ** min(attempt - 1, 64))

    assert longest / 2 <= policy.backoff(trigger_id, attempt) <= longest


def test_backoff_of_a_trigger_is_the_same_in_every_run_and_differs_between_triggers():
    policy = RetryPolicy()

    assert policy.backoff("a", 1) == RetryPolicy().backoff("a", 1)
    assert policy.backoff("a", 1) != policy.backoff("b", 1)


def test_backoff_with_a_base_of_zero_retries_at_once():
    assert RetryPolicy(base=0).backoff("a", 5) == 0


@pytest.mark.parametrize(
    ("policy", "refusal"),
    [
        ({"max_attempts": 0}, "max_attempts 0 must be a whole number from 1 to 1000"),
        ({"base": -1}, "base -1 must be at least 0"),
        ({"base": 10, "cap": 9}, "base 10 must not be more than cap 9"),
        ({"cap": math.inf}, "cap inf must be"),
        ({"base": math.nan}, "base nan must be"),
        ({"cap": math.nan}, "cap nan must be"),
    ],
)
def test_retry_policy_that_cannot_be_followed_is_refused(policy, refusal):
    with pytest.raises(ValueError, match=refusal):
        RetryPolicy(**policy)
