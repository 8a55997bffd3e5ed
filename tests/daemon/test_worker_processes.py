"""Worker processes of a real daemon: they end with the daemon, and signals do not reach their functions."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_calls import call_command
from tests.support.engine_harness import look
from tests.support.process_functions import is_alive
from tests.support.processes import DaemonProcess, a_daemon, processes_in, read_trace, until

APP = """
import functions
from craftcore import App, RetryPolicy

app = App()
once = RetryPolicy(max_attempts=1)
app.workflow("quick", executor="process")(functions.quick)
app.workflow("busy", executor="process", retry=once)(functions.busy)
app.workflow("waits", executor="process", retry=once)(functions.waits)
app.workflow("dumpable", executor="process", retry=once)(functions.dumpable)
"""
FUNCTIONS = """
import ctypes, os, time

def trace(line):
    with open("trace", "a") as file:
        file.write(line + "\\n")

def quick() -> None:
    print("printed in a process")
    trace(f"quick {os.getpid()}")

def busy() -> None:
    trace(f"busy {os.getpid()}")
    sum(range(10**15))

def waits() -> str:
    trace(f"waits {os.getpid()}")
    while not os.path.exists("go"):
        time.sleep(0.01)
    return "waited"

def dumpable() -> int:
    return ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    return tmp_path


@pytest.fixture
def daemon(folder: Path) -> Iterator[DaemonProcess]:
    with a_daemon(folder, "app:app") as started:
        yield started.ready()


def start_in_process(folder: Path, workflow: str) -> int:
    """Emit a workflow and return the pid of its worker process once it runs."""
    assert call_command(folder, "emit", workflow).code == 0
    line = until(lambda: next((line for line in read_trace(folder) if line.startswith(workflow)), None), workflow)
    return int(line.split()[1])


def response_of(folder: Path, workflow: str) -> dict[str, Any]:
    """Return the response of a workflow once its only attempt has ended."""
    sql = "SELECT response_json FROM executions WHERE workflow = :workflow AND response_json IS NOT NULL"
    [row] = until(lambda: look(folder / "agent.db", sql, workflow=workflow), f"the end of {workflow}")
    response: dict[str, Any] = json.loads(row["response_json"])
    return response


def test_killed_daemon_leaves_no_worker_process(folder, daemon):
    """One process is busy in code that never returns to the interpreter, and another one is free."""
    pids = [start_in_process(folder, "quick"), start_in_process(folder, "busy")]
    assert all(map(is_alive, pids[1:]))

    daemon.process.kill()

    until(lambda: not any(map(is_alive, pids)), "the end of the worker processes")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_to_a_worker_process_does_not_end_its_function(folder, daemon, number):
    pid = start_in_process(folder, "waits")

    os.kill(pid, number)
    (folder / "go").touch()

    assert response_of(folder, "waits")["payload"] == "waited"
    assert "Traceback" not in daemon.log


def test_signal_while_a_worker_process_starts_prints_no_traceback(folder, daemon):
    """The signal arrives before the process can handle it, and is blocked until then."""
    assert call_command(folder, "emit", "waits").code == 0
    started = until(lambda: [pid for pid in processes_in(folder) if pid != daemon.pid], "a worker process")
    for pid in started:
        os.kill(pid, signal.SIGINT)
    (folder / "go").touch()

    assert response_of(folder, "waits")["payload"] == "waited"
    assert "Traceback" not in daemon.log


def test_stopped_daemon_waits_for_its_worker_process_and_then_ends_the_process(folder, daemon):
    pid = start_in_process(folder, "waits")

    daemon.signal(signal.SIGTERM)
    daemon.wait_for_notification("STOPPING=1")
    (folder / "go").touch()

    assert daemon.process.wait(120) == 0
    assert not is_alive(pid)
    assert response_of(folder, "waits")["payload"] == "waited"


def test_second_signal_kills_the_worker_process_and_gives_the_attempt_back(folder, daemon):
    pid = start_in_process(folder, "busy")

    daemon.signal(signal.SIGTERM)
    daemon.wait_for_notification("STOPPING=1")
    daemon.signal(signal.SIGTERM)

    assert daemon.process.wait(120) == 0
    assert not is_alive(pid)
    listed = call_command(folder, "--json", "trigger", "list").out
    assert '"PENDING"' in listed
    assert "Traceback" not in daemon.log


def test_worker_process_prints_where_the_daemon_does_and_is_closed_to_programs(folder, daemon):
    start_in_process(folder, "quick")
    assert call_command(folder, "emit", "dumpable").code == 0

    until(lambda: "printed in a process" in daemon.log, "the line")
    assert response_of(folder, "dumpable")["payload"] == 0
