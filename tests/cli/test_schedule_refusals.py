"""Refusals of `craftcore schedule add`: one line, nothing stored, and no database created."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from craftcore.schedules.model import Origin, ScheduleSpec
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.populated_database import NOON

RUNS = ["--workflow", "greet"]


@pytest.fixture(autouse=True)
def _at_noon(clock):
    """Run every command of this file at noon."""


@pytest.fixture(scope="module")
def with_another(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database with one schedule, which tests copy."""
    core = VirtualCore(tmp_path_factory.mktemp("with_another") / "agent.db", VirtualClock(now=NOON))
    core.do(core.schedules.put, ScheduleSpec(id="other", when="@daily", workflow="greet"), Origin.OPERATOR)
    core.close()
    return core.database.path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["every weekday", *RUNS], ["'every weekday'", "every weekday at 9am", "Supported: "]),
        (["at 25", *RUNS], ["'25' is not a time of day", "3:30pm", "Supported: "]),
        (["13pm", *RUNS], ["'13pm'", "Supported: "]),
        (["at 13pm", *RUNS], ["'13pm' is not a time of day"]),
        (["61 * * * *", *RUNS], ["its minute '61' must be", "0-59"]),
        (["30 2 30 2 *", *RUNS], ["it has no occurrence", "Supported: "]),
        (["0 3 * * * *", *RUNS], ["cron has 5 fields", "this has 6"]),
        (["0", *RUNS], ["'0'", "Supported: "]),
        (["", *RUNS], ["it is empty"]),
        (["every 0s", *RUNS], ["more than 0"]),
        (["\udcff", *RUNS], ["no form has the character"]),
        (["2020-01-01T00:00Z", *RUNS], ["has passed"]),
        (["2026-12-01T09:00", *RUNS], ["no time zone"]),
        (["at 9am today", *RUNS], ["has passed"]),
        (
            ["@daily", "--timezone", "Europe/Berlim", *RUNS],
            ["'Europe/Berlim' is unknown", "did you mean Europe/Berlin"],
        ),
        (["@daily", "--timezone", "", *RUNS], ["must be an IANA name"]),
        (["@daily", "--until", "2026-12-01T09:00", *RUNS], ["until 2026-12-01T09:00:00 has no time zone"]),
        (["@daily", "--until", "friday", *RUNS], ["'friday' is not a moment"]),
        (["@daily", "--until", "nan", *RUNS], ["until"]),
        (["@daily", "--until", "2026-11-21T13:00Z", *RUNS], ["would never fire", "its end comes before"]),
        (["@daily", "--start", "2027-01-02T00:00Z", "--until", "2027-01-01T00:00Z", *RUNS], ["until is before start"]),
        (["@daily", "--jitter", "soon", *RUNS], ["'soon' is not a duration"]),
        (["@daily", "--jitter=-5", *RUNS], ["jitter -5.0 must be 0 to 604800"]),
        (["@daily", "--jitter", "nan", *RUNS], ["jitter nan"]),
        (["@daily", "--expires-after", "0", *RUNS], ["expires_after 0.0 must be"]),
        (["@daily", "--catch-up", "some", *RUNS], ["catch_up 'some' must be one of latest, all, none"]),
        (["@daily", "--catch-up-max", "0", *RUNS], ["catch_up_max 0 must be"]),
        (["@daily", "--catch-up-max", "many", *RUNS], ["'many'"]),
        (["@daily", "--catch-up-window", "inf", *RUNS], ["catch_up_window inf"]),
        (["@daily", "--overlap", "maybe", *RUNS], ["overlap 'maybe' must be one of buffer_one, skip, allow"]),
        (["@daily", "--max-runs", "0", *RUNS], ["max_runs 0 must be"]),
        (["@daily", "--max-runs", "9" * 5000, *RUNS], ["max-runs"]),
        (["@daily", "--priority", "100", *RUNS], ["priority 100"]),
        (["@daily", "--max-attempts", "0", *RUNS], ["max_attempts 0"]),
        (["@daily", "--session", "a b", *RUNS], ["session_id 'a b'"]),
        (["@daily", "--description", "\udcff", *RUNS], ["lone surrogate"]),
        (["@daily", "--workflow", "a b"], ["workflow 'a b'"]),
        (["@daily", "--workflow", ""], ["'--workflow'", "empty"]),
        (["@daily", "--payload", "{'a': 1}", *RUNS], ["not JSON", "line 1, column 2"]),
        (["@daily", "--payload", "[1]", *RUNS], ["must be a JSON object"]),
        (["@daily", "--payload", "@nowhere.json", *RUNS], ["nowhere.json", "No such file"]),
        (["@daily", "--payload", json.dumps({"a": "x" * 300_000}), *RUNS], ["262,144"]),
        (["@daily"], ["say what it runs: --workflow NAME, a command after --, or --deliver session"]),
        (["@daily", "--payload", "{}"], ["say what it runs"]),
        (["@daily", *RUNS, "--", "restic"], ["give one or the other"]),
        (["@daily", "--payload", "{}", "--", "restic"], ["give one or the other"]),
        (["@daily", "--"], ["there is no command"]),
        (["@daily", "--", ""], ["there is no command"]),
        (["@daily", "--", "restic", "\udcff"], ["lone surrogate"]),
        (["every", "day", "at", "3am", *RUNS], ['put EXPR in quotes: "every day at 3am"']),
        (["@daily", "restic", "backup"], ["in quotes", "a command comes after --"]),
        ([*RUNS], ["EXPR"]),
        (["@daily", "--nope", *RUNS], ["--nope"]),
    ],
    ids=lambda value: " ".join(value)[:40].encode("ascii", "replace").decode() if isinstance(value, list) else None,
)
def test_refused_schedule_add_prints_a_single_line_and_stores_nothing(
    cli, with_another, database, tmp_path, arguments, words
):
    refused = cli("schedule", "add", "s", *arguments)

    assert refused.code == 64, refused
    [line] = refused.err.splitlines()
    for word in words:
        assert word in line
    assert refused.out == ""
    assert list(tmp_path.iterdir()) == []

    assert cli("--json", "schedule", "add", "s", *arguments).json["error"]["exit_code"] == 64
    shutil.copy(with_another, database)
    assert cli("schedule", "add", "s", *arguments).code == 64
    assert database.read_bytes() == with_another.read_bytes()
    wal = database.with_name("agent.db-wal")
    assert not wal.exists() or wal.stat().st_size == 0


@pytest.mark.parametrize("schedule_id", ["", "a b", "ü", "a/b", "x" * 151, "\udcff", "a\nb"])
def test_invalid_schedule_id_is_refused(cli, tmp_path, schedule_id):
    refused = cli("schedule", "add", schedule_id, "@daily", *RUNS)

    assert (refused.code, "must be 1 to 150 characters" in refused.err) == (64, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["list"],
        ["show", "s"],
        ["preview", "s"],
        ["history", "s"],
        ["pause", "s"],
        ["resume", "s"],
        ["edit", "s", "--jitter", "5"],
        ["run-now", "s"],
        ["skip-next", "s"],
        ["backfill", "s", "--from", "0", "--to", "1"],
        ["remove", "s", "--yes"],
        ["trust-clock"],
        ["reanchor"],
    ],
    ids=" ".join,
)
def test_schedule_commands_except_add_create_no_database(cli, tmp_path, arguments):
    refused = cli("--json", "schedule", *arguments)

    assert (refused.code, refused.json["error"]["code"]) == (10, "NOT_FOUND")
    assert "no such database" in refused.err
    assert list(tmp_path.iterdir()) == []


def test_misspelt_schedule_verb_gets_a_suggestion(cli):
    assert "did you mean 'preview'?" in cli("schedule", "preveiw").err
    assert cli("schedule").code == 64
