"""Tab completion by click's protocol: the values offered, without a file created, a lock awaited or an extra output."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import apsw
import click
import pytest

from craftcore.activities.model import ActivityStatus
from craftcore.cli.completion.id_store import QUERIES
from craftcore.cli.root import COMMANDS
from craftcore.error_codes import ErrorCode
from craftcore.executions.model import Status
from craftcore.schedules.model import CatchUp, Overlap
from craftcore.tasks.model import TaskStatus
from craftcore.triggers.model import TriggerSource, TriggerStatus
from tests.support.commands import commands
from tests.support.fakes import VirtualCore
from tests.support.processes import PATIENCE, a_daemon, craftcore, environment, run_python

SHELLS = ("bash", "zsh", "fish")


@pytest.fixture
def offered(cli, monkeypatch):
    """Return a function that returns the completions of the last word, which may be incomplete."""

    def offered(*words: str, shell: str = "bash") -> list[str]:
        monkeypatch.setenv("COMP_WORDS", " ".join(["craftcore", *words]))
        monkeypatch.setenv("COMP_CWORD", words[-1] if shell == "fish" else str(len(words)))
        monkeypatch.setenv("_CRAFTCORE_COMPLETE", f"{shell}_complete")
        answer = cli()
        monkeypatch.delenv("_CRAFTCORE_COMPLETE")
        assert (answer.code, answer.err) == (0, "")
        lines: list[str] = answer.out.splitlines()
        return [line.partition(",")[2] for line in lines] if shell == "bash" else lines

    return offered


def test_completion_offers_every_command(offered):
    nouns = {name.split()[0] for name, _ in commands(on_cluster=True)}

    assert set(offered("")) == nouns
    assert offered("stat") == ["status"]
    for noun in nouns:
        verbs = {name.split()[1] for name, _ in commands(on_cluster=True) if name.startswith(f"{noun} ")}
        assert verbs <= set(offered(noun, "")) or not verbs


def test_completion_offers_every_option(offered):
    for name, command in commands(on_cluster=True):
        options = {option for param in command.params for option in param.opts if option.startswith("--")}
        assert options <= set(offered(*name.split(), "--")), name


def test_completion_offers_ids_from_the_database(offered, here):
    world = here.world
    for words, one in {
        ("trigger", "show", ""): world.waiting,
        ("trigger", "cancel", ""): world.waiting,
        ("dead", "requeue", ""): world.dead,
        ("task", "show", ""): world.nap,
        ("inbox", "answer", ""): world.question,
        ("activity", "show", ""): world.in_doubt.removeprefix("activity:"),
        ("inspect", ""): world.died,
        ("replay", ""): world.ended,
        ("diff", world.ended, ""): world.died,
        ("invalidate", ""): world.died,
        ("schedule", "show", ""): "nightly",
        ("schedule", "reanchor", ""): "ahead",
        ("emit", ""): "nap",
        ("trigger", "list", "--workflow", ""): "nap",
    }.items():
        assert one in offered(*words), words
    assert offered("dead", "requeue", "") == [world.dead]
    assert offered("schedule", "show", "ni") == ["nightly"]
    assert offered("inspect", world.died[:-1]) == [world.died]
    assert offered("task", "show", "no-such") == []


ONE_OF_A_FEW: dict[tuple[str, str], list[str]] = {
    ("trigger list", "--status"): sorted(TriggerStatus),
    ("trigger list", "--source"): sorted(TriggerSource),
    ("emit", "--source"): sorted(TriggerSource),
    ("emit", "--on-duplicate"): ["error", "keep", "replace"],
    ("emit", "--supersedes"): ["session"],
    ("task list", "--status"): sorted(TaskStatus),
    ("activity list", "--status"): sorted(ActivityStatus),
    ("inspect", "--status"): sorted(Status),
    ("inspect", "--error-code"): sorted(ErrorCode),
    ("schedule add", "--catch-up"): sorted(CatchUp),
    ("schedule add", "--overlap"): sorted(Overlap),
    ("schedule edit", "--overlap"): sorted(Overlap),
    ("audit", "--action"): sorted(COMMANDS),
}


@pytest.mark.parametrize(("name", "option"), ONE_OF_A_FEW)
def test_completion_offers_the_values_of_an_option(offered, name, option):
    assert offered(*name.split(), option, "") == ONE_OF_A_FEW[name, option]


def test_option_with_named_words_completes_exactly_those_words(offered):
    for name, command in commands(on_cluster=True):
        for param in command.params:
            named = re.fullmatch(r"[a-z_]+(?:\|[a-z_]+)+", param.metavar or "")
            if isinstance(param, click.Option) and named:
                assert offered(*name.split(), param.opts[-1], "") == sorted(named[0].split("|")), (name, param.opts)


def test_completion_matches_lower_case_where_the_command_accepts_lower_case(offered):
    assert offered("trigger", "list", "--status", "p") == ["pending"]
    assert offered("trigger", "list", "--status", "P") == ["PENDING"]
    assert offered("inspect", "--status", "s") == ["success", "suspended"]
    assert offered("schedule", "add", "--timezone", "europe/ber") == ["Europe/Berlin"]
    assert offered("completion", "z") == ["zsh"]


def test_completion_offers_answers_of_a_question_and_the_awaited_event(offered, here):
    world = here.world

    assert offered("inbox", "answer", world.question, "") == ["hold", "send"]
    assert offered("inbox", "answer", world.question, "s") == ["send"]
    assert offered("task", "signal", world.waits, "") == ["approved"]
    assert offered("task", "signal", world.nap, "") == []


def test_completion_of_audit_offers_audited_subjects(offered, here, cli):
    cli("schedule", "pause", "nightly")

    assert offered("audit", "") == ["nightly"]


def test_completion_reads_the_database_named_on_the_line(offered, here, database, tmp_path, monkeypatch):
    here.core.close()
    shutil.move(database, tmp_path / "other.db")

    assert offered("schedule", "show", "") == []
    assert "nightly" in offered("--db", "other.db", "schedule", "show", "")


def test_completion_leaves_files_to_the_shell(offered, cli, monkeypatch):
    monkeypatch.setenv("COMP_WORDS", "craftcore --db ag")
    monkeypatch.setenv("COMP_CWORD", "2")
    monkeypatch.setenv("_CRAFTCORE_COMPLETE", "bash_complete")
    assert cli().out == "file,ag\n"
    monkeypatch.setenv("COMP_WORDS", "craftcore replay ./re")
    assert cli().out == "file,./re\n"
    monkeypatch.setenv("COMP_WORDS", "craftcore init ag")
    assert cli().out == "dir,ag\n"


def test_completion_answer_has_the_format_of_each_shell(offered, here):
    answers = {shell: offered("schedule", "show", "nigh", shell=shell) for shell in SHELLS}

    assert answers == {"bash": ["nightly"], "zsh": ["plain", "nightly", "nap"], "fish": ["plain,nightly\tnap"]}


def test_completion_without_a_database_creates_no_file_and_prints_nothing(offered, tmp_path):
    before = list(tmp_path.iterdir())

    assert offered("trigger", "show", "") == []
    assert offered("--db", "nowhere/agent.db", "task", "show", "") == []

    assert list(tmp_path.iterdir()) == before


def test_completion_reads_an_idle_database_without_creating_files(offered, here, database):
    here.core.close()
    for end in ("-wal", "-shm"):
        database.with_name(database.name + end).unlink(missing_ok=True)
    before = database.read_bytes()

    assert here.world.waiting in offered("trigger", "show", "")

    assert [path.name for path in database.parent.iterdir()] == [database.name]
    assert database.read_bytes() == before


def test_completion_leaves_an_unopened_wal_untouched(offered, here, database):
    """SQLite would have to create a file to read beside the WAL."""
    here.core.close()
    wal = database.with_name(database.name + "-wal")
    wal.write_bytes(b"x")
    database.with_name(database.name + "-shm").unlink(missing_ok=True)

    assert offered("trigger", "show", "") == []

    assert sorted(path.name for path in database.parent.iterdir()) == [database.name, wal.name]


def test_completion_beside_a_daemon_offers_a_freshly_written_id(tmp_path, offered):
    with a_daemon(tmp_path) as daemon:
        daemon.ready()
        late = craftcore(tmp_path, "--json", "emit", "command.run", "--in", "1h").json["id"]

        asked = {"COMP_WORDS": "craftcore --db agent.db trigger show ", "COMP_CWORD": "5"}
        answer = run_python(["-m", "craftcore"], tmp_path, _CRAFTCORE_COMPLETE="bash_complete", **asked)

    assert (answer.code, answer.out, answer.err) == (0, f"plain,{late}\n", "")


@pytest.mark.parametrize("text", [b"not a database" * 100, b"", b"SQLite format 3\0" + b"\xff" * 5000])
def test_completion_ignores_a_file_that_is_not_a_database(offered, database, text):
    database.write_bytes(text)

    assert offered("trigger", "show", "") == []
    assert database.read_bytes() == text


def test_completion_ignores_bad_settings_and_unknown_commands(offered, here, tmp_path):
    (tmp_path / "bad.toml").write_text("x = 1")

    assert "nightly" in offered("--config", "bad.toml", "schedule", "show", "")
    assert offered("nowhere", "show", "") == []
    assert offered("schedule", "nowhere", "") == []
    assert offered("--version", "statu") == ["status"]


@pytest.mark.parametrize("instruction", ["bash", "bash_source", "csh_complete", "nonsense", "bash_complete"])
def test_invalid_completion_request_prints_nothing(cli, monkeypatch, instruction):
    monkeypatch.setenv("_CRAFTCORE_COMPLETE", instruction)  # without COMP_WORDS

    answer = cli()

    assert (answer.code, answer.out, answer.err) == (0, "", "")


def test_command_with_arguments_runs_despite_the_completion_variable(cli, here, monkeypatch):
    monkeypatch.setenv("_CRAFTCORE_COMPLETE", "bash_complete")

    assert "nightly" in cli("schedule", "list").out


def test_completion_never_offers_a_hostile_id(offered, here, database):
    """The shell would evaluate the id of a damaged or hostile row."""
    here.core.close()
    connection = apsw.Connection(str(database))
    for number, hostile in enumerate(["$(reboot)", "a b", "a\nb", "\x1b[2J", "`id`", "*"]):
        connection.execute(
            """
            INSERT INTO triggers (id, source, workflow, fire_at, due_at, priority, payload_json, created_at, updated_at)
            VALUES (?, 'IMMEDIATE', 'w' || char(10) || char(27) || ?, 1, 1, 10, '{}', 1, 1)
            """,
            (hostile, number),
        )
    connection.execute(
        """
        INSERT INTO triggers (id, source, workflow, fire_at, due_at, priority, payload_json, created_at, updated_at)
        VALUES ('sound', 'IMMEDIATE', 'w' || char(10) || char(27) || 'x', 1, 1, 10, '{}', 1, 1)
        """
    )
    connection.close()

    assert all(name.replace("-", "").isalnum() for name in offered("trigger", "show", ""))
    assert offered("trigger", "show", "sou", shell="zsh") == ["plain", "sound", "w\\n\\x1bx"]


def test_completion_never_offers_a_hostile_answer(offered, here, database):
    here.core.close()
    connection = apsw.Connection(str(database))
    hostile = '["$(reboot)", "a b", "`id`", "-rf", "plain"]'
    connection.execute("UPDATE questions SET options_json = ? WHERE id = ?", (hostile, here.world.question))
    connection.close()

    assert offered("inbox", "answer", here.world.question, "") == ["plain"]


@pytest.mark.parametrize("kind", QUERIES)
def test_completion_queries_scan_no_settled_rows(core: VirtualCore, kind):
    with core.reading() as reader:
        asked = {"low": "", "high": "\x7f", "most": 50}
        plan = [row["detail"] for row in reader.fetch_all(f"EXPLAIN QUERY PLAN {QUERIES[kind]}", **asked)]

    walked = [line for line in plan if line.startswith("SCAN") and not re.search("triggers_dead|_open|json_each", line)]
    assert walked == []
    assert not [line for line in plan if "TEMP B-TREE" in line and kind != "question"], "only open questions are sorted"


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_script_matches_the_shell(cli, shell):
    printed, document = cli("completion", shell), cli("--json", "completion", shell)

    assert (printed.code, printed.err) == (0, "")
    assert f"_CRAFTCORE_COMPLETE={shell}_complete" in printed.out
    assert document.json == {"shell": shell, "script": printed.out}


def test_completion_for_an_unknown_shell_is_refused(cli):
    assert cli("completion", "csh").code == 64


BASH = """
eval "$("$CRAFTCORE" completion bash)"
COMP_WORDS=(craftcore schedule show nigh)
COMP_CWORD=3
_craftcore_completion "$CRAFTCORE"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.acceptance  # the default run has test_tab_at_a_terminal_completes_the_line_in_each_shell
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_an_id_with_the_script(here, database, tmp_path):
    program = tmp_path / "craftcore"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m craftcore "$@"\n')
    program.chmod(0o755)
    env = environment(CRAFTCORE=str(program), CRAFTCORE_DB=str(database))

    ran = subprocess.run(["bash", "--norc", "-c", BASH], env=env, capture_output=True, text=True, timeout=PATIENCE)

    assert (ran.stdout, ran.stderr) == ("nightly\n", "")


def test_completion_scripts_have_valid_shell_syntax(cli, tmp_path: Path):
    for shell in SHELLS:
        if shutil.which(shell) is None:
            continue
        (tmp_path / shell).write_text(cli("completion", shell).out)
        assert subprocess.run([shell, "-n", str(tmp_path / shell)], capture_output=True).returncode == 0
