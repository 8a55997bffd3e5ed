"""A worker that is frozen for three heartbeats: it writes no step, begins no act, and its late outcome is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from craftcore.temporal.ids import workflow_id_of_task
from craftcore.temporal.workflow.messages import TaskView
from tests.support.processes import PATIENCE
from tests.temporal.frozen_app import HEARTBEAT, frozen_app, settings_of
from tests.temporal.replayed import replay
from tests.temporal.task_client import TaskClient
from tests.temporal.worker_processes import Workers, lines

pytestmark = pytest.mark.anyio
FROZEN_SECONDS = 3 * HEARTBEAT


@pytest.fixture
async def worker(cluster, tmp_path) -> AsyncIterator[Workers]:
    """Run one worker, which gets the task; a second is started after the first is frozen."""
    workers = Workers("tests.temporal.frozen_app", [cluster.address], tmp_path, count=1)
    yield workers
    workers.close()


@pytest.fixture
async def client(cluster, tmp_path) -> TaskClient:
    settings = settings_of(cluster.address)
    return TaskClient(await Client.connect(cluster.address), frozen_app(tmp_path), settings)


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(PATIENCE):
        while not condition():  # noqa: ASYNC110 - another process writes the file
            await anyio.sleep(0.02)


async def view_when(client: TaskClient, task: str, condition: Callable[[TaskView], object]) -> TaskView:
    """Return the task once the condition is true. A query that a frozen worker has taken is repeated."""
    with anyio.fail_after(PATIENCE):
        while True:
            with suppress(RPCError), anyio.move_on_after(2):
                if condition(view := await client.view(task)):
                    return view
            await anyio.sleep(0.05)


async def freeze_at(place: Path, workers: Workers) -> None:
    """Freeze the first worker, and start another."""
    await until(lambda: lines(place))
    workers.freeze(0)
    workers.add()


@pytest.mark.campaign
async def test_frozen_step_is_refused_and_runs_elsewhere(worker, client, tmp_path):
    task = await client.emit("steps")
    await freeze_at(tmp_path / "in-step", worker)
    await until(lambda: len(lines(tmp_path / "entries")) == 2)
    worker.thaw(0)
    frozen, other = worker.pid(0), worker.pid(1)
    end = await client.result(task)
    await anyio.sleep(FROZEN_SECONDS)  # a thawed worker would have acted by now

    assert end.result_json == f"[{other},{other}]"
    assert lines(tmp_path / "entries") == [str(frozen), str(other)]
    assert lines(tmp_path / "after") == [str(other)]


@pytest.mark.cluster
async def test_late_outcome_of_a_frozen_worker_ends_the_doubt(worker, client, tmp_path):
    task = await client.emit("acts", {"seconds": 0.3})
    await freeze_at(tmp_path / "in-act", worker)
    await until(lambda: len(lines(tmp_path / "entries")) == 2)
    questions = (await view_when(client, task, lambda view: view.questions)).questions
    assert questions[0].activity_key == f"activity:{task}:1.1"
    worker.thaw(0)
    end = await client.result(task)
    view = await view_when(client, task, lambda _: True)

    assert end.result_json == f'"activity:{task}:1.1"'
    assert len(lines(tmp_path / "effects")) == 1
    assert [(one.status, one.decision) for one in view.activities] == [("DONE", None)]
    assert lines(tmp_path / "after") == [str(worker.pid(1))]


@pytest.mark.campaign
async def test_late_outcome_of_a_frozen_worker_is_kept_beside_the_decision(worker, client, tmp_path):
    task = await client.emit("acts", {"seconds": 0.3})
    await freeze_at(tmp_path / "in-act", worker)
    questions = (await view_when(client, task, lambda view: view.questions)).questions
    await client.answer(task, questions[0].id, "give up", by="ada")
    end = await client.result(task)
    worker.thaw(0)
    await anyio.sleep(FROZEN_SECONDS)
    view = await view_when(client, task, lambda _: True)

    assert (end.status, end.error_code) == ("FAILED", "ACTIVITY_UNKNOWN")
    assert [(one.status, one.decision) for one in view.activities] == [("UNKNOWN", "give up")]
    assert len(lines(tmp_path / "effects")) == 1
    assert lines(tmp_path / "after") == []


@pytest.mark.campaign
async def test_history_of_a_timer_that_fired_for_a_dead_worker_replays(worker, client, cluster):
    task = await client.emit("sleeps")
    await view_when(client, task, lambda view: view.status == "WAITING")
    worker.kill(0)
    await view_when(client, task, lambda view: view.entries == 2)  # repeated while the timer fires
    assert (await client.result(task)).result_json == '"rested"'
    connection = await Client.connect(cluster.address)
    history = await connection.get_workflow_handle(workflow_id_of_task(task)).fetch_history()
    await replay(history)
