"""Previews of occurrences: notes about times that a clock change moves or repeats."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

import pytest

from craftcore.errors import ScheduleInvalid
from craftcore.schedules.recurrence.dst_notes import local, note
from craftcore.schedules.recurrence.occurrences import occurrences
from craftcore.schedules.recurrence.timing import Cron, Every, Once, Startup

FIRST, SECOND = "repeated hour: the first of two", "repeated hour: the second of two"


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


NOTES = [
    ("30 2 * * *", "Europe/Berlin", "2026-03-28 00:00", [None, "skipped hour: 02:30 does not exist that day", None]),
    ("0,30 2 * * *", "Europe/Berlin", "2026-03-28 12:00", ["skipped hour: 02:00 does not exist that day", None, None]),
    ("15 2,3 * * *", "Europe/Berlin", "2026-03-28 12:00", ["skipped hour: 02:15 does not exist that day", None, None]),
    ("0 3 * * *", "Europe/Berlin", "2026-03-28 12:00", [None, None]),
    ("0 2,3 * * *", "Europe/Berlin", "2026-03-28 12:00", ["skipped hour: 02:00 does not exist that day", None]),
    ("0 * * * *", "Europe/Berlin", "2026-03-29 00:30", [None, None]),
    ("30 0 * * *", "America/Havana", "2026-03-07 12:00", ["skipped hour: 00:30 does not exist that day", None]),
    ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03 00:00", ["skipped hour: 02:15 does not exist that day", None]),
    (
        "30 23 * * 6",
        "America/Scoresbysund",
        "2026-03-28 00:00",
        ["skipped hour: 2026-03-28 23:30 does not exist", None],
    ),
    ("0 9 * * *", "Pacific/Apia", "2011-12-29 20:00", ["skipped hour: 2011-12-30 09:00 does not exist", None]),
    ("30 2 * * *", "Europe/Berlin", "2026-10-24 00:00", [None, FIRST, None]),
    ("0 3 * * *", "Europe/Berlin", "2026-10-24 12:00", [None, None]),
    ("0 * * * *", "Europe/Berlin", "2026-10-24 23:30", [FIRST, SECOND, None]),
    ("*/30 1 * * *", "Australia/Lord_Howe", "2026-04-04 14:10", [FIRST, SECOND, None]),
    ("30 2 * * *", "UTC", "2026-03-28 12:00", [None, None]),
]


@pytest.mark.parametrize(("expression", "timezone", "after", "notes"), NOTES)
def test_cron_occurrence_moved_or_repeated_by_a_clock_change_is_noted(expression, timezone, after, notes):
    timing = Cron(expression=expression, timezone=timezone)

    coming = islice(occurrences(timing, utc(after), utc(after) + 40 * 86_400), len(notes))

    assert [note(timing, t) for t in coming] == notes


@pytest.mark.parametrize("timing", [Once(at=1.0), Every(anchor_at=0, step_seconds=60), Startup()])
def test_timing_other_than_cron_has_no_note(timing):
    assert note(timing, utc("2026-03-29 01:00")) is None


def test_local_time_is_shown_with_offset_and_fold():
    shown = local(utc("2026-10-25 01:30:15"), "Europe/Berlin")

    assert shown.isoformat() == "2026-10-25T02:30:15+01:00"
    assert shown.fold == 1


def test_local_time_in_an_unknown_zone_is_refused():
    with pytest.raises(ScheduleInvalid, match="time zone 'Mars/Olympus' is not known on this machine"):
        local(0, "Mars/Olympus")
