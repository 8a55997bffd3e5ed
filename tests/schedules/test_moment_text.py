"""Moments as text: in `emit`, in `ctx.sleep_until` and on the command line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from craftcore.errors import InvalidInput
from craftcore.schedules.clock_store import ClockStepStore
from craftcore.schedules.recurrence.moment_text import read_moment
from tests.support.trigger_steps import emit, look

BERLIN = "Europe/Berlin"
NOON = datetime(2026, 3, 28, 12, tzinfo=ZoneInfo(BERLIN)).timestamp()
"""The day before the clocks go forward in Berlin."""


def in_berlin(day: int, hour: int, minute: int = 0) -> float:
    return datetime(2026, 3, day, hour, minute, tzinfo=ZoneInfo(BERLIN)).timestamp()


@pytest.mark.parametrize(
    ("value", "at", "is_delay"),
    [
        ("3pm", in_berlin(28, 15), False),
        ("9am", in_berlin(29, 9), False),
        ("at 9am tomorrow", in_berlin(29, 9), False),
        ("tomorrow 9am", in_berlin(29, 9), False),
        (" Tomorrow  AT 17:30 ", in_berlin(29, 17, 30), False),
        ("2026-03-30T09:00+02:00", in_berlin(30, 9), False),
        ("1774695600", 1774695600.0, False),
        (1774695600, 1774695600.0, False),
        (datetime(2026, 3, 30, tzinfo=UTC), datetime(2026, 3, 30, tzinfo=UTC).timestamp(), False),
        ("now", NOON, True),
        ("10m", NOON + 600, True),
        ("in 1h30m", NOON + 5400, True),
        (timedelta(hours=1), NOON + 3600, True),
    ],
)
def test_moment_is_read_in_the_zone_and_from_now(value, at, is_delay):
    assert read_moment("at", value, NOON, BERLIN) == (at, is_delay)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("soon", "at 'soon' is not a moment: 'soon' is not a time of day"),
        ("", "at '' is not a moment: "),
        ("tomorrow", "at 'tomorrow' is not a moment: add a time of day: tomorrow at 9am"),
        ("every day at 7am", "is not a moment"),
        ("2026-03-30T09:00", "has no time zone"),
        ("in 3 months", "months and years differ in length"),
        (timedelta(seconds=-1), "must be 0 seconds or more from now"),
        (timedelta(days=365 * 9_000), "is not a moment between the years 1970 and 9999"),
        (True, "must be an aware datetime or epoch seconds"),
        (None, "must be an aware datetime or epoch seconds"),
    ],
)
def test_value_without_a_moment_is_refused(value, message):
    with pytest.raises(InvalidInput, match=message):
        read_moment("at", value, NOON, BERLIN)


def test_trigger_is_due_at_the_moment_of_its_text(core, clock):
    emitted = emit(core, at="tomorrow 9am", expires_at="tomorrow 10am")

    row = look(core, emitted.id)
    due = datetime.fromtimestamp(row.due_at, ZoneInfo(clock.zone()))
    assert (due.hour, due.minute, due.date() - datetime.fromtimestamp(clock.now(), due.tzinfo).date()) == (
        9,
        0,
        timedelta(days=1),
    )
    assert row.expires_at == row.due_at + 3600


def test_time_from_now_follows_a_clock_that_is_set_back_and_a_time_of_day_does_not(core, clock):
    clock.set_back(-7200)
    from_now, of_day = emit(core, at="in 20m").id, emit(core, at="11pm").id
    due = look(core, of_day).due_at

    clock.set_back(7200)
    core.do(ClockStepStore().set_back, 7200)

    assert look(core, from_now).due_at == clock.now() + 1200
    assert look(core, of_day).due_at == due


def test_moment_beside_a_delay_is_refused(core):
    with pytest.raises(InvalidInput, match="at and delay exclude each other"):
        emit(core, at="in 20m", delay=5)
