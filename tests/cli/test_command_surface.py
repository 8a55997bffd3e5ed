"""The list of commands: each has a reference page, a test and a JSON document, also when it fails."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest

from craftcore.cli.base import Command
from tests.support.commands import BY_HAND, READS, WORKS, commands, line
from tests.support.json_contracts import DOCUMENTS, LISTS
from tests.support.processes import APP, a_daemon, craftcore

PROMISED = """
    run init check status top doctor release demo
    emit trigger:list|show|cancel|requeue|why dead:list|requeue|discard
    schedule:add|list|show|preview|pause|resume|edit|run-now|skip-next|backfill|history|remove|trust-clock|reanchor
    task:list|show|events|cancel|retry|signal inbox:list|answer
    activity:list|show|resolve inspect
    replay verify invalidate export diff execution:retry|skip
    db:migrate|backup|restore|check|stats|gc systemd:install|print reload
"""
ADDED = "session:history|forget crashtest schedule:why task:stop|stream audit completion hold web"

NAMED = [
    f"{noun} {verb}".rstrip()
    for noun, _, verbs in (word.partition(":") for word in f"{PROMISED} {ADDED}".split())
    for verb in verbs.split("|")
]
COMMANDS = dict(commands())
CALLS = {**READS, **BY_HAND, **WORKS}
TESTS = Path(__file__).parents[1]
TABLES = {"commands.py", "json_contracts.py", "test_command_surface.py", "test_help.py"}
"""These files name every command, so a name in them does not count as a test."""

MOMENT = re.compile(r"(?:.*_(?:at|until)|at|now|not_before)")
FOREIGN_VALUES = {"payload", "message", "arguments", "result", "state", "details", "envelope", "error", "executions"}
"""Values written by a user's program or an older version: they are printed unchanged."""

NEED_MORE_THAN_ROWS = {"run", "reload", "demo", "crashtest", "db restore", "web"}
"""Commands that need more than a populated database. Their tests follow."""

EMPTY_LISTS = {"audit": ["schedule", "pause", "nightly"], "schedule history": ["schedule", "run-now", "nightly"]}
"""Lists that are empty in the populated database, and the commands that add a row."""


def test_commands_match_the_promised_list():
    assert sorted(COMMANDS) == sorted(NAMED)


@pytest.mark.parametrize("name", NAMED)
def test_command_has_a_reference_page(name):
    reference = (TESTS.parent / "docs" / "reference" / "cli.md").read_text()

    assert re.search(rf"^\| `craftcore {name}[ `]", reference, re.M)


@pytest.mark.parametrize("name", NAMED)
def test_command_has_a_test_that_runs_the_command(name):
    typed = re.compile(", *".join(f'"{word}"' for word in name.split()) + r"|\bcraftcore " + name)
    words = (f'"{name.split()[0]}"', f"craftcore {name}")

    assert any(typed.search(text) for text in read_tests() if any(word in text for word in words))


@cache
def read_tests() -> list[str]:
    return [path.read_text() for path in TESTS.rglob("*.py") if path.name not in TABLES]


def test_document_shapes_cover_every_command():
    assert sorted([*DOCUMENTS, *LISTS]) == sorted(NAMED)


def check_document(name: str, document: object) -> None:
    """Check that a document has the promised fields, and each moment also as ISO."""
    rows = document if name in LISTS else [document]
    assert isinstance(rows, list)
    assert rows, "the document is empty"
    for row in rows:
        assert isinstance(row, dict)
        assert set((LISTS.get(name) or DOCUMENTS[name]).split()) <= set(row)
    if name != "export":  # an export has the sealed document unchanged
        check_moments(document)


def check_moments(document: object) -> None:
    for one in document if isinstance(document, list) else [document]:
        if isinstance(one, dict):
            for name, value in one.items():
                if MOMENT.fullmatch(name) and isinstance(value, int | float | None):
                    assert f"{name}_iso" in one, name
                if name not in FOREIGN_VALUES:
                    check_moments(value)


@pytest.mark.parametrize("name", [name for name in NAMED if name not in NEED_MORE_THAN_ROWS])
def test_command_with_json_prints_a_single_promised_document(cli, here, name):
    if name in EMPTY_LISTS:
        assert cli(*EMPTY_LISTS[name]).code == 0

    done = cli("--json", *line(name, CALLS[name], here.world))

    assert (done.code, done.err) == (0, "")
    check_document(name, done.json)


def test_run_and_reload_with_json_print_a_document(tmp_path):
    (tmp_path / "app.py").write_text(APP)

    ran = craftcore(tmp_path, "--json", "run", "app:app", "--until-idle")
    craftcore(tmp_path, "emit", "fails")
    failed = craftcore(tmp_path, "--json", "run", "app:app", "--until-idle")
    with a_daemon(tmp_path, "app:app") as daemon:
        daemon.ready()
        result = craftcore(tmp_path, "--json", "reload")

    assert (ran.code, ran.json) == (0, {"ok": True, "exit_code": 0})
    assert (failed.code, failed.json) == (4, {"ok": False, "exit_code": 4})
    assert result.code == 0
    check_document("reload", result.json)


@pytest.mark.acceptance
def test_demo_with_json_prints_a_document(tmp_path):
    result = craftcore(tmp_path, "--json", "demo", "--triggers", "20", "--kills", "1")

    assert result.code == 0
    check_document("demo", result.json)


def test_crashtest_with_json_prints_a_document(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    payload = ("--payload", '{"name": "ada"}')
    result = craftcore(
        tmp_path, "--json", "crashtest", "app:app", "--emit", "greet", *payload, "--at", "writer.flushed:1"
    )

    assert result.code == 0
    check_document("crashtest", result.json)


def test_restore_with_json_prints_a_document(cli, here, database):
    assert cli("db", "backup", "-o", "backup.db").code == 0
    here.core.close()

    result = cli("--json", "db", "restore", "backup.db", "--yes")

    assert (result.code, result.err) == (0, "")
    check_document("db restore", result.json)


# errors


@pytest.mark.parametrize("name", NAMED)
def test_unknown_option_with_json_prints_an_error_document(cli, name):
    refused = cli(*name.split(), "--no-such-option", "--json")

    assert refused.code == 64
    assert refused.json["error"]["code"] == "USAGE"
    assert refused.json["error"]["exit_code"] == 64
    assert refused.err == f"craftcore: {refused.json['error']['message']}\n"
    assert f"craftcore {name} --help" in refused.err


def needs_a_database(name: str) -> bool:
    command = COMMANDS[name]
    assert isinstance(command, Command)
    return 10 in command.exits


@pytest.mark.parametrize("name", [name for name in NAMED if needs_a_database(name)])
def test_missing_database_exits_10_and_is_not_created(cli, made, tmp_path, name):
    refused = cli("--json", "--db", "no/agent.db", *line(name, CALLS[name], made[0]))

    assert refused.code == 10, refused
    assert "no such database" in refused.json["error"]["message"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [name for name in NAMED if not needs_a_database(name)])
def test_command_without_exit_code_10_in_help_needs_no_database(cli, here, name):
    if name in ("run", "demo", "crashtest", "db restore", "web"):
        return  # demo and crashtest make their own database; the page has its own tests

    done = cli("--json", "--db", "no/agent.db", *line(name, CALLS[name], here.world))

    assert done.code == (1 if name == "doctor" else 0), done
    json.loads(done.out)
