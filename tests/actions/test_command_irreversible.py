"""`command.run` as an irreversible action: a call in doubt is repeated only by a person's decision.

Each program appends a line to the file `effects` for each effect, and the tests count the lines.
"""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from craftcore import App, Call, Producer, TaskContext
from craftcore.actions.process.command_run import COMMAND, command_action, command_run, is_irreversible
from craftcore.actions.process.program import Programs
from craftcore.config import Config
from craftcore.daemon.builtin_actions import declare_ready_made
from tests.support.command_calls import call_command
from tests.support.engine_harness import Lab, lab
from tests.support.processes import PATIENCE, a_daemon, processes_in, until
from tests.support.turns import failure, result

EFFECT = 'echo "$CRAFTCORE_ATTEMPT $CRAFTCORE_IDEMPOTENCY_KEY" >> effects; '
PATIENT_APP = f"""
from craftcore import App
from craftcore.engine import engine

engine.DRAIN_SECONDS = {PATIENCE}  # a disk that is slow to flush is not what is tested here
app = App()
"""
LONGER_AND_LONGER = (0.5, 2, 8, 30, 120)
"""Seconds until it is out of time: it is tried again where a slow machine had not even brought the program up."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends or was killed may need its time on a machine that has little; the defaults would give up on it."""
    monkeypatch.setattr("craftcore.actions.process.command_run.STOPPING_SECONDS", 4 * PATIENCE)
    monkeypatch.setattr("craftcore.actions.process.program.EOF_SECONDS", PATIENCE)
    monkeypatch.setattr("craftcore.actions.process.process_group.REAP_SECONDS", PATIENCE)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Where the programs of one test work, by which they are found; whoever is left over is killed afterwards."""
    yield tmp_path
    for pid in processes_in(tmp_path):
        if pid != os.getpid():
            os.kill(pid, signal.SIGKILL)


def an_app() -> App:
    programs = Programs(timeout=PATIENCE, output_max_bytes=65536, environment={"PATH": os.environ["PATH"]}, grace=0.5)
    app, action = App(), command_action(programs)
    app.declare_action(action)
    app.declare(COMMAND, command_run(programs, action), task_when=is_irreversible)
    return app


def shell(home: Path, script: str, **payload: Any) -> dict[str, Any]:
    return {"argv": ["sh", "-c", script], "cwd": str(home), "irreversible": True, **payload}


def effects(home: Path) -> list[tuple[int, str]]:
    """What was done to the world: the attempt that did it, and the key it was given."""
    file = home / "effects"
    lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [(int(attempt), key) for attempt, key in lines]


def ledger(it: Lab) -> list[tuple[str, int]]:
    return [(row["status"], row["calls"]) for row in it.rows("SELECT * FROM activity_log ORDER BY seq")]


async def asked(it: Lab, task: str) -> dict[str, Any]:
    """The question about it, once its task waits for the answer."""
    await it.waiting(task)
    return await it.question("activity")


async def answered(it: Lab, task: str, choice: str) -> dict[str, Any]:
    """The row of the task after this answer, when it has ended."""
    question = await asked(it, task)
    await it.app.answer(question["id"], choice, answered_by="ada")
    return await it.ended(task)


@pytest.mark.anyio
async def test_irreversible_command_that_succeeds_is_done_and_received_the_key(home: Path) -> None:
    async with lab(an_app(), home) as it:
        task = (await it.app.emit(COMMAND, shell(home, EFFECT + "echo out"))).id
        done = result(await it.ended(task))

        assert (done["exit_code"], done["stdout"]) == (0, "out\n")
        assert effects(home) == [(1, f"activity:{task}:1.1")]
        [row] = it.rows("SELECT * FROM activity_log")
        assert (row["status"], row["action"], row["provider_ref"]) == ("DONE", "command.run", None)
        assert json.loads(row["request_json"]) == {"argv": ["sh", "-c", EFFECT + "echo out"], "cwd": str(home)}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("echo no luck >&2; exit 3", "CommandFailed: sh exited with 3: no luck"),
        ("exit 75", "CommandFailed: sh exited with 75"),
        ("kill -9 $$", "CommandFailed: sh was killed by SIGKILL"),
    ],
)
@pytest.mark.parametrize("choice", ["happened", "resend", "give up"])
async def test_irreversible_command_that_fails_is_run_again_only_after_a_resend_answer(
    home: Path, end: str, said: str, choice: str
) -> None:
    async with lab(an_app(), home) as it:
        script = EFFECT + f'[ "$CRAFTCORE_ATTEMPT" = 2 ] || {{ {end}; }}'
        task = (await it.app.emit(COMMAND, shell(home, script))).id
        question = await asked(it, task)
        assert said in question["question"]
        assert len(effects(home)) == 1

        row = await answered(it, task, choice)

        key = f"activity:{task}:1.1"
        match choice:
            case "happened":
                assert (result(row), effects(home)) == (None, [(1, key)])
            case "resend":
                assert (result(row)["exit_code"], effects(home)) == (0, [(1, key), (2, key)])
            case _:
                assert (failure(row)[0], effects(home)) == ("ACTIVITY_UNKNOWN", [(1, key)])


@pytest.mark.anyio
async def test_exit_code_without_effect_is_retried_without_a_question(home: Path) -> None:
    async with lab(an_app(), home) as it:
        script = 'echo busy >&2; [ "$CRAFTCORE_ATTEMPT" = 3 ] || exit 75; ' + EFFECT
        task = (await it.app.emit(COMMAND, shell(home, script, no_effect_exit_codes=[74, 75]))).id

        assert result(await it.ended(task))["exit_code"] == 0
        assert effects(home) == [(3, f"activity:{task}:1.1")]
        assert it.rows("SELECT * FROM questions") == []
        [row] = it.rows("SELECT * FROM activity_log")
        assert (row["status"], row["calls"], row["in_doubt"]) == ("DONE", 3, 0)


@pytest.mark.anyio
async def test_exit_code_without_effect_does_not_clear_the_doubt_of_an_earlier_call(home: Path) -> None:
    """The first may have done it; the second says that it has not. Nobody knows, as before."""
    async with lab(an_app(), home) as it:
        script = EFFECT + 'case "$CRAFTCORE_ATTEMPT" in 1) exit 3;; 2) exit 75;; esac'
        task = (await it.app.emit(COMMAND, shell(home, script, no_effect_exit_codes=[75]))).id
        first = await asked(it, task)
        await it.app.answer(first["id"], "resend", answered_by="ada")
        await it.ended(task)

        assert [attempt for attempt, _ in effects(home)] == [1, 2, 3]
        assert ledger(it) == [("DONE", 3)]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({"argv": ["no-such-program"]}, "cannot start 'no-such-program': No such file"),
        ({"argv": ["/etc/passwd"]}, "Permission denied"),
        ({"argv": ["true"], "cwd": "/no/such/folder"}, "'/no/such/folder': No such file"),
        ({"argv": []}, "argv must be a list"),
        ({"argv": ["true"], "env": {"A=B": "c"}}, "not a name"),
        ({"argv": ["true"], "timeout": -1.0}, "timeout must be"),
        ({"argv": ["true"], "no_effect_exit_codes": [0]}, "no_effect_exit_codes must be"),
        ({"argv": ["true"], "no_effect_exit_codes": [256]}, "no_effect_exit_codes must be"),
    ],
    ids=lambda given: ascii(given)[:60],
)
async def test_irreversible_command_that_cannot_run_fails_without_a_question(
    home: Path, payload: dict[str, Any], said: str
) -> None:
    async with lab(an_app(), home) as it:
        task = (await it.app.emit(COMMAND, {**payload, "irreversible": True})).id

        code, message = failure(await it.ended(task))

        assert (code, said in message) == ("VALIDATION_ERROR", True), message
        assert ledger(it) == [("FAILED", 1)]
        assert it.rows("SELECT * FROM questions") == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"argv": "true"}, "argv must be"),
        ({"argv": ["true"], "cwd": 7}, "cwd must be a text"),
        ({"argv": ["true"], "stdin": ["x"]}, "stdin must be a text"),
        ({"argv": ["true"], "env": ["A"]}, "env must be"),
        ({"argv": ["true"], "timeout": "5"}, "timeout must be"),
        ({"argv": ["true"], "timeout": True}, "timeout must be"),
        ({"argv": ["true"], "no_effect_exit_codes": 75}, "no_effect_exit_codes must be"),
        ({"argv": ["true"], "no_effect_exit_codes": [True]}, "no_effect_exit_codes must be"),
    ],
    ids=lambda given: ascii(given)[:60],
)
async def test_command_act_with_invalid_arguments_fails_without_doubt(
    home: Path, arguments: dict[str, Any], said: str
) -> None:
    app = an_app()

    @app.workflow("mistaken")
    async def mistaken(ctx: TaskContext) -> Any:
        return await ctx.act("command.run", **arguments)

    async with lab(app, home) as it:
        _, message = failure(await it.ended((await app.emit("mistaken")).id))

        assert said in message
        assert ledger(it) == [("FAILED", 1)]


@pytest.mark.anyio
async def test_command_act_runs_once_over_several_attempts(home: Path) -> None:
    app = an_app()

    @app.workflow("mine")
    async def mine(ctx: TaskContext) -> Any:
        done = await ctx.act("command.run", argv=["sh", "-c", EFFECT], cwd=str(home))
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return done["exit_code"]

    async with lab(app, home) as it:
        assert result(await it.ended((await app.emit("mine")).id)) == 0
        assert len(effects(home)) == 1


@pytest.mark.anyio
async def test_busy_program_file_ends_without_an_effect_and_is_retried(home: Path) -> None:
    """Its file is still being written."""
    program = home / "program"
    program.write_text(f"#!/bin/sh\n{EFFECT}\n")
    program.chmod(0o755)
    async with lab(an_app(), home) as it:
        with program.open("a"):
            task = (await it.app.emit(COMMAND, {"argv": [str(program)], "cwd": str(home), "irreversible": True})).id
            code, message = failure(await it.ended(task))
            assert (code, "Text file busy" in message) == ("AGENT_UNAVAILABLE", True), message
            assert ledger(it) == [("FAILED", 3)]

        await it.app.retry_task(task)
        await it.until(lambda: it.task(task)["status"] == "DONE")

        assert effects(home) == [(4, f"activity:{task}:1.1")]
        assert it.rows("SELECT * FROM questions") == []


@pytest.mark.anyio
async def test_command_error_after_the_process_started_is_in_doubt(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same error that says of a start that nothing was started: the program may have run."""
    open_process = anyio.open_process

    async def opened_and_lost(*args: Any, **options: Any) -> Any:
        async with await open_process(*args, **options) as process:
            await process.wait()
        raise OSError(errno.EAGAIN, "nobody to wait for its end")

    monkeypatch.setattr(anyio, "open_process", opened_and_lost)
    async with lab(an_app(), home) as it:
        task = (await it.app.emit(COMMAND, shell(home, EFFECT))).id

        assert "nobody to wait for its end" in (await asked(it, task))["question"]
        assert len(effects(home)) == 1


@pytest.mark.anyio
async def test_irreversible_command_out_of_time_is_stopped_and_opens_a_question(home: Path) -> None:
    """Also one that is deaf to SIGTERM: the call waits for the end of its stopping."""
    async with lab(an_app(), home) as it:
        for seconds in LONGER_AND_LONGER:
            script = f"trap '' TERM; {EFFECT} echo stuck >&2; while :; do sleep 600; done"
            task = (await it.app.emit(COMMAND, shell(home, script, timeout=seconds))).id
            question = await asked(it, task)
            left = [pid for pid in processes_in(home) if pid != os.getpid()]
            if effects(home):
                break
            await it.app.answer(question["id"], "give up", answered_by="ada")
            await it.ended(task)

        assert f"TimeoutError: sh was stopped: it was not done after {seconds:g} seconds: stuck" in question["question"]
        assert left == []
        assert (await answered(it, task, "happened"))["status"] == "DONE"
        assert len(effects(home)) == 1


@pytest.mark.anyio
async def test_irreversible_command_of_a_cancelled_task_is_stopped_and_opens_a_question(home: Path) -> None:
    async with lab(an_app(), home) as it:
        task = (await it.app.emit(COMMAND, shell(home, EFFECT + "sleep 600"))).id
        await it.until(lambda: bool(effects(home)))

        await it.app.cancel_task(task)
        row = await it.ended(task)

        assert row["status"] == "CANCELLED"
        assert [pid for pid in processes_in(home) if pid != os.getpid()] == []
        question = await it.question("activity")
        assert "it was cancelled while it was called" in question["question"]
        assert ledger(it) == [("UNKNOWN", 1)]
        await it.app.answer(question["id"], "happened", answered_by="ada")
        assert ledger(it) == [("DONE", 1)]
        assert len(effects(home)) == 1


@pytest.mark.anyio
async def test_reversible_command_is_retried_and_creates_no_task(home: Path) -> None:
    async with lab(an_app(), home) as it:
        script = 'echo "1 x" >> effects; [ $(wc -l < effects) = 3 ]'
        for payload in ({}, {"irreversible": False}):
            (home / "effects").unlink(missing_ok=True)
            emitted = await it.app.emit(COMMAND, {"argv": ["sh", "-c", script], "cwd": str(home), **payload})
            assert (await it.settled(emitted.id))["status"] == "DONE"
            assert len(effects(home)) == 3

        assert it.rows("SELECT * FROM tasks") == []
        assert it.rows("SELECT * FROM activity_log") == []


@pytest.mark.anyio
@pytest.mark.parametrize("payload", [{"no_effect_exit_codes": [75]}, {"irreversible": "yes"}, {"irreversible": 1}])
async def test_command_with_a_contradictory_payload_runs_nothing(home: Path, payload: dict[str, Any]) -> None:
    async with lab(an_app(), home) as it:
        spec = {"argv": ["sh", "-c", EFFECT], "cwd": str(home), **payload}
        with Producer(it.path) as producer:
            emitted = await anyio.to_thread.run_sync(producer.emit, COMMAND, spec)
        assert (await it.settled(emitted.id))["error_code"] == "VALIDATION_ERROR"
        assert effects(home) == []


def test_irreversible_flag_is_true_only_for_json_true() -> None:
    assert is_irreversible('{"argv": ["true"], "irreversible": true}')
    others = ("{}", '{"irreversible": false}', '{"irreversible": 1}', '{"irreversible": "true"}', "[true]", "7", "{")
    assert [text for text in others if is_irreversible(text)] == []


def test_app_with_a_custom_command_keeps_the_custom_command() -> None:
    app = App()

    @app.action("command.run")
    async def mine(call: Call) -> None: ...

    async def run() -> None: ...

    declare_ready_made(app, Config(), os.environ)
    assert app.actions["command.run"] is mine
    assert app.workflows["command.run"].task_when is is_irreversible
    other = App()
    other.declare("command.run", run)
    declare_ready_made(other, Config(), os.environ)
    assert other.workflows["command.run"].fn is run
    assert other.actions["command.run"].terms.irreversible


# Whatever becomes of the daemon


def emitted(home: Path, script: str) -> str:
    payload = json.dumps({"argv": ["sh", "-c", script], "irreversible": True})
    done = call_command(home, "--json", "emit", "command.run", "--payload", payload)
    assert done.code == 0, done
    return str(done.json["id"])


def the_question(home: Path) -> dict[str, Any]:
    """What the inbox asks, once it does."""
    [question] = until(lambda: call_command(home, "--json", "inbox", "list").json, "a question")
    return dict(question)


@pytest.mark.parametrize("choice", ["happened", "resend"])
def test_command_of_a_killed_daemon_is_run_again_only_after_a_resend_answer(home: Path, choice: str) -> None:
    """It lives on, for nobody is there to end it; and the question says so."""
    with a_daemon(home) as daemon:
        daemon.ready()
        task = emitted(home, EFFECT + '[ "$CRAFTCORE_ATTEMPT" = 2 ] || exec sleep 600')
        until(lambda: effects(home), "the effect")
        daemon.kill()
    left = processes_in(home)
    assert len(left) == 1

    with a_daemon(home) as daemon:
        daemon.ready()
        question = the_question(home)
        assert (question["kind"], question["task_id"]) == ("activity", task)
        assert "the process ended before it knew. An action that it began may still go on" in question["question"]
        assert len(effects(home)) == 1
        answer = call_command(home, "inbox", "answer", question["id"], choice)
        assert answer.code == 0, answer
        until(lambda: call_command(home, "--json", "task", "show", task).json["status"] == "DONE", "the end")

    key = f"activity:{task}:1.1"
    assert effects(home) == ([(1, key)] if choice == "happened" else [(1, key), (2, key)])
    assert processes_in(home) == left


def test_command_stopped_by_a_shutdown_waits_for_an_answer(home: Path) -> None:
    (home / "craftcore.toml").write_text("[daemon]\nshutdown_grace = 0\n")
    (home / "patient.py").write_text(PATIENT_APP)
    with a_daemon(home, "patient:app", "--config", "craftcore.toml") as daemon:
        daemon.ready()
        task = emitted(home, EFFECT + "exec sleep 600")
        until(lambda: effects(home), "the effect")
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 0
    assert processes_in(home) == []

    with a_daemon(home) as daemon:
        daemon.ready()
        assert the_question(home)["task_id"] == task
        assert call_command(home, "--json", "task", "show", task).json["status"] == "WAITING"

    assert len(effects(home)) == 1


def test_schedule_occurrence_waits_for_the_answer_about_the_earlier_command(home: Path) -> None:
    """With the overlap policy of every schedule, buffer_one: the task of the one before has not ended."""

    def outcomes() -> list[str]:
        return [line["outcome"] for line in call_command(home, "--json", "schedule", "history", "s").json]

    with a_daemon(home) as daemon:
        daemon.ready()
        options = ["--max-runs", "2", "--irreversible", "--", "sh", "-c", EFFECT + "exit 3"]
        added = call_command(home, "schedule", "add", "s", "every 1s", *options)
        assert added.code == 0, added
        first = the_question(home)
        until(lambda: "buffered" in outcomes(), "an occurrence that waits")
        assert len(effects(home)) == 1

        call_command(home, "inbox", "answer", first["id"], "happened")
        until(lambda: len(effects(home)) == 2, "the occurrence that waited")
        second = the_question(home)

    assert second["task_id"] != first["task_id"]
    assert len({key for _, key in effects(home)}) == 2


def test_command_schedule_of_the_settings_file_can_be_irreversible(home: Path) -> None:
    (home / "craftcore.toml").write_text(
        '[[schedule]]\nid = "s"\nwhen = "on startup"\nirreversible = true\n'
        f"command = ['sh', '-c', '''{EFFECT} exit 3''']\n"
    )
    with a_daemon(home, "--config", "craftcore.toml") as daemon:
        daemon.ready()
        question = the_question(home)

    assert question["workflow"] == "command.run"
    assert len(effects(home)) == 1
