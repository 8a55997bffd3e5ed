"""`craftcore schedule why`: the next firing time or the reason against it, with a query that can be run."""

from __future__ import annotations

import os

import pytest

from craftcore.daemon.lock import DaemonLock
from craftcore.schedules.clock_guard import ClockTrust
from craftcore.schedules.model import Origin, ScheduleSpec
from craftcore.storage.facts import set_fact
from craftcore.triggers.settlement import Succeeded
from tests.cli.conftest import NOON
from tests.support.trigger_steps import ack, claim_all, start

HOUR = 3600.0


@pytest.fixture
def daemon(database):
    with DaemonLock.acquire(database, pid=os.getpid(), host="here", now=NOON) as lock:
        yield lock


@pytest.fixture
def why(cli, core):
    """Return code -> text of each reason; check that every query can be run and every reason is printed."""

    def why(schedule_id="s"):
        done = cli("--json", "schedule", "why", schedule_id)
        assert done.code == 0, done
        people = cli("schedule", "why", schedule_id).out
        for reason in done.json["reasons"]:
            assert core.rows(reason["query"]), reason
            assert f"  {reason['text']}\n    {reason['query']};\n" in people
        return {reason["code"]: reason["text"] for reason in done.json["reasons"]}

    return why


def declare(core, when="every 1h", **changes):
    spec = ScheduleSpec(**{"id": "s", "when": when, "workflow": "greet", **changes})
    core.do(core.schedules.put, spec, Origin.OPERATOR)


def test_sound_schedule_shows_the_next_firing_time(cli, core, daemon, why):
    declare(core, "every day at 3am", timezone="Europe/Berlin", jitter=90)

    assert why() == {
        "not due": "fires at 2026-11-22 03:00:00 CET (2026-11-22 02:00:00Z, in 14 h), and up to 90 s later"
    }
    document = cli("--json", "schedule", "why", "s").json
    assert (document["id"], document["status"], document["next_at_iso"]) == ("s", "ACTIVE", "2026-11-22T02:00:00.000Z")
    assert cli("schedule", "why", "s").out.startswith("s is ACTIVE: every day at 3am\n")


def test_schedule_without_a_daemon_reports_missed_occurrences(core, clock, why):
    declare(core, catch_up="all", catch_up_max=7)
    assert list(why()) == ["not due", "no daemon"]

    clock.advance(hours=3)

    assert why()["due"] == (
        "due since 2026-11-21 13:00:00Z: the next tick fires the latest 7 of what was missed, not older than 24 h; "
        "then comes 2026-11-21 16:00:00Z, in 60 min"
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"catch_up": "latest"}, "the next tick fires the latest of what was missed, not older than 24 h; then comes"),
        ({"catch_up": "none"}, "the next tick skips what was missed (catch-up none); then comes"),
        ({"when": "in 1h"}, "it fires at the next tick"),
    ],
)
def test_late_schedule_shows_the_catch_up_policy(core, clock, daemon, why, changes, words):
    declare(core, **changes)
    clock.advance(hours=2)

    assert words in why()["due"]


def test_schedule_just_due_waits_for_the_next_look(core, clock, daemon, why):
    declare(core)
    clock.advance(hours=1)

    assert why() == {"due": "due; it fires at the next look of the scheduler, within 30 s"}


@pytest.mark.parametrize(
    ("verb", "code", "text"),
    [
        ("pause", "paused", "paused. To let it go on: craftcore schedule resume s"),
        ("remove", "removed", "removed; its history stays"),
    ],
)
def test_paused_or_removed_schedule_shows_how_to_continue(core, daemon, why, verb, code, text):
    declare(core)
    core.do(getattr(core.schedules, verb), "s")

    assert why() == {code: text}


def test_pause_reason_is_shown(core, daemon, why):
    declare(core)
    core.do(core.schedules.pause, "s", "too loud")

    assert why()["paused"] == "paused: too loud. To let it go on: craftcore schedule resume s"


def test_schedule_after_the_last_occurrence_is_finished(core, clock, daemon, why):
    declare(core, "in 1h")
    clock.advance(hours=1)
    core.do(core.ticks.tick)
    [fired] = core.rows("SELECT id FROM triggers")

    assert why() == {
        "finished": "finished: fired; nothing comes of it any more. Once more: craftcore schedule run-now s",
        "before": f"before: the last occurrence, 2026-11-21 13:00:00Z, 0.0 s ago, fired as trigger {fired['id']}",
    }


def test_missing_time_zone_is_reported_before_and_after_the_disabling_tick(core, clock, daemon, why):
    declare(core, "every day at 3am", timezone="Europe/Berlin")
    core.do(lambda tx: tx.run("UPDATE schedules SET timezone = 'Mars/Olympus'"))
    assert "'Mars/Olympus' is not known on this machine" in why()["zone"]

    clock.advance(hours=24)
    core.do(core.ticks.tick)

    assert why()["disabled"].startswith("disabled: cannot go on: time zone 'Mars/Olympus'")
    assert why()["disabled"].endswith("Put it right, then: craftcore schedule resume s")


@pytest.mark.parametrize("name", ["held", "safe_mode"])
def test_hold_or_safe_mode_is_the_first_reason(core, daemon, why, name):
    declare(core)
    core.do(set_fact, name, "it was restored")

    code, text = next(iter(why().items()))

    assert code == name.replace("_", " ")
    assert "it was restored" in text
    assert text.endswith("craftcore release")


def test_clock_behind_holds_the_schedule_until_correct(core, clock, daemon, why):
    declare(core)
    core.do(ClockTrust().hold_if_behind, 1, NOON + 24 * HOUR)
    assert why()["clock held"].endswith("Set it, or if it is right: craftcore schedule trust-clock")

    clock.advance(hours=25)

    assert "clock held" not in why()


def test_schedule_ahead_of_the_clock_points_to_reanchor(core, clock, daemon, why):
    declare(core, overlap="allow")
    clock.advance(hours=2)
    core.do(core.ticks.tick)
    clock.set_back(2 * HOUR)

    assert why()["ahead"] == (
        "ahead of the clock: accounted for up to 2026-11-21 14:00:00Z, in 2 h, so it waits until "
        "2026-11-21 15:00:00Z, in 3 h. To let it go on from now: craftcore schedule reanchor s"
    )
    assert "not due" not in why()
    core.do(core.schedules.reanchor, ["s"])
    assert "ahead" not in why()


def test_schedule_with_an_unsettled_occurrence_is_buffered(core, clock, daemon, why):
    declare(core)
    clock.advance(hours=1)
    core.do(core.ticks.tick)
    [first] = core.rows("SELECT id FROM triggers")
    assert why()["at work"] == (
        f"trigger {first['id']} is not settled: what comes before it is over waits for it (overlap buffer_one). "
        f"See: craftcore trigger why {first['id']}"
    )

    clock.advance(hours=1)
    core.do(core.ticks.tick)

    assert why()["buffered"] == (
        f"its occurrence of 2026-11-21 14:00:00Z, 0.0 s ago, waits: trigger {first['id']} is not settled. "
        f"See: craftcore trigger why {first['id']}"
    )
    for claim in claim_all(core):
        ack(core, start(core, claim), Succeeded())
    assert {"at work", "buffered"}.isdisjoint(why())


def test_schedule_with_overlap_skip_skips_the_next_occurrence(core, clock, daemon, why):
    declare(core, overlap="skip")
    clock.advance(hours=1)
    core.do(core.ticks.tick)

    assert "is skipped (overlap skip)" in why()["at work"]
    clock.advance(hours=1)
    core.do(core.ticks.tick)
    assert "skipped: overlap: trigger" in why()["before"]


def test_skipped_occurrence_is_shown_with_the_following_occurrence(core, daemon, why):
    declare(core)
    core.do(core.schedules.skip_next, "s")

    assert why()["skipped"] == (
        "every occurrence up to 2026-11-21 13:00:00Z is skipped, as was asked (skip-next); then 2026-11-21 "
        "14:00:00Z, in 2 h"
    )


def test_schedule_with_a_skipped_last_occurrence_has_no_next_occurrence(core, daemon, why):
    declare(core, until=NOON + HOUR)
    core.do(core.schedules.skip_next, "s")

    assert why() == {"nothing left": "nothing comes any more: what was left is skipped"}


def test_startup_schedule_fires_only_at_a_daemon_start(core, daemon, why):
    declare(core, "on startup")

    assert why() == {"startup": "fires when a daemon starts, and at no other time"}


def test_schedule_with_an_undeclared_workflow_is_reported(core, daemon, why):
    declare(core)
    core.do(lambda tx: tx.run("INSERT INTO workflows VALUES ('other', 1)"))
    assert why()["unknown workflow"] == ("the last daemon declared no workflow greet: what it fires now would fail")

    core.do(lambda tx: tx.run("INSERT INTO workflows VALUES ('greet', 1)"))

    assert "unknown workflow" not in why()


def test_schedule_why_of_an_unknown_id_is_refused(cli, core):
    core.do(set_fact, "x", "y")

    assert cli("schedule", "why", "nobody").code == 10
