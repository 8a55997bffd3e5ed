"""The replay of a history in which a query came before its workflow task."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import anyio
import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHistory, WorkflowUpdateFailedError
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, WorkflowRunner

from craftcore.temporal.workflow_runner import ReplayableRunner
from tests.support.processes import PATIENCE
from tests.temporal.early_query import QUEUE, AskingWorkflow, make_worker
from tests.temporal.worker_processes import ROOT, start_on_cluster

pytestmark = pytest.mark.anyio
FAILED = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
ATTEMPTS = 5


async def ask_early(address: str, runner: WorkflowRunner, token_file: Path) -> WorkflowHistory:
    """Kill a worker, end its activity, query another worker, and then answer. Return the history."""
    client = await Client.connect(address)
    command = ["-m", "tests.temporal.early_query", address, str(token_file)]
    with start_on_cluster(command, cwd=ROOT) as killed:
        handle = await client.start_workflow(AskingWorkflow.run, id=uuid4().hex, task_queue=QUEUE)
        while not token_file.exists() or not token_file.read_bytes():  # noqa: ASYNC110 - a file has no event
            await anyio.sleep(0.05)
        await anyio.sleep(0.3)
        killed.kill()
    async with anyio.create_task_group() as group:
        seen: list[bool] = []

        async def ask() -> None:
            seen.append(await handle.query(AskingWorkflow.read_open))

        group.start_soon(ask)
        await anyio.sleep(0.2)
        await client.get_async_activity_handle(task_token=token_file.read_bytes()).complete(None)
        async with make_worker(client, runner, token_file):
            while not seen:  # noqa: ASYNC110 - there is no event
                await anyio.sleep(0.05)
            while True:
                with suppress(WorkflowUpdateFailedError):  # the same workflow task opens the question
                    await handle.execute_update(AskingWorkflow.answer)
                    break
            await handle.result()
    assert seen == [True], "the question was shown before its workflow task"
    return await handle.fetch_history()


async def replay(history: WorkflowHistory) -> Exception | None:
    replayer = Replayer(workflows=[AskingWorkflow], workflow_runner=UnsandboxedWorkflowRunner())
    return (await replayer.replay_workflow(history, raise_on_replay_failure=False)).replay_failure


async def test_history_replays_although_a_query_came_before_its_workflow_task(cluster, tmp_path):
    """On a busy machine the workflow task may come first. Then no task fails, and the test tries again."""
    with anyio.fail_after(PATIENCE):
        for attempt in range(ATTEMPTS):
            history = await ask_early(cluster.address, ReplayableRunner(), tmp_path / f"token-{attempt}")

            assert await replay(history) is None
            failed = [event.event_type for event in history.events].count(FAILED)
            if failed:
                break
        assert failed == 1, "in no attempt did the query come first"


@pytest.mark.campaign
async def test_runner_of_the_library_writes_a_history_that_does_not_replay(cluster, tmp_path):
    """When this test fails, the library is repaired, and the runner of craftcore is obsolete."""
    with anyio.fail_after(PATIENCE):
        for attempt in range(ATTEMPTS):
            history = await ask_early(cluster.address, UnsandboxedWorkflowRunner(), tmp_path / f"token-{attempt}")
            if await replay(history) is not None:
                return
        raise AssertionError("all histories replay")
