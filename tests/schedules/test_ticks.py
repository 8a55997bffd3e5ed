"""Writes of a tick: occurrence, trigger and high-water mark in one commit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from craftcore.config import Config, TriggerSettings
from craftcore.errors import RowInvalid
from craftcore.schedules import tick_service
from craftcore.schedules.model import CatchUp, Origin, Overlap, ScheduleStatus
from craftcore.schedules.store import ScheduleStore
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore
from tests.support.schedule_steps import DAY, HOUR, MINUTE, account, put, run_all, stored, tick, triggers
from tests.support.trigger_steps import BROKEN, ack, start_one


def test_once_schedule_in_ten_minutes_fires_once_at_minute_ten_over_many_ticks(core, clock):
    put(core, when="in 10 minutes")
    for _ in range(3):
        clock.advance(minutes=3)
        assert tick(core).fired == 0

    clock.advance(minutes=1)
    assert tick(core).fired == 1
    assert tick(core).fired == 0

    [trigger] = triggers(core)
    assert trigger["fire_at"] == trigger["nominal_at"] == NEW_YEAR + 10 * MINUTE
    assert trigger["dedup_key"] == "scheduled-once:job"
    assert (trigger["source"], trigger["priority"]) == ("SCHEDULED", 20)
    assert stored(core).status is ScheduleStatus.FINISHED


def test_slot_dedup_key_is_unique_per_slot(core, clock):
    put(core, when="every 1s")
    for _ in range(3):
        clock.advance(1)
        tick(core)
        run_all(core)

    keys = [trigger["dedup_key"] for trigger in triggers(core)]
    assert keys == [f"scheduled:job:{int(NEW_YEAR) + second}" for second in (1, 2, 3)]


@pytest.mark.parametrize(
    ("source", "key", "priority"),
    [("PROACTIVE", "proactive:job:{}", 50), ("MEMORY", "memory:job:{}", 55), ("LIVING_UI", "scheduled:job:{}", 30)],
)
def test_schedule_with_a_source_has_a_slot_key_and_the_priority_of_the_source(core, clock, source, key, priority):
    put(core, when="every 1h", source=source)
    clock.advance(hours=1)
    tick(core)

    [trigger] = triggers(core)
    assert (trigger["source"], trigger["priority"]) == (source, priority)
    assert trigger["dedup_key"] == key.format(int(NEW_YEAR + HOUR))
    assert trigger["dedup_scope"] == "ever"


def test_schedules_of_the_same_source_do_not_share_slot_keys(core, clock):
    for id in ("one", "two"):
        put(core, id=id, when="every 1h", source="MEMORY", workflow=id)
    clock.advance(hours=1)

    assert tick(core).fired == 2


def test_session_message_of_a_schedule_names_no_workflow(core, clock):
    put(core, when="every 1h", workflow=None, deliver="session", session_id="ada", payload={"text": "a walk?"})
    clock.advance(hours=1)
    tick(core)

    [trigger] = triggers(core)
    assert (trigger["workflow"], trigger["session_id"]) == (None, "ada")
    assert trigger["payload_json"] == '{"text":"a walk?"}'


def test_late_tick_paces_caught_up_slots_and_keeps_each_fire_time(core, clock):
    put(core, catch_up=CatchUp.ALL, overlap=Overlap.ALLOW, catch_up_spacing=5)
    clock.advance(hours=3)

    ticked = tick(core)

    assert ticked.fired == 3
    assert [row["fire_at"] - NEW_YEAR for row in triggers(core)] == [HOUR, 2 * HOUR, 3 * HOUR]
    assert [row["not_before"] for row in triggers(core)] == [None, clock.now() + 5, clock.now() + 10]
    assert [row["due_at"] for row in triggers(core)] == [NEW_YEAR + HOUR, clock.now() + 5, clock.now() + 10]


def test_jitter_moves_the_fire_time_and_not_the_dedup_key(core, clock):
    put(core, jitter=60)
    clock.advance(hours=1)
    tick(core)

    [trigger] = triggers(core)
    assert NEW_YEAR + HOUR < trigger["fire_at"] < NEW_YEAR + HOUR + 60
    assert (trigger["nominal_at"], trigger["dedup_key"]) == (NEW_YEAR + HOUR, f"scheduled:job:{int(NEW_YEAR + HOUR)}")


def test_trigger_expires_after_the_slot_by_expires_after(core, clock):
    put(core, expires_after=90)
    clock.advance(hours=1)
    tick(core)

    assert triggers(core)[0]["expires_at"] == NEW_YEAR + HOUR + 90


def test_occurrence_is_buffered_and_fires_when_the_earlier_trigger_settles(core, clock):
    put(core)
    for _ in range(3):
        clock.advance(hours=1)
        tick(core)
    first, buffered, skipped = account(core)
    assert (first[0], buffered[0], skipped[0]) == ("fired", "buffered", "skipped")
    assert skipped[3] == "overlap: an earlier occurrence waits already"
    assert tick(core).fired == 0

    run_all(core)
    assert tick(core).fired == 1

    assert [line[0] for line in account(core)] == ["fired", "fired", "skipped"]
    assert [row["nominal_at"] - NEW_YEAR for row in triggers(core)] == [HOUR, 2 * HOUR]


def test_buffered_occurrence_fires_without_a_new_decision(core, clock, monkeypatch):
    """A decision takes a fifth of a second when a thousand occurrences are to be caught up."""
    put(core)
    for _ in range(2):
        clock.advance(hours=1)
        tick(core)
    run_all(core)
    monkeypatch.setattr(tick_service, "decide", None)

    assert tick(core).fired == 1


def test_run_now_and_a_slot_at_the_same_moment_fire_only_once(core, clock):
    """The slot is due at the moment at which a person fires the schedule."""
    put(core)
    core.do(core.schedules.run_now, "job")
    clock.advance(hours=1)
    core.do(core.schedules.run_now, "job")
    tick(core)
    assert [line[:2] for line in account(core)][1:] == [("buffered", clock.now()), ("skipped", clock.now())]
    run_all(core)

    assert [tick(core).fired, run_all(core), tick(core).fired] == [1, 1, 0]


def test_occurrence_in_backoff_buffers_the_next_occurrence(core, clock):
    put(core)
    clock.advance(hours=1)
    tick(core)
    ack(core, start_one(core), replace(BROKEN, retry_after=2 * HOUR))
    clock.advance(hours=1)

    tick(core)

    assert [line[0] for line in account(core)] == ["fired", "buffered"]


def test_occurrences_skipped_repeatedly_for_a_reason_share_a_line(core, clock):
    """A job hangs while occurrences come every second. The number of rows must not grow with them."""
    put(core, when="every 1s", overlap=Overlap.SKIP)
    clock.advance(1)
    tick(core)
    for _ in range(50):
        clock.advance(1)
        tick(core)
    run_all(core)
    clock.advance(1)
    tick(core)
    clock.advance(1)
    tick(core)

    assert [(line[0], line[1] - NEW_YEAR, line[2]) for line in account(core)] == [
        ("fired", 1, 1),
        ("skipped", 2, 50),
        ("fired", 52, 1),
        ("skipped", 53, 1),
    ]


def test_overlap_skip_skips_the_next_occurrence_and_names_the_trigger(core, clock):
    put(core, overlap=Overlap.SKIP)
    clock.advance(hours=1)
    tick(core)
    clock.advance(hours=1)
    tick(core)

    [_, skipped] = account(core)
    assert skipped[0] == "skipped"
    assert skipped[3] == f"overlap: trigger {triggers(core)[0]['id']} is not settled"
    assert stored(core).runs == 1


def test_overlap_allow_fires_every_occurrence(core, clock):
    put(core, overlap=Overlap.ALLOW)
    for _ in range(3):
        clock.advance(hours=1)
        tick(core)

    assert [line[0] for line in account(core)] == ["fired"] * 3


def test_caught_up_occurrences_run_in_sequence(core, clock):
    put(core, catch_up=CatchUp.ALL)
    clock.advance(hours=4)
    assert tick(core).fired == 1
    assert [line[0] for line in account(core)] == ["fired", "buffered", "buffered", "buffered"]

    ran = 0
    while count := run_all(core):
        ran += count
        tick(core)

    assert ran == 4
    assert [row["nominal_at"] - NEW_YEAR for row in triggers(core)] == [HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR]


def test_once_schedule_is_buffered_under_overlap_skip(core, clock):
    put(core, when="in 1h", overlap=Overlap.SKIP)
    core.do(core.schedules.run_now, "job")
    clock.advance(hours=1)
    tick(core)
    assert [line[0] for line in account(core)] == ["fired", "buffered"]

    run_all(core)
    tick(core)

    assert [row["dedup_key"] for row in triggers(core)][1] == "scheduled-once:job"


def test_schedule_is_finished_after_the_last_run(core, clock):
    put(core, max_runs=2, overlap=Overlap.ALLOW)
    for _ in range(4):
        clock.advance(hours=1)
        tick(core)

    assert len(triggers(core)) == 2
    assert (stored(core).status, stored(core).next_at) == (ScheduleStatus.FINISHED, None)
    assert "2 runs" in (stored(core).reason or "")


def test_schedule_is_finished_when_the_end_has_come(core, clock):
    put(core, until=NEW_YEAR + 1.5 * HOUR)
    clock.advance(hours=1)
    tick(core)

    assert (stored(core).status, stored(core).reason) == (ScheduleStatus.FINISHED, "its end has come")


def test_interval_begins_exactly_at_the_start(core, clock):
    put(core, when="every 1h", start=NEW_YEAR + DAY + 1800)

    assert stored(core).next_at == NEW_YEAR + DAY + 1800


def test_tick_after_a_year_of_seconds_writes_two_lines(core, clock):
    put(core, when="every 1s")
    clock.advance(365 * DAY)

    ticked = tick(core)

    assert ticked.fired == 1
    assert [(line[0], line[2]) for line in account(core)] == [("skipped", 365 * 86_400 - 1), ("fired", 1)]
    assert ticked.next_at == NEW_YEAR + 365 * DAY + 1


def test_slot_that_fired_before_a_clock_step_is_skipped_with_the_trigger_named(core, clock):
    """The clock was set back, and a person trusted it."""
    put(core)
    clock.advance(hours=2)
    tick(core)
    run_all(core)
    clock.set_back(1.5 * HOUR)
    [moved] = core.do(core.schedules.reanchor)
    assert moved.next_at == NEW_YEAR + HOUR
    clock.advance(hours=1.5)

    tick(core)

    lines = account(core)
    assert [line[0] for line in lines] == ["skipped", "fired", "skipped", "skipped"]
    assert f"fired before, as trigger {triggers(core)[0]['id']}" == lines[-1][3]
    assert len(triggers(core)) == 1


def test_unknown_zone_disables_only_that_schedule(core, clock):
    put(core, id="broken", when="0 * * * *", timezone="Europe/Berlin")
    put(core, id="sound")
    with core.transaction() as tx:
        tx.run("UPDATE schedules SET timezone = 'Atlantis/Capital' WHERE id = 'broken'")
    clock.advance(hours=1)

    assert tick(core).fired == 1

    broken = stored(core, "broken")
    assert broken.status is ScheduleStatus.DISABLED
    assert "Atlantis/Capital" in (broken.reason or "")
    assert stored(core, "sound").next_at == NEW_YEAR + 2 * HOUR


def test_payload_over_a_lowered_limit_disables_the_schedule_with_a_reason(tmp_path):
    clock = VirtualClock()
    core = VirtualCore(tmp_path / "small.db", clock)
    put(core, payload={"text": "x" * 5000})
    lower = VirtualCore(
        tmp_path / "small.db", clock, replace(Config(), triggers=TriggerSettings(payload_max_bytes=1024))
    )
    clock.advance(hours=1)
    tick(lower)

    assert stored(core).status is ScheduleStatus.DISABLED
    assert "5,0" in (stored(core).reason or "")


def test_stale_tick_writes_nothing(core, clock):
    """The update is guarded, because the row has changed since it was read."""
    put(core)
    clock.advance(hours=1)
    before = stored(core)
    tick(core)

    with core.transaction() as tx:
        assert not ScheduleStore().advance(tx, before, before)
    assert stored(core).high_water_at == NEW_YEAR + HOUR


def test_tick_of_a_replaced_schedule_writes_nothing(core, clock):
    put(core)
    before = stored(core)
    with core.transaction() as tx:
        tx.run("UPDATE schedules SET generation = generation + 1")

    with core.transaction() as tx:
        assert not ScheduleStore().advance(tx, before, replace(before, high_water_at=before.high_water_at + HOUR))
    assert stored(core).high_water_at == before.high_water_at


def test_tick_beyond_a_batch_of_due_schedules_reports_more(core, clock):
    for number in range(150):
        put(core, id=f"job{number}")
    clock.advance(hours=1)

    first, second = tick(core), tick(core)

    assert (first.fired, first.more) == (100, True)
    assert (second.fired, second.more) == (50, False)


@pytest.mark.parametrize("status", ["PAUSED", "DISABLED", "FINISHED", "REMOVED"])
def test_inactive_schedule_with_a_next_occurrence_is_refused_by_the_schema(core, status):
    put(core)

    with pytest.raises(RowInvalid), core.transaction() as tx:
        tx.run("UPDATE schedules SET status = :status, reason = 'x' WHERE id = 'job'", status=status)


def test_startup_schedule_fires_once_per_start(core, clock):
    put(core, when="on startup", origin=Origin.OPERATOR)
    for _ in range(2):
        clock.advance(minutes=1)
        core.do(core.ticks.fire_startup)
        run_all(core)

    assert len(triggers(core)) == 2
    assert stored(core).status is ScheduleStatus.ACTIVE
    assert tick(core).fired == 0


def test_startup_schedule_is_finished_after_max_runs(core, clock):
    put(core, when="on startup", max_runs=1)
    core.do(core.ticks.fire_startup)
    clock.advance(minutes=1)
    core.do(core.ticks.fire_startup)

    assert len(triggers(core)) == 1
    assert stored(core).status is ScheduleStatus.FINISHED


@pytest.mark.parametrize("window", [0, 1])
def test_slot_on_time_fires_with_a_tiny_catch_up_window(core, clock, window):
    put(core, catch_up_window=window)
    clock.advance(hours=1, seconds=1.5)

    assert tick(core).fired == 1


def test_slot_is_missed_only_beyond_the_misfire_grace(core, clock):
    put(core, id="late", catch_up=CatchUp.NONE)
    clock.advance(hours=1, seconds=31)
    assert tick(core).fired == 1

    clock.advance(hours=1, seconds=31)

    assert tick(core).fired == 0


def test_tick_with_many_slots_to_catch_up_leaves_the_rest_for_the_next_tick(core, clock):
    for number in range(3):
        put(core, id=f"job{number}", when="every 1m", catch_up=CatchUp.ALL, catch_up_max=400, overlap=Overlap.ALLOW)
    clock.advance(hours=10)

    first, second = tick(core), tick(core)

    assert (first.fired, first.more) == (800, True)
    assert (second.fired, second.more) == (400, False)


def test_startup_schedule_fires_after_the_clock_was_set_back(core, clock):
    put(core, when="on startup")
    core.do(core.ticks.fire_startup)
    run_all(core)
    clock.set_back(HOUR)

    core.do(core.ticks.fire_startup)

    assert len(triggers(core)) == 2
    with core.reading() as reader:
        assert ScheduleStore().list_ahead(reader, clock.now()) == []


def test_startup_schedule_held_at_a_start_is_accounted_for(core, clock):
    put(core, when="on startup")

    core.do(core.ticks.fire_startup, held="6 unclean starts within 10 minutes")

    assert triggers(core) == []
    assert account(core) == [("skipped", NEW_YEAR, 1, "held: 6 unclean starts within 10 minutes")]


def test_once_schedule_added_again_does_not_collide_with_a_similar_id(core, clock):
    put(core, when="in 10m")
    core.do(core.schedules.remove, "job")
    put(core, when="in 10m")
    put(core, id="job:1", when="in 10m")
    clock.advance(minutes=10)

    assert tick(core).fired == 2


def test_last_nominal_time_is_of_the_last_fired_slot(core, clock):
    put(core, catch_up=CatchUp.ALL, overlap=Overlap.SKIP)
    clock.advance(hours=4)
    tick(core)

    assert [line[::2] for line in account(core)] == [("fired", 1), ("skipped", 3)]
    assert stored(core).last_nominal_at == NEW_YEAR + HOUR


def test_skip_next_accounts_for_each_slot_when_due(core, clock):
    put(core)
    for _ in range(3):
        core.do(core.schedules.skip_next, "job")
    for _ in range(4):
        clock.advance(hours=1)
        tick(core)

    assert [line[:3] for line in account(core)] == [
        ("skipped", NEW_YEAR + HOUR, 1),
        ("skipped", NEW_YEAR + 2 * HOUR, 1),
        ("skipped", NEW_YEAR + 3 * HOUR, 1),
        ("fired", NEW_YEAR + 4 * HOUR, 1),
    ]


def test_once_schedule_is_buffered_behind_a_buffered_occurrence(core, clock):
    put(core, when="in 1h")
    for _ in range(2):
        core.do(core.schedules.run_now, "job")
        clock.advance(minutes=30)

    tick(core)

    assert [line[0] for line in account(core)] == ["fired", "buffered", "buffered"]


def test_jitter_differs_between_schedules(core, clock):
    for job in ("one", "two"):
        put(core, id=job, jitter=60)
    clock.advance(hours=1)
    tick(core)

    assert triggers(core, "one")[0]["fire_at"] != triggers(core, "two")[0]["fire_at"]


def test_startup_schedule_past_the_end_does_not_fire(core, clock):
    put(core, when="on startup", until=NEW_YEAR + HOUR)
    clock.advance(hours=2)

    assert core.do(core.ticks.fire_startup).fired == 0


def test_buffered_occurrence_of_a_disabled_schedule_does_not_count_as_a_run(core, clock):
    put(core, when="0 * * * *", timezone="Europe/Berlin")
    for _ in range(2):
        clock.advance(hours=1)
        tick(core)
    with core.transaction() as tx:
        tx.run("UPDATE schedules SET timezone = 'Atlantis/Capital'")
    clock.advance(hours=1)
    tick(core)

    assert (stored(core).status, stored(core).runs) == (ScheduleStatus.DISABLED, 1)
    assert [line[0] for line in account(core)] == ["fired", "skipped"]


def test_tick_beyond_a_batch_of_buffered_occurrences_reports_more(core, clock):
    for number in range(150):
        put(core, id=f"job{number}", max_runs=2)
    for _ in range(2):
        clock.advance(hours=1)
        while tick(core).more:
            pass
    run_all(core)

    first, second = tick(core), tick(core)

    assert (first.fired, first.more, second.fired, second.more) == (100, True, 50, False)


def test_once_schedule_added_again_for_the_same_moment_fires_again(core, clock):
    put(core, when="2026-01-01T01:00Z")
    clock.advance(hours=1)
    tick(core)
    run_all(core)
    core.do(core.schedules.remove, "job")

    put(core, when="2026-01-01T01:00Z")

    assert tick(core).fired == 1


def test_startup_schedule_skipped_for_overlap_does_not_count_as_a_run(core, clock):
    put(core, when="on startup", overlap=Overlap.SKIP, max_runs=2)
    for _ in range(3):
        core.do(core.ticks.fire_startup)
        clock.advance(minutes=1)

    assert [line[0] for line in account(core)] == ["fired", "skipped", "skipped"]
    assert (stored(core).status, stored(core).runs) == (ScheduleStatus.ACTIVE, 1)
