"""Sessions under kills of workers: their order is kept."""

from __future__ import annotations

import random
from pathlib import Path

import anyio
import pytest

from craftcore.temporal.cluster_connection import connect
from craftcore.temporal.settings import TemporalSettings
from tests.support.processes import PATIENCE
from tests.temporal.gate_app import gate_app
from tests.temporal.task_client import TaskClient
from tests.temporal.worker_processes import Workers, lines

pytestmark = pytest.mark.anyio


async def play(cluster: TemporalSettings, folder: Path, *, sessions: int, works: int, kills: int) -> None:
    """Emit the triggers of some sessions in turn, kill workers meanwhile, and check the order of the entries."""
    app = gate_app(folder)
    client = TaskClient(await connect(cluster), app, cluster)
    names = [f"{folder.name}-{number}" for number in range(sessions)]
    chance = random.Random(7)
    workers = Workers("tests.temporal.gate_app", [cluster.address, str(folder)], folder)
    try:
        tasks = [
            await client.emit("work", {"session": name, "number": number}, session_id=name)
            for number in range(works)
            for name in names
        ]
        for _ in range(kills):
            await anyio.sleep(chance.uniform(0.5, 1.5))
            workers.kill_some(chance)
        for task in tasks:
            assert (await client.result(task)).status == "DONE"
    finally:
        workers.close()
    for name in names:
        seen = [line.split() for line in lines(folder / "seen") if f" {name} " in line]
        ended = dict.fromkeys(int(number) for what, _, number in seen if what == "ends")
        assert list(ended) == list(range(works))  # an entry may end twice if its end was not recorded
        assert sorted(int(number) for _, _, number in seen) == [int(number) for _, _, number in seen]


@pytest.mark.cluster
async def test_killed_workers_keep_the_order_of_sessions(cluster, tmp_path):
    with anyio.fail_after(PATIENCE):
        await play(cluster, tmp_path, sessions=2, works=3, kills=1)


@pytest.mark.campaign
async def test_many_kills_keep_the_order_of_sessions(cluster, tmp_path):
    await play(cluster, tmp_path, sessions=4, works=25, kills=60)
