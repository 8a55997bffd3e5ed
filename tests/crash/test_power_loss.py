"""Power cuts at any moment: the disk keeps any subset of the writes that were not flushed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import anyio
import apsw
import pytest

from craftcore import App
from craftcore.clock import SystemClock
from craftcore.config import Config, StorageSettings
from craftcore.storage.database import Database
from craftcore.storage.migrations import list_migrations
from craftcore.storage.transaction import Reader
from craftcore.testing.power_loss_disk import ForgetfulDisk
from tests.crash.task_never import broken_invariants

CUTS = 250


class Workload(NamedTuple):
    """A disk's journal, and the moments at which triggers were accepted and settled."""

    disk: ForgetfulDisk
    accepted: list[tuple[int, str]]
    settled: list[tuple[int, str]]


def run_workload(folder: Path, synchronous: Literal["full", "normal"]) -> Workload:
    """Emit and run triggers on a real engine, a few at a time, with some checkpoints of the WAL."""
    workload = Workload(ForgetfulDisk(), [], [])
    app = App("power")

    @app.workflow("work")
    async def work(n: int) -> None: ...

    config = replace(Config(), storage=StorageSettings(synchronous=synchronous))

    async def live() -> None:
        async with app.running(folder / "agent.db", config=config) as engine:
            second = Database(folder / "agent.db", SystemClock(), synchronous=synchronous).connect()

            async def emit(numbers: range) -> None:
                for number in numbers:
                    emitted = await app.emit("work", {"n": number}, session_id="s" if number % 3 == 0 else None)
                    workload.accepted.append((workload.disk.moment, emitted.id))
                    if number % 10 == 0:
                        try:
                            second.wal_checkpoint()
                        except apsw.BusyError:
                            pass  # the idle writer runs a checkpoint at this moment

            async with anyio.create_task_group() as tasks:
                for _ in range(4):
                    tasks.start_soon(emit, range(30))
            while engine.counts["DONE"] < 120:
                await engine.wait_for_settle()
            second.close()

    with workload.disk:
        anyio.run(live)
    return workload


def cut(workload: Workload, moment: int, folder: Path, rng: random.Random) -> set[str]:
    """Cut the power, require that the database is intact after the restart, and return the ids of its triggers."""
    workload.disk.after_a_cut(moment, folder, rng)
    connection = apsw.Connection(str(folder / "agent.db"))
    try:
        assert connection.pragma("integrity_check") == "ok"
        if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'triggers'").get:
            return set()
        torn = connection.execute(
            "SELECT count(*) FROM triggers JOIN executions ON trigger_id = triggers.id "
            "WHERE triggers.status = 'DONE' AND executions.status <> 'success'"
        ).get
        assert torn == 0, "a trigger is settled and its record is not"
        if connection.execute("SELECT count(*) FROM schema_migrations").get == len(list_migrations()):
            assert broken_invariants(Reader(connection)) == []
        return {identity for (identity,) in connection.execute("SELECT id FROM triggers")}
    finally:
        connection.close()


def find_lost(workload: Workload, folder: Path, *, seed: int, cuts: int) -> Iterator[str]:
    """Yield the triggers that were accepted before a cut and are lost after it, over many cuts."""
    rng = random.Random(seed)
    for number in range(cuts):
        moment = rng.randrange(workload.disk.moment + 1)
        present = cut(workload, moment, folder / f"cut-{number}", rng)
        for acknowledged, identity in workload.accepted:
            if acknowledged <= moment and identity not in present:
                yield identity


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Workload:
    return run_workload(tmp_path_factory.mktemp("full"), "full")


@pytest.mark.parametrize("cuts", [CUTS // 5, pytest.param(CUTS, marks=pytest.mark.campaign)])
def test_accepted_trigger_is_never_lost_in_a_power_cut(full, tmp_path, cuts):
    assert len(full.accepted) == 120
    assert [*find_lost(full, tmp_path, seed=1, cuts=cuts)] == []


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(20))
def test_accepted_trigger_is_never_lost_in_thousands_of_power_cuts(full, tmp_path, seed):
    assert [*find_lost(full, tmp_path, seed=1000 + seed, cuts=CUTS)] == []


def test_power_cuts_without_the_flush_lose_triggers(tmp_path):
    """`synchronous = normal` acknowledges before the flush, unlike the default."""
    workload = run_workload(tmp_path / "workload", "normal")
    assert next(find_lost(workload, tmp_path, seed=1, cuts=CUTS), None) is not None
