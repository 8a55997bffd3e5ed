"""`craftcore schedule run-now`, `skip-next`, `backfill`, `trust-clock` and `reanchor`: outcome and next occurrence."""

from __future__ import annotations

import os

import pytest

from craftcore.daemon.lock import DaemonLock
from tests.cli.conftest import NOON
from tests.support.made_schema import create_schema
from tests.support.trigger_steps import run_one

HOUR = 3600.0


@pytest.fixture(autouse=True)
def _at_noon(clock, database):
    """Run every command of this file at noon, on a database with the schema."""
    create_schema(database)


def add(cli, *arguments):
    done = cli("--json", "schedule", "add", *arguments)
    assert done.code == 0, done
    return done.json


def remember(core, name, value):
    core.do(lambda tx: tx.run("INSERT INTO facts VALUES (:name, :value)", name=name, value=value))


# run-now


def test_run_now_fires_without_moving_the_schedule(cli, core):
    before = add(cli, "s", "@daily", "--workflow", "greet", "--payload", '{"name": "Ada"}')

    document = cli("--json", "schedule", "run-now", "s").json

    assert document == {
        "id": "s",
        "outcome": "fired",
        "nominal_at": NOON,
        "nominal_at_iso": "2026-11-21T12:00:00.000Z",
        "reason": None,
        "trigger_id": document["trigger_id"],
        "waits_for": None,
    }
    row = cli("--json", "trigger", "show", document["trigger_id"]).json
    assert (row["schedule_id"], row["payload"], row["due_at"]) == ("s", {"name": "Ada"}, NOON)
    assert cli("--json", "schedule", "show", "s").json["next_at"] == before["next_at"]


def test_run_now_reports_fired_buffered_and_skipped_runs(cli, core, clock):
    add(cli, "s", "@daily", "--workflow", "greet")

    fired = cli("schedule", "run-now", "s")
    clock.advance(1)
    waits = cli("schedule", "run-now", "s")
    clock.advance(1)
    skipped = cli("schedule", "run-now", "s")

    [trigger] = core.rows("SELECT id FROM triggers")
    assert (fired.code, waits.code, skipped.code) == (0, 0, 1)
    assert fired.out.splitlines() == [
        f"s is due now, as trigger {trigger['id']}",
        "no daemon runs; it starts with the next one: craftcore run MODULE:APP",
    ]
    assert waits.out.splitlines()[0] == f"s starts when trigger {trigger['id']} is settled"
    assert skipped.out == "s does not run: overlap: an earlier occurrence waits already\n"
    clock.advance(1)
    refused = cli("--json", "schedule", "run-now", "s")
    assert (refused.code, refused.json["outcome"], refused.json["trigger_id"]) == (1, "skipped", None)
    assert refused.json["reason"] == "overlap: an earlier occurrence waits already"


def test_buffered_run_now_names_the_trigger_ahead(cli, clock):
    add(cli, "s", "@daily", "--workflow", "greet")
    first = cli("--json", "schedule", "run-now", "s").json
    clock.advance(1)

    second = cli("--json", "schedule", "run-now", "s").json

    assert (second["outcome"], second["trigger_id"], second["waits_for"]) == ("buffered", None, first["trigger_id"])


def test_run_now_follows_the_overlap_policy(cli, clock):
    add(cli, "skips", "@daily", "--workflow", "greet", "--overlap", "skip")
    add(cli, "allows", "@daily", "--workflow", "greet", "--overlap", "allow")

    codes = []
    for _ in range(2):
        clock.advance(1)
        codes.append((cli("schedule", "run-now", "skips").code, cli("schedule", "run-now", "allows").code))

    assert codes == [(0, 0), (1, 0)]


def test_paused_schedule_may_be_fired_with_run_now(cli, core):
    add(cli, "s", "@daily", "--workflow", "greet")
    cli("schedule", "pause", "s")

    assert cli("schedule", "run-now", "s").code == 0
    assert len(core.rows("SELECT * FROM triggers")) == 1


@pytest.mark.parametrize(("name", "words"), [("held", "everything is held: why"), ("safe_mode", "safe mode: why")])
def test_run_now_reports_a_hold_or_safe_mode(cli, core, name, words):
    add(cli, "s", "@daily", "--workflow", "greet")
    remember(core, name, "why")

    assert f"{words}. It starts after: craftcore release" in cli("schedule", "run-now", "s").out


def test_run_now_beside_a_daemon_prints_a_single_line(cli, database):
    add(cli, "s", "@daily", "--workflow", "greet")

    with DaemonLock.acquire(database, pid=os.getpid(), host="here", now=NOON):
        [line] = cli("schedule", "run-now", "s").out.splitlines()

    assert line.startswith("s is due now, as trigger ")


# skip-next


def test_skip_next_prints_the_skipped_and_the_following_occurrence(cli, core, clock):
    add(cli, "brief", "0 7 * * *", "--timezone", "Europe/Berlin", "--workflow", "greet")

    assert cli("schedule", "skip-next", "brief").out == (
        "brief skips 2026-11-22 07:00:00 CET (2026-11-22 06:00:00Z, in 18 h)\n"
        "the one after: 2026-11-23 07:00:00 CET (2026-11-23 06:00:00Z, in 42 h)\n"
    )
    assert cli("schedule", "skip-next", "brief").out.startswith("brief skips 2026-11-23 07:00:00 CET")
    assert cli("schedule", "show", "brief").out.splitlines()[1] == (
        "next: 2026-11-24 07:00:00 CET (2026-11-24 06:00:00Z, in 3 d); earlier occurrences are skipped"
    )
    assert "2026-11-24 06:00:00Z" in cli("schedule", "list").out

    clock.advance(hours=24)
    core.do(core.ticks.tick)
    clock.advance(hours=48)
    core.do(core.ticks.tick)

    fired, *skipped = cli("--json", "schedule", "history", "brief").json
    assert (fired["outcome"], fired["nominal_at_iso"]) == ("fired", "2026-11-24T06:00:00.000Z")
    assert {line["reason"] for line in skipped} == {"skip-next"}
    assert sum(line["count"] for line in skipped) == 2


def test_skip_next_of_the_last_occurrence_leaves_none(cli):
    add(cli, "s", "in 10m", "--workflow", "greet")

    document = cli("--json", "schedule", "skip-next", "s").json

    assert (document["skips_at"], document["then_at"]) == (NOON + 600, None)
    again = cli("schedule", "skip-next", "s")
    assert (again.code, "no occurrence left to skip" in again.err) == (1, True)
    assert cli("schedule", "show", "s").out.splitlines()[1] == "next: none; what was left is skipped"


# backfill


def span(start, end):
    return ["--from", start, "--to", end]


def test_backfill_fires_each_past_occurrence_once(cli, core, clock):
    add(cli, "s", "0 3 * * *", "--workflow", "greet", "--overlap", "allow")

    document = cli("--json", "schedule", "backfill", "s", *span("2026-11-19T03:00Z", "2026-11-21T03:00Z")).json
    clock.advance(1)
    again = cli("schedule", "backfill", "s", *span("2026-11-18T03:00Z", "2026-11-21T03:00Z"))

    assert (document["id"], document["fired"], document["buffered"], document["skipped"]) == ("s", 3, 0, 0)
    assert [one["nominal_at_iso"][:10] for one in document["occurrences"]] == ["2026-11-19", "2026-11-20", "2026-11-21"]
    assert again.out == "s: 1 fired, 3 skipped. See: craftcore schedule history s\n"
    assert len(core.rows("SELECT * FROM triggers")) == 4


def test_backfilled_occurrences_wait_for_each_earlier_occurrence(cli, core):
    add(cli, "s", "0 3 * * *", "--workflow", "greet")

    output = cli("schedule", "backfill", "s", *span("2026-11-19T00:00Z", "2026-11-21T12:00Z")).out
    run_one(core)
    core.do(core.ticks.tick)

    assert output == "s: 1 fired, 2 waiting for an earlier one. See: craftcore schedule history s\n"
    outcomes = [line["outcome"] for line in cli("--json", "schedule", "history", "s").json]
    assert outcomes == ["buffered", "fired", "fired"]


def test_backfill_span_without_an_occurrence_is_reported(cli):
    add(cli, "s", "0 3 * * *", "--workflow", "greet")

    none = cli("schedule", "backfill", "s", *span("2026-11-21T04:00Z", "2026-11-21T05:00Z"))

    assert (none.code, none.out) == (0, "s has no occurrence between 2026-11-21 04:00:00Z and 2026-11-21 05:00:00Z\n")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (span("2026-11-19T00:00", "2026-11-21T00:00Z"), 64, "from 2026-11-19T00:00:00 has no time zone"),
        (span("2026-11-19T00:00Z", "yesterday"), 64, "'yesterday' is not a moment"),
        (span("2026-11-19T00:00Z", "2027-11-21T00:00Z"), 64, "not beyond now"),
        (span("2026-11-21T00:00Z", "2026-11-19T00:00Z"), 64, "from an earlier moment to a later one"),
        (span("2000-01-01T00:00Z", "2026-11-19T00:00Z"), 64, "at most 1,000 at a time"),
        (["--from", "0"], 64, "--to"),
        ([], 64, "--from"),
    ],
)
def test_invalid_backfill_span_is_refused(cli, shared, arguments, code, words):
    refused = cli("schedule", "backfill", "nightly", *arguments)

    assert (refused.code, words in refused.err) == (code, True), refused
    assert shared.is_unchanged()


@pytest.mark.parametrize("expression", ["in 10m", "on startup"])
def test_schedule_without_recurrence_cannot_be_backfilled(cli, expression):
    add(cli, "s", expression, "--workflow", "greet")

    refused = cli("schedule", "backfill", "s", *span("2026-11-19T00:00Z", "2026-11-20T00:00Z"))

    assert (refused.code, "does not recur; there is run-now" in refused.err) == (1, True)


# trust-clock and reanchor


def test_trust_clock_and_reanchor_change_nothing_with_a_correct_clock(cli, core):
    assert cli("schedule", "trust-clock").out == "schedules did not wait for the clock; it shows 2026-11-21 12:00:00Z\n"
    assert cli("--json", "schedule", "trust-clock").json == {
        "released": False,
        "held_until": None,
        "held_until_iso": None,
        "ahead": [],
    }
    assert cli("schedule", "reanchor").out == "no schedule is ahead of the clock; nothing was changed\n"
    assert cli("--json", "schedule", "reanchor").json == []


def test_trust_clock_names_schedules_still_ahead(cli, core, clock):
    """The clock was a day ahead, schedules fired by it, and then it was corrected."""
    add(cli, "a", "every 1h", "--workflow", "greet")
    add(cli, "b", "0 3 * * *", "--timezone", "Europe/Berlin", "--workflow", "greet")
    add(cli, "once", "in 90m", "--workflow", "greet")
    clock.advance(hours=24)
    core.do(core.ticks.tick)
    clock.set_back(23 * HOUR)
    remember(core, "clock_held", repr(NOON + 24 * HOUR))

    trusted = cli("schedule", "trust-clock").out.splitlines()

    assert trusted == [
        "schedules go on at 2026-11-21 13:00:00Z; they waited for 2026-11-22 12:00:00Z",
        "a, b wait anyway: accounted for beyond now",
        "to let them go on from now: craftcore schedule reanchor",
    ]
    assert "ahead of the clock: accounted for up to 2026-11-22 12:00:00Z" in cli("schedule", "show", "a").out
    assert cli("--json", "schedule", "show", "b").json["ahead"]

    assert cli("schedule", "reanchor", "b").out == (
        "b goes on from now. next: 2026-11-22 03:00:00 CET (2026-11-22 02:00:00Z, in 13 h)\n"
    )
    refused = cli("schedule", "reanchor", "a", "b")
    assert (refused.code, "schedule b is not ahead of the clock; nothing was changed" in refused.err) == (1, True)
    [anchored] = cli("--json", "schedule", "reanchor").json
    assert (anchored["id"], anchored["next_at"]) == ("a", NOON + 2 * HOUR)
    assert cli("schedule", "reanchor", "nowhere").code == 10


def test_schedule_commands_print_nothing_beside_the_document(cli, core, clock):
    """A log line would corrupt the document."""
    add(cli, "s", "every 1h", "--workflow", "greet")
    clock.advance(hours=3)

    for arguments in (
        ["run-now", "s"],
        ["pause", "s"],
        ["resume", "s"],
        ["backfill", "s", *span("2026-11-21T12:00Z", "2026-11-21T14:00Z")],
        ["skip-next", "s"],
        ["remove", "s", "--yes"],
    ):
        done = cli("--json", "schedule", *arguments)
        assert (done.code, done.err) == (0, "")
        assert done.json
