"""`craftcore schedule add`, `edit`, `pause`, `resume` and `remove`: stored rows and output."""

from __future__ import annotations

import sys
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from craftcore.actions.process import command_run as command
from craftcore.diagnostics.text import schedule_text
from craftcore.schedules.model import Origin, ScheduleSpec
from craftcore.storage import facts
from tests.cli.conftest import NOON
from tests.support.made_schema import create_schema
from tests.support.processes import a_daemon, craftcore, until
from tests.support.trigger_steps import run_one, start_one

HOUR = 3600.0
ARGV = {"argv": ["restic", "backup", "/srv"]}


@pytest.fixture(autouse=True)
def _at_noon(clock, database):
    """Run every command of this file at noon, on a database with the schema."""
    create_schema(database)


def add(cli, *arguments):
    done = cli("--json", "schedule", "add", *arguments)
    assert done.code == 0, done
    return done.json


def shown(cli, schedule_id):
    return cli("--json", "schedule", "show", schedule_id).json


def declared_in_code(core, schedule_id="brief", **changes):
    spec = ScheduleSpec(**{"id": schedule_id, "when": "every day at 7am", "workflow": "greet", **changes})
    core.do(core.schedules.declare, Origin.CODE, [spec])


# add


def test_schedule_add_of_a_command_prints_rule_command_and_next_time(cli, database):
    command = ["--timezone", "Europe/Berlin", "--", "restic", "backup", "/srv"]

    done = cli("schedule", "add", "backup", "every day at 3am", *command)

    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "backup: added. every day at 3am (0 3 * * * in Europe/Berlin)\n"
        "runs: restic backup /srv\n"
        "next: 2026-11-22 03:00:00 CET (2026-11-22 02:00:00Z, in 14 h)\n"
    )
    row = shown(cli, "backup")
    assert (row["workflow"], row["payload"], row["origin"]) == ("command.run", ARGV, "operator")
    assert database.stat().st_mode & 0o777 == 0o600


def test_schedule_add_prints_the_command_quoted_as_given(cli):
    one_word = cli("schedule", "add", "backup", "every 1h", "--", "restic backup /srv")
    option = cli("schedule", "add", "backup", "every 1h", "--", "restic", "--jitter", "5m")

    assert "runs: 'restic backup /srv'\n" in one_word.out
    assert "runs: restic --jitter 5m\n" in option.out


@pytest.mark.parametrize(("name", "words"), [("held", "everything is held: why"), ("safe_mode", "safe mode, sched")])
def test_hold_or_safe_mode_is_reported_by_schedule_add_show_and_list(cli, core, name, words):
    core.do(facts.set_fact, name, "why")

    added = cli("schedule", "add", "s", "every 1h", "--workflow", "greet")

    assert words in added.out
    assert words in cli("schedule", "show", "s").out
    listed = cli("schedule", "list")
    assert words not in listed.out
    assert words in listed.err
    for text in (added.out, listed.err):
        assert text.endswith("craftcore release\n")
    assert cli("--json", "schedule", "list").err == ""


@pytest.mark.parametrize(
    ("expression", "lines"),
    [
        ("0 3 * * *", ["s: added. 0 3 * * * in UTC", "next: 2026-11-22 03:00:00Z, in 15 h"]),
        ("every 2h", ["s: added. every 2h (counted from 2026-11-21 12:00:00Z)", "next: 2026-11-21 14:00:00Z, in 2 h"]),
        ("in 10m", ["s: added. in 10m (once, 2026-11-21 12:10:00Z)", "next: 2026-11-21 12:10:00Z, in 10 min"]),
        ("immediate", ["s: added. immediate (once, 2026-11-21 12:00:00Z)", "next: 2026-11-21 12:00:00Z, due now"]),
        ("on startup", ["s: added. on startup (at each start)", "next: at the next start"]),
    ],
)
def test_schedule_add_prints_the_parsed_expression_and_the_next_time(cli, expression, lines):
    assert cli("schedule", "add", "s", expression, "--workflow", "greet").out.splitlines() == lines


def test_schedule_add_is_unchanged_when_repeated_and_changed_by_another_time(cli, clock):
    first = add(cli, "s", "every 2h", "--workflow", "greet")
    clock.advance(hours=1)

    again = add(cli, "s", "every 2h", "--workflow", "greet")
    other = add(cli, "s", "every 3h", "--workflow", "greet")

    assert (first["change"], again["change"], other["change"]) == ("added", "unchanged", "changed")
    assert (again["next_at"], other["next_at"]) == (first["next_at"], NOON + 4 * HOUR)
    assert other["generation"] == first["generation"] + 1
    assert cli("schedule", "add", "s", "every 3h", "--workflow", "greet").out.startswith("s: unchanged. every 3h")


def test_start_in_words_is_read_in_the_zone_of_the_schedule(cli, clock):
    zone = ZoneInfo("Asia/Tokyo")
    given = add(cli, "s", "every 2h", "--workflow", "greet", "--timezone", zone.key, "--start", "tomorrow 9am")

    tomorrow = datetime.fromtimestamp(clock.now(), zone).date() + timedelta(days=1)
    assert given["start_at"] == datetime.combine(tomorrow, time(9), zone).timestamp()


def test_schedule_options_reach_the_row(cli):
    given = add(
        *(cli, "s", "every day at 7am", "--workflow", "greet", "--payload", '{"name": "Ada"}'),
        *("--timezone", "Asia/Tokyo", "--catch-up", "all", "--catch-up-window", "2h", "--catch-up-max", "7"),
        *("--catch-up-spacing", "1m", "--overlap", "skip", "--jitter", "90", "--start", "2027-01-01T00:00Z"),
        *("--until", "2028-01-01T00:00+01:00", "--max-runs", "5", "--expires-after", "1h30m", "--session", "s1"),
        *("--priority", "7", "--description", "why\nit is", "--max-attempts", "2"),
    )

    expected = {
        "id": "s",
        "status": "ACTIVE",
        "reason": None,
        "origin": "operator",
        "expression": "every day at 7am",
        "kind": "cron",
        "timezone": "Asia/Tokyo",
        "workflow": "greet",
        "payload": {"name": "Ada"},
        "catch_up": "all",
        "catch_up_window": 7200.0,
        "catch_up_max": 7,
        "catch_up_spacing": 60.0,
        "overlap": "skip",
        "jitter": 90.0,
        "expires_after": 5400.0,
        "start_at": 1_798_761_600.0,
        "start_at_iso": "2027-01-01T00:00:00.000Z",
        "until_at": 1_830_294_000.0,
        "until_at_iso": "2027-12-31T23:00:00.000Z",
        "max_runs": 5,
        "runs": 0,
        "next_at": 1_798_840_800.0,
        "next_at_iso": "2027-01-01T22:00:00.000Z",
        "last_nominal_at": None,
        "last_nominal_at_iso": None,
        "high_water_at": 1_798_761_599.0,
        "high_water_at_iso": "2026-12-31T23:59:59.000Z",
        "skip_to_at": None,
        "skip_to_at_iso": None,
        "generation": 0,
        "session_id": "s1",
        "source": "SCHEDULED",
        "deliver": None,
        "priority": 7,
        "description": "why\nit is",
        "max_attempts": 2,
        "created_at": NOON,
        "created_at_iso": "2026-11-21T12:00:00.000Z",
        "updated_at": NOON,
        "updated_at_iso": "2026-11-21T12:00:00.000Z",
    }
    assert given == {**expected, "next_at_local": "2027-01-02T07:00:00+09:00", "change": "added"}
    assert list(given)[: len(expected)] == list(expected)
    assert {name: value for name, value in shown(cli, "s").items() if name in expected} == expected
    latest = dict.fromkeys(("last_trigger_id", "last_trigger_status", "last_fired_at", "last_fired_at_iso"))
    assert cli("--json", "schedule", "list").json == [{**expected, **latest}]


def test_words_after_the_dashes_belong_to_the_command(cli):
    document = cli("--json", "schedule", "add", "s", "@daily", "--", "curl", "--json", "{}", "--", "--db", "x").json

    assert document["payload"] == {"argv": ["curl", "--json", "{}", "--", "--db", "x"]}


def test_schedule_id_may_be_reused_after_removal(cli):
    add(cli, "s", "in 10m", "--workflow", "greet")
    cli("schedule", "remove", "s", "--yes")

    assert (add(cli, "s", "in 10m", "--workflow", "greet")["change"], shown(cli, "s")["generation"]) == ("added", 1)


def test_schedule_declared_in_code_cannot_be_changed_by_command(cli, core):
    declared_in_code(core)

    refusals = [
        cli("schedule", "add", "brief", "every day at 8am", "--workflow", "greet"),
        cli("schedule", "edit", "brief", "--when", "every day at 8am"),
        cli("schedule", "remove", "brief", "--yes"),
    ]

    assert [refused.code for refused in refusals] == [1, 1, 1]
    assert all("is declared in code" in refused.err for refused in refusals)
    assert shown(cli, "brief")["expression"] == "every day at 7am"


def test_finished_schedule_is_not_restarted_by_a_repeated_add(cli, core, clock):
    again = ["schedule", "add", "s", "2026-11-21T12:10Z", "--workflow", "greet"]
    cli(*again)
    clock.advance(hours=1)
    core.do(core.ticks.tick)

    refused = cli(*again)

    assert (refused.code, "has finished (fired)" in refused.err) == (1, True)


def test_workflow_name_unknown_to_the_last_daemon_is_refused(cli, core):
    core.do(lambda tx: tx.run("INSERT INTO workflows VALUES ('greet', 1), ('command.run', 1)"))

    refused = cli("schedule", "add", "s", "@daily", "--workflow", "gret")
    add(cli, "s", "@daily", "--workflow", "greet")
    edited = cli("schedule", "edit", "s", "--workflow", "gret")

    for result in (refused, edited):
        assert (result.code, "no workflow is named gret; did you mean greet?" in result.err) == (64, True)
    assert shown(cli, "s")["workflow"] == "greet"


# edit


def test_schedule_edit_changes_only_the_given_options(cli, clock):
    before = add(
        *(cli, "s", "every day at 7am", "--workflow", "greet", "--payload", '{"name": "Ada"}', "--jitter", "5m"),
        *("--timezone", "Europe/Berlin", "--max-runs", "9", "--session", "s1"),
    )
    clock.advance(hours=1)

    edited = cli("--json", "schedule", "edit", "s", "--jitter", "0", "--overlap", "allow").json

    changed = {name for name in edited if edited[name] != before[name]}
    assert changed == {"jitter", "overlap", "updated_at", "updated_at_iso", "change"}
    assert (edited["jitter"], edited["overlap"], edited["change"]) == (0.0, "allow", "changed")


def test_schedule_edit_of_the_time_counts_from_now(cli, core, clock):
    add(cli, "s", "every 10m", "--workflow", "greet")
    clock.advance(hours=1)

    done = cli("schedule", "edit", "s", "--when", "every 30 minutes")

    assert done.out == (
        "s: changed. every 30 minutes (counted from 2026-11-21 13:00:00Z)\nnext: 2026-11-21 13:30:00Z, in 30 min\n"
    )
    core.do(core.ticks.tick)
    assert core.rows("SELECT * FROM triggers") == []


def test_schedule_edit_without_a_difference_is_unchanged(cli):
    add(cli, "s", "every 10m", "--workflow", "greet")

    assert cli("--json", "schedule", "edit", "s", "--when", "every 10m").json["change"] == "unchanged"


def test_schedule_option_can_be_unset(cli):
    add(cli, "s", "@daily", "--workflow", "greet", "--until", "2030-01-01T00:00Z", "--session", "s1", "--max-runs", "3")

    edited = cli("--json", "schedule", "edit", "s", "--unset", "until", "--unset", "session").json

    assert (edited["until_at"], edited["session_id"], edited["max_runs"]) == (None, None, 3)
    cli("schedule", "edit", "s", "--jitter", "5m", "--catch-up", "all", "--overlap", "skip")
    back = ("--unset", "jitter", "--unset", "catch-up", "--unset", "overlap")
    edited = cli("--json", "schedule", "edit", "s", *back).json
    assert (edited["jitter"], edited["catch_up"], edited["overlap"]) == (0, "latest", "buffer_one")
    both = cli("schedule", "edit", "s", "--unset", "max-runs", "--max-runs", "4")
    assert (both.code, "--max-runs is given and unset" in both.err) == (64, True)
    assert cli("schedule", "edit", "s", "--unset", "workflow").code == 64


def test_schedule_edit_of_the_command_keeps_the_directory(cli):
    add(cli, "s", "@daily", "--workflow", "command.run", "--payload", '{"argv": ["a"], "cwd": "/srv"}')
    add(cli, "w", "@daily", "--workflow", "greet", "--payload", '{"name": "Ada"}')

    command = cli("--json", "schedule", "edit", "s", "--", "b", "-c").json
    workflow = cli("--json", "schedule", "edit", "w", "--", "b").json

    assert command["payload"] == {"argv": ["b", "-c"], "cwd": "/srv"}
    assert (workflow["workflow"], workflow["payload"]) == ("command.run", {"argv": ["b"]})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "say what changes"),
        (["--workflow", "greet"], "its payload is a command's"),
        (["--workflow", "greet", "--", "b"], "give one or the other"),
        (["--payload", "{}", "--", "b"], "give one or the other"),
        (["--"], "there is no command"),
        (["--when", "every weekday"], "add a time"),
        (["--when", ""], "it is empty"),
        (["--when", "2020-01-01T00:00Z"], "has passed"),
        (["--overlap", "maybe"], "overlap 'maybe' must be one of buffer_one, skip, allow"),
        (["--timezone", "Mars/Olympus"], "'Mars/Olympus' is unknown"),
    ],
    ids=str,
)
def test_refused_schedule_edit_changes_nothing(cli, arguments, words):
    add(cli, "s", "every 1m", "--", "a")
    [before] = cli("--json", "schedule", "list").json

    refused = cli("schedule", "edit", "s", *arguments)

    assert (refused.code, words in refused.err) == (64, True), refused
    assert cli("--json", "schedule", "list").json == [before]


# pause and resume


def test_paused_schedule_waits_until_resumed(cli, core, clock):
    add(cli, "s", "every 10m", "--workflow", "greet")

    assert cli("schedule", "pause", "s", "--reason", "the disk is full").out == (
        "s is paused; nothing of it fires until: craftcore schedule resume s\n"
    )
    clock.advance(hours=1)
    core.do(core.ticks.tick)

    assert core.rows("SELECT * FROM triggers") == []
    assert cli("schedule", "show", "s").out.splitlines()[1] == (
        "paused (the disk is full): nothing of it fires until: craftcore schedule resume s"
    )
    assert cli("schedule", "pause", "s").out == "s was paused already (the disk is full); nothing was changed\n"
    assert cli("schedule", "resume", "s").out == (
        "s is active again\nskipped: 6 that came meanwhile\nnext: 2026-11-21 13:10:00Z, in 10 min\n"
    )
    assert cli("schedule", "resume", "s").out == (
        "s is active already; nothing was changed\nnext: 2026-11-21 13:10:00Z, in 10 min\n"
    )


def test_live_trigger_is_named_when_the_schedule_is_paused(cli, core):
    add(cli, "s", "immediate", "--workflow", "greet")
    add(cli, "t", "@daily", "--workflow", "greet")
    trigger_id = cli("--json", "schedule", "run-now", "t").json["trigger_id"]

    assert f"trigger {trigger_id}, which has fired, goes on" in cli("schedule", "pause", "t").out


def test_overdue_single_job_fires_when_resumed(cli, core, clock):
    add(cli, "s", "in 10m", "--workflow", "greet")
    cli("schedule", "pause", "s")
    clock.advance(hours=1)

    output = cli("schedule", "resume", "s").out
    core.do(core.ticks.tick)

    assert output == "s is active again\nnext: 2026-11-21 12:10:00Z, late by 50 min\n"
    assert len(core.rows("SELECT * FROM triggers")) == 1


def test_finished_schedule_cannot_be_paused_resumed_or_skipped(cli, core, clock):
    add(cli, "s", "in 10m", "--workflow", "greet")
    clock.advance(hours=1)
    core.do(core.ticks.tick)

    for verb in ("pause", "resume", "skip-next"):
        refused = cli("schedule", verb, "s")
        assert (refused.code, "s is FINISHED (fired)" in refused.err) == (1, True)


def test_schedule_resumed_past_the_end_is_finished(cli, clock):
    add(cli, "s", "every 10m", "--workflow", "greet", "--until", "2026-11-21T13:00Z")
    cli("schedule", "pause", "s")
    clock.advance(hours=2)

    lines = cli("schedule", "resume", "s").out.splitlines()

    assert lines[0] == "skipped: 6 that came meanwhile"
    assert lines[1].startswith("finished: ")


@pytest.mark.parametrize("reason", ["", " ", "x" * 501, "\udcff"])
def test_pause_reason_must_be_a_short_text(cli, reason):
    add(cli, "s", "@daily", "--workflow", "greet")

    refused = cli("schedule", "pause", "s", "--reason", reason)

    assert (refused.code, "1 to 500 characters" in refused.err) == (64, True)
    assert shown(cli, "s")["status"] == "ACTIVE"


def test_resumed_schedule_no_longer_declared_gets_a_warning(cli, core):
    declared_in_code(core, "gone")
    declared_in_code(core, "other")  # `gone` is no longer declared

    resumed = cli("schedule", "resume", "gone")

    assert "gone is active again\n" in resumed.out
    assert "it was disabled: no longer declared in code; unless it is declared again, the next start" in resumed.out


# remove


def test_schedule_remove_cancels_unstarted_triggers_and_keeps_the_history(cli, core):
    add(cli, "s", "@daily", "--workflow", "greet")
    trigger_id = cli("--json", "schedule", "run-now", "s").json["trigger_id"]

    removed = cli("schedule", "remove", "s")

    assert removed.out == (
        "s is removed; 1 trigger that had not started, cancelled. Its triggers: craftcore schedule history s\n"
    )
    [line] = cli("--json", "schedule", "history", "s").json
    assert (line["trigger_id"], line["trigger_status"]) == (trigger_id, "DONE")
    assert line["trigger_reason"] == "schedule s was removed"
    assert (cli("--json", "schedule", "list").json, len(cli("--json", "schedule", "list", "--all").json)) == ([], 1)


def test_running_trigger_continues_after_schedule_remove(cli, core):
    add(cli, "s", "@daily", "--workflow", "greet")
    trigger_id = cli("--json", "schedule", "run-now", "s").json["trigger_id"]
    start_one(core)

    output = cli("schedule", "remove", "s", "--yes").out

    assert f"trigger {trigger_id}, which runs, goes on" in output
    assert cli("--json", "trigger", "show", trigger_id).json["status"] == "CLAIMED"


class Terminal:
    """A standard input that is a terminal."""

    def __init__(self, answer):
        self._answer = answer

    def isatty(self):
        return True

    def readline(self, *_):
        return f"{self._answer}\n"


@pytest.mark.parametrize(("answer", "code", "left"), [("n", 130, 1), ("y", 0, 0)])
def test_schedule_remove_at_a_terminal_asks_for_confirmation(cli, monkeypatch, answer, code, left):
    from craftcore.cli.main import main

    add(cli, "s", "@daily", "--workflow", "greet")
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda *_: answer)

    assert main(["schedule", "remove", "s"]) == code

    assert len(cli("--json", "schedule", "list").json) == left


def test_schedule_removed_twice_is_reported_as_removed(cli):
    add(cli, "s", "@daily", "--workflow", "greet")
    add(cli, "s2", "@daily", "--workflow", "greet")
    cli("schedule", "remove", "s", "--yes")

    again = cli("schedule", "remove", "s", "--yes")

    assert (again.code, "schedule s was removed" in again.err) == (10, True)
    assert [row["id"] for row in cli("--json", "schedule", "list").json] == ["s2"], "s is not an abbreviation of s2"


def test_schedule_no_longer_declared_in_code_may_be_removed(cli, core):
    declared_in_code(core)
    core.do(core.schedules.declare, Origin.CODE, [])
    assert shown(cli, "brief")["reason"] == "no longer declared in code"

    assert cli("schedule", "remove", "brief", "--yes").code == 0


# ids


@pytest.mark.parametrize("verb", ["show", "history", "preview", "pause", "resume", "run-now", "skip-next"])
def test_schedule_id_may_be_shortened_while_unambiguous(cli, verb):
    for schedule_id in ("backup", "brief", "brief-long"):
        add(cli, schedule_id, "every 1h", "--workflow", "greet")

    assert cli("schedule", verb, "ba").code == 0
    assert cli("schedule", verb, "brief").code == 0, "a whole id is not ambiguous"
    ambiguous = cli("schedule", verb, "b")
    assert (ambiguous.code, "b fits several ids: backup, brief" in ambiguous.err) == (10, True)
    for unknown in ("nowhere", "", "backup2", "ü", "\udcff", "%", "x" * 200):
        refused = cli("schedule", verb, unknown)
        assert (refused.code, "no schedule has the id" in refused.err) == (10, True), unknown


def test_buffered_occurrence_fires_once_the_first_is_settled(cli, core, clock):
    """The test covers the path from the command to the table and back, with steps of an engine between."""
    add(cli, "s", "@daily", "--workflow", "greet")
    first = cli("--json", "schedule", "run-now", "s").json
    clock.advance(1)
    second = cli("--json", "schedule", "run-now", "s").json
    assert (first["outcome"], second["outcome"]) == ("fired", "buffered")

    run_one(core)
    core.do(core.ticks.tick)

    newest, oldest = cli("--json", "schedule", "history", "s").json
    assert (oldest["trigger_status"], newest["outcome"], newest["trigger_status"]) == ("DONE", "fired", "PENDING")


# with a daemon


def test_scheduled_command_is_run_by_a_daemon(tmp_path):
    """The schedule is added beside a running daemon, which is notified at once."""
    with a_daemon(tmp_path) as daemon:
        daemon.ready()
        added = craftcore(tmp_path, "schedule", "add", "s", "every 1s", "--max-runs", "1", "--", "touch", "done")
        until((tmp_path / "done").exists, "the command")

        def finished():
            return craftcore(tmp_path, "--json", "schedule", "show", "s").json["status"] == "FINISHED"

        until(finished, "the end of its runs")

    assert added.code == 0
    [line] = craftcore(tmp_path, "--json", "schedule", "history", "s").json
    assert (line["outcome"], line["cause"]) == ("fired", "time")
    assert schedule_text.COMMAND == command.COMMAND == "command.run"


def test_schedule_that_is_a_message_names_a_session_and_no_workflow(cli):
    to_ada = ("--deliver", "session", "--session", "ada", "--source", "proactive")
    added = add(cli, "walk", "every day at 5pm", *to_ada, "--payload", '{"text": "a walk?"}')
    assert (added["workflow"], added["deliver"], added["source"]) == (None, "session", "PROACTIVE")

    add(cli, "brief", "every day at 7am", "--workflow", "greet")
    assert cli("schedule", "edit", "brief", *to_ada).code == 0
    assert shown(cli, "brief")["workflow"] is None
    assert cli("schedule", "list").code == 0
    assert cli("schedule", "why", "brief").code in (0, 1)


@pytest.mark.parametrize("given", [("--deliver", "session"), ("--deliver", "session", "--workflow", "greet")])
def test_schedule_that_is_a_message_without_a_session_or_with_a_workflow_is_refused(cli, given):
    done = cli(
        "schedule", "add", "walk", "every day at 5pm", *given, "--session" if len(given) > 2 else "--jitter", "5m"
    )
    assert done.code == 64
    assert "deliver" in done.err
