"""Overdue starts: the recorded delay, and an unchanged description."""

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


def view_of(core, claim):
    """Return the view of a trigger that its workflow receives at the start."""
    return TriggerView.of(claim, None, core.clock.now(), core.config.triggers.overdue_after)


@pytest.mark.parametrize("source", TriggerSource)
def test_overdue_start_by_ten_minutes_is_noted_for_any_source(core, clock, source):
    emitted = emit(core, source=source, description="water the plants")
    clock.advance(minutes=10)

    view = view_of(core, start_one(core))

    assert view.overdue_seconds == 600
    assert view.note == NOTE
    assert view.description == look(core, emitted.id).description == "water the plants"


@pytest.mark.parametrize(("late", "expected"), [(0, None), (120, None), (120.5, 120.5)])
def test_start_on_time_has_no_overdue_note(core, clock, late, expected):
    emit(core)
    clock.advance(seconds=late)

    view = view_of(core, start_one(core))

    assert view.overdue_seconds == expected
    assert (view.note is None) == (expected is None)


def test_overdue_note_is_not_repeated_after_two_restarts(core, clock):
    emit(core, description="water the plants")
    clock.advance(minutes=10)
    for epoch in (1, 2):
        start_one(core, epoch=epoch)
        core.do(core.claims.reclaim, epoch + 1)

    view = view_of(core, start_one(core, epoch=3))

    assert view.note == NOTE
    assert view.description == "water the plants"


def test_overdue_time_counts_from_the_due_time_not_from_the_emit(core, clock):
    emit(core, delay=600)
    clock.advance(minutes=11)

    assert view_of(core, start_one(core)).overdue_seconds is None


def test_backoff_wait_does_not_count_as_overdue(core, clock):
    emit(core)
    move = ack(core, start_one(core), BROKEN)
    assert move.not_before is not None
    clock.advance(seconds=move.not_before - NEW_YEAR + 1)

    assert view_of(core, start_one(core)).overdue_seconds is None


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
def test_overdue_note_uses_the_largest_unit_with_a_count_of_two(seconds, words):
    assert format_duration(seconds) == words


def test_clock_set_back_makes_no_start_overdue():
    assert overdue_seconds(NEW_YEAR + 100, NEW_YEAR, 0) is None


def test_overdue_note_works_for_the_first_and_last_moment():
    assert "1970-01-01T00:00:00Z" in overdue_note(0, 600)
    assert "9999-12-31T23:59:59Z" in overdue_note(253_402_300_799.9, 600)
