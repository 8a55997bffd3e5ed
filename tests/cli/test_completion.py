"""TAB, by click's protocol: what is offered, that nothing is made or waited for, and that nothing is said beside it."""

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
from tests.support.processes import PATIENCE, a_daemon, craftcore, environment

SHELLS = ("bash", "zsh", "fish")


@pytest.fixture
def offered(cli, monkeypatch):
    """What is offered for the last of these words, which may be a beginning of one."""

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


def test_every_command_is_offered(offered):
    nouns = {name.split()[0] for name, _ in commands()}

    assert set(offered("")) == nouns
    assert offered("stat") == ["status"]
    for noun in nouns:
        verbs = {name.split()[1] for name, _ in commands() if name.startswith(f"{noun} ")}
        assert verbs <= set(offered(noun, "")) or not verbs


def test_every_option_is_offered(offered):
    for name, command in commands():
        options = {option for param in command.params for option in param.opts if option.startswith("--")}
        assert options <= set(offered(*name.split(), "--")), name


def test_ids_are_offered_from_the_database(offered, here):
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
def test_what_an_option_may_be_is_offered(offered, name, option):
    assert offered(*name.split(), option, "") == ONE_OF_A_FEW[name, option]


def test_every_option_that_names_its_words_offers_them(offered):
    for name, command in commands():
        for param in command.params:
            named = re.fullmatch(r"[a-z_]+(?:\|[a-z_]+)+", param.metavar or "")
            if isinstance(param, click.Option) and named:
                assert offered(*name.split(), param.opts[-1], "") == sorted(named[0].split("|")), (name, param.opts)


def test_a_word_may_be_typed_in_small_letters_where_the_command_reads_them(offered):
    assert offered("trigger", "list", "--status", "p") == ["pending"]
    assert offered("trigger", "list", "--status", "P") == ["PENDING"]
    assert offered("inspect", "--status", "s") == ["success", "suspended"]
    assert offered("schedule", "add", "--timezone", "europe/ber") == ["Europe/Berlin"]
    assert offered("completion", "z") == ["zsh"]


def test_the_options_of_a_question_and_the_event_a_task_waits_for_are_offered(offered, here):
    world = here.world

    assert offered("inbox", "answer", world.question, "") == ["hold", "send"]
    assert offered("inbox", "answer", world.question, "s") == ["send"]
    assert offered("task", "signal", world.waits, "") == ["approved"]
    assert offered("task", "signal", world.nap, "") == []


def test_who_was_meant_in_the_log_of_what_people_did_is_offered(offered, here, cli):
    cli("schedule", "pause", "nightly")

    assert offered("audit", "") == ["nightly"]


def test_a_database_that_is_named_on_the_line_is_the_one_that_is_read(offered, here, database, tmp_path, monkeypatch):
    here.core.close()
    shutil.move(database, tmp_path / "other.db")

    assert offered("schedule", "show", "") == []
    assert "nightly" in offered("--db", "other.db", "schedule", "show", "")


def test_files_are_left_to_the_shell(offered, cli, monkeypatch):
    monkeypatch.setenv("COMP_WORDS", "craftcore --db ag")
    monkeypatch.setenv("COMP_CWORD", "2")
    monkeypatch.setenv("_CRAFTCORE_COMPLETE", "bash_complete")
    assert cli().out == "file,ag\n"
    monkeypatch.setenv("COMP_WORDS", "craftcore replay ./re")
    assert cli().out == "file,./re\n"
    monkeypatch.setenv("COMP_WORDS", "craftcore init ag")
    assert cli().out == "dir,ag\n"


def test_each_shell_is_answered_in_its_own_way(offered, here):
    answers = {shell: offered("schedule", "show", "nigh", shell=shell) for shell in SHELLS}

    assert answers == {"bash": ["nightly"], "zsh": ["plain", "nightly", "nap"], "fish": ["plain,nightly\tnap"]}


def test_no_file_is_made_and_nothing_is_said_where_there_is_no_database(offered, tmp_path):
    before = list(tmp_path.iterdir())

    assert offered("trigger", "show", "") == []
    assert offered("--db", "nowhere/agent.db", "task", "show", "") == []

    assert list(tmp_path.iterdir()) == before


def test_a_database_at_rest_is_read_and_nothing_is_made_beside_it(offered, here, database):
    here.core.close()
    for end in ("-wal", "-shm"):
        database.with_name(database.name + end).unlink(missing_ok=True)
    before = database.read_bytes()

    assert here.world.waiting in offered("trigger", "show", "")

    assert [path.name for path in database.parent.iterdir()] == [database.name]
    assert database.read_bytes() == before


def test_a_wal_that_nobody_has_open_is_left_as_it_is(offered, here, database):
    """To read beside it SQLite would have to make a file."""
    here.core.close()
    wal = database.with_name(database.name + "-wal")
    wal.write_bytes(b"x")
    database.with_name(database.name + "-shm").unlink(missing_ok=True)

    assert offered("trigger", "show", "") == []

    assert sorted(path.name for path in database.parent.iterdir()) == [database.name, wal.name]


def test_what_was_written_a_moment_ago_is_offered_while_a_daemon_has_the_file(tmp_path, offered):
    with a_daemon(tmp_path) as daemon:
        daemon.ready()
        late = craftcore(tmp_path, "--json", "emit", "command.run", "--in", "1h").json["id"]

        program = [sys.executable, "-m", "craftcore"]
        asked = {"COMP_WORDS": "craftcore --db agent.db trigger show ", "COMP_CWORD": "5"}
        answer = subprocess.run(
            program,
            cwd=tmp_path,
            env=environment(_CRAFTCORE_COMPLETE="bash_complete", **asked),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    assert (answer.returncode, answer.stdout, answer.stderr) == (0, f"plain,{late}\n", "")


@pytest.mark.parametrize("text", [b"not a database" * 100, b"", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_none_is_passed_over(offered, database, text):
    database.write_bytes(text)

    assert offered("trigger", "show", "") == []
    assert database.read_bytes() == text


def test_bad_settings_and_unknown_commands_are_passed_over(offered, here, tmp_path):
    (tmp_path / "bad.toml").write_text("x = 1")

    assert "nightly" in offered("--config", "bad.toml", "schedule", "show", "")
    assert offered("nowhere", "show", "") == []
    assert offered("schedule", "nowhere", "") == []
    assert offered("--version", "statu") == ["status"]


@pytest.mark.parametrize("instruction", ["bash", "bash_source", "csh_complete", "nonsense", "bash_complete"])
def test_a_question_that_is_none_is_answered_with_nothing(cli, monkeypatch, instruction):
    monkeypatch.setenv("_CRAFTCORE_COMPLETE", instruction)  # and no COMP_WORDS

    answer = cli()

    assert (answer.code, answer.out, answer.err) == (0, "", "")


def test_a_command_that_is_given_is_run_whatever_the_variable_says(cli, here, monkeypatch):
    monkeypatch.setenv("_CRAFTCORE_COMPLETE", "bash_complete")

    assert "nightly" in cli("schedule", "list").out


def test_what_is_no_id_is_never_put_on_a_line(offered, here, database):
    """A damaged or hostile row: the shell would read it."""
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


def test_an_answer_that_a_shell_would_read_is_not_put_on_a_line_either(offered, here, database):
    here.core.close()
    connection = apsw.Connection(str(database))
    hostile = '["$(reboot)", "a b", "`id`", "-rf", "plain"]'
    connection.execute("UPDATE questions SET options_json = ? WHERE id = ?", (hostile, here.world.question))
    connection.close()

    assert offered("inbox", "answer", here.world.question, "") == ["plain"]


@pytest.mark.parametrize("kind", QUERIES)
def test_no_question_walks_through_what_is_over(core: VirtualCore, kind):
    with core.reading() as reader:
        asked = {"low": "", "high": "\x7f", "most": 50}
        plan = [row["detail"] for row in reader.fetch_all(f"EXPLAIN QUERY PLAN {QUERIES[kind]}", **asked)]

    walked = [line for line in plan if line.startswith("SCAN") and not re.search("triggers_dead|_open|json_each", line)]
    assert walked == []
    assert not [line for line in plan if "TEMP B-TREE" in line and kind != "question"], "those that are open"


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_the_one_of_the_shell(cli, shell):
    printed, document = cli("completion", shell), cli("--json", "completion", shell)

    assert (printed.code, printed.err) == (0, "")
    assert f"_CRAFTCORE_COMPLETE={shell}_complete" in printed.out
    assert document.json == {"shell": shell, "script": printed.out}


def test_another_shell_is_refused(cli):
    assert cli("completion", "csh").code == 64


BASH = """
eval "$("$CRAFTCORE" completion bash)"
COMP_WORDS=(craftcore schedule show nigh)
COMP_CWORD=3
_craftcore_completion "$CRAFTCORE"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_itself_completes_an_id(here, database, tmp_path):
    program = tmp_path / "craftcore"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m craftcore "$@"\n')
    program.chmod(0o755)
    env = environment(CRAFTCORE=str(program), CRAFTCORE_DB=str(database))

    ran = subprocess.run(["bash", "--norc", "-c", BASH], env=env, capture_output=True, text=True, timeout=PATIENCE)

    assert (ran.stdout, ran.stderr) == ("nightly\n", "")


def test_each_script_is_one_that_its_shell_reads(cli, tmp_path: Path):
    for shell in SHELLS:
        if shutil.which(shell) is None:
            continue
        (tmp_path / shell).write_text(cli("completion", shell).out)
        assert subprocess.run([shell, "-n", str(tmp_path / shell)], capture_output=True).returncode == 0
