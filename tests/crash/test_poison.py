"""Poison triggers: a trigger that repeatedly kills its process becomes a dead letter, and concurrent ones are done."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import apsw
import pytest

from craftcore import Producer
from tests.crash.crews import run_program
from tests.support.processes import PATIENCE

BOOT = """
import os, signal, sys
import anyio
from craftcore import App
from craftcore.config import Config, DaemonSettings
from craftcore.daemon import lifespan

app = App("test")
begun = 0
concurrency, company = int(sys.argv[2]), int(sys.argv[3])
lifespan._machine_boot_id = lambda: sys.argv[5]

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


def boot(path: Path, concurrency: int, innocents: int, backend: str, machine: str = "m") -> int:
    """One life of the process, in one life of the machine; how it ended."""
    words = (str(path), str(concurrency), str(innocents), backend, machine)
    child = run_program("-c", BOOT, *words, timeout=3 * PATIENCE)
    assert child.returncode in (0, -signal.SIGKILL), child.stderr
    return child.returncode


def ask(path: Path, sql: str) -> list[tuple[Any, ...]]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("concurrency", "backend"),
    [(16, "asyncio"), (1, "asyncio"), pytest.param(16, "trio", marks=pytest.mark.acceptance)],
)
def test_poison_trigger_dies_alone_and_the_fifteen_others_are_done(tmp_path, concurrency, backend):
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


def lives_until_peace(path: Path, machine: str) -> int:
    """Boot again and again, with nothing to wait for; how many lives it took. `{}` becomes the number of the life."""
    ends: list[int] = []
    while not ends or ends[-1]:
        assert len(ends) < 12, "it is never found out"
        ends.append(boot(path, 16, 0, "asyncio", machine.format(len(ends))))
    return len(ends)


def test_machine_crash_is_blamed_later_than_a_process_crash(tmp_path):
    """Each of its deaths is a restart of the machine. After four it runs alone, and after two more it is buried."""
    path = tmp_path / "agent.db"
    with Producer(path) as producer:
        deadly = producer.emit("deadly").id
        producer.emit("innocent", {"n": 1})

    lives = lives_until_peace(path, "machine {}")

    assert lives == 7
    assert ask(path, f"SELECT status, reason, starts, machine_restarts FROM triggers WHERE id = '{deadly}'") == [
        ("DEAD", "poison", 6, 5)  # the sixth is in its message
    ]
    assert ask(path, "SELECT status FROM triggers WHERE workflow = 'innocent'") == [("DONE",)]


def test_poison_trigger_on_a_running_machine_is_dead_after_three_crashes(tmp_path):
    path = tmp_path / "agent.db"
    with Producer(path) as producer:
        producer.emit("deadly")

    assert lives_until_peace(path, "the same") == 4
