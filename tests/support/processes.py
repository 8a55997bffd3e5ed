"""Real craftcore processes for tests: each is started, awaited and ended by its id."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.support.warm_parent import WarmProcess, start

PATIENCE = 120.0
"""The timeout of a test for an expected event on the slowest machine, in seconds."""

APP = """
import asyncio, os, time
from craftcore import App, Fail, RetryPolicy
from craftcore.engine import engine

engine.DRAIN_SECONDS = 120.0  # a slow flush must not end the test
app = App("test")
once = RetryPolicy(max_attempts=1, base=0, cap=0)

def trace(line):
    with open("trace", "a") as file:
        file.write(line + "\\n")

@app.workflow("greet")
async def greet(name: str = "you") -> str:
    trace(f"greet {name}")
    return f"Hello {name}"

@app.workflow("slow")
async def slow() -> str:
    trace("slow begins")
    try:
        while not os.path.exists("go"):
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        trace("slow cancelled")
        raise
    trace("slow ends")
    return "slow"

@app.workflow("stuck")
def stuck() -> None:
    trace("stuck begins")
    time.sleep(3600)

@app.workflow("fails")
async def fails() -> None:
    raise Fail("VALIDATION_ERROR", "it never will")

@app.workflow("breaks", retry=once)
async def breaks() -> None:
    raise RuntimeError("it broke")

@app.workflow("later")
async def later() -> None:
    raise RuntimeError("not now")
"""


def environment(**more: str) -> dict[str, str]:
    """Return the environment of this process without variables of a real database or service manager."""
    hidden = ("CRAFTCORE_", "NOTIFY_SOCKET", "WATCHDOG_", "STATE_DIRECTORY", "JOURNAL_STREAM")
    return {**{name: value for name, value in os.environ.items() if not name.startswith(hidden)}, **more}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def craftcore(folder: Path, *arguments: str, stdin: str = "", **env: str) -> Result:
    """Run a command to its end, in a folder, on its `agent.db`."""
    return run_python(["-m", "craftcore", "--db", "agent.db", *arguments], folder, stdin=stdin, **env)


def run_python(command: Sequence[str | Path], folder: Path, *, stdin: str = "", **env: str) -> Result:
    """Run a program to its end in a folder, with the arguments of a new interpreter."""
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        source.write(stdin.encode())
        source.seek(0)
        with start(command, cwd=folder, env=environment(**env), stdin=source, stdout=out, stderr=err) as process:
            code = process.wait(2 * PATIENCE)
        printed = []
        for file in (out, err):
            file.seek(0)
            printed.append(file.read().decode())
    return Result(code=code, out=printed[0], err=printed[1])


def until(condition: Callable[[], Any], awaited: str = "it", *, timeout: float = PATIENCE) -> Any:
    """Poll until the condition returns a true value, and return this value."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {timeout:.0f} s for {awaited}"
        time.sleep(0.01)
    return value


def processes_in(folder: Path) -> list[int]:
    """Return the pids of all processes whose working directory is in the folder.

    The kernel is the source, so no pid file is needed, and a reused pid causes no mistake. An ended process has no
    working directory, even before it is reaped.
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            where = Path(os.readlink(process / "cwd").removesuffix(" (deleted)"))
        except OSError:
            continue  # the process has ended, or belongs to another user
        if where.is_relative_to(folder):
            found.append(int(process.name))
    return found


def read_trace(folder: Path) -> list[str]:
    """Return the lines that the app's workflows wrote."""
    trace = folder / "trace"
    return trace.read_text().splitlines() if trace.exists() else []


@contextlib.contextmanager
def a_program(command: list[str], folder: Path, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program with pipes for its outputs, and kill it at the end of the block."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, env=environment(**env), stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def a_python(command: Sequence[str | Path], folder: Path, **env: str) -> Iterator[WarmProcess]:
    """Run a program with the arguments of a new interpreter and pipes for its outputs, until the block ends."""
    pipe = subprocess.PIPE
    with start(command, cwd=folder, env=environment(**env), stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.kill()


READS = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN")
connection.execute("SELECT count(*) FROM sqlite_schema").get
print("reads", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def a_reader(database: Path) -> Iterator[int]:
    """Run a process that keeps a snapshot of a database open until the block ends; yield its pid."""
    pipe = subprocess.PIPE
    with start(["-c", READS, database], stdin=pipe, stdout=pipe) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"reads\n"
            yield process.pid
        finally:
            process.kill()


class DaemonProcess:
    """`craftcore run` in a folder, with the test as its service manager."""

    def __init__(self, folder: Path, arguments: tuple[str, ...], manager: socket.socket, env: dict[str, str]) -> None:
        self.folder = folder
        self.manager = manager
        self._log = (folder / "daemon.log").open("ab")
        self.process = start(
            ["-m", "craftcore", "--db", "agent.db", "run", *arguments],
            cwd=folder,
            env=environment(NOTIFY_SOCKET="@" + manager.getsockname()[1:].decode(), **env),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return (self.folder / "daemon.log").read_text()

    def wait_for_notification(self, prefix: str) -> str:
        """Wait for the notification to the service manager that begins with this text, and return it."""
        while True:
            try:
                notification = self.manager.recv(4096).decode()
            except TimeoutError:
                raise AssertionError(f"no notification {prefix}:\n{self.log}") from None
            if notification.startswith(prefix):
                return notification

    def ready(self) -> DaemonProcess:
        self.wait_for_notification("READY=1")
        return self

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, *, timeout: float = PATIENCE) -> int:
        """Wait for the end of the daemon, and return its exit code."""
        return self.process.wait(timeout)

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        self._log.close()


@contextlib.contextmanager
def a_daemon(folder: Path, *arguments: str, **env: str) -> Iterator[DaemonProcess]:
    """Run a daemon, and kill it at the end of the block if it still runs."""
    address = f"\0craftcore-test-{uuid4()}"  # unique, because containers may share these names and pids
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(PATIENCE)
        daemon = DaemonProcess(folder, arguments, manager, env)
        try:
            yield daemon
        finally:
            daemon.close()


def open_files(pid: int, database: Path) -> list[str]:
    """Return the files of a database that a process has open, without those of its daemon's lock."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the process closed the file meanwhile
            found.append(os.readlink(link))
    return [path for path in found if path.startswith(str(database.resolve())) and "lock" not in path]
