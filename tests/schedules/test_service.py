"""Declarations of schedules as upserts over restarts, and operator commands on schedules."""

from __future__ import annotations

import math
from dataclasses import fields
from datetime import UTC, datetime, timedelta

import pytest

from craftcore.errors import ConfigInvalid, InvalidInput, NotFound, PayloadTooLarge, ScheduleInvalid, StateRefused
from craftcore.schedules.model import Declared, FireCause, Origin, Outcome, Overlap, ScheduleStatus
from craftcore.schedules.recurrence.timing import Every
from craftcore.schedules.service import BACKFILL_MAX
from craftcore.schedules.transitions import spec_of
from craftcore.serialization.canonical import canonicalize, sha256_of
from tests.support.fakes import NEW_YEAR
from tests.support.schedule_steps import (
    DAY,
    HOUR,
    MINUTE,
    a_schedule,
    account,
    declare,
    put,
    run_all,
    start_daemon,
    stored,
    tick,
    triggers,
)
from tests.support.trigger_steps import start_one

PAST, SOON = "2025-12-31T23:00Z", "2026-01-01T01:00Z"


# Declare


@pytest.mark.parametrize("when", ["in 10 minutes", "every 3h", "0 7 * * *", "at 3pm", "on startup"])
def test_declaration_repeated_unchanged_changes_nothing(core, clock, when):
    for origin in (Origin.CODE, Origin.OPERATOR):
        first = put(core, id=origin.value, when=when, origin=origin)
        clock.advance(minutes=3)

        second = put(core, id=origin.value, when=when, origin=origin)

        assert (first.change, second.change) == ("added", "unchanged")
        assert second.schedule == first.schedule


def test_default_zone_is_fixed_at_the_first_declaration(core, clock, monkeypatch):
    monkeypatch.setattr(clock, "zone", lambda: "Europe/Berlin")
    put(core, when="0 7 * * *")
    monkeypatch.setattr(clock, "zone", lambda: "Asia/Tokyo")

    again = put(core, when="0 7 * * *", payload={"changed": 1})

    assert (again.change, again.schedule.timezone) == ("changed", "Europe/Berlin")
    assert again.schedule.next_at == NEW_YEAR + 6 * HOUR


def test_changed_timing_starts_from_now_in_a_new_generation(core, clock):
    put(core, when="in 10 minutes")
    clock.advance(minutes=5)

    put(core, when="in 20 minutes")

    assert stored(core).next_at == NEW_YEAR + 25 * MINUTE
    clock.advance(minutes=20)
    tick(core)
    assert [row["dedup_key"] for row in triggers(core)] == ["scheduled-once:job:1"]


def test_changed_payload_keeps_the_next_occurrence(core, clock):
    put(core, when="every 3h")
    clock.advance(hours=1)

    changed = put(core, when="every 3h", payload={"name": "Ada"})

    assert changed.change == "changed"
    assert (changed.schedule.generation, changed.schedule.next_at) == (0, NEW_YEAR + 3 * HOUR)
    assert changed.schedule.payload_json == '{"name":"Ada"}'


def test_changed_timing_does_not_fire_past_slots(core, clock):
    put(core, when="0 7 * * *", timezone="UTC")
    clock.advance(hours=12)

    put(core, when="0 6 * * *", timezone="UTC")

    assert tick(core).fired == 0
    assert stored(core).next_at == NEW_YEAR + DAY + 6 * HOUR


def test_raised_max_runs_reactivates_a_finished_schedule_from_now(core, clock):
    put(core, max_runs=1)
    clock.advance(hours=1)
    tick(core)
    run_all(core)
    clock.advance(hours=3)

    put(core, max_runs=2)

    assert (stored(core).status, stored(core).next_at) == (ScheduleStatus.ACTIVE, NEW_YEAR + 5 * HOUR)
    assert [line[:1] + line[2:3] for line in account(core)] == [("fired", 1), ("skipped", 3)]


def test_max_runs_already_reached_finishes_the_schedule(core, clock):
    put(core, overlap=Overlap.ALLOW)
    for _ in range(2):
        clock.advance(hours=1)
        tick(core)

    put(core, overlap=Overlap.ALLOW, max_runs=2)

    assert stored(core).status is ScheduleStatus.FINISHED


def test_changed_timing_keeps_the_pause(core, clock):
    put(core)
    core.do(core.schedules.pause, "job", "holiday")

    changed = put(core, when="every 20m").schedule

    assert (changed.status, changed.reason, changed.next_at) == (ScheduleStatus.PAUSED, "holiday", None)
    clock.advance(hours=1)
    assert core.do(core.schedules.resume, "job").next_at == NEW_YEAR + HOUR + 20 * MINUTE


def test_operator_cannot_change_a_schedule_declared_in_code(core):
    put(core, origin=Origin.CODE)

    with pytest.raises(StateRefused, match="declared in code"):
        put(core, when="every 2h")

    assert stored(core).expression == "every 1h"


def test_code_takes_over_a_schedule_of_an_operator(core, clock):
    put(core)
    clock.advance(minutes=30)

    taken = put(core, origin=Origin.CODE)

    assert (taken.schedule.origin, taken.schedule.next_at) == (Origin.CODE, NEW_YEAR + HOUR)


def test_once_schedule_that_fired_does_not_fire_when_declared_again(core, clock):
    for origin in (Origin.CODE, Origin.OPERATOR):
        put(core, id=origin.value, when="in 10m", origin=origin)
    clock.advance(minutes=10)
    tick(core)
    run_all(core)

    assert put(core, id="code", when="in 10m", origin=Origin.CODE).change == "unchanged"
    assert put(core, id="code", when="in 10m", payload={"n": 1}, origin=Origin.CODE).change == "changed"
    for payload in ({}, {"n": 1}):
        with pytest.raises(StateRefused, match="remove it to use its id again"):
            put(core, id="operator", when="in 10m", payload=payload)

    clock.advance(hours=1)
    assert tick(core).fired == 0


def test_once_schedule_removed_and_added_again_fires_once_more(core, clock):
    for _ in range(2):
        put(core, when="in 10m")
        clock.advance(minutes=10)
        tick(core)
        run_all(core)
        tick(core)
        core.do(core.schedules.remove, "job")

    assert [row["dedup_key"] for row in triggers(core)] == ["scheduled-once:job", "scheduled-once:job:1"]


def test_once_schedule_does_not_fire_again_after_retention_removed_the_trigger(core, clock):
    """Retention has removed the row that held the dedup key."""
    put(core, when="in 10m", origin=Origin.CODE)
    clock.advance(minutes=10)
    tick(core)
    run_all(core)
    with core.transaction() as tx:
        tx.run("DELETE FROM triggers")

    declare(core, a_schedule(when="in 10m"))
    clock.advance(DAY)

    assert tick(core).fired == 0
    assert triggers(core) == []


def test_past_time_is_skipped_for_a_declaration_and_refused_for_an_operator(core):
    with pytest.raises(ScheduleInvalid, match="passed"):
        put(core, when=PAST)
    assert core.rows("SELECT id FROM schedules") == []

    put(core, when=PAST, origin=Origin.FILE)

    assert stored(core).status is ScheduleStatus.FINISHED
    assert account(core) == [("skipped", NEW_YEAR - HOUR, 1, "had passed when it was declared")]


def test_immediate_schedule_fires_at_the_next_tick(core):
    put(core, when="immediate")

    assert tick(core).fired == 1


def test_schedule_no_longer_declared_is_disabled_and_later_enabled_from_now(core, clock):
    declare(core, a_schedule(id="kept"), a_schedule(id="gone"))
    declare(core, a_schedule(id="file"), origin=Origin.FILE)

    declare(core, a_schedule(id="kept"))

    assert stored(core, "gone").status is ScheduleStatus.DISABLED
    assert stored(core, "gone").reason == "no longer declared in code"
    assert stored(core, "kept").status is stored(core, "file").status is ScheduleStatus.ACTIVE
    clock.advance(hours=2.5)
    tick(core)
    assert account(core, "gone") == []

    [_, again] = declare(core, a_schedule(id="kept"), a_schedule(id="gone"))

    assert (again.change, again.schedule.next_at) == ("enabled", NEW_YEAR + 3 * HOUR)
    assert account(core, "gone") == [("skipped", NEW_YEAR + HOUR, 2, "no longer declared in code")]


def test_pause_survives_a_deployment_without_the_declaration(core):
    declare(core, a_schedule())
    core.do(core.schedules.pause, "job", "holiday")

    declare(core)
    declare(core, a_schedule())

    assert (stored(core).status, stored(core).reason) == (ScheduleStatus.PAUSED, "holiday")


def test_disabled_schedule_declared_with_another_payload_is_enabled(core, clock):
    declare(core, a_schedule())
    declare(core)

    declare(core, a_schedule(payload={"n": 1}))

    assert (stored(core).status, stored(core).payload_json) == (ScheduleStatus.ACTIVE, '{"n":1}')


def test_declaration_names_all_mistakes_and_stores_nothing(core):
    with pytest.raises(ConfigInvalid) as refused:
        declare(core, a_schedule(id="a", when="every weekday"), a_schedule(id="b"), a_schedule(id="c", jitter=-1))

    assert [line.partition(":")[0] for line in refused.value.message.splitlines()] == ["schedule a", "schedule c"]
    assert core.rows("SELECT id FROM schedules") == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "no spaces"}, "1 to 150 characters"),
        ({"id": "x" * 151}, "1 to 150 characters"),
        ({"id": None}, "1 to 150 characters"),
        ({"when": None}, "must be text"),
        ({"when": "every weekday"}, "every weekday at"),
        ({"when": "30 2 30 2 *"}, "day of month"),
        ({"timezone": "Europe/Berln"}, "Europe/Berlin"),
        ({"workflow": None}, "name of a workflow"),
        ({"workflow": "no spaces"}, "1 to 200 characters"),
        ({"catch_up": "some"}, "latest, all, none"),
        ({"overlap": None}, "buffer_one, skip, allow"),
        ({"catch_up_max": 0}, "1 to 1000"),
        ({"catch_up_max": True}, "1 to 1000"),
        ({"catch_up_window": math.nan}, "catch_up_window nan"),
        ({"catch_up_spacing": -1}, "catch_up_spacing -1"),
        ({"jitter": "soon"}, "jitter 'soon'"),
        ({"expires_after": 0}, "expires_after 0 must be 1 to 316224000 seconds"),
        ({"max_runs": 0}, "max_runs 0"),
        ({"start": datetime(2026, 1, 2)}, "no time zone"),  # noqa: DTZ001 - this value is refused
        ({"until": "tomorrow"}, "until 'tomorrow'"),
        ({"until": NEW_YEAR - 1}, "would never fire"),
        ({"start": NEW_YEAR + DAY, "until": NEW_YEAR + HOUR}, "until is before start"),
        ({"when": "in 10m", "start": NEW_YEAR + DAY}, "start is after the only moment"),
        ({"priority": 100}, "priority 100"),
        ({"payload": {"x": {object}}}, "payload.x[...]: type is not JSON"),
        ({"max_attempts": 0}, "max_attempts 0"),
        ({"description": 7}, "description must be text"),
    ],
)
def test_schedule_with_an_invalid_option_is_refused_by_name_and_not_stored(core, changes, message):
    with pytest.raises(InvalidInput) as refused:
        put(core, **changes)

    assert message in refused.value.message
    assert core.rows("SELECT id FROM schedules") == []


def test_schedule_payload_over_the_limit_is_refused(core):
    with pytest.raises(PayloadTooLarge):
        put(core, payload={"text": "x" * 300_000})


def test_schedule_options_survive_a_round_trip(core):
    spec = a_schedule(
        when="every 1h",
        payload={"name": "Ada"},
        timezone="Europe/Berlin",
        catch_up="all",
        catch_up_window=timedelta(hours=2),
        catch_up_max=3,
        catch_up_spacing=1,
        overlap="allow",
        jitter=timedelta(seconds=30),
        expires_after=600,
        start=datetime(2026, 1, 2, tzinfo=UTC),
        until=NEW_YEAR + 30 * DAY,
        max_runs=9,
        session_id="s",
        priority=7,
        description="why",
        max_attempts=2,
    )
    core.do(core.schedules.put, spec, Origin.OPERATOR)

    assert core.do(core.schedules.put, spec_of(stored(core)), Origin.OPERATOR).change == "unchanged"
    assert stored(core).timing == Every(anchor_at=int(NEW_YEAR + DAY), step_seconds=3600)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"source": "HEARTBEAT"}, "source 'HEARTBEAT'"),
        ({"source": "RESUME"}, "source RESUME is craftcore's own"),
        ({"workflow": None}, "must be the name of a workflow"),
        ({"workflow": None, "deliver": "mail", "session_id": "s"}, 'must be "session"'),
        ({"workflow": None, "deliver": "session"}, "needs the session"),
        ({"deliver": "session", "session_id": "s"}, "takes no workflow"),
    ],
)
def test_schedule_that_names_no_receiver_or_two_is_refused(core, wrong, message):
    with pytest.raises(InvalidInput, match=message):
        put(core, **wrong)
    assert core.rows("SELECT 1 FROM schedules") == []


def test_source_and_delivery_survive_a_round_trip(core):
    put(core, source="PROACTIVE", workflow=None, deliver="session", session_id="s")

    assert core.do(core.schedules.put, spec_of(stored(core)), Origin.OPERATOR).change == "unchanged"
    assert (stored(core).source, stored(core).deliver, stored(core).workflow) == ("PROACTIVE", "session", None)


def test_declaration_of_an_older_release_is_unchanged_by_the_new_options(core):
    """The stored hash is from a release without the options source and deliver."""
    put(core)

    hashed = {field.name: getattr(stored(core), field.name) for field in fields(Declared)}
    for name in ("source", "deliver", "timezone"):
        del hashed[name]
    assert stored(core).declared_hash == sha256_of(canonicalize({**hashed, "declared_hash": ""}))


def test_fired_trigger_carries_the_options_of_the_schedule(core, clock):
    put(core, payload={"name": "Ada"}, session_id="s", priority=7, description="why", max_attempts=2)
    clock.advance(hours=1)
    tick(core)

    [row] = triggers(core)
    assert (row["payload_json"], row["session_id"], row["lane"]) == ('{"name":"Ada"}', "s", "s")
    assert (row["priority"], row["description"], row["max_attempts"]) == (7, "why", 2)


# Operator commands


def test_paused_schedule_fires_nothing_and_accounts_for_slots_at_resume(core, clock):
    put(core)
    core.do(core.schedules.pause, "job", "holiday")
    clock.advance(hours=3.5)
    assert tick(core).fired == 0

    resumed = core.do(core.schedules.resume, "job")

    assert resumed.next_at == NEW_YEAR + 4 * HOUR
    assert account(core) == [("skipped", NEW_YEAR + HOUR, 3, "holiday")]
    assert core.do(core.schedules.resume, "job") == resumed


def test_buffered_occurrence_is_skipped_by_a_pause(core, clock):
    put(core)
    for _ in range(2):
        clock.advance(hours=1)
        tick(core)

    core.do(core.schedules.pause, "job")
    run_all(core)

    assert tick(core).fired == 0
    assert [line[0] for line in account(core)] == ["fired", "skipped"]
    assert account(core)[1][3] == "paused"


def test_once_schedule_due_during_a_pause_fires_at_resume(core, clock):
    put(core, when="in 1h")
    core.do(core.schedules.pause, "job")
    clock.advance(hours=2)
    assert tick(core).fired == 0

    core.do(core.schedules.resume, "job")

    assert tick(core).fired == 1
    assert triggers(core)[0]["due_at"] == NEW_YEAR + HOUR


def test_finished_schedule_cannot_be_paused_resumed_or_skipped(core, clock):
    put(core, when="in 1h")
    clock.advance(hours=1)
    tick(core)

    for rule in (core.schedules.pause, core.schedules.resume, core.schedules.skip_next):
        with pytest.raises(StateRefused, match="FINISHED"):
            core.do(rule, "job")


def test_remove_cancels_only_unstarted_triggers_of_the_schedule(core, clock):
    put(core, overlap=Overlap.ALLOW)
    clock.advance(hours=1)
    tick(core)
    running = start_one(core)
    clock.advance(hours=1)
    tick(core)

    [cancelled] = core.do(core.schedules.remove, "job")

    rows = {row["id"]: row for row in triggers(core)}
    assert (rows[cancelled]["status"], rows[cancelled]["reason"]) == ("DONE", "schedule job was removed")
    assert rows[running.id]["status"] == "CLAIMED"
    clock.advance(DAY)
    assert tick(core).fired == 0


def test_schedule_of_the_configuration_file_cannot_be_removed(core):
    put(core, origin=Origin.FILE)

    with pytest.raises(StateRefused, match="configuration file"):
        core.do(core.schedules.remove, "job")


def test_schedule_no_longer_declared_in_code_can_be_removed(core):
    declare(core, a_schedule())
    declare(core)

    core.do(core.schedules.remove, "job")

    assert stored(core).status is ScheduleStatus.REMOVED


def test_paused_schedule_can_be_removed(core):
    put(core)
    core.do(core.schedules.pause, "job")

    core.do(core.schedules.remove, "job")

    assert stored(core).status is ScheduleStatus.REMOVED


@pytest.mark.parametrize("before", [ScheduleStatus.DISABLED, ScheduleStatus.REMOVED])
def test_disabled_or_removed_schedule_declared_with_a_past_time_is_finished(core, before):
    declare(core, a_schedule())
    declare(core)
    if before is ScheduleStatus.REMOVED:
        core.do(core.schedules.remove, "job")
    assert stored(core).status is before

    declare(core, a_schedule(when=PAST))

    assert stored(core).status is ScheduleStatus.FINISHED
    assert account(core)[-1] == ("skipped", NEW_YEAR - HOUR, 1, "had passed when it was declared")
    assert tick(core).fired == 0


def test_schedule_removed_or_unknown_is_not_found(core):
    put(core)
    core.do(core.schedules.remove, "job")

    rules = core.schedules
    for rule in (rules.get, rules.pause, rules.resume, rules.remove, rules.run_now, rules.skip_next):
        for schedule_id in ("job", "never"):
            with pytest.raises(NotFound, match=schedule_id):
                core.do(rule, schedule_id)


def test_run_now_fires_once_and_keeps_next_occurrence_and_run_count(core, clock):
    put(core)
    clock.advance(minutes=30)

    placed = core.do(core.schedules.run_now, "job")

    assert (placed.outcome, placed.nominal_at) == (Outcome.FIRED, clock.now())
    assert triggers(core)[0]["id"] == placed.trigger_id
    assert (stored(core).next_at, stored(core).runs) == (NEW_YEAR + HOUR, 0)


def test_run_now_obeys_the_overlap_policy(core, clock):
    put(core)
    put(core, id="skips", overlap=Overlap.SKIP)
    for schedule_id in ("job", "skips"):
        core.do(core.schedules.run_now, schedule_id)
    clock.advance(1)

    assert core.do(core.schedules.run_now, "job").outcome is Outcome.BUFFERED
    assert core.do(core.schedules.run_now, "skips").outcome is Outcome.SKIPPED


def test_run_now_fires_a_finished_schedule(core, clock):
    put(core, when="in 1h")
    clock.advance(hours=1)
    tick(core)
    run_all(core)

    assert core.do(core.schedules.run_now, "job").outcome is Outcome.FIRED


def test_skip_next_twice_skips_the_next_two_occurrences(core, clock):
    put(core)
    assert core.do(core.schedules.skip_next, "job") == NEW_YEAR + HOUR
    assert core.do(core.schedules.skip_next, "job") == NEW_YEAR + 2 * HOUR

    fired = []
    for _ in range(3):
        clock.advance(hours=1)
        fired.append(tick(core).fired)

    assert fired == [0, 0, 1]
    assert [(line[0], line[3]) for line in account(core)] == [
        ("skipped", "skip-next"),
        ("skipped", "skip-next"),
        ("fired", None),
    ]


def test_skip_next_is_refused_without_an_occurrence_left(core):
    put(core, when="in 1h")
    core.do(core.schedules.skip_next, "job")

    with pytest.raises(StateRefused, match="no occurrence left"):
        core.do(core.schedules.skip_next, "job")


def test_backfill_fires_skipped_slots_and_none_twice(core, clock):
    put(core, overlap=Overlap.ALLOW)
    clock.advance(hours=4)
    tick(core)
    assert [row["nominal_at"] - NEW_YEAR for row in triggers(core)] == [4 * HOUR]

    placed = core.do(core.schedules.backfill, "job", NEW_YEAR + 2 * HOUR, NEW_YEAR + 4 * HOUR)
    again = core.do(core.schedules.backfill, "job", NEW_YEAR + 2 * HOUR, NEW_YEAR + 4 * HOUR)

    assert [one.outcome for one in placed] == [Outcome.FIRED, Outcome.FIRED, Outcome.SKIPPED]
    assert [one.outcome for one in again] == [Outcome.SKIPPED] * 3
    assert len(triggers(core)) == 3
    causes = core.rows("SELECT DISTINCT cause FROM schedule_occurrences ORDER BY cause")
    assert [row["cause"] for row in causes] == [FireCause.BACKFILL, FireCause.TIME]


def test_backfill_does_not_fire_a_slot_again_after_retention_removed_the_trigger(core, clock):
    """Retention has removed the row that held the dedup key. The row of the occurrence is kept."""
    put(core)
    clock.advance(hours=1)
    tick(core)
    run_all(core)
    with core.transaction() as tx:
        tx.run("DELETE FROM triggers")

    [placed] = core.do(core.schedules.backfill, "job", NEW_YEAR + 1, NEW_YEAR + HOUR)

    assert placed.outcome is Outcome.SKIPPED
    assert triggers(core) == []


def test_run_now_twice_in_an_instant_fires_once(core):
    put(core, overlap=Overlap.ALLOW)
    core.do(core.schedules.run_now, "job")

    again = core.do(core.schedules.run_now, "job")

    assert again.outcome is Outcome.SKIPPED
    assert len(triggers(core)) == 1


def test_backfill_buffers_occurrences_that_may_not_overlap(core, clock):
    put(core)
    clock.advance(hours=3)
    core.do(core.schedules.pause, "job")

    placed = core.do(core.schedules.backfill, "job", NEW_YEAR + 1, clock.now())

    assert [one.outcome for one in placed] == [Outcome.FIRED, Outcome.BUFFERED, Outcome.BUFFERED]


def test_backfill_is_limited_and_refused_for_the_future(core, clock):
    put(core, when="every 1s")
    put(core, id="once", when="in 1h")
    clock.advance(hours=1)

    with pytest.raises(ScheduleInvalid, match=f"at most {BACKFILL_MAX:,}"):
        core.do(core.schedules.backfill, "job", NEW_YEAR, clock.now())
    for since, until in ((clock.now(), clock.now() + 1), (clock.now(), clock.now() - 1)):
        with pytest.raises(ScheduleInvalid, match="not beyond now"):
            core.do(core.schedules.backfill, "job", since, until)
    with pytest.raises(StateRefused, match="does not recur"):
        core.do(core.schedules.backfill, "once", NEW_YEAR, clock.now())
    assert triggers(core) == []


def test_reanchor_moves_only_schedules_ahead_of_the_clock_and_keeps_the_phase(core, clock):
    clock.advance(365 * DAY + 1800)
    put(core)
    put(core, id="starts", start=clock.now() + DAY)
    clock.set_back(365 * DAY)
    put(core, id="sound")

    with pytest.raises(StateRefused, match="sound is not ahead"):
        core.do(core.schedules.reanchor, ["sound"])
    [moved] = core.do(core.schedules.reanchor, ["job"])

    assert moved.next_at == NEW_YEAR + 1800 + HOUR
    assert moved.generation == 1


def test_removed_schedule_keeps_the_history(core, clock):
    put(core)
    clock.advance(hours=1)
    tick(core)
    core.do(core.schedules.remove, "job")

    assert [line[0] for line in account(core)] == ["fired"]


def test_interval_of_three_hours_with_hourly_restarts_fires_four_times_in_twelve(core, clock):
    ran = []
    for _ in range(12):
        start_daemon(core)
        declare(core, a_schedule(when="every 3h"))
        clock.advance(hours=1)
        tick(core)
        ran.append(run_all(core))

    assert ran == [0, 0, 1] * 4
    assert [row["nominal_at"] - NEW_YEAR for row in triggers(core)] == [3 * HOUR, 6 * HOUR, 9 * HOUR, 12 * HOUR]


# Each slot is accounted for


def test_changed_timing_accounts_for_earlier_slots(core, clock):
    put(core)
    clock.advance(hours=5)

    put(core, when="every 2h")

    assert account(core) == [("skipped", NEW_YEAR + HOUR, 5, "its schedule was changed")]


def test_changed_timing_during_a_pause_accounts_for_slots_of_the_pause(core, clock):
    put(core)
    core.do(core.schedules.pause, "job", "holiday")
    clock.advance(hours=5)

    put(core, when="every 2h")

    assert account(core) == [("skipped", NEW_YEAR + HOUR, 5, "holiday")]


def test_remove_accounts_for_earlier_slots(core, clock):
    put(core)
    clock.advance(hours=5)

    core.do(core.schedules.remove, "job")

    assert account(core) == [("skipped", NEW_YEAR + HOUR, 5, "removed")]


def test_schedule_with_an_unknown_zone_can_be_changed_and_removed(core, clock):
    for job in ("changed", "removed"):
        put(core, id=job, when="0 * * * *", timezone="Europe/Berlin")
    with core.transaction() as tx:
        tx.run("UPDATE schedules SET timezone = 'Atlantis/Capital'")
    clock.advance(hours=2)

    put(core, id="changed", when="0 * * * *", timezone="Europe/Paris")
    core.do(core.schedules.remove, "removed")

    assert stored(core, "changed").next_at == NEW_YEAR + 3 * HOUR
    assert stored(core, "removed").status is ScheduleStatus.REMOVED


def test_schedule_moved_from_code_to_file_keeps_the_pause(core):
    declare(core, a_schedule())
    core.do(core.schedules.pause, "job", "holiday")

    declare(core, elsewhere=["job"])
    declare(core, a_schedule(), origin=Origin.FILE)

    assert (stored(core).status, stored(core).origin) == (ScheduleStatus.PAUSED, Origin.FILE)


def test_schedule_moved_from_code_to_file_catches_up_missed_slots(core, clock):
    declare(core, a_schedule())
    clock.advance(hours=5)

    declare(core, elsewhere=["job"])
    declare(core, a_schedule(), origin=Origin.FILE)

    assert tick(core).fired == 1


@pytest.mark.parametrize("when", ["every 1h", "0 * * * *"])
def test_reanchored_schedule_does_not_occur_before_the_start(core, clock, when):
    put(core, when=when, start=NEW_YEAR + 2 * HOUR)
    clock.advance(hours=3)
    tick(core)
    run_all(core)
    clock.set_back(2.5 * HOUR)

    [moved] = core.do(core.schedules.reanchor)

    assert moved.next_at == NEW_YEAR + 2 * HOUR


def test_reanchored_schedule_drops_triggers_and_lines_from_a_wrong_clock(core, clock):
    """A trigger is due in a year, and an occurrence waits for it."""
    put(core)
    clock.advance(365 * DAY)
    tick(core)
    clock.advance(hours=1)
    tick(core)
    assert [line[0] for line in account(core)] == ["skipped", "fired", "buffered"]
    clock.set_back(365 * DAY)

    core.do(core.schedules.reanchor)
    clock.advance(hours=1)

    assert tick(core).fired == 1
    assert account(core)[2][3] == "reanchored"
    assert triggers(core)[0]["reason"] == "schedule job was reanchored"


def test_backfilled_occurrence_expires_counted_from_now(core, clock):
    put(core, expires_after=60)
    clock.advance(hours=5)
    tick(core)
    run_all(core)

    core.do(core.schedules.backfill, "job", NEW_YEAR + HOUR, NEW_YEAR + HOUR)

    assert triggers(core)[-1]["expires_at"] == clock.now() + 60
    assert run_all(core) == 1


@pytest.mark.parametrize("name", ["jitter", "catch_up_window", "catch_up_max", "max_runs", "expires_after"])
def test_schedule_option_of_thousands_of_digits_is_refused(core, name):
    with pytest.raises(ScheduleInvalid, match=f"{name} a number of thousands of digits must be"):
        core.do(core.schedules.put, a_schedule(**{name: 10**5000}), Origin.OPERATOR)


def test_refusal_for_a_schedule_no_longer_in_code_suggests_removal(core):
    declare(core, a_schedule())
    declare(core)

    with pytest.raises(StateRefused, match="was declared in code: remove it to use its id again"):
        put(core)


def test_daemon_starts_stamped_by_a_clock_ahead_cause_no_safe_mode(core, clock):
    for _ in range(7):
        start_daemon(core)
        clock.advance(DAY)
    clock.set_back(20 * DAY)

    assert start_daemon(core).safe_mode is None


def test_run_now_occurrence_dropped_by_a_pause_does_not_change_the_run_count(core, clock):
    put(core)
    clock.advance(hours=1)
    tick(core)
    core.do(core.schedules.run_now, "job")

    core.do(core.schedules.pause, "job")

    assert stored(core).runs == 1


def test_buffered_occurrence_of_a_changed_timing_is_skipped(core, clock):
    put(core)
    for _ in range(2):
        clock.advance(hours=1)
        tick(core)

    put(core, when="every 2h")
    run_all(core)

    assert tick(core).fired == 0
    assert account(core)[1][0::3] == ("skipped", "its schedule was changed")


def test_resume_with_the_clock_behind_fires_no_slot_twice(core, clock):
    put(core)
    clock.advance(hours=3)
    tick(core)
    run_all(core)
    core.do(core.schedules.pause, "job")
    clock.set_back(2 * HOUR)

    core.do(core.schedules.resume, "job")

    assert stored(core).next_at == NEW_YEAR + 4 * HOUR


def test_resume_after_the_end_accounts_only_for_slots_before_the_end(core, clock):
    put(core, until=NEW_YEAR + 2 * HOUR)
    core.do(core.schedules.pause, "job", "holiday")
    clock.advance(hours=5)

    core.do(core.schedules.resume, "job")

    assert account(core) == [("skipped", NEW_YEAR + HOUR, 2, "holiday")]


def test_schedule_with_a_past_start_fires_no_past_slots(core, clock):
    put(core, when="every 1h", start=NEW_YEAR - 10.5 * HOUR)

    assert tick(core).fired == 0
    assert stored(core).next_at == NEW_YEAR + 0.5 * HOUR


def test_backfill_with_overlap_allowed_is_paced(core, clock):
    put(core, overlap=Overlap.ALLOW, catch_up_spacing=5)
    clock.advance(hours=3)

    core.do(core.schedules.backfill, "job", NEW_YEAR + HOUR, clock.now())

    assert [row["due_at"] - clock.now() for row in triggers(core)] == [0, 5, 10]


def test_jitter_applies_to_backfilled_occurrences(core, clock):
    put(core, jitter=60)
    clock.advance(hours=1)

    core.do(core.schedules.backfill, "job", NEW_YEAR + HOUR, clock.now())

    assert NEW_YEAR + HOUR < triggers(core)[0]["fire_at"] < NEW_YEAR + HOUR + 60


def test_reanchored_schedule_clears_skip_next_from_a_wrong_clock(core, clock):
    put(core)
    clock.advance(365 * DAY)
    tick(core)
    run_all(core)
    core.do(core.schedules.skip_next, "job")
    clock.set_back(365 * DAY)

    [moved] = core.do(core.schedules.reanchor)

    assert moved.skip_to_at is None
