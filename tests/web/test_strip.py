"""The strip of a schedule: every occurrence is counted once, in the day of the schedule's own zone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from craftcore.schedules.model import (
    CatchUp,
    FireCause,
    Occurrence,
    Origin,
    Outcome,
    Overlap,
    Schedule,
    ScheduleStatus,
)
from craftcore.schedules.occurrence_end_store import AccountLine, EndState, OccurrenceEnd
from craftcore.schedules.recurrence.occurrences import occurrences
from craftcore.schedules.recurrence.timing import Cron, Every, Once, Startup, Timing
from craftcore.web.strip import DAYS, Mark, Strip, draw_strip, list_days, mark_line

BERLIN = ZoneInfo("Europe/Berlin")
SPRING, AUTUMN = datetime(2026, 4, 9, 12, tzinfo=BERLIN), datetime(2026, 11, 9, 12, tzinfo=BERLIN)
"""Two moments with a daylight-saving change in the days before."""

DAY, HOUR = 86_400.0, 3600.0
SIGNS = {None: "·", Mark.FIRED: "●", Mark.LATE: "◐", Mark.SKIPPED: "–", Mark.FAILED: "✕", Mark.WAITS: "◌"}


def a_schedule(timing: Timing, timezone: str = "Europe/Berlin", **changes: object) -> Schedule:
    spec = Schedule(
        id="backup",
        declared_hash="",
        expression="0 3 * * *",
        timezone=timezone,
        timezone_given=True,
        workflow="backup",
        payload_json="{}",
        session_id=None,
        priority=None,
        description=None,
        max_attempts=None,
        catch_up=CatchUp.LATEST,
        catch_up_window=DAY,
        catch_up_max=20,
        catch_up_spacing=5.0,
        overlap=Overlap.BUFFER_ONE,
        jitter=0.0,
        expires_after=None,
        start_at=None,
        until_at=None,
        max_runs=None,
        origin=Origin.OPERATOR,
        generation=0,
        status=ScheduleStatus.ACTIVE,
        reason=None,
        timing=timing,
        high_water_at=0.0,
        skip_to_at=None,
        next_at=None,
        runs=0,
        last_nominal_at=None,
        created_at=0.0,
        updated_at=0.0,
    )
    return replace(spec, **changes)  # type: ignore[arg-type]


def a_line(seq: int, moments: list[float], outcome: Outcome = Outcome.FIRED, **changes: object) -> Occurrence:
    line = Occurrence(
        seq=seq,
        schedule_id="backup",
        generation=0,
        cause=FireCause.TIME,
        nominal_at=moments[0],
        last_at=moments[-1],
        count=len(moments),
        outcome=outcome,
        reason="paused" if outcome is Outcome.SKIPPED else None,
        trigger_id=f"t-{seq}" if outcome is Outcome.FIRED else None,
        decided_at=moments[-1],
    )
    return replace(line, **changes)  # type: ignore[arg-type]


def fired(seq: int, at: float, state: EndState = EndState.DONE, late: float = 0.0) -> AccountLine:
    return AccountLine(a_line(seq, [at]), OccurrenceEnd(state=state, began_at=at + late))


def skipped(seq: int, *moments: float, **changes: object) -> AccountLine:
    return AccountLine(a_line(seq, list(moments), Outcome.SKIPPED, **changes), None)


def strip_of(schedule: Schedule, lines: list[AccountLine], now: float, *, is_whole: bool = True) -> Strip:
    return draw_strip(schedule, [mark_line(line, schedule) for line in lines], now, is_whole=is_whole)


def draw_signs(strip: Strip) -> str:
    return "".join(SIGNS[group.mark] for group in strip.groups)


NIGHTLY = Cron(expression="0 3 * * *", timezone="Europe/Berlin")


def nights(now: datetime) -> list[float]:
    return list(occurrences(NIGHTLY, list_days("Europe/Berlin", now.timestamp())[0] - 1, now.timestamp()))


def test_strip_of_a_nightly_schedule_matches_its_account():
    now = AUTUMN.timestamp()
    slots = nights(AUTUMN)
    lines = [fired(seq, at) for seq, at in enumerate(slots)]
    lines[10] = fired(10, slots[10], late=2460)
    lines[14:17] = [skipped(14, *slots[14:17])]
    lines[17] = fired(19, slots[19], EndState.FAILED)

    strip = strip_of(a_schedule(NIGHTLY, high_water_at=slots[-1]), lines[:15] + lines[15:], now)

    assert draw_signs(strip) == "●●●●●●●●●●◐●●●–––●●✕●●●●●●●●●●"
    assert strip.text == "27 fired (1 late, 1 failed), 3 skipped, 0 unaccounted"
    assert strip.groups[14].text == "2026-10-25: 1 skipped"


@pytest.mark.parametrize("now", [SPRING, AUTUMN], ids=["spring", "autumn"])
def test_days_of_a_changed_clock_have_their_own_length(now):
    bounds = list_days("Europe/Berlin", now.timestamp())
    labels = [group.label for group in strip_of(a_schedule(NIGHTLY), [], now.timestamp()).groups]

    lengths = Counter(round((end - start) / HOUR) for start, end in pairwise(bounds))
    assert lengths == {24: 29, 23 if now is SPRING else 25: 1}
    assert labels == [f"{now.date() - timedelta(days=back):%Y-%m-%d}" for back in range(DAYS - 1, -1, -1)]


ZONES = ["Europe/Berlin", "America/New_York", "America/Havana", "Africa/Cairo", "Australia/Lord_Howe", "UTC"]
CRONS = ["0 3 * * *", "30 2 * * *", "0 0 * * *", "15 */3 * * *", "0 9 * * 1-5", "30 1 1 * *", "*/40 * * * *"]
STATES = st.sampled_from(list(EndState))


@st.composite
def accounts(draw: st.DrawFn) -> tuple[Schedule, list[AccountLine], float]:
    """Draw a schedule, its complete account of 45 days, and the current moment."""
    zone = draw(st.sampled_from(ZONES))
    now = draw(st.sampled_from([SPRING, AUTUMN])).timestamp() + draw(st.integers(-20, 20)) * DAY / 2
    timing: Timing = Cron(expression=draw(st.sampled_from(CRONS)), timezone=zone)
    if draw(st.booleans()):
        step = draw(st.integers(7_000, 200_000))
        timing = Every(anchor_at=int(now) - 400 * step, step_seconds=step)
    moments = list(occurrences(timing, now - 45 * DAY, now))
    rest, high_water = moments, now - 45 * DAY
    lines: list[AccountLine] = []
    undecided = draw(st.integers(0, 3))
    while len(rest) > undecided:
        seq = len(lines)
        if draw(st.integers(0, 3)) == 0:
            count = draw(st.integers(1, len(rest) - undecided))
            lines.append(skipped(seq, *rest[:count]))
        else:
            count = 1
            lines.append(fired(seq, rest[0], draw(STATES), late=draw(st.sampled_from([0.0, 61.0]))))
        high_water, rest = rest[count - 1], rest[count:]
    return a_schedule(timing, zone, high_water_at=high_water), lines, now


def expected(schedule: Schedule, lines: list[AccountLine], now: float) -> list[Counter[Mark]]:
    """Count the marks of each calendar day, one occurrence at a time."""
    zone = ZoneInfo(schedule.timezone)
    marks: list[tuple[float, Mark]] = []
    for line in lines:
        until = line.occurrence.last_at
        marks += [
            (at, mark_line(line, schedule).mark)
            for at in occurrences(schedule.timing, line.occurrence.nominal_at - 1, until)
        ]
    marks += [(at, Mark.WAITS) for at in occurrences(schedule.timing, schedule.high_water_at, now)]
    today = datetime.fromtimestamp(now, zone).date()
    days = {f"{today - timedelta(days=back):%Y-%m-%d}": Counter[Mark]() for back in range(DAYS - 1, -1, -1)}
    for at, mark in marks:
        label = datetime.fromtimestamp(at, zone).date().isoformat()
        if label in days:
            days[label][mark] += 1
    return list(days.values())


@settings(max_examples=25)
@given(accounts())
def test_strip_counts_each_occurrence_once_in_its_day(account):
    schedule, lines, now = account

    strip = strip_of(schedule, lines, now)

    assert [group.counts for group in strip.groups] == expected(schedule, lines, now)
    assert strip.counts == sum((group.counts for group in strip.groups), Counter())
    assert [group.label for group in strip.groups] == sorted(group.label for group in strip.groups)
    assert all(group.is_read for group in strip.groups)
    assert strip.unaccounted == 0


@settings(max_examples=25)
@given(accounts(), st.randoms(use_true_random=False))
def test_lines_in_any_order_draw_the_same_strip(account, random):
    schedule, lines, now = account
    shuffled = random.sample(lines, len(lines))

    assert strip_of(schedule, shuffled, now) == strip_of(schedule, lines, now)


@settings(max_examples=25)
@given(accounts(), st.data())
def test_missing_line_is_reported_as_unaccounted(account, data):
    schedule, lines, now = account
    if len(lines) < 3:
        return
    missing = data.draw(st.integers(1, len(lines) - 2))

    strip = strip_of(schedule, lines[:missing] + lines[missing + 1 :], now)

    assert strip.unaccounted == lines[missing].occurrence.count
    assert strip.text.endswith(f"{strip.unaccounted:,} unaccounted")


@settings(max_examples=25)
@given(accounts(), st.integers(1, 200))
def test_newest_lines_alone_leave_older_days_unread(account, newest):
    schedule, lines, now = account
    newest = min(newest, len(lines))

    strip = strip_of(schedule, lines[len(lines) - newest :], now, is_whole=newest == len(lines))

    if strip.is_daily:
        whole = expected(schedule, lines, now)
        for group, counts in zip(strip.groups, whole, strict=True):
            assert not group.is_read or group.counts == counts
    else:
        marks = [mark_line(line, schedule).mark for line in lines[-newest:][-DAYS:]]
        assert [group.mark for group in strip.groups] == marks


@pytest.mark.parametrize("days", [3, 40])
def test_run_of_an_earlier_timing_is_counted_whole(days):
    now = AUTUMN.timestamp()
    slots = list(occurrences(NIGHTLY, now - days * DAY, now))
    hourly = Every(anchor_at=0, step_seconds=3600)
    schedule = a_schedule(hourly, generation=1, high_water_at=now)

    strip = strip_of(schedule, [skipped(0, *slots)], now)

    assert strip.counts == {Mark.SKIPPED: min(days, DAYS)}
    assert {group.counts[Mark.SKIPPED] for group in strip.groups[-min(days, DAYS) :]} == {1}


def test_paused_schedule_shows_passed_occurrences_as_skipped():
    now, slots = AUTUMN.timestamp(), nights(AUTUMN)
    lines = [fired(seq, at) for seq, at in enumerate(slots[:-2])]
    paused = a_schedule(NIGHTLY, status=ScheduleStatus.PAUSED, high_water_at=slots[-3])

    assert draw_signs(strip_of(paused, lines, now)).endswith("●––")
    assert draw_signs(strip_of(replace(paused, status=ScheduleStatus.ACTIVE), lines, now)).endswith("●◌◌")


@pytest.mark.parametrize("timing", [Once(at=AUTUMN.timestamp() - HOUR), Startup()])
def test_schedule_that_does_not_recur_has_a_single_mark(timing):
    now = AUTUMN.timestamp()
    cause = FireCause.STARTUP if isinstance(timing, Startup) else FireCause.TIME
    line = AccountLine(a_line(0, [now - HOUR], cause=cause), OccurrenceEnd(state=EndState.DONE))

    strip = strip_of(a_schedule(timing, high_water_at=now), [line], now)

    assert draw_signs(strip) == "·" * (DAYS - 1) + "●"
    assert strip.text == "1 fired, 0 skipped, 0 unaccounted"


def test_unknown_zone_is_drawn_in_utc():
    now = AUTUMN.timestamp()
    lost = a_schedule(Cron(expression="0 3 * * *", timezone="Mars/Olympus"), "Mars/Olympus", high_water_at=now - DAY)

    strip = strip_of(lost, [skipped(0, now - 3 * DAY, now - 2 * DAY)], now)

    assert strip.counts == {Mark.SKIPPED: 2}
    assert draw_signs(strip) == "·" * 26 + "––··"


@pytest.mark.parametrize(
    ("state", "late", "mark"),
    [
        (EndState.DONE, 60.0, Mark.FIRED),
        (EndState.DONE, 61.0, Mark.LATE),
        (EndState.AT_WORK, 0.0, Mark.FIRED),
        (EndState.GONE, 0.0, Mark.FIRED),
        (EndState.FAILED, 61.0, Mark.FAILED),
        (EndState.NOT_RUN, 0.0, Mark.SKIPPED),
        (EndState.WAITS, 0.0, Mark.WAITS),
    ],
)
def test_mark_of_a_fired_line_is_its_end(state, late, mark):
    line = fired(1, AUTUMN.timestamp(), state, late)

    assert mark_line(line, a_schedule(NIGHTLY)).mark is mark


def test_jitter_and_requested_runs_are_not_late():
    at = AUTUMN.timestamp()
    asked = AccountLine(a_line(1, [at], cause=FireCause.BACKFILL, decided_at=at + DAY), OccurrenceEnd(EndState.DONE))

    assert mark_line(fired(1, at, late=300), a_schedule(NIGHTLY)).mark is Mark.LATE
    assert mark_line(fired(1, at, late=300), a_schedule(NIGHTLY, jitter=600)).mark is Mark.FIRED
    assert mark_line(asked, a_schedule(NIGHTLY)).mark is Mark.FIRED
