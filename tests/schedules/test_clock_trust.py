"""Steps of the wall clock: schedules that move, wait, or are held until a person trusts the clock."""

from __future__ import annotations

import pytest

from craftcore.schedules.clock_guard import ClockChange, ClockSample, ClockTrust, clock_change
from craftcore.schedules.clock_store import EVENTS_MAX, last_clock_event
from tests.support.fakes import NEW_YEAR
from tests.support.schedule_steps import DAY, HOUR, start_daemon

TRUST = ClockTrust()


def events(core):
    return [(row["kind"], row["seconds"]) for row in core.rows("SELECT kind, seconds FROM clock_events ORDER BY seq")]


def is_held(core):
    return core.do(TRUST.is_held, 1)


@pytest.mark.parametrize(
    ("wall", "boot_time", "loop", "step", "asleep"),
    [
        (30, 30, 30, 0, 0),
        (3630, 30, 30, 3600, 0),
        (-7170, 30, 30, -7200, 0),
        (630, 630, 30, 0, 600),
        (4230, 630, 30, 3600, 600),
    ],
)
def test_clock_change_distinguishes_a_step_from_a_suspend(wall, boot_time, loop, step, asleep):
    before = ClockSample(wall=NEW_YEAR, boot_time=100.0, awake=5.0)
    now = ClockSample(wall=NEW_YEAR + wall, boot_time=100.0 + boot_time, awake=5.0 + loop)

    assert clock_change(before, now) == ClockChange(step=step, asleep=asleep)


def test_clock_event_is_recorded_only_above_the_threshold(core):
    for change in (
        ClockChange(step=4.9, asleep=4.9),
        ClockChange(step=60, asleep=0),
        ClockChange(step=-60, asleep=600),
    ):
        core.do(TRUST.note, 1, change)

    assert events(core) == [("forward", 60), ("backward", 60), ("suspend", 600)]
    with core.reading() as reader:
        assert last_clock_event(reader) == {"at": NEW_YEAR, "kind": "suspend", "seconds": 600}


def test_clock_events_are_limited_to_the_maximum(core):
    with core.transaction() as tx:
        for _ in range(EVENTS_MAX + 5):
            TRUST.note(tx, 1, ClockChange(step=60, asleep=0))

    assert len(events(core)) == EVENTS_MAX


def test_schedules_are_held_when_the_clock_is_behind_by_over_three_hours(core):
    core.do(TRUST.hold_if_behind, 1, NEW_YEAR + 3 * HOUR)
    assert not is_held(core)

    core.do(TRUST.hold_if_behind, 1, NEW_YEAR + 3 * HOUR + 1)
    assert is_held(core)
    assert events(core) == [("held", 3 * HOUR + 1)]


def test_held_schedules_resume_when_the_clock_has_caught_up(core, clock):
    core.do(TRUST.hold_if_behind, 1, NEW_YEAR + 4 * HOUR)
    clock.advance(hours=4, seconds=-1)
    assert is_held(core)

    clock.advance(1)

    assert not is_held(core)
    assert [kind for kind, _ in events(core)] == ["held", "caught up"]


def test_held_schedules_resume_after_trust_and_are_not_held_at_the_next_boot(core, clock):
    core.do(TRUST.store_time)
    clock.set_back(DAY)
    core.do(TRUST.boot, 2)
    assert is_held(core)

    assert core.do(TRUST.trust) == NEW_YEAR
    core.do(TRUST.boot, 3)

    assert not is_held(core)
    assert core.do(TRUST.trust) is None


def test_boot_holds_schedules_when_the_clock_is_behind_the_stored_time(core, clock):
    core.do(TRUST.boot, 1)
    clock.advance(DAY)
    core.do(TRUST.store_time)
    clock.set_back(2 * HOUR)
    core.do(TRUST.boot, 2)
    assert not is_held(core)

    clock.set_back(3 * HOUR)
    core.do(TRUST.boot, 3)

    assert is_held(core)


def test_time_is_not_stored_while_schedules_are_held(core, clock):
    core.do(TRUST.store_time)
    clock.set_back(DAY)
    core.do(TRUST.boot, 2)
    core.do(TRUST.store_time)

    [fact] = core.rows("SELECT value FROM facts WHERE name = 'clock_seen_at'")
    assert float(fact["value"]) == NEW_YEAR


def test_clock_behind_over_several_boots_is_a_single_event(core, clock):
    start_daemon(core)
    clock.set_back(DAY)
    for _ in range(3):
        start_daemon(core)

    assert [row["kind"] for row in core.rows("SELECT kind FROM clock_events")] == ["held"]
