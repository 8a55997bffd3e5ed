"""The entry point of the command line: help, imports, closed pipes, interruptions and reports of bugs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from importlib.metadata import version

import pytest

from craftcore.cli.root import COMMANDS, root
from craftcore.tasks.model import NewTask
from craftcore.tasks.store import TaskStore
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.processes import PATIENCE, a_program, craftcore, environment
from tests.support.warm_parent import start

HEAVY = {"anyio", "structlog", "asyncio", "rich", "msgspec", "trio", "craftcore.engine.engine", "craftcore.app"}


LIGHT_COMMANDS = [
    *(["status"], ["trigger", "list"], ["trigger", "show", "0"], ["trigger", "why", "0"], ["dead", "list"]),
    *(["db", "stats"], ["emit", "greet"], ["trigger", "cancel", "--all", "--yes"], ["--help"]),
    *(["schedule", "list"], ["schedule", "show", "s"], ["schedule", "preview", "--expr", "@daily"]),
    *(["task", "list"], ["task", "show", "t"], ["task", "events", "t"], ["task", "cancel", "t"], ["inbox", "list"]),
    *(["schedule", "add", "t", "@daily", "--", "true"], ["schedule", "run-now", "s"]),
]
IMPORTING = """
import contextlib, json, os, shutil, sys
from craftcore.cli.main import main

before, ended = os.getcwd(), []
for arguments in json.loads(sys.argv[1]):
    shutil.copytree(f"{before}/world", f"{before}/{len(ended)}")
    os.chdir(f"{before}/{len(ended)}")
    with open("printed", "w+") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        code = main(["--db", "agent.db", *arguments])
        file.seek(0)
        ended.append([arguments, code, sorted(sys.modules), file.read()])
print(json.dumps(ended))
"""


def test_commands_without_an_engine_import_no_heavy_modules(tmp_path):
    """One new interpreter runs all commands, each on a copy of the database, and names the first heavy import."""
    world = tmp_path / "world"
    world.mkdir()
    assert craftcore(world, "emit", "greet").code == 0
    assert craftcore(world, "schedule", "add", "s", "@daily", "--workflow", "greet").code == 0
    core = VirtualCore(world / "agent.db", VirtualClock())
    core.do(TaskStore().create_all, [NewTask("t", "greet", None, None, None, "t", None, None)])
    core.close()

    program = [sys.executable, "-c", IMPORTING, json.dumps(LIGHT_COMMANDS)]
    ran = subprocess.run(program, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, check=True)

    ended = json.loads(ran.stdout)
    assert [arguments for arguments, *_ in ended] == LIGHT_COMMANDS
    for arguments, code, modules, printed in ended:
        assert code == 0, (arguments, printed)
        assert HEAVY & set(modules) == set(), arguments


def test_commands_have_help_and_accept_the_global_options(cli):
    for name in COMMANDS:
        shown = cli(name, "--help")
        assert shown.code == 0
        for option in ("--db", "--config", "--json", "--version"):
            assert option in shown.out
    listed = cli("--help").out
    assert all(name in listed for name in COMMANDS)


def test_version_option_works_before_and_after_a_command(cli):
    expected = f"craftcore {version('craftcore')}\n"

    assert cli("--version").out == cli("status", "--version").out == expected


def test_missing_command_shows_the_help(cli):
    shown = cli()

    assert (shown.code, shown.out) == (64, "")
    assert shown.err == cli("--help").out
    assert cli("trigger").code == 64


def test_misspelt_command_gets_a_suggestion(cli):
    assert "did you mean 'status'?" in cli("staus").err
    assert "did you mean 'cancel'?" in cli("trigger", "cancle").err


def test_closed_output_pipe_exits_141_without_an_error_message(cli, tmp_path):
    """`craftcore trigger list | head -1`, with more output than the buffer of a pipe."""
    for _ in range(20):
        cli("emit", "greet", "--description", "x" * 4000, "--payload", json.dumps({"a": "x" * 9000}))
    command = [sys.executable, "-m", "craftcore", "--db", "agent.db", "--json", "trigger", "list"]
    with a_program(command, tmp_path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize("arguments", [["status"], ["--json", "status"], ["emit", "greet"]], ids=" ".join)
def test_unwritable_output_exits_74_with_a_message(cli, tmp_path, arguments):
    cli("emit", "greet")
    command = ["-m", "craftcore", "--db", "agent.db", *arguments]
    with (
        open("/dev/full", "wb") as full,
        start(command, cwd=tmp_path, env=environment(), stdout=full, stderr=subprocess.PIPE) as process,
    ):
        _, error = process.communicate(timeout=PATIENCE)

    assert process.returncode == 74
    assert error == b"craftcore: the answer cannot be written: No space left on device\n"


def test_command_without_standard_output_still_works(tmp_path):
    command = f"exec {sys.executable} -m craftcore --db agent.db emit greet >&-"
    ended = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True)

    assert (ended.returncode, ended.stderr.count("\n")) == (0, 1), ended.stderr
    assert "made a new database" in ended.stderr
    assert len(craftcore(tmp_path, "--json", "trigger", "list").json) == 1


def test_ctrl_c_during_emit_wait_reports_the_accepted_trigger(tmp_path):
    command = [sys.executable, "-m", "craftcore", "--db", "agent.db", "emit", "greet", "--in", "1h", "--wait"]
    with a_program(command, tmp_path) as process:
        assert process.stderr is not None
        assert b"made a new database" in process.stderr.readline()
        assert b"no daemon runs" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        error = process.stderr.read().decode()
    [row] = craftcore(tmp_path, "--json", "trigger", "list").json
    assert error == f"craftcore: trigger {row['id']} is accepted; it goes on without this command\n"


def test_bug_exits_70_with_a_single_line(cli, monkeypatch):
    def broken(*_args, **_kwargs):
        raise ZeroDivisionError("one\ntwo")

    monkeypatch.setattr(root, "invoke", broken)

    failed = cli("status")

    assert failed.code == 70
    assert failed.err == (
        "craftcore: a bug in craftcore: ZeroDivisionError: one two (CRAFTCORE_TRACEBACK=1 shows where)\n"
    )
