"""`craftcore schedule list`, `show`, `preview` and `history`: rows, time zones and damaged values."""

from __future__ import annotations

from datetime import datetime

import pytest

from craftcore.triggers.settlement import Succeeded
from tests.cli.conftest import NOON
from tests.support.task_steps import a_question, enter_next, suspend
from tests.support.trigger_steps import BROKEN, HOPELESS, ack, claim_all, run_one, start

HOUR = 3600.0
BERLIN = ["--timezone", "Europe/Berlin"]


@pytest.fixture(autouse=True)
def _at_noon(clock):
    """Run every command of this file at noon."""


def add(cli, *arguments):
    done = cli("--json", "schedule", "add", *arguments)
    assert done.code == 0, done
    return done.json


# list


def test_schedule_list_shows_the_next_time_and_the_last_outcome(cli, core, clock):
    add(cli, "tick", "every 10m", "--workflow", "greet", "--max-runs", "9")
    add(cli, "boot", "on startup", "--workflow", "greet")
    add(cli, "old", "in 1m", "--workflow", "greet")
    add(cli, "later", "@daily", "--workflow", "greet", *BERLIN)
    cli("schedule", "pause", "later", "--reason", "not yet")
    clock.advance(minutes=15)
    core.do(core.ticks.tick)
    for claim in claim_all(core):
        ack(core, start(core, claim), HOPELESS if claim.schedule_id == "old" else Succeeded())

    header, *rows = cli("schedule", "list").out.splitlines()

    assert header.split() == ["id", "status", "when", "zone", "next", "last", "last", "is", "runs", "reason"]
    shown_rows = {line.split()[0]: " ".join(line.split()) for line in rows}
    assert list(shown_rows) == ["boot", "later", "old", "tick"]
    assert shown_rows["boot"] == "boot ACTIVE on startup UTC at startup - - 0 -"
    assert shown_rows["later"] == "later PAUSED @daily Europe/Berlin - - - 0 not yet"
    assert shown_rows["old"] == "old FINISHED in 1m UTC - 2026-11-21 12:01:00Z FAILED 1 fired"
    assert shown_rows["tick"] == "tick ACTIVE every 10m UTC 2026-11-21 12:20:00Z 2026-11-21 12:10:00Z DONE 1 of 9 -"
    [_, _, old, _] = cli("--json", "schedule", "list").json
    assert old["last_trigger_status"] == "FAILED"


def test_cut_schedule_list_is_marked(cli):
    for schedule_id in "abc":
        add(cli, schedule_id, "@daily", "--workflow", "greet")

    cut = cli("schedule", "list", "--limit", "2")

    assert cut.err == "craftcore: these are the first 2, and there are more: --limit\n"
    assert len(cut.out.splitlines()) == 3
    assert [row["id"] for row in cli("--json", "schedule", "list", "--limit", "2").json] == ["a", "b"]
    assert cli("schedule", "list", "--limit", "3").err == ""
    assert cli("schedule", "list", "--limit", "0").code == 64


def test_schedule_list_without_schedules_is_an_empty_array(cli, core):
    assert cli("--json", "schedule", "list").json == []


def test_hostile_text_of_a_schedule_is_printed_escaped(cli):
    hostile = "red \x1b[31m\x07 new\nline \u202e back"
    add(cli, "s", "@daily", "--workflow", "greet", "--description", hostile)
    cli("schedule", "pause", "s", "--reason", hostile)

    for arguments in (["list"], ["show", "s"], ["resume", "s"]):
        output = cli("schedule", *arguments).out
        assert not any(character in output for character in "\x1b\x07\u202e")


# show


def test_schedule_show_has_row_next_occurrences_and_history(cli, core, clock):
    add(cli, "s", "every 10m", "--workflow", "greet", "--payload", '{"name": "Ada"}', "--expires-after", "1h")
    clock.advance(minutes=35)
    core.do(core.ticks.tick)

    document = cli("--json", "schedule", "show", "s").json
    shown = cli("schedule", "show", "s").out

    assert [one["nominal_at"] for one in document["next"]] == [NOON + 40 * 60, NOON + 50 * 60, NOON + 60 * 60]
    assert [(line["outcome"], line["count"]) for line in document["history"]] == [("fired", 1), ("skipped", 2)]
    assert document["live_trigger"] == document["history"][0]["trigger_id"]
    assert document["ahead"] is False
    lines = shown.splitlines()
    assert lines[:3] == [
        "s: every 10m (counted from 2026-11-21 12:00:00Z)",
        "next: 2026-11-21 12:40:00Z, in 5 min",
        f"at work: trigger {document['live_trigger']} (see: craftcore trigger why {document['live_trigger']})",
    ]
    facts = {line.split("  ")[0]: line.split("  ", 1)[1].strip() for line in lines if "  " in line}
    assert (facts["payload"], facts["expires_after"]) == ('{"name": "Ada"}', "3600 s")
    assert facts["last_nominal_at"] == "2026-11-21 12:30:00Z"


def test_removed_schedule_can_still_be_shown(cli):
    add(cli, "s", "@daily", "--workflow", "greet")
    cli("schedule", "remove", "s", "--yes")

    assert cli("schedule", "show", "s").out.splitlines()[1] == "removed"
    assert cli("--json", "schedule", "history", "s").json == []
    assert cli("schedule", "preview", "s").code == 10
    expression = cli("schedule", "preview", "every 5m")
    assert (expression.code, '--expr "every 5m"' in expression.err) == (64, True)


def test_schedule_with_a_missing_time_zone_can_still_be_shown(cli, core):
    add(cli, "s", "@daily", "--workflow", "greet", *BERLIN)
    core.do(lambda tx: tx.run("UPDATE schedules SET timezone = 'Mars/Olympus', skip_to_at = next_at"))

    for arguments in (["list"], ["show", "s"], ["history", "s"]):
        assert cli("schedule", *arguments).code == 0, arguments
    refused = cli("schedule", "preview", "s")
    assert (refused.code, "'Mars/Olympus' is not known on this machine" in refused.err) == (65, True)


def test_damaged_schedule_payload_is_shown_as_stored(cli, core):
    add(cli, "s", "@daily", "--workflow", "greet")
    core.do(lambda tx: tx.run("UPDATE schedules SET payload_json = '{broken'"))

    assert cli("--json", "schedule", "show", "s").json["payload"] == "{broken"
    assert cli("schedule", "list").code == cli("schedule", "show", "s").code == 0


# preview


def test_preview_shows_local_time_utc_and_the_skipped_hour(cli):
    add(cli, "s", "30 2 * * *", "--workflow", "greet", *BERLIN)

    shown = cli("schedule", "preview", "s", "--from", "2027-03-27T00:00Z", "--count", "3").out

    assert shown == (
        "30 2 * * * in Europe/Berlin\n"
        "Europe/Berlin             UTC                   note\n"
        "2027-03-27 02:30:00 CET   2027-03-27 01:30:00Z  -\n"
        "2027-03-28 03:00:00 CEST  2027-03-28 01:00:00Z  skipped hour: 02:30 does not exist that day\n"
        "2027-03-29 02:30:00 CEST  2027-03-29 00:30:00Z  -\n"
    )


def test_preview_notes_the_repeated_hour(cli, tmp_path):
    command = ["--json", "schedule", "preview", "--expr", "30 2 * * *", *BERLIN, "--from", "2026-10-25T00:00Z"]

    document = cli(*command, "--count", "1").json

    assert document == [
        {
            "nominal_at": 1_792_888_200.0,
            "nominal_at_iso": "2026-10-25T00:30:00.000Z",
            "local": "2026-10-25T02:30:00+02:00",
            "note": "repeated hour: the first of two",
            "fire_at": 1_792_888_200.0,
            "fire_at_iso": "2026-10-25T00:30:00.000Z",
        }
    ]
    assert list(tmp_path.iterdir()) == [], "a database was created"


@pytest.mark.parametrize(
    ("expression", "count", "first"),
    [
        ("every monday at 9am", 10, "2026-11-23T09:00:00+00:00"),
        ("every 2h", 10, "2026-11-21T14:00:00+00:00"),
        ("in 10m", 1, "2026-11-21T12:10:00+00:00"),
        ("immediate", 1, "2026-11-21T12:00:00+00:00"),
        ("tomorrow at 9am", 1, "2026-11-22T09:00:00+00:00"),
        ("2026-12-01T09:00+01:00", 1, "2026-12-01T08:00:00+00:00"),
    ],
)
def test_preview_accepts_an_expression_not_yet_added(cli, expression, count, first):
    document = cli("--json", "schedule", "preview", "--expr", expression).json

    assert (len(document), document[0]["local"]) == (count, first)


def test_added_schedule_fires_at_the_previewed_time(cli):
    for nth, expression in enumerate(["every monday at 9am", "every 90s", "@hourly", "in 10m", "immediate"]):
        [tried] = cli("--json", "schedule", "preview", "--expr", expression, "--count", "1").json
        added = add(cli, f"s{nth}", expression, "--workflow", "greet")
        [stored] = cli("--json", "schedule", "preview", f"s{nth}", "--count", "1").json
        assert tried["nominal_at"] == added["next_at"] == stored["nominal_at"], expression


def test_preview_of_a_startup_schedule_has_no_moments(cli):
    add(cli, "s", "on startup", "--workflow", "greet")

    assert cli("schedule", "preview", "s").out == (
        "on startup (at each start)\nnext: at the next start\nno occurrence comes\n"
    )
    assert cli("--json", "schedule", "preview", "--expr", "on startup").json == []


def test_preview_respects_until_max_runs_start_and_skips(cli):
    add(cli, "until", "every 1h", "--workflow", "greet", "--until", "2026-11-21T14:30Z")
    add(cli, "runs", "every 1h", "--workflow", "greet", "--max-runs", "3")
    add(cli, "skips", "every 1h", "--workflow", "greet")
    cli("schedule", "skip-next", "skips")
    add(cli, "starts", "every 1h", "--workflow", "greet", "--start", "2026-12-01T00:00Z")

    def previewed(schedule_id, *more):
        return [one["nominal_at"] - NOON for one in cli("--json", "schedule", "preview", schedule_id, *more).json]

    assert previewed("until") == [HOUR, 2 * HOUR]
    assert previewed("runs") == [HOUR, 2 * HOUR, 3 * HOUR]
    assert previewed("skips", "--count", "1") == [2 * HOUR]
    december = datetime.fromisoformat("2026-12-01T00:00Z").timestamp() - NOON
    assert previewed("starts", "--count", "1") == [december]
    assert previewed("starts", "--count", "1", "--from", "2026-11-25T00:00Z") == [december]


def test_preview_shows_jitter(cli):
    add(cli, "s", "@daily", "--workflow", "greet", "--jitter", "1h")

    [one] = cli("--json", "schedule", "preview", "s", "--count", "1").json

    assert 0 < one["fire_at"] - one["nominal_at"] < HOUR
    assert "later (jitter)" in cli("schedule", "preview", "s", "--count", "1").out


def test_preview_of_a_paused_or_finished_schedule_begins_with_a_notice(cli, core, clock):
    add(cli, "p", "@daily", "--workflow", "greet")
    add(cli, "f", "in 1m", "--workflow", "greet")
    cli("schedule", "pause", "p")
    clock.advance(minutes=5)
    core.do(core.ticks.tick)

    assert "paused: nothing of it fires" in cli("schedule", "preview", "p").out.splitlines()[1]
    assert cli("schedule", "preview", "f").out.splitlines()[1:] == ["finished: fired", "no occurrence comes"]


def test_preview_omits_occurrences_already_late(cli, clock):
    """No daemon has run for a day: catch-up decides about the late occurrences."""
    add(cli, "s", "every 1h", "--workflow", "greet")
    clock.advance(hours=24.5)

    assert cli("--json", "schedule", "preview", "s").json[0]["nominal_at"] == NOON + 25 * HOUR
    assert "late by 24 h" in cli("schedule", "show", "s").out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give the ID of a schedule, or --expr; not both"),
        (["nightly", "--expr", "@daily"], "not both"),
        (["nightly", "--timezone", "UTC"], "--timezone belongs to --expr"),
        (["nightly", "--count", "0"], "1<=x<=1000"),
        (["nightly", "--count", "1001"], "1<=x<=1000"),
        (["nightly", "--from", "2026-11-21T12:00"], "no time zone"),
        (["--expr", "every weekday"], "add a time"),
        (["--expr", "@daily", "--timezone", "Mars/Olympus"], "'Mars/Olympus' is unknown"),
    ],
    ids=str,
)
def test_invalid_preview_arguments_are_refused(cli, shared, arguments, words):
    refused = cli("--json", "schedule", "preview", *arguments)

    assert (refused.code, words in refused.err) == (64, True), refused
    assert refused.json["error"]["exit_code"] == 64


# history


def test_schedule_history_is_newest_first_with_the_status_of_triggers(cli, core, clock):
    add(cli, "s", "every 1h", "--workflow", "greet", "--catch-up", "latest", "--max-attempts", "1")
    clock.advance(hours=3, minutes=5)
    core.do(core.ticks.tick)
    run_one(core, BROKEN)
    clock.advance(hours=1)
    core.do(core.ticks.tick)

    document = cli("--json", "schedule", "history", "s").json

    keys = {"schedule_id", "generation", "cause", "nominal_at", "last_at", "count", "outcome", "reason", "trigger_id"}
    assert keys | {"trigger_status", "decided_at", "decided_at_iso", "nominal_at_iso"} <= set(document[0])
    assert [(line["outcome"], line["count"], line["trigger_status"]) for line in document] == [
        ("fired", 1, "PENDING"),
        ("fired", 1, "DEAD"),
        ("skipped", 2, None),
    ]
    assert (document[2]["nominal_at"], document[2]["last_at"]) == (NOON + HOUR, NOON + 2 * HOUR)
    assert len(cli("--json", "schedule", "history", "s", "--limit", "1").json) == 1
    _, newest, dead, skipped = (" ".join(line.split()) for line in cli("schedule", "history", "s").out.splitlines())
    assert newest == (f"2026-11-21 16:05:00Z time 2026-11-21 16:00:00Z 1 fired {document[0]['trigger_id']} PENDING -")
    assert dead.endswith("DEAD: attempts spent -")
    assert "2026-11-21 13:00:00Z to 2026-11-21 14:00:00Z 2 skipped - - missed: only the latest is caught up" in skipped


def test_schedule_history_shows_the_task_of_an_occurrence_in_doubt(cli, core, clock):
    add(cli, "s", "every 1h", "--workflow", "greet")
    clock.advance(hours=1)
    core.do(core.ticks.tick)
    suspend(core, enter_next(core), a_question())

    [line] = cli("--json", "schedule", "history", "s").json

    assert (line["trigger_status"], line["task_status"]) == ("DONE", "WAITING")
    assert line["task_reason"] == "waits for an answer"
    assert "WAITING: waits for an answer" in cli("schedule", "history", "s").out
    assert "DONE" not in cli("schedule", "show", "s").out


def test_schedule_views_write_nothing(cli, core, database):
    add(cli, "s", "@daily", "--workflow", "greet")
    core.close()
    before = database.read_bytes()

    for arguments in (["list"], ["show", "s"], ["preview", "s"], ["history", "s"]):
        assert cli("schedule", *arguments).code == 0

    assert database.read_bytes() == before
