"""Ends of a process that do not count as crashes, and restored databases that are held."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import apsw
import pytest

from craftcore import App, Producer, TriggerSpec
from craftcore.config import Config, DaemonSettings
from craftcore.storage.backup.staging_file import BEGINS, NAME, staging_file
from craftcore.triggers.start_holds import release as release_holds
from tests.crash.test_poison import fetch_rows
from tests.support.processes import PATIENCE

ROOT = Path(__file__).parents[2]
CONFIG = Config(daemon=DaemonSettings(poll_seconds=0.1, shutdown_grace=0))

EMBEDDED = """
import sys
import anyio
from craftcore import App, TriggerSpec
from craftcore.config import Config, DaemonSettings
from craftcore.engine import engine as engine_module

engine_module.DRAIN_SECONDS = 120.0  # a slow flush must not end the test
app = App("test")

@app.workflow("stuck")
async def stuck(n: int) -> None:
    await anyio.sleep_forever()

async def main() -> None:
    config = Config(daemon=DaemonSettings(concurrency=4, shutdown_grace=0))
    async with app.running(sys.argv[1], config=config) as engine:
        await app.emit_many([TriggerSpec(workflow="stuck", payload={"n": n}) for n in range(10)])
        while engine.running < 4:
            await anyio.sleep(0.001)
        print("running", flush=True)
        await anyio.sleep_forever()

try:
    anyio.run(main, backend=sys.argv[2])
except KeyboardInterrupt:
    print("interrupted")
"""


def an_app(ran: list[int]) -> App:
    app = App("test")

    @app.workflow("stuck")
    async def stuck(n: int) -> None:
        ran.append(n)
        await anyio.sleep_forever()

    @app.workflow("note")
    async def note(n: int) -> None:
        ran.append(n)

    return app


async def until(condition: Any) -> None:
    with anyio.fail_after(PATIENCE):
        while not condition():  # noqa: ASYNC110 - a table has no event to wait on
            await anyio.sleep(0.002)


def require_no_crash(path: Path, count: int) -> None:
    assert fetch_rows(path, "SELECT status, attempts, crash_count, count(*) FROM triggers GROUP BY 1, 2, 3") == [
        ("PENDING", 0, 0, count)
    ]
    assert fetch_rows(path, "SELECT count(*) FROM epochs WHERE ended_at IS NULL") == [(0,)]
    assert fetch_rows(path, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_control_c_in_an_embedding_program_is_no_crash(tmp_path, backend):
    path = tmp_path / "agent.db"
    child = subprocess.Popen(
        [sys.executable, "-c", EMBEDDED, str(path), backend], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    while child.stdout.readline() != "running\n":
        assert child.poll() is None

    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=PATIENCE)

    assert ("interrupted" in out, child.returncode) == (True, 0)
    require_no_crash(path, 10)


@pytest.mark.anyio
async def test_cancelling_the_block_from_outside_is_no_crash(tmp_path):
    path = tmp_path / "agent.db"
    ran: list[int] = []
    app = an_app(ran)

    async def embedded() -> None:
        async with app.running(path, config=CONFIG):
            await app.emit_many([TriggerSpec(workflow="stuck", payload={"n": n}) for n in range(20)])
            await until(lambda: len(ran) == 16)
            await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(embedded)
        await until(lambda: len(ran) == 16)
        tasks.cancel_scope.cancel()

    require_no_crash(path, 20)


@pytest.mark.anyio
async def test_exception_in_the_block_is_raised_unchanged_and_is_no_crash(tmp_path):
    path = tmp_path / "agent.db"
    ran: list[int] = []
    app = an_app(ran)

    with pytest.raises(ZeroDivisionError):
        async with app.running(path, config=CONFIG):
            await app.emit_many([TriggerSpec(workflow="stuck", payload={"n": n}) for n in range(3)])
            await until(lambda: len(ran) == 3)
            raise ZeroDivisionError

    require_no_crash(path, 3)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.anyio
async def test_native_task_cancellation_is_no_crash(tmp_path):
    path = tmp_path / "agent.db"
    ran: list[int] = []
    app = an_app(ran)

    async def embedded() -> None:
        async with app.running(path, config=CONFIG):
            await app.emit_many([TriggerSpec(workflow="stuck", payload={"n": n}) for n in range(3)])
            await anyio.sleep_forever()

    task = asyncio.ensure_future(embedded())
    await until(lambda: len(ran) == 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    require_no_crash(path, 3)


# A restored database


@pytest.mark.anyio
async def test_restored_database_is_held_until_released(tmp_path):
    path, aside = tmp_path / "agent.db", tmp_path / "aside.db"
    ran: list[int] = []
    app = an_app(ran)
    with Producer(path) as producer:
        producer.emit("note", {"n": 1})
    async with app.running(path, config=CONFIG) as engine:
        await until(lambda: ran == [1] and engine.is_idle)
    with Producer(path) as producer:
        producer.emit("note", {"n": 2})
    shutil.copy(path, aside)
    async with app.running(path, config=CONFIG) as engine:
        await until(lambda: ran == [1, 2] and engine.is_idle)
    last_epoch = engine.epoch

    shutil.copy(aside, path)
    async with app.running(path, config=CONFIG) as engine:
        looks = engine.feeder.polls
        await until(lambda: engine.feeder.polls > looks + 3)
        await app.emit("note", {"n": 3})
        looks = engine.feeder.polls
        await until(lambda: engine.feeder.polls > looks + 3)
        held, ran_while_held, epoch = engine.feeder.holds.everything, list(ran), engine.epoch
        await engine.writer.commit(release_holds)
        await until(lambda: len(ran) == 4 and engine.is_idle)

    assert held is not None
    assert "was restored" in held
    assert ran_while_held == [1, 2]
    assert epoch > last_epoch
    assert sorted(ran[2:]) == [2, 3]
    assert fetch_rows(path, "SELECT count(*) FROM facts WHERE name = 'held'") == [(0,)]


@pytest.mark.anyio
async def test_hold_outlives_the_process_that_placed_the_hold(tmp_path):
    path, aside = tmp_path / "agent.db", tmp_path / "aside.db"
    ran: list[int] = []
    app = an_app(ran)
    async with app.running(path, config=CONFIG):
        pass
    with Producer(path) as producer:
        producer.emit("note", {"n": 1})
    shutil.copy(path, aside)
    async with app.running(path, config=CONFIG) as engine:
        await until(lambda: ran == [1] and engine.is_idle)
    shutil.copy(aside, path)

    for _ in range(2):
        async with app.running(path, config=CONFIG) as engine:
            looks = engine.feeder.polls
            await until(lambda: engine.feeder.polls > looks + 2)  # noqa: B023 - called within this turn
            assert engine.feeder.holds.everything is not None

    assert ran == [1]


@pytest.mark.anyio
async def test_restarted_file_is_not_taken_for_a_restored_file(tmp_path):
    path = tmp_path / "agent.db"
    ran: list[int] = []
    app = an_app(ran)

    for n in range(3):
        async with app.running(path, config=CONFIG) as engine:
            await app.emit("note", {"n": n})
            await until(lambda: len(ran) == n + 1 and engine.is_idle)  # noqa: B023 - called within this turn
            assert engine.feeder.holds.everything is None

    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    assert [epoch for (epoch,) in connection.execute("SELECT epoch FROM epochs ORDER BY epoch")] == [1, 2, 3]
    connection.close()


@pytest.mark.anyio
async def test_next_start_removes_a_killed_restore_and_keeps_a_running_restore(tmp_path):
    left = tmp_path / f"{BEGINS}agent.db"
    left.mkdir(mode=0o700)
    (left / NAME).write_bytes(b"half of a backup")
    (left / f"{NAME}-wal").write_bytes(b"half")

    with staging_file(tmp_path / "copy.db") as made:
        async with App("test").running(tmp_path / "agent.db", config=CONFIG):
            assert not list(tmp_path.glob(f"{BEGINS}agent.db*"))
            assert made.path.exists()
