"""Handlers that fork: the child inherits no lock and no signal handling of the daemon."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.command_calls import call_command
from tests.support.processes import PATIENCE, a_daemon, read_trace, until

APP = """
import asyncio, os, signal, sys, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
import anyio
from craftcore import App, Producer, TaskContext
from craftcore.storage.user_sql import guard

app = App()

def trace(line):
    with open("trace", "a") as file:
        file.write(line + "\\n")

def work(n):
    trace(f"child {os.getpid()}")
    time.sleep(3600)

@app.workflow("pool")
async def pool() -> None:
    executor = ProcessPoolExecutor(1, mp_context=get_context("fork"))
    executor.submit(work, 1)
    await anyio.sleep_forever()

def fork(child):
    pid = os.fork()
    if pid == 0:
        child()
        return None
    return pid

@app.workflow("asleep")
async def asleep() -> None:
    pid = fork(lambda: (trace(f"child {os.getpid()}"), time.sleep(3600)))
    while True:
        await anyio.sleep(1)

@app.workflow("returns")
async def returns() -> int:
    pid = fork(lambda: None)
    if pid is None:
        await anyio.sleep(0)  # the child continues in the event loop of its parent
        trace("the child came back")
        return 0
    ended = await anyio.to_thread.run_sync(os.waitpid, pid, 0)
    return os.waitstatus_to_exitcode(ended[1])

@app.workflow("side_task")
async def side_task() -> int:
    pids = []
    async def forks():
        pids.append(fork(lambda: None))  # the child continues in the event loop, which resumes the workflow
    await asyncio.create_task(forks())
    if pids == [None]:
        trace("the child came back")
        return 0
    ended = await anyio.to_thread.run_sync(os.waitpid, pids[0], 0)
    return os.waitstatus_to_exitcode(ended[1])

@app.workflow("exits")
async def exits() -> int:
    pid = fork(sys.exit)
    ended = await anyio.to_thread.run_sync(os.waitpid, pid, 0)
    return os.waitstatus_to_exitcode(ended[1])

@app.workflow("plain")
def plain() -> int:
    pid = fork(lambda: None)
    return 0 if pid is None else os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

@app.workflow("transacts")
async def transacts(ctx: TaskContext) -> int:
    def forks(tx):
        pid = fork(lambda: None)
        return 0 if pid is None else os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    guard.APART_SECONDS = 600  # a child may take long to end
    return await ctx.transaction("forks", forks)

@app.workflow("emits")
async def emits() -> int:
    def emit():
        try:
            with Producer("agent.db") as producer:
                producer.emit("greet")
        except Exception as error:
            trace(str(error))
            os._exit(3)
        os._exit(0)
    ended = await anyio.to_thread.run_sync(os.waitpid, fork(emit), 0)
    return os.waitstatus_to_exitcode(ended[1])

@app.workflow("greet")
async def greet() -> str:
    return "hello"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def child_pid(folder: Path) -> int:
    """Return the pid that the forked child has written."""
    [line] = until(lambda: read_trace(folder), "the child to run")
    return int(line.removeprefix("child "))


@pytest.mark.parametrize("workflow", ["pool", "asleep"])
def test_child_of_a_killed_daemon_does_not_keep_other_daemons_out(folder, workflow):
    """A child inherits the flock, so an orphan must not hold the lock of a killed daemon."""
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        call_command(folder, "emit", workflow)
        child = child_pid(folder)
        daemon.kill()
    try:
        assert Path(f"/proc/{child}").exists()
        assert call_command(folder, "--json", "status").json["health"] == "down"
        with a_daemon(folder, "app:app", "--paused") as second:
            second.ready()
            second.signal(signal.SIGTERM)
            assert second.wait() == 0
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_to_a_child_ends_only_the_child(folder, number):
    """A signal handler inherited by the child would wake the loop of the parent and stop the daemon."""
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        call_command(folder, "emit", "asleep")
        child = child_pid(folder)
        os.kill(child, number)
        until(lambda: "zombie" in Path(f"/proc/{child}/status").read_text(), "the child to end")
        greeted = call_command(folder, "--json", "emit", "greet", "--wait", f"{PATIENCE:g}").json

        assert greeted["status"] == "DONE"
        assert "daemon.stopping" not in daemon.log
        assert "config" not in daemon.log


@pytest.mark.parametrize("workflow", ["returns", "side_task", "exits", "plain", "transacts"])
def test_child_that_returns_from_its_handler_ends_and_the_daemon_still_responds(folder, workflow):
    """Without the guard the child would run a second engine on inherited connections and break the event loop."""
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        ended = call_command(folder, "--json", "emit", workflow, "--wait", f"{PATIENCE:g}").json
        greeted = call_command(folder, "--json", "emit", "greet", "--wait", f"{PATIENCE:g}").json
        daemon.signal(signal.SIGTERM)

        assert daemon.wait() == 0

    assert (ended["status"], ended["result"]) == ("DONE", 70)
    assert greeted["status"] == "DONE"
    assert "a forked child returned from its handler" in daemon.log
    assert read_trace(folder) == []


def test_child_may_not_write_the_database_of_its_parent(folder):
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        ended = call_command(folder, "--json", "emit", "emits", "--wait", f"{PATIENCE:g}").json

    assert (ended["status"], ended["result"]) == ("DONE", 3)
    [message] = read_trace(folder)
    assert "this process was forked from one that has the database open" in message
