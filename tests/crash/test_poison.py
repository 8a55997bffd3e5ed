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
concurrency, others = int(sys.argv[2]), int(sys.argv[3])
lifespan._machine_boot_id = lambda: sys.argv[5]

@app.workflow("innocent")
async def innocent(n: int) -> int:
    global begun
    begun += 1
    while others and concurrency > 1:  # none ends before all run, and the deadly trigger kills them
        await anyio.sleep(1)
    return n

@app.workflow("deadly")
async def deadly() -> None:
    while begun < min(concurrency - 1, others):  # until all others that fit beside this trigger run
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
    """Run a process until it ends, and return its exit code. `machine` is the boot id of the machine."""
    arguments = (str(path), str(concurrency), str(innocents), backend, machine)
    process = run_program("-c", BOOT, *arguments, timeout=3 * PATIENCE)
    assert process.returncode in (0, -signal.SIGKILL), process.stderr
    return process.returncode


def fetch_rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
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

    exits: list[int] = []
    while not exits or exits[-1]:
        assert len(exits) < 8, "the poison trigger is never found"
        is_concurrent = len(exits) < 2  # the poison trigger runs alone after two crashes
        exits.append(boot(path, concurrency, 15 if is_concurrent else 0, backend))

    assert len(exits) == 4, exits  # two crashes with the others, one alone, and one orderly exit
    assert fetch_rows(path, f"SELECT status, reason, error_code, starts FROM triggers WHERE id = '{deadly}'") == [
        ("DEAD", "poison", "POISON", 3)
    ]
    assert fetch_rows(path, "SELECT status, count(*) FROM triggers GROUP BY status") == [("DEAD", 1), ("DONE", 15)]


def boot_until_exit(path: Path, machine: str) -> int:
    """Boot until a process exits in order, and return the number of boots. The number of a boot replaces `{}`."""
    exits: list[int] = []
    while not exits or exits[-1]:
        assert len(exits) < 12, "the poison trigger is never found"
        exits.append(boot(path, 16, 0, "asyncio", machine.format(len(exits))))
    return len(exits)


def test_machine_crash_is_blamed_later_than_a_process_crash(tmp_path):
    """Each crash is a restart of the machine. The trigger runs alone after four crashes, and is dead after six."""
    path = tmp_path / "agent.db"
    with Producer(path) as producer:
        deadly = producer.emit("deadly").id
        producer.emit("innocent", {"n": 1})

    boots = boot_until_exit(path, "machine {}")

    assert boots == 7
    assert fetch_rows(path, f"SELECT status, reason, starts, machine_restarts FROM triggers WHERE id = '{deadly}'") == [
        ("DEAD", "poison", 6, 5)  # only the message counts the sixth restart
    ]
    assert fetch_rows(path, "SELECT status FROM triggers WHERE workflow = 'innocent'") == [("DONE",)]


def test_poison_trigger_on_a_running_machine_is_dead_after_three_crashes(tmp_path):
    path = tmp_path / "agent.db"
    with Producer(path) as producer:
        producer.emit("deadly")

    assert boot_until_exit(path, "the same") == 4
