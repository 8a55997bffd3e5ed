"""The figures of an hour: bisection, sums and bars, with any numbers."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from craftcore.web.spark import (
    MINUTE,
    MINUTES,
    SAMPLED,
    Minute,
    draw_bars,
    find_bound,
    first_minute,
    pick_sample,
    sum_minutes,
)

moments = st.floats(0, 1e6, allow_nan=False)
minutes = st.builds(
    lambda at, open_, ended, failed, durations: Minute(
        at=at, begun=open_ + ended, open=open_, failed=min(failed, ended), durations=tuple(durations[:ended])
    ),
    st.integers(0, 60).map(float),
    st.integers(0, 5),
    st.integers(0, 500),
    st.integers(0, 500),
    st.lists(st.floats(0, 100), max_size=SAMPLED),
)


@settings(max_examples=25)
@given(st.lists(moments), st.sets(st.integers(1, 10_000)), moments)
def test_bisection_finds_the_first_row_of_a_moment_across_gaps(times, numbers, at):
    rows = dict(zip(sorted(numbers), sorted(times), strict=False))
    seqs = list(rows)
    asked = []

    def created_at(seq):
        asked.append(seq)
        later = seqs[bisect_left(seqs, seq) :]
        return (later[0], rows[later[0]]) if later else None

    low, high = (seqs[0], seqs[-1] + 1) if seqs else (0, 0)
    bound = find_bound(created_at, at, low, high)

    assert [seq for seq in seqs if seq >= bound] == [seq for seq in seqs if rows[seq] >= at]
    assert low <= bound <= high
    assert len(asked) <= (high - low).bit_length() + 1


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(1, 100))
def test_sample_is_even_and_within_its_minute(low, count, most):
    picked = pick_sample(low, low + count, most)

    assert len(picked) == len(set(picked)) == min(count, most)
    assert all(low <= seq < low + count for seq in picked)
    steps = [after - before for before, after in pairwise(picked)]
    assert not steps or max(steps) - min(steps) <= 1


@settings(max_examples=25)
@given(st.lists(minutes, max_size=60))
def test_sum_of_minutes_counts_each_attempt_once(found):
    rates = sum_minutes(found, uncertain=False)

    assert rates.ended + rates.open == sum(one.begun for one in found)
    assert rates.failed <= rates.ended
    durations = [seconds for one in found for seconds in one.durations]
    assert (rates.median is None) == (not durations)
    if rates.median is not None:
        assert rates.p95 is not None
        assert min(durations) <= rates.median <= rates.p95 <= max(durations)
    assert rates.sampled == any(one.begun > SAMPLED for one in found)


@settings(max_examples=25)
@given(st.lists(minutes, max_size=60), st.floats(10, 1000), st.floats(5, 100))
def test_bars_are_inside_the_picture_and_show_every_minute_with_an_end(found, width, height):
    bars = draw_bars(found, width, height)

    assert [bar.minute for bar in bars] == found
    for bar in bars:
        assert 0 <= bar.left <= bar.left + bar.width <= width + 0.1
        assert bar.top >= 0
        assert bar.top + bar.height == pytest.approx(height, abs=0.02)
        assert bar.failed_height <= bar.height
        assert (bar.height > 0) == (bar.minute.begun > bar.minute.open)
        assert (bar.failed_height > 0) == (bar.minute.failed > 0)


@pytest.mark.parametrize("now", [0.0, 59.9, 60.0, 1_767_225_600.5])
def test_hour_ends_with_the_current_minute(now):
    assert first_minute(now) % MINUTE == 0
    assert first_minute(now) + (MINUTES - 1) * MINUTE <= now < first_minute(now) + MINUTES * MINUTE


def test_rates_of_an_empty_hour_have_no_durations():
    rates = sum_minutes([], uncertain=True)

    assert (rates.ended, rates.failed, rates.median, rates.p95, rates.uncertain) == (0, 0, None, None, True)
    assert draw_bars([]) == []
