"""A trigger that takes the process down each time it runs is found out and buried; those beside it are innocent."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from craftcore import Producer
from tests.processes import PATIENCE

ROOT = Path(__file__).parents[2]

BOOT = """
import os, signal, sys
import anyio
from craftcore import App
from craftcore.config import Config, DaemonSettings

app = App("test")
begun = 0
concurrency, company = int(sys.argv[2]), int(sys.argv[3])

@app.workflow("innocent")
async def innocent(n: int) -> int:
    global begun
    begun += 1
    while company and concurrency > 1:  # none is done before all are there; then the deadly one takes them along
        await anyio.sleep(1)
    return n

@app.workflow("deadly")
async def deadly() -> None:
    while begun < min(concurrency - 1, company):  # all that may run beside it do
        await anyio.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)

async def main() -> None:
    config = Config(daemon=DaemonSettings(concurrency=concurrency, poll_seconds=0.1))
    with anyio.fail_after(240):
        async with app.running(sys.argv[1], config=config) as engine:
            while not engine.is_idle:
                await anyio.sleep(0.005)

anyio.run(main, backend=sys.argv[4])
"""


def boot(path: Path, concurrency: int, innocents: int, backend: str) -> int:
    """One life of the process; how it ended."""
    child = subprocess.run(
        [sys.executable, "-c", BOOT, str(path), str(concurrency), str(innocents), backend],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
        check=False,
    )
    assert child.returncode in (0, -signal.SIGKILL), child.stderr
    return child.returncode


def ask(path: Path, sql: str) -> list[tuple[Any, ...]]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


@pytest.mark.parametrize(("concurrency", "backend"), [(16, "asyncio"), (16, "trio"), (1, "asyncio")])
def test_what_kills_the_process_each_time_dies_alone_and_the_fifteen_beside_it_are_done(tmp_path, concurrency, backend):
    path = tmp_path / "agent.db"
    with Producer(path) as producer:
        for n in range(16):
            if n == 7:
                deadly = producer.emit("deadly").id
            else:
                producer.emit("innocent", {"n": n})

    ends: list[int] = []
    while not ends or ends[-1]:
        assert len(ends) < 8, "it is never found out"
        in_company = len(ends) < 2  # then it runs alone
        ends.append(boot(path, concurrency, 15 if in_company else 0, backend))

    assert len(ends) == 4, ends  # twice in company, once alone, and then the rest in peace
    assert ask(path, f"SELECT status, reason, error_code, starts FROM triggers WHERE id = '{deadly}'") == [
        ("DEAD", "poison", "POISON", 3)
    ]
    assert ask(path, "SELECT status, count(*) FROM triggers GROUP BY status") == [("DEAD", 1), ("DONE", 15)]
