"""Decisions and cancellations while workers are killed: acts in doubt are decided once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import pytest
from temporalio.client import Client

from craftcore.activities.model import Decision
from craftcore.errors import StateRefused
from tests.support.processes import PATIENCE
from tests.temporal.frozen_app import frozen_app, settings_of
from tests.temporal.task_client import TaskClient
from tests.temporal.worker_processes import Workers, lines

pytestmark = pytest.mark.anyio


@pytest.fixture
async def workers(cluster, tmp_path) -> AsyncIterator[Workers]:
    workers = Workers("tests.temporal.frozen_app", [cluster.address], tmp_path, count=2)
    yield workers
    workers.close()


@pytest.fixture
async def client(cluster, tmp_path) -> TaskClient:
    return TaskClient(await Client.connect(cluster.address), frozen_app(tmp_path), settings_of(cluster.address))


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(PATIENCE):
        while not condition():  # noqa: ASYNC110 - another process writes the file
            await anyio.sleep(0.02)


async def doubt_of(client: TaskClient, task: str) -> str:
    """Wait for the question of a task about its act, and return the question's id."""
    with anyio.fail_after(PATIENCE):
        while not (questions := (await client.view(task)).questions):  # noqa: ASYNC110 - there is no event
            await anyio.sleep(0.05)
    return questions[0].id


@pytest.mark.cluster
async def test_cancelled_act_stays_in_doubt_until_a_person_decides(workers, client, tmp_path):
    task = await client.emit("acts", {"seconds": 1.5})
    await until(lambda: lines(tmp_path / "in-act"))
    await client.cancel(task)
    with anyio.fail_after(PATIENCE):
        while (view := await client.view(task)).status != "CANCELLED":  # noqa: ASYNC110 - there is no event
            await anyio.sleep(0.05)
    (act,) = view.activities
    assert act.status == "UNKNOWN"
    await client.decide(task, act.key, Decision.HAPPENED, by="ada", reference="seen")

    assert (await client.result(task)).status == "CANCELLED"
    assert len(lines(tmp_path / "effects")) == 1
    assert lines(tmp_path / "after") == []


@pytest.mark.campaign
async def test_doubt_after_the_kill_of_all_workers_is_decided_by_the_first_answer(workers, client, tmp_path):
    task = await client.emit("acts", {"seconds": 1.0})
    await until(lambda: lines(tmp_path / "in-act"))
    workers.kill(0, 1)
    question = await doubt_of(client, task)
    refused = 0

    async def decide() -> None:
        nonlocal refused
        try:
            await client.answer(task, question, "happened", by="ada", reference="seen")
        except StateRefused:
            refused += 1

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(decide)

    assert refused == 2
    assert (await client.result(task)).status == "DONE"
    assert len(lines(tmp_path / "effects")) == 1


@pytest.mark.campaign
async def test_kill_in_a_workflow_task_loses_and_doubles_no_act(cluster, client, tmp_path):
    """The killed worker had not yet sent the intent to the cluster. The update goes to another worker."""
    workers = Workers("tests.temporal.frozen_app", [cluster.address, "dies"], tmp_path, count=1)
    try:
        task = await client.emit("acts", {"seconds": 0.1})
        await until(lambda: (tmp_path / "struck").exists())
        workers.add()
        async with anyio.create_task_group() as group:
            group.start_soon(answer_by_the_provider, client, task, tmp_path)
            end = await client.result(task)
            group.cancel_scope.cancel()
    finally:
        workers.close()

    assert end.status == "DONE"
    assert len(lines(tmp_path / "effects")) == 1
    assert len(lines(tmp_path / "after")) == 1


async def answer_by_the_provider(client: TaskClient, task: str, folder: Path) -> None:
    """Answer the question of a doubt by the state of the provider."""
    question = await doubt_of(client, task)
    if lines(folder / "effects"):
        await client.answer(task, question, "happened", by="ada", reference="seen")
    else:
        await client.answer(task, question, "resend", by="ada")
