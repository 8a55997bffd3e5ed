"""`command.run` with real programs: arguments, environment, output limits, timeouts and the end of child processes."""

from __future__ import annotations

import inspect
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from craftcore.actions.process.captured_output import Capture
from craftcore.actions.process.command_run import command_action, command_run
from craftcore.actions.process.program import CommandFailed, Programs, select_environment
from craftcore.errors import ErrorCode
from craftcore.outcome_exceptions import Fail
from tests.support.processes import PATIENCE, processes_in

Run = Callable[..., Coroutine[Any, Any, dict[str, object]]]

FAMILY = """
import os, signal, subprocess, sys
# The child writes "up", ignores SIGTERM and stays. Then the parent exits or waits, by its argument.
child = 'import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\\n'
child += 'open(sys.argv[1], "w").write("up"); time.sleep(600)'
out = None if 'hold' in sys.argv else subprocess.DEVNULL
process = subprocess.Popen([sys.executable, '-c', child, sys.argv[1]], stdout=out, stderr=out)
print('parent', flush=True)
sys.exit() if 'leave' in sys.argv else signal.pause()
"""


TIMEOUTS = (0.5, 2, 8, 30, 120)
"""Timeouts in seconds; the test tries the next one if a slow machine did not start the program in time."""


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def long_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the limits of the stop of a program, for a slow machine."""
    monkeypatch.setattr("craftcore.actions.process.program.EOF_SECONDS", PATIENCE)
    monkeypatch.setattr("craftcore.actions.process.process_group.REAP_SECONDS", PATIENCE)


@pytest.fixture
def run() -> Run:
    return workflow()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Yield the working folder of the programs, and kill the ones that remain at the end."""
    yield tmp_path
    for pid in processes_in(tmp_path):
        os.kill(pid, signal.SIGKILL)


def workflow(
    timeout: float = PATIENCE,
    output_max_bytes: int = 65536,
    environment: tuple[str, ...] = ("PATH",),
    grace: float = 0.5,
) -> Run:
    programs = Programs(
        timeout=timeout,
        output_max_bytes=output_max_bytes,
        environment=select_environment(environment, os.environ),
        grace=grace,
    )
    return partial(command_run(programs, command_action(programs)), None)


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


@pytest.mark.anyio
async def test_command_that_succeeds_returns_exit_code_output_and_seconds(run: Run) -> None:
    result = await run(python("import sys; print('out é'); print('err', file=sys.stderr)"), env={"PYTHONUTF8": "1"})

    seconds = result.pop("seconds")
    assert isinstance(seconds, float)
    assert 0 < seconds < PATIENCE
    assert result == {"exit_code": 0, "stdout": "out é\n", "stderr": "err\n", "stdout_bytes": 7, "stderr_bytes": 4}


@pytest.mark.anyio
async def test_command_arguments_are_not_interpreted_by_a_shell(run: Run) -> None:
    result = await run(["printf", "%s|", "$HOME", "; echo gotcha", "*", "a b"])

    assert result["stdout"] == "$HOME|; echo gotcha|*|a b|"


@pytest.mark.anyio
async def test_command_environment_holds_only_allowed_and_given_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLOWED", "yes")
    monkeypatch.setenv("SECRET", "no")
    monkeypatch.delenv("MISSING", raising=False)

    result = await workflow(environment=("ALLOWED", "MISSING"))(["env"], env={"GIVEN": "1"})

    assert sorted(str(result["stdout"]).split()) == ["ALLOWED=yes", "GIVEN=1"]


@pytest.mark.anyio
async def test_command_runs_in_the_given_folder(run: Run, tmp_path: Path) -> None:
    assert (await run(["pwd"], cwd=str(tmp_path)))["stdout"] == f"{tmp_path}\n"


@pytest.mark.anyio
async def test_command_reads_the_given_stdin_or_nothing(run: Run) -> None:
    assert (await run(["cat"], stdin="grüße\n" * 100_000))["stdout_bytes"] == 800_000
    assert (await run(["cat"]))["stdout"] == ""


@pytest.mark.anyio
async def test_command_that_ignores_stdin_succeeds(run: Run) -> None:
    assert (await run(["true"], stdin="x" * 1_000_000))["exit_code"] == 0
    assert (await run(python("import os; os.close(0); print('done')"), stdin="x" * 1_000_000))["stdout"] == "done\n"


@pytest.mark.anyio
async def test_command_is_a_session_leader(run: Run) -> None:
    result = await run(python("import os; print(os.getpid() == os.getsid(0) == os.getpgrp())"))

    assert result["stdout"] == "True\n"


@pytest.mark.anyio
async def test_command_inherits_no_file_descriptor(run: Run) -> None:
    with socket.socket() as inheritable:
        os.set_inheritable(inheritable.fileno(), True)
        result = await run(["ls", "/proc/self/fd"])

    assert str(result["stdout"]).split() == ["0", "1", "2", "3"]  # ls opens the last one itself


@pytest.mark.anyio
async def test_command_output_is_read_concurrently_and_cut_to_both_ends() -> None:
    code = "import os\nfor _ in range(200): os.write(1, b'o' * 10000); os.write(2, b'e' * 10000)\nos.write(1, b'last')"

    result = await workflow(output_max_bytes=1000)(python(code))

    stdout = str(result["stdout"])
    assert result["stdout_bytes"] == 2_000_004
    assert result["stderr_bytes"] == 2_000_000
    assert stdout.startswith("o" * 500 + "\n[... 1999004 bytes cut ...]\n")
    assert stdout.endswith("o" * 496 + "last")


@pytest.mark.anyio
async def test_command_output_that_is_not_utf8_is_replaced(run: Run) -> None:
    assert (await run(["printf", r"a\377b"]))["stdout"] == "a\ufffdb"


@pytest.mark.anyio
async def test_command_with_a_nonzero_exit_code_fails_with_the_end_of_stderr(run: Run) -> None:
    with pytest.raises(CommandFailed, match=r"^sh exited with 3: no such thing$") as failed:
        await run(["sh", "-c", "echo tried; echo no such thing >&2; exit 3"])

    assert failed.value.code is ErrorCode.AGENT_ERROR
    assert failed.value.code.retryable == "maybe"
    assert failed.value.details["exit_code"] == 3
    assert failed.value.details["stdout"] == "tried\n"


@pytest.mark.anyio
async def test_command_failure_message_holds_only_the_end_of_stderr(run: Run) -> None:
    with pytest.raises(CommandFailed) as failed:
        await run(python("import sys; sys.exit('x' * 5000 + 'why')"))

    assert len(str(failed.value)) < 1200
    assert str(failed.value).endswith("xwhy")


@pytest.mark.anyio
async def test_command_killed_by_a_signal_fails_the_attempt(run: Run) -> None:
    with pytest.raises(CommandFailed, match=r"^sh was killed by SIGKILL$") as failed:
        await run(["sh", "-c", "kill -9 $$"])

    assert failed.value.details["exit_code"] == -9


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"argv": []}, "argv must be a list"),
        ({"argv": "echo hello"}, "argv must be a list"),
        ({"argv": [""]}, "argv must be a list"),
        ({"argv": ["echo", 1]}, "argv must be a list"),
        ({"argv": ["echo", "a\0b"]}, "NUL"),
        ({"argv": ["true"], "cwd": "a\0b"}, "NUL"),
        ({"argv": ["true"], "env": {"A": "a\0b"}}, "NUL"),
        ({"argv": ["true"], "env": {"A=B": "c"}}, "not a name"),
        ({"argv": ["true"], "env": {"": "c"}}, "not a name"),
        ({"argv": ["true"], "env": {"A\n": "c"}}, "not a name"),
        ({"argv": ["true"], "env": {"A": 1}}, "must be texts"),
        ({"argv": ["true"], "timeout": 0}, "timeout"),
        ({"argv": ["true"], "timeout": -1.0}, "timeout"),
        ({"argv": ["true"], "timeout": float("nan")}, "timeout"),
        ({"argv": ["true"], "timeout": float("inf")}, "timeout"),
        ({"argv": ["true"], "timeout": 10**400}, "timeout"),
        ({"argv": ["true"], "timeout": True}, "timeout"),
        ({"argv": ["cat"], "stdin": "\ud800"}, "valid Unicode"),
        ({"argv": ["echo", "\ud800"]}, "valid Unicode"),
        ({"argv": ["no-such-program"]}, "'no-such-program': No such file"),
        ({"argv": ["true"], "cwd": "/no/such/folder"}, "'/no/such/folder': No such file"),
        ({"argv": ["true"], "cwd": "/dev/null"}, "'/dev/null': Not a directory"),
        ({"argv": ["/etc/passwd"]}, "Permission denied"),
        ({"argv": ["/"]}, "Permission denied"),
        ({"argv": ["true", "x" * 3_000_000]}, "Argument list too long"),
        ({"argv": ["x" * 5000]}, "File name too long"),
    ],
    ids=lambda given: ascii(given)[:60],
)
async def test_command_with_invalid_arguments_fails_permanently(run: Run, given: dict[str, Any], message: str) -> None:
    with pytest.raises(Fail, match=message) as failed:
        await run(**given)

    assert failed.value.code == ErrorCode.VALIDATION_ERROR


@pytest.mark.anyio
async def test_command_that_is_not_executable_format_fails_permanently(run: Run, tmp_path: Path) -> None:
    (tmp_path / "script").write_bytes(b"\x00\x01")
    (tmp_path / "script").chmod(0o755)

    with pytest.raises(Fail, match="Exec format error"):
        await run([str(tmp_path / "script")])


@pytest.mark.anyio
async def test_command_out_of_time_is_terminated_and_the_final_output_reported(home: Path) -> None:
    code = """if True:
        import pathlib, signal, sys
        def stop(*_):
            sys.stderr.write('x' * 200_000 + 'goodbye')  # more than a pipe holds
            sys.exit(0)
        signal.signal(signal.SIGTERM, stop)
        pathlib.Path('up').touch()
        signal.pause()
    """
    run = workflow(grace=PATIENCE)
    for seconds in TIMEOUTS:
        with pytest.raises(TimeoutError) as late:
            await run(python(code), cwd=str(home), timeout=seconds)
        if (home / "up").exists():
            break

    assert re.search(rf"not done after {seconds:g} seconds: [^/]*goodbye$", str(late.value))


@pytest.mark.anyio
async def test_command_without_a_timeout_uses_the_configured_timeout() -> None:
    with pytest.raises(TimeoutError):
        await workflow(timeout=0.1)(["sleep", "600"])


@pytest.mark.anyio
async def test_command_family_ignoring_sigterm_is_killed_after_timeout_and_grace(run: Run, home: Path) -> None:
    for seconds in TIMEOUTS:
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            await run(python(FAMILY, "up"), cwd=str(home), timeout=seconds)
        left, took = processes_in(home), time.monotonic() - began
        if (home / "up").exists():
            break

    assert (home / "up").exists()
    assert left == []
    assert took >= seconds + 0.5


@pytest.mark.anyio
async def test_cancelled_command_is_stopped_with_all_children_before_returning(run: Run, home: Path) -> None:
    os.mkfifo(home / "up")

    async with anyio.create_task_group() as group:
        group.start_soon(run, python(FAMILY, "up"), str(home))
        assert await anyio.Path(home / "up").read_text() == "up"
        assert len(processes_in(home)) == 2
        group.cancel_scope.cancel()

    assert processes_in(home) == []


@pytest.mark.anyio
async def test_cancellation_of_a_command_is_propagated(run: Run) -> None:
    with anyio.move_on_after(0.2) as scope:
        await run(["sleep", "600"])
        pytest.fail("the command was not cancelled")

    assert scope.cancelled_caught


@pytest.mark.anyio
async def test_command_cancelled_before_the_start_leaves_no_process(run: Run, home: Path) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await run(["sleep", "600"], cwd=str(home))

    assert scope.cancelled_caught
    assert processes_in(home) == []


@pytest.mark.anyio
async def test_command_children_left_in_the_group_are_killed(run: Run, home: Path) -> None:
    """The program succeeds; its remaining child ignores SIGTERM and does not hold the output."""
    os.mkfifo(home / "up")
    code = FAMILY.replace("print('parent'", "open(sys.argv[1]).read(); print('parent'")

    result = await run(python(code, "up", "leave"), cwd=str(home))

    assert result["stdout"] == "parent\n"
    assert processes_in(home) == []


@pytest.mark.anyio
async def test_child_in_another_session_holding_the_output_does_not_delay_the_result(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child in its own session is outside of the group: it is not killed, and its output is not read."""
    monkeypatch.setattr("craftcore.actions.process.program.EOF_SECONDS", 1.0)
    child = 'echo there > "$0"; exec sleep 600'
    script = (
        'setsid sh -c "$0" up & until [ -s up ]; do sleep 0.01; done; echo parent'  # the child starts its session first
    )

    result = await run(["sh", "-c", script, child], cwd=str(home))

    assert result["stdout"] == "parent\n"
    assert len(processes_in(home)) == 1


@pytest.mark.anyio
async def test_child_in_the_group_holding_the_output_is_stopped(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("craftcore.actions.process.program.EOF_SECONDS", 1.0)

    result = await run(["sh", "-c", "sleep 600 & echo parent"], cwd=str(home))

    assert result["stdout"] == "parent\n"
    assert processes_in(home) == []


def list_zombies() -> list[str]:
    """Return the ended children of this process that were not awaited. Test harnesses may have running children."""
    numbers = [
        number for task in Path("/proc/self/task").iterdir() for number in (task / "children").read_text().split()
    ]
    states = {number: Path("/proc", number, "stat").read_text().rpartition(")")[2].split()[0] for number in numbers}
    return [number for number, state in states.items() if state == "Z"]


@pytest.mark.anyio
async def test_commands_leave_no_zombie_and_no_descriptor(run: Run) -> None:
    await run(["true"])
    before = len(os.listdir("/proc/self/fd"))

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(run, ["sh", "-c", "true & true"])

    with anyio.fail_after(PATIENCE):
        while len(os.listdir("/proc/self/fd")) > before:  # noqa: ASYNC110 - the loop closes them in a later iteration
            await anyio.sleep(0.01)
    assert list_zombies() == []


def test_daemon_as_process_1_reaps_adopted_orphans() -> None:
    """A process that adopts orphans, as process 1 does, runs a program that leaves ended and running children."""
    code = """if True:
        import anyio, ctypes, os
        from craftcore.actions.process.program import Programs
        PR_SET_CHILD_SUBREAPER = 36
        assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
        programs = Programs(timeout=60, output_max_bytes=100, environment={})
        anyio.run(programs.run, ["sh", "-c", "true & sleep 600 & true"])
        try:
            print("not reaped", os.waitpid(-1, os.WNOHANG))
        except ChildProcessError:
            print("none")
    """
    seen = subprocess.run(python(code), capture_output=True, text=True, check=True)

    assert seen.stdout == "none\n"


def test_command_workflow_parameters_are_the_documented_payload() -> None:
    payload = ["argv", "cwd", "env", "timeout", "stdin", "irreversible", "no_effect_exit_codes"]
    assert list(inspect.signature(workflow()).parameters) == payload


@pytest.mark.anyio
@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 100, 200_000])
async def test_captured_output_keeps_both_ends_and_counts_the_cut_bytes(size: int) -> None:
    capture = Capture(10)
    written = bytes(range(48, 58)) * (size // 10 + 1)
    for byte in written[:size]:
        capture.add(bytes([byte]))

    text = written[:size].decode()
    assert capture.total_bytes == size
    assert capture.text() == (text if size <= 10 else f"{text[:5]}\n[... {size - 10} bytes cut ...]\n{text[-5:]}")


@pytest.mark.anyio
async def test_captured_output_drops_a_character_split_by_the_cut() -> None:
    capture = Capture(10)
    capture.add(b"123" + "€".encode() + b"x" * 100 + "€".encode() + b"789")

    assert capture.text() == "123\n[... 102 bytes cut ...]\n789"
