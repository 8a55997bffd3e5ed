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

engine.DRAIN_SECONDS = {PATIENCE}  # a slow disk must not end the drain
app = App()
"""
TIMEOUTS = (0.5, 2, 8, 30, 120)
"""Timeouts in seconds; the test tries the next one if a slow machine did not start the program in time."""


@pytest.fixture(autouse=True)
def long_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the limits of the stop of a program, for a slow machine."""
    monkeypatch.setattr("craftcore.actions.process.command_run.STOPPING_SECONDS", 4 * PATIENCE)
    monkeypatch.setattr("craftcore.actions.process.program.EOF_SECONDS", PATIENCE)
    monkeypatch.setattr("craftcore.actions.process.process_group.REAP_SECONDS", PATIENCE)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Yield the working folder of the programs, and kill the ones that remain at the end."""
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
    """Return the attempt number and the idempotency key of each effect."""
    file = home / "effects"
    lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [(int(attempt), key) for attempt, key in lines]


def ledger(harness: Lab) -> list[tuple[str, int]]:
    return [(row["status"], row["calls"]) for row in harness.rows("SELECT * FROM activity_log ORDER BY seq")]


async def wait_for_question(harness: Lab, task: str) -> dict[str, Any]:
    """Return the question about the command, after its task waits for the answer."""
    await harness.waiting(task)
    return await harness.question("activity")


async def answer_and_wait(harness: Lab, task: str, choice: str) -> dict[str, Any]:
    """Answer the question, and return the row of the ended task."""
    question = await wait_for_question(harness, task)
    await harness.app.answer(question["id"], choice, answered_by="ada")
    return await harness.ended(task)


@pytest.mark.anyio
async def test_irreversible_command_that_succeeds_is_done_and_received_the_key(home: Path) -> None:
    async with lab(an_app(), home) as harness:
        task = (await harness.app.emit(COMMAND, shell(home, EFFECT + "echo out"))).id
        done = result(await harness.ended(task))

        assert (done["exit_code"], done["stdout"]) == (0, "out\n")
        assert effects(home) == [(1, f"activity:{task}:1.1")]
        [row] = harness.rows("SELECT * FROM activity_log")
        assert (row["status"], row["action"], row["provider_ref"]) == ("DONE", "command.run", None)
        assert json.loads(row["request_json"]) == {"argv": ["sh", "-c", EFFECT + "echo out"], "cwd": str(home)}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("echo no luck >&2; exit 3", "CommandFailed: sh exited with 3: no luck"),
        ("exit 75", "CommandFailed: sh exited with 75"),
        ("kill -9 $$", "CommandFailed: sh was killed by SIGKILL"),
    ],
)
@pytest.mark.parametrize("choice", ["happened", "resend", "give up"])
async def test_irreversible_command_that_fails_is_run_again_only_after_a_resend_answer(
    home: Path, end: str, expected: str, choice: str
) -> None:
    async with lab(an_app(), home) as harness:
        script = EFFECT + f'[ "$CRAFTCORE_ATTEMPT" = 2 ] || {{ {end}; }}'
        task = (await harness.app.emit(COMMAND, shell(home, script))).id
        question = await wait_for_question(harness, task)
        assert expected in question["question"]
        assert len(effects(home)) == 1

        row = await answer_and_wait(harness, task, choice)

        key = f"activity:{task}:1.1"
        match choice:
            case "happened":
                assert (result(row), effects(home)) == ({}, [(1, key)])
            case "resend":
                assert (result(row)["exit_code"], effects(home)) == (0, [(1, key), (2, key)])
            case _:
                assert (failure(row)[0], effects(home)) == ("ACTIVITY_UNKNOWN", [(1, key)])


@pytest.mark.anyio
async def test_exit_code_without_effect_is_retried_without_a_question(home: Path) -> None:
    async with lab(an_app(), home) as harness:
        script = 'echo busy >&2; [ "$CRAFTCORE_ATTEMPT" = 3 ] || exit 75; ' + EFFECT
        task = (await harness.app.emit(COMMAND, shell(home, script, no_effect_exit_codes=[74, 75]))).id

        assert result(await harness.ended(task))["exit_code"] == 0
        assert effects(home) == [(3, f"activity:{task}:1.1")]
        assert harness.rows("SELECT * FROM questions") == []
        [row] = harness.rows("SELECT * FROM activity_log")
        assert (row["status"], row["calls"], row["in_doubt"]) == ("DONE", 3, 0)


@pytest.mark.anyio
async def test_exit_code_without_effect_does_not_clear_the_doubt_of_an_earlier_call(home: Path) -> None:
    """The exit code of the second call says nothing about the effect of the first call."""
    async with lab(an_app(), home) as harness:
        script = EFFECT + 'case "$CRAFTCORE_ATTEMPT" in 1) exit 3;; 2) exit 75;; esac'
        task = (await harness.app.emit(COMMAND, shell(home, script, no_effect_exit_codes=[75]))).id
        first = await wait_for_question(harness, task)
        await harness.app.answer(first["id"], "resend", answered_by="ada")
        await harness.ended(task)

        assert [attempt for attempt, _ in effects(home)] == [1, 2, 3]
        assert ledger(harness) == [("DONE", 3)]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("payload", "expected"),
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
    home: Path, payload: dict[str, Any], expected: str
) -> None:
    async with lab(an_app(), home) as harness:
        task = (await harness.app.emit(COMMAND, {**payload, "irreversible": True})).id

        code, message = failure(await harness.ended(task))

        assert (code, expected in message) == ("VALIDATION_ERROR", True), message
        assert ledger(harness) == [("FAILED", 1)]
        assert harness.rows("SELECT * FROM questions") == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("arguments", "expected"),
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
    home: Path, arguments: dict[str, Any], expected: str
) -> None:
    app = an_app()

    @app.workflow("invalid")
    async def invalid(ctx: TaskContext) -> Any:
        return await ctx.act("command.run", **arguments)

    async with lab(app, home) as harness:
        _, message = failure(await harness.ended((await app.emit("invalid")).id))

        assert expected in message
        assert ledger(harness) == [("FAILED", 1)]


@pytest.mark.anyio
async def test_command_act_runs_once_over_several_attempts(home: Path) -> None:
    app = an_app()

    @app.workflow("mine")
    async def own(ctx: TaskContext) -> Any:
        done = await ctx.act("command.run", argv=["sh", "-c", EFFECT], cwd=str(home))
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return done["exit_code"]

    async with lab(app, home) as harness:
        assert result(await harness.ended((await app.emit("mine")).id)) == 0
        assert len(effects(home)) == 1


@pytest.mark.anyio
async def test_busy_program_file_ends_without_an_effect_and_is_retried(home: Path) -> None:
    """A program file is busy while another process writes it."""
    program = home / "program"
    program.write_text(f"#!/bin/sh\n{EFFECT}\n")
    program.chmod(0o755)
    async with lab(an_app(), home) as harness:
        with program.open("a"):
            task = (
                await harness.app.emit(COMMAND, {"argv": [str(program)], "cwd": str(home), "irreversible": True})
            ).id
            code, message = failure(await harness.ended(task))
            assert (code, "Text file busy" in message) == ("AGENT_UNAVAILABLE", True), message
            assert ledger(harness) == [("FAILED", 3)]

        await harness.app.retry_task(task)
        await harness.until(lambda: harness.task(task)["status"] == "DONE")

        assert effects(home) == [(4, f"activity:{task}:1.1")]
        assert harness.rows("SELECT * FROM questions") == []


@pytest.mark.anyio
async def test_command_error_after_the_process_started_is_in_doubt(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same error before a start means that the program did not run; after the start, the program may have run."""
    open_process = anyio.open_process

    async def start_and_fail(*args: Any, **options: Any) -> Any:
        async with await open_process(*args, **options) as process:
            await process.wait()
        raise OSError(errno.EAGAIN, "the wait has failed")

    monkeypatch.setattr(anyio, "open_process", start_and_fail)
    async with lab(an_app(), home) as harness:
        task = (await harness.app.emit(COMMAND, shell(home, EFFECT))).id

        assert "the wait has failed" in (await wait_for_question(harness, task))["question"]
        assert len(effects(home)) == 1


@pytest.mark.anyio
async def test_irreversible_command_out_of_time_is_stopped_and_opens_a_question(home: Path) -> None:
    """The program ignores SIGTERM; the call waits until the program is stopped."""
    async with lab(an_app(), home) as harness:
        for seconds in TIMEOUTS:
            script = f"trap '' TERM; {EFFECT} echo stuck >&2; while :; do sleep 600; done"
            task = (await harness.app.emit(COMMAND, shell(home, script, timeout=seconds))).id
            question = await wait_for_question(harness, task)
            left = [pid for pid in processes_in(home) if pid != os.getpid()]
            if effects(home):
                break
            await harness.app.answer(question["id"], "give up", answered_by="ada")
            await harness.ended(task)

        assert f"TimeoutError: sh was stopped: it was not done after {seconds:g} seconds: stuck" in question["question"]
        assert left == []
        assert (await answer_and_wait(harness, task, "happened"))["status"] == "DONE"
        assert len(effects(home)) == 1


@pytest.mark.anyio
async def test_irreversible_command_of_a_cancelled_task_is_stopped_and_opens_a_question(home: Path) -> None:
    async with lab(an_app(), home) as harness:
        task = (await harness.app.emit(COMMAND, shell(home, EFFECT + "sleep 600"))).id
        await harness.until(lambda: bool(effects(home)))

        await harness.app.cancel_task(task)
        row = await harness.ended(task)

        assert row["status"] == "CANCELLED"
        assert [pid for pid in processes_in(home) if pid != os.getpid()] == []
        question = await harness.question("activity")
        assert "it was cancelled while it was called" in question["question"]
        assert ledger(harness) == [("UNKNOWN", 1)]
        await harness.app.answer(question["id"], "happened", answered_by="ada")
        assert ledger(harness) == [("DONE", 1)]
        assert len(effects(home)) == 1


@pytest.mark.anyio
async def test_reversible_command_is_retried_and_creates_no_task(home: Path) -> None:
    async with lab(an_app(), home) as harness:
        script = 'echo "1 x" >> effects; [ $(wc -l < effects) = 3 ]'
        for payload in ({}, {"irreversible": False}):
            (home / "effects").unlink(missing_ok=True)
            emitted = await harness.app.emit(COMMAND, {"argv": ["sh", "-c", script], "cwd": str(home), **payload})
            assert (await harness.settled(emitted.id))["status"] == "DONE"
            assert len(effects(home)) == 3

        assert harness.rows("SELECT * FROM tasks") == []
        assert harness.rows("SELECT * FROM activity_log") == []


@pytest.mark.anyio
@pytest.mark.parametrize("payload", [{"no_effect_exit_codes": [75]}, {"irreversible": "yes"}, {"irreversible": 1}])
async def test_command_with_a_contradictory_payload_runs_nothing(home: Path, payload: dict[str, Any]) -> None:
    async with lab(an_app(), home) as harness:
        spec = {"argv": ["sh", "-c", EFFECT], "cwd": str(home), **payload}
        with Producer(harness.path) as producer:
            emitted = await anyio.to_thread.run_sync(producer.emit, COMMAND, spec)
        assert (await harness.settled(emitted.id))["error_code"] == "VALIDATION_ERROR"
        assert effects(home) == []


def test_irreversible_flag_is_true_only_for_json_true() -> None:
    assert is_irreversible('{"argv": ["true"], "irreversible": true}')
    others = ("{}", '{"irreversible": false}', '{"irreversible": 1}', '{"irreversible": "true"}', "[true]", "7", "{")
    assert [text for text in others if is_irreversible(text)] == []


def test_app_with_a_custom_command_keeps_the_custom_command() -> None:
    app = App()

    @app.action("command.run")
    async def own(call: Call) -> None: ...

    async def run() -> None: ...

    declare_ready_made(app, Config(), os.environ)
    assert app.actions["command.run"] is own
    assert app.workflows["command.run"].task_when is is_irreversible
    other = App()
    other.declare("command.run", run)
    declare_ready_made(other, Config(), os.environ)
    assert other.workflows["command.run"].fn is run
    assert other.actions["command.run"].terms.irreversible


# Killed and stopped daemons


def emit(home: Path, script: str) -> str:
    payload = json.dumps({"argv": ["sh", "-c", script], "irreversible": True})
    done = call_command(home, "--json", "emit", "command.run", "--payload", payload)
    assert done.code == 0, done
    return str(done.json["id"])


def wait_for_inbox(home: Path) -> dict[str, Any]:
    """Return the only question of the inbox, after it appears."""
    [question] = until(lambda: call_command(home, "--json", "inbox", "list").json, "a question")
    return dict(question)


@pytest.mark.parametrize("choice", ["happened", "resend"])
def test_command_of_a_killed_daemon_is_run_again_only_after_a_resend_answer(home: Path, choice: str) -> None:
    """The program outlives the killed daemon, and the question mentions this."""
    with a_daemon(home) as daemon:
        daemon.ready()
        task = emit(home, EFFECT + '[ "$CRAFTCORE_ATTEMPT" = 2 ] || exec sleep 600')
        until(lambda: effects(home), "the effect")
        daemon.kill()
    left = processes_in(home)
    assert len(left) == 1

    with a_daemon(home) as daemon:
        daemon.ready()
        question = wait_for_inbox(home)
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
        task = emit(home, EFFECT + "exec sleep 600")
        until(lambda: effects(home), "the effect")
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 0
    assert processes_in(home) == []

    with a_daemon(home) as daemon:
        daemon.ready()
        assert wait_for_inbox(home)["task_id"] == task
        assert call_command(home, "--json", "task", "show", task).json["status"] == "WAITING"

    assert len(effects(home)) == 1


def test_schedule_occurrence_waits_for_the_answer_about_the_earlier_command(home: Path) -> None:
    """The default overlap policy is buffer_one, and the task of the earlier occurrence has not ended."""

    def outcomes() -> list[str]:
        return [line["outcome"] for line in call_command(home, "--json", "schedule", "history", "s").json]

    with a_daemon(home) as daemon:
        daemon.ready()
        options = ["--max-runs", "2", "--irreversible", "--", "sh", "-c", EFFECT + "exit 3"]
        added = call_command(home, "schedule", "add", "s", "every 1s", *options)
        assert added.code == 0, added
        first = wait_for_inbox(home)
        until(lambda: "buffered" in outcomes(), "an occurrence that waits")
        assert len(effects(home)) == 1

        call_command(home, "inbox", "answer", first["id"], "happened")
        until(lambda: len(effects(home)) == 2, "the occurrence that waited")
        second = wait_for_inbox(home)

    assert second["task_id"] != first["task_id"]
    assert len({key for _, key in effects(home)}) == 2


def test_command_schedule_of_the_settings_file_can_be_irreversible(home: Path) -> None:
    (home / "craftcore.toml").write_text(
        '[[schedule]]\nid = "s"\nwhen = "on startup"\nirreversible = true\n'
        f"command = ['sh', '-c', '''{EFFECT} exit 3''']\n"
    )
    with a_daemon(home, "--config", "craftcore.toml") as daemon:
        daemon.ready()
        question = wait_for_inbox(home)

    assert question["workflow"] == "command.run"
    assert len(effects(home)) == 1
