"""Decisions of a tick: each due occurrence fires, or is skipped with a recorded reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from craftcore.schedules.model import CatchUp, Schedule
from craftcore.schedules.recurrence.timing import Every
from craftcore.schedules.tick_plan import MISFIRE_GRACE, decide, jitter
from tests.support.fakes import NEW_YEAR
from tests.support.schedule_steps import DAY, HOUR, put, stored


@pytest.fixture
def hourly(core) -> Schedule:
    put(core, when="every 1h", catch_up_window=DAY, catch_up_max=20)
    return stored(core)


def hours(moments):
    return [(moment - NEW_YEAR) / HOUR for moment in moments]


def runs(decision):
    return [((run.first_at - NEW_YEAR) / HOUR, (run.last_at - NEW_YEAR) / HOUR, run.count) for run in decision.skipped]


def test_decide_before_the_slot_fires_and_skips_nothing(hourly):
    decision = decide(hourly, NEW_YEAR + HOUR - 0.001)

    assert (decision.fired, decision.skipped) == ([], [])
    assert decision.next_at == NEW_YEAR + HOUR


def test_decide_at_the_slot_fires_and_moves_the_high_water_mark(hourly):
    decision = decide(hourly, NEW_YEAR + HOUR + 0.3)

    assert hours(decision.fired) == [1]
    assert decision.high_water_at == NEW_YEAR + HOUR
    assert decision.next_at == NEW_YEAR + 2 * HOUR


@pytest.mark.parametrize(
    ("catch_up", "fired", "skipped"),
    [
        (CatchUp.LATEST, [5], [(1, 4, 4)]),
        (CatchUp.ALL, [1, 2, 3, 4, 5], []),
        (CatchUp.NONE, [], [(1, 5, 5)]),
    ],
)
def test_catch_up_policy_fires_or_accounts_for_each_missed_slot(hourly, catch_up, fired, skipped):
    decision = decide(replace(hourly, catch_up=catch_up), NEW_YEAR + 5 * HOUR + 600)

    assert hours(decision.fired) == fired
    assert runs(decision) == skipped
    assert all("missed" in run.reason for run in decision.skipped)


def test_catch_up_none_still_fires_a_slot_on_time(hourly):
    decision = decide(replace(hourly, catch_up=CatchUp.NONE), NEW_YEAR + 3 * HOUR + MISFIRE_GRACE - 1)

    assert hours(decision.fired) == [3]
    assert runs(decision) == [(1, 2, 2)]


def test_catch_up_window_skips_older_slots(hourly):
    decision = decide(replace(hourly, catch_up=CatchUp.ALL, catch_up_window=2.5 * HOUR), NEW_YEAR + 6 * HOUR)

    assert hours(decision.fired) == [4, 5, 6]
    assert runs(decision) == [(1, 3, 3)]
    assert "older than 9000 s" in decision.skipped[0].reason


def test_catch_up_max_fires_only_the_newest_slots(hourly):
    decision = decide(replace(hourly, catch_up=CatchUp.ALL, catch_up_max=2), NEW_YEAR + 6 * HOUR)

    assert hours(decision.fired) == [5, 6]
    assert "more than 2" in decision.skipped[0].reason


def test_catch_up_latest_skips_a_slot_older_than_the_window(hourly):
    weekly = replace(hourly, timing=Every(anchor_at=int(NEW_YEAR), step_seconds=7 * 86_400), catch_up_window=DAY)

    decision = decide(weekly, NEW_YEAR + 7 * DAY + DAY + 1)

    assert decision.fired == []
    assert "older than" in decision.skipped[0].reason
    assert decision.next_at == NEW_YEAR + 14 * DAY


def test_decide_over_a_year_of_seconds_returns_a_single_run_and_catch_up(hourly):
    every_second = replace(hourly, timing=Every(anchor_at=int(NEW_YEAR), step_seconds=1))

    decision = decide(every_second, NEW_YEAR + 365 * DAY)

    assert len(decision.fired) == len(decision.skipped) == 1
    assert decision.skipped[0].count == 365 * 86_400 - 1


def test_remaining_runs_limit_the_slots_that_fire(hourly):
    decision = decide(replace(hourly, catch_up=CatchUp.ALL, max_runs=7, runs=5), NEW_YEAR + 4 * HOUR)

    assert hours(decision.fired) == [3, 4]
    assert "only 2 of its runs" in decision.skipped[0].reason


def test_decide_fires_no_slot_after_the_end(hourly):
    decision = decide(replace(hourly, catch_up=CatchUp.ALL, until_at=NEW_YEAR + 2 * HOUR), NEW_YEAR + 5 * HOUR)

    assert hours(decision.fired) == [1, 2]
    assert decision.next_at is None


def test_skip_next_skips_only_the_marked_slots(hourly):
    decision = decide(replace(hourly, catch_up=CatchUp.ALL, skip_to_at=NEW_YEAR + 2 * HOUR), NEW_YEAR + 3 * HOUR)

    assert hours(decision.fired) == [3]
    assert [(run.count, run.reason) for run in decision.skipped] == [(2, "skip-next")]


def test_jitter_is_deterministic_per_occurrence_and_bounded():
    late = [jitter("job", NEW_YEAR + n * HOUR, 60) for n in range(500)]

    assert late == [jitter("job", NEW_YEAR + n * HOUR, 60) for n in range(500)]
    assert all(0 <= seconds < 60 for seconds in late)
    assert len(set(late)) == 500
    assert jitter("job", NEW_YEAR, 0) == 0
