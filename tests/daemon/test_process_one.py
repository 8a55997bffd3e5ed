"""A daemon that is process 1, as in a container: orphans are reaped, signals and exit codes are passed on."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.processes import PATIENCE, craftcore, environment, until

UNSHARE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]
"""A program as process 1 of its own process namespace."""

APP = """
import os, subprocess, time
from craftcore import App

app = App("shop")

def until(condition):
    while not (found := condition()):
        time.sleep(0.01)
    return found

def find(name, state=""):
    for id in filter(str.isdigit, os.listdir("/proc")):
        try:
            head, rest = open(f"/proc/{id}/stat").read().split(") ", 1)
        except OSError:  # the process was reaped meanwhile
            continue
        if head.endswith(f"({name}") and rest.startswith(state):
            return f"/proc/{id}"

@app.workflow("leaves")
def leaves() -> str:
    # The shell ends before its child, which ends when the pipe is closed.
    reader, writer = os.pipe()
    subprocess.run(["setsid", "sh", "-c", "exec 3<&0; cat <&3 &"], stdin=reader)
    os.close(reader)
    orphan = until(lambda: find("cat"))
    os.close(writer)
    until(lambda: not os.path.exists(orphan))
    return "reaped"

@app.workflow("starts")
def starts() -> int:
    # Its exit code is read after it has ended and an orphan was reaped.
    program = subprocess.Popen(["sh", "-c", "exit 3"])
    until(lambda: find("sh", "Z"))
    leaves()
    return program.wait()

@app.workflow("waits")
def waits() -> None:
    open("begun", "w").close()
    until(lambda: os.path.exists("go"))
"""


def can_unshare() -> bool:
    try:
        return subprocess.run([*UNSHARE, "true"], capture_output=True).returncode == 0
    except OSError:
        return False


pytestmark = pytest.mark.skipif(
    not can_unshare(), reason="this machine lets nobody have users of their own (unshare --user)"
)


@contextmanager
def daemon_as_process_one(
    folder: Path, *before: str, stdin: int | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], int, int]]:
    """Run a daemon until it is ready. Yield its namespace and the outer pids of process 1 and the daemon."""
    (folder / "app.py").write_text(APP)
    command = [sys.executable, "-m", "craftcore", "--db", "agent.db", "run", "app:app"]
    log = folder / "log"
    with (
        log.open("wb") as stderr,
        subprocess.Popen(
            [*before, *UNSHARE, *command], cwd=folder, env=environment(), stdin=stdin, stderr=stderr
        ) as namespace,
    ):
        try:
            until(lambda: b"daemon.ready" in log.read_bytes() or namespace.poll() is not None, "the daemon")
            assert namespace.poll() is None, log.read_text()
            first = child_pid(namespace.pid)
            yield namespace, first, child_pid(first)
        finally:
            namespace.kill()


def child_pid(process: int) -> int:
    [child] = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return int(child)


@pytest.mark.parametrize(("workflow", "result"), [("leaves", "reaped"), ("starts", "3")])
def test_process_1_reaps_orphans_but_no_program_of_a_handler(tmp_path, workflow, result) -> None:
    with daemon_as_process_one(tmp_path):
        waited = craftcore(tmp_path, "emit", workflow, "--wait", str(PATIENCE))

    assert (waited.code, result in waited.out) == (0, True), waited


def test_process_1_passes_a_signal_on_and_exits_with_the_code_of_the_daemon(tmp_path) -> None:
    with daemon_as_process_one(tmp_path) as (namespace, first, _):
        os.kill(first, signal.SIGTERM)

        assert namespace.wait(PATIENCE) == 0
    assert '"event":"daemon.stopped"' in (tmp_path / "log").read_text()


def test_process_1_ends_when_the_daemon_is_killed(tmp_path) -> None:
    with daemon_as_process_one(tmp_path) as (namespace, _, daemon):
        os.kill(daemon, signal.SIGKILL)

        assert namespace.wait(PATIENCE) == 128 + signal.SIGKILL


def test_terminal_interrupt_reaches_the_daemon_once(tmp_path) -> None:
    """Ctrl-C reaches both processes, and a second one would cancel running work."""
    terminal, child_terminal = pty.openpty()
    with daemon_as_process_one(tmp_path, "setsid", "--ctty", stdin=child_terminal) as (namespace, *_):
        os.close(child_terminal)
        assert craftcore(tmp_path, "emit", "waits").code == 0
        until((tmp_path / "begun").exists, "the workflow")
        os.write(terminal, b"\x03")
        log = tmp_path / "log"
        until(lambda: b"daemon.stopping" in log.read_bytes(), "the interrupt")
        (tmp_path / "go").touch()

        assert namespace.wait(PATIENCE) == 0
    os.close(terminal)
    assert "daemon.hurrying" not in log.read_text()
