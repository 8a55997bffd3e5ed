"""A late trigger says how late it is, once, beside a description that nobody touched."""

from __future__ import annotations

import pytest

from craftcore.executions.trigger_view import TriggerView
from craftcore.triggers.model import TriggerSource
from craftcore.triggers.overdue import format_duration, overdue_note, overdue_seconds
from tests.support.fakes import NEW_YEAR
from tests.support.trigger_steps import BROKEN, ack, emit, look, start_one

NOTE = (
    "This was due at 2026-01-01T00:00:00Z and starts 10 minutes late. "
    "Use judgement: do it now, adapt it to the present, or leave it if it no longer makes sense."
)


def seen(core, claim):
    """What the workflow is shown of the trigger that starts now."""
    return TriggerView.of(claim, None, core.clock.now(), core.config.triggers.overdue_after)


@pytest.mark.parametrize("source", TriggerSource)
def test_a_trigger_of_any_source_that_starts_ten_minutes_late_says_so(core, clock, source):
    emitted = emit(core, source=source, description="water the plants")
    clock.advance(minutes=10)

    view = seen(core, start_one(core))

    assert view.overdue_seconds == 600
    assert view.note == NOTE
    assert view.description == look(core, emitted.id).description == "water the plants"


@pytest.mark.parametrize(("late", "said"), [(0, None), (120, None), (120.5, 120.5)])
def test_a_start_that_is_on_time_is_not_worth_a_word(core, clock, late, said):
    emit(core)
    clock.advance(seconds=late)

    view = seen(core, start_one(core))

    assert view.overdue_seconds == said
    assert (view.note is None) == (said is None)


def test_two_restarts_do_not_say_it_twice(core, clock):
    emit(core, description="water the plants")
    clock.advance(minutes=10)
    for epoch in (1, 2):
        start_one(core, epoch=epoch)
        core.do(core.claims.reclaim, epoch + 1)

    view = seen(core, start_one(core, epoch=3))

    assert view.note == NOTE
    assert view.description == "water the plants"


def test_lateness_counts_from_when_it_was_due_and_not_from_when_it_was_emitted(core, clock):
    emit(core, delay=600)
    clock.advance(minutes=11)

    assert seen(core, start_one(core)).overdue_seconds is None


def test_the_wait_of_a_backoff_is_no_lateness(core, clock):
    emit(core)
    move = ack(core, start_one(core), BROKEN)
    assert move.not_before is not None
    clock.advance(seconds=move.not_before - NEW_YEAR + 1)

    assert seen(core, start_one(core)).overdue_seconds is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.9, "0 seconds"),
        (119.9, "119 seconds"),
        (120, "2 minutes"),
        (600, "10 minutes"),
        (7_199, "119 minutes"),
        (7_200, "2 hours"),
        (172_799, "47 hours"),
        (172_800, "2 days"),
        (31_536_000, "365 days"),
    ],
)
def test_lateness_is_told_in_the_largest_unit_of_which_there_are_two(seconds, words):
    assert format_duration(seconds) == words


def test_a_clock_that_was_set_back_makes_nothing_late():
    assert overdue_seconds(NEW_YEAR + 100, NEW_YEAR, 0) is None


def test_the_note_can_be_written_for_the_first_and_the_last_moment():
    assert "1970-01-01T00:00:00Z" in overdue_note(0, 600)
    assert "9999-12-31T23:59:59Z" in overdue_note(253_402_300_799.9, 600)
