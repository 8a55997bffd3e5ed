"""Workers are killed at any moment: no irreversible effect is doubled unasked, none is missing, and no turn sees two
results of one step."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import anyio
import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from craftcore.activities.model import Decision
from craftcore.errors import CraftcoreError
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.temporal_client import TemporalClient
from tests.support.processes import PATIENCE
from tests.temporal.cluster_app import cluster_app

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]
WORKERS = 3


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Workers:
    """Processes that work; one that is killed is replaced."""

    def __init__(self, address: str, folder: Path) -> None:
        self._command = [sys.executable, "-m", "tests.temporal.cluster_app", address, str(folder)]
        self._running = [self._start() for _ in range(WORKERS)]

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, cwd=ROOT, stderr=subprocess.DEVNULL)

    def kill_one(self, chance: random.Random) -> None:
        place = chance.randrange(WORKERS)
        self._end(self._running[place])
        self._running[place] = self._start()

    def close(self) -> None:
        for worker in self._running:
            self._end(worker)

    def _end(self, worker: subprocess.Popen[bytes]) -> None:
        worker.send_signal(signal.SIGKILL)
        worker.wait(PATIENCE)


async def answer_doubts(client: TemporalClient, task: str, folder: Path) -> int:
    """Answer the doubts of a task as a person who looks at the provider; how many."""
    view = await client.view(task)
    for question in view.questions:
        assert question.activity_key is not None, question
        happened = question.activity_key in lines(folder / "effects")
        decision = Decision.HAPPENED if happened else Decision.RESEND
        await client.answer(task, question.id, decision, by="ada")
    return len(view.questions)


async def play(settings: TemporalSettings, folder: Path, *, kills: int, tasks: int) -> int:
    """Run tasks while workers are killed; how many doubts were asked about."""
    app, chance = cluster_app(folder), random.Random(kills)
    client = TemporalClient(await Client.connect(settings.address), app, settings)
    workers = Workers(settings.address, folder)
    asked = 0
    ends: dict[str, str] = {}
    try:
        with anyio.fail_after(PATIENCE + 10 * kills):
            ids = [await client.emit("order") for _ in range(tasks)]

            async def end_of(task: str) -> None:
                ends[task] = (await client.result(task)).status

            async with anyio.create_task_group() as beside:
                for task in ids:
                    beside.start_soon(end_of, task)
                for _ in range(kills):
                    seen = len(lines(folder / "seen"))
                    with anyio.move_on_after(5):
                        while len(lines(folder / "seen")) < seen + 1 and len(ends) < tasks:  # noqa: ASYNC110
                            await anyio.sleep(0.02)
                    workers.kill_one(chance)
                while len(ends) < tasks:
                    for task in ids:
                        if task not in ends:
                            try:
                                with anyio.move_on_after(5):
                                    asked += await answer_doubts(client, task, folder)
                            except (CraftcoreError, RPCError):
                                pass  # no worker answers now, or somebody else has answered
                    await anyio.sleep(0.2)
    finally:
        workers.close()
    assert Counter(ends.values()) == {"DONE": tasks}
    effects = Counter(lines(folder / "effects"))
    assert len(effects) == 2 * tasks
    assert {key: count for key, count in effects.items() if count > 1} == {}
    tokens: dict[str, set[str]] = {}
    for line in lines(folder / "seen"):
        task, step, token = line.split()
        tokens.setdefault(f"{task} {step}", set()).add(token)
    assert {step: found for step, found in tokens.items() if len(found) > 1} == {}
    return asked


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


async def test_killed_workers_lose_and_double_nothing(cluster, tmp_path):
    await play(cluster, tmp_path, kills=10, tasks=8)


@pytest.mark.campaign
async def test_thousand_killed_workers_lose_and_double_nothing(cluster, tmp_path):
    await play(cluster, tmp_path, kills=1_000, tasks=700)
