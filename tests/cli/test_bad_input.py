"""Invalid input: one line for a person, the documented exit code for a program, and an unchanged database."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.processes import APP, craftcore

DEEP = '{"a":' * 40 + "1" + "}" * 40
VERY_DEEP = '{"a":' * 100_000
LARGE = json.dumps({"a": "x" * 300_000})


def one_line(result, code, *words):
    assert result.code == code, result
    [line] = result.err.splitlines()
    assert line.startswith("craftcore: ")
    for word in words:
        assert word in line
    assert "Traceback" not in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["greet", "--source", "MOON"], ["'MOON' is unknown", "MESSAGE"]),
        (["greet", "--at", "2030-01-02T03:04:05"], ["no time zone"]),
        (["greet", "--at", "tomorrow"], ["'tomorrow' is not a moment"]),
        (["greet", "--at", "nan"], ["at nan"]),
        (["greet", "--at", "inf"], ["at inf"]),
        (["greet", "--at", "-1"], ["not a moment"]),
        (["greet", "--at", "0", "--in", "5m"], ["exclude each other"]),
        (["greet", "--in", "soon"], ["'soon' is not a duration"]),
        (["greet", "--in", "nan"], ["delay"]),
        (["greet", "--in=-5"], ["delay"]),
        (["greet", "--payload", '{"a": NaN}'], ["NaN"]),
        (["greet", "--payload", '{"a": -Infinity}'], ["-Infinity"]),
        (["greet", "--payload", '{"a": 1e999}'], ["payload.a is infinite"]),
        (["greet", "--payload", '{"a": 1, "a": 2}'], ["'a' twice"]),
        (["greet", "--payload", '{"x": {"b": 1, "b": 2}}'], ["'b' twice"]),
        (["greet", "--payload", "[1]"], ["must be a JSON object"]),
        (["greet", "--payload", "{'a': 1}"], ["line 1, column 2"]),
        (["greet", "--payload", "@nowhere.json"], ["nowhere.json", "No such file"]),
        (["greet", "--payload", '{"a": "\\ud800"}'], ["lone surrogate"]),
        (["greet", "--payload", DEEP], ["deeper than 32"]),
        (["greet", "--payload", VERY_DEEP], ["JSON"]),
        (["greet", "--payload", LARGE], ["300,008 bytes", "262,144"]),
        (["greet", "--dedup-key", "a b"], ["dedup_key 'a b'"]),
        (["greet", "--dedup-key", ""], ["dedup_key ''"]),
        (["greet", "--session", "ü"], ["session_id"]),
        (["a workflow"], ["workflow 'a workflow'"]),
        ([], ["needs the name of a workflow"]),
        (["greet", "--priority", "100"], ["priority 100"]),
        (["greet", "--priority", "high"], ["'high'"]),
        (["greet", "--supersedes", "all"], ["supersedes"]),
        (["greet", "--on-duplicate", "maybe"], ["on_duplicate"]),
        (["greet", "--wait", "long"], ["'long' is not a duration"]),
        (["greet", "--wait", "nan"], ["wait 'nan'"]),
        (["greet", "--db", ""], ["'--db'", "empty"]),
        (["greet", "--config="], ["'--config'", "empty"]),
        (["greet", "extra"], ["extra"]),
        (["greet", "--nope"], ["--nope"]),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_refused_emit_writes_nothing_and_creates_no_database(cli, shared, tmp_path, arguments, words):
    one_line(cli("emit", *arguments), 64, *words)
    assert shared.is_unchanged()

    arguments = arguments if "--db" in arguments else [*arguments, "--db", "agent.db"]
    one_line(cli("emit", *arguments), 64, *words)
    assert list(tmp_path.iterdir()) == []


def test_workflow_name_unknown_to_the_last_daemon_is_refused(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    assert craftcore(tmp_path, "run", "app:app", "--until-idle").code == 0

    one_line(craftcore(tmp_path, "emit", "gret"), 64, "no workflow is named gret; did you mean greet?")

    assert craftcore(tmp_path, "--json", "trigger", "list").json == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["trigger", "list"],
        ["trigger", "show", "x"],
        ["trigger", "why", "x"],
        ["trigger", "cancel", "x"],
        ["trigger", "requeue", "x"],
        ["dead", "list"],
        ["dead", "discard", "--all", "--yes"],
        ["task", "list"],
        ["task", "show", "x"],
        ["task", "events", "x"],
        ["task", "signal", "x", "approved"],
        ["task", "cancel", "x", "--yes"],
        ["task", "retry", "x"],
        ["inbox", "list"],
        ["inbox", "answer", "x", "send"],
        ["release"],
        ["db", "migrate"],
        ["db", "stats"],
    ],
    ids=" ".join,
)
def test_command_without_a_database_creates_none(cli, tmp_path, arguments):
    one_line(cli(*arguments), 10, "no such database")

    assert list(tmp_path.iterdir()) == []


def test_removed_current_directory_is_reported_as_no_database(cli, tmp_path):
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    one_line(cli("--db", "agent.db", "status"), 10, "agent.db", "the current directory was removed")
    assert cli("--db", str(tmp_path / "agent.db"), "emit", "greet").code == 0


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (a)")
        connection.commit()


def newer(path: Path) -> None:
    assert craftcore(path.parent, "emit", "greet").code == 0
    with closing(sqlite3.connect(path)) as connection:  # in a process that has no other SQLite open on the file
        connection.execute("INSERT INTO schema_migrations VALUES ('9999_future', 'x', 0)")
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def text(path: Path) -> None:
    path.write_text("This is not a database. " * 100)


@pytest.mark.parametrize(
    ("make", "word"), [(foreign, "another program's"), (newer, "newer craftcore"), (text, "not an SQLite database")]
)
@pytest.mark.parametrize(
    "arguments",
    [["run"], ["emit", "greet"], ["status"], ["db", "migrate"], ["trigger", "cancel", "--all", "--yes"]],
    ids=" ".join,
)
def test_foreign_file_is_refused_and_left_unchanged(tmp_path, make, word, arguments):
    database = tmp_path / "agent.db"
    make(database)
    before, mode = database.read_bytes(), database.stat().st_mode

    one_line(craftcore(tmp_path, *arguments), 65, word)

    assert (database.read_bytes(), database.stat().st_mode) == (before, mode)
    assert not (tmp_path / "agent.db.lock").exists()


@pytest.mark.parametrize("arguments", [["run"], ["emit", "greet"]], ids=" ".join)
def test_uncreatable_database_is_refused_with_the_path(tmp_path, arguments):
    (tmp_path / "file").write_text("")

    refused = craftcore(tmp_path, "--db", "file/agent.db", *arguments)

    one_line(refused, 73, "file/agent.db")


@pytest.mark.parametrize("arguments", [["run"], ["emit", "greet"], ["status"], ["db", "migrate"]], ids=" ".join)
def test_directory_as_database_is_refused(tmp_path, arguments):
    (tmp_path / "agent.db").mkdir()

    one_line(craftcore(tmp_path, *arguments), 65, "agent.db: a directory, not a database")

    assert [path.name for path in tmp_path.rglob("*")] == ["agent.db"]


def test_socket_as_database_is_refused(tmp_path):
    with socket.socket(socket.AF_UNIX) as there:
        there.bind(str(tmp_path / "agent.db"))

        one_line(craftcore(tmp_path, "emit", "greet"), 73, "agent.db")


@pytest.mark.parametrize(
    ("app", "text", "words"),
    [
        ("nowhere:app", "", ["no module is named nowhere"]),
        ("ap:app", "", ["no module is named ap", "did you mean app?"]),
        ("app.nowhere:app", "", ["no module is named app.nowhere"]),
        ("app:ap", "from craftcore import App\napp = App()\n", ["app has no 'ap'; did you mean app:app?"]),
        ("app", "", ["app has no 'app'"]),
        ("app", "from craftcore import App\n", ["app has no 'app'; app makes none: add app = App(\"app\")"]),
        (
            "app:App",
            "from craftcore import App\n",
            ["app:App is the class App, not an App; app makes none: add app = "],
        ),
        ("app:App", "from craftcore import App\nit = App()\n", ["is the class App, not an App; did you mean app:it?"]),
        (
            "app:make",
            "def make(): ...",
            ["app:make is a function, not an App: add a line app = make(), and give app:app"],
        ),
        ("app:app", "app = 1", ["app:app is of type int, not an App"]),
        ("app:app", "import craftcor", ["No module named 'craftcor'", "app.py:1"]),
        ("app:app", "a = 1\n\nprint(b)", ["NameError: name 'b' is not defined", "app.py:3"]),
        ("app:app", "def f(:", ["app.py:1"]),
        ("app:app", "raise SystemExit(0)", ["SystemExit", "app.py:1"]),
        (
            "app:app",
            "from craftcore import App\napp = App()\nfor _ in 'ab':\n  app.workflow('a')(lambda: 1)",
            ["a is declared twice", "app.py:4"],
        ),
        ("app.py", "", ["give MODULE:APP", "for example app:app"]),
        ("./app.py:app", "", ["for example app:app"]),
        (":app", "", ["give MODULE:APP"]),
        ("", "", ["'' names no app", "give MODULE:APP"]),
    ],
)
def test_unrunnable_app_is_refused_with_the_location_of_the_mistake(tmp_path, app, text, words):
    (tmp_path / "app.py").write_text(text)

    one_line(craftcore(tmp_path, "run", app), 78, *words)

    assert not (tmp_path / "agent.db").exists()


def test_settings_with_several_mistakes_report_every_mistake(cli, tmp_path):
    (tmp_path / "bad.toml").write_text("[daemon]\nconcurency = 1\n[log]\nlevel = 'loud'\n")

    for arguments in (["run"], ["check"], ["db", "gc"]):
        refused = cli("--config", "bad.toml", *arguments)

        assert refused.code == 78
        first, second = refused.err.splitlines() or refused.out.splitlines()[:2]
        assert "did you mean 'concurrency'" in first + second
        assert 'log.level is \'loud\'; allowed: "auto" or "debug"' in first + second
    one_line(cli("--config", "none.toml", "run"), 78, "none.toml")


def test_error_with_json_is_a_document(cli, tmp_path):
    (tmp_path / "bad.toml").write_text("x = 1")

    for arguments, code, name in (
        (["status"], 10, "NOT_FOUND"),
        (["emit", "greet", "--payload", "{}{}"], 64, "INVALID_INPUT"),
        (["emit", "--nope"], 64, "USAGE"),
        (["stauts"], 64, "USAGE"),
        (["db", "gc", "--config", "bad.toml"], 78, "CONFIG_INVALID"),
    ):
        refused = cli(*arguments, "--json")
        assert refused.code == code
        assert (refused.json["error"]["code"], refused.json["error"]["exit_code"]) == (name, code)
        assert refused.err.startswith("craftcore: ")


@pytest.mark.parametrize(
    "command", ["status", "emit greet", "check", "doctor", "run --until-idle", "db stats", "db check", "release", "top"]
)
def test_database_path_that_is_not_utf8_is_refused_in_a_sentence(cli, tmp_path, command):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()

    done = cli("--db", str(folder / "agent.db"), *command.split())

    assert done.code == (1 if command in ("check", "doctor") else 64)
    assert "SQLite opens only paths of UTF-8 text" in done.out + done.err
    assert not list(folder.iterdir())


def test_backup_to_a_path_that_is_not_utf8_is_made(cli, core, tmp_path):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir(mode=0o700)

    done = cli("db", "backup", "-o", str(folder / "copy.db"))

    assert done.code == 0, done.err


@pytest.mark.parametrize(
    "command",
    [
        ("emit", "command.run", "--payload", '{"argv": "ls -l"}'),
        ("schedule", "add", "list", "@daily", "--workflow", "command.run", "--payload", '{"argv": "ls -l"}'),
    ],
)
def test_command_as_a_text_is_refused_with_its_words(cli, database, command):
    one_line(cli(*command), 64, "argv 'ls -l' must be a list of words", '["ls", "-l"]', '["sh", "-c", "ls -l"]')
    assert not database.exists()


def test_edited_command_as_a_text_is_refused_with_its_words(cli):
    cli("schedule", "add", "list", "@daily", "--", "ls")

    one_line(cli("schedule", "edit", "list", "--payload", '{"argv": "ls -l"}'), 64, '["ls", "-l"]')


def test_argv_as_text_is_the_matter_of_another_workflow(cli):
    assert cli("emit", "parse", "--payload", '{"argv": "ls -l"}').code == 0
