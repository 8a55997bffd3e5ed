"""The replay of a history in which a query came before its workflow task, or beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import anyio
import pytest
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import PollWorkflowTaskQueueRequest
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import Client, WorkflowHandle, WorkflowHistory, WorkflowUpdateFailedError
from temporalio.worker import (
    Replayer,
    UnsandboxedWorkflowRunner,
    WorkflowInstance,
    WorkflowInstanceDetails,
    WorkflowRunner,
)

from craftcore.temporal.queries import REBUILT
from craftcore.temporal.workflow_runner import LEGACY, InstanceAround, ReplayableInstance, ReplayableRunner
from tests.support.processes import PATIENCE
from tests.temporal.early_query import QUEUE, AskingWorkflow, make_worker
from tests.temporal.worker_processes import ROOT, start_on_cluster

pytestmark = pytest.mark.anyio
ATTEMPTS = 5
TASK_TIMEOUT = timedelta(seconds=3)
"""The time after which the cluster takes a workflow task from a dead worker."""

Handle = WorkflowHandle[Any, None]


@asynccontextmanager
async def queried(address: str, token_file: Path, *worker: str) -> AsyncIterator[tuple[Client, Handle, list[bool]]]:
    """Start a workflow, kill the worker of its activity, query the workflow, and then end the activity.

    Yield the answers of the query, which waits for a worker.
    """
    client = await Client.connect(address)
    command = ["-m", "tests.temporal.early_query", address, str(token_file), *worker]
    with start_on_cluster(command, cwd=ROOT) as killed:
        handle = await client.start_workflow(
            AskingWorkflow.run, id=uuid4().hex, task_queue=QUEUE, task_timeout=TASK_TIMEOUT
        )
        while not token_file.exists() or not token_file.read_bytes():  # noqa: ASYNC110 - a file has no event
            await anyio.sleep(0.05)
        await anyio.sleep(0.3)
        killed.kill()
    async with anyio.create_task_group() as group:
        seen: list[bool] = []

        async def ask() -> None:
            seen.append(await handle.query(AskingWorkflow.read_open))

        group.start_soon(ask)
        await anyio.sleep(0.3)  # a query that comes after the end of the activity waits for the workflow task
        await client.get_async_activity_handle(task_token=token_file.read_bytes()).complete(None)
        yield client, handle, seen
        group.cancel_scope.cancel()


async def answer(client: Client, handle: Handle, seen: list[bool], runner: WorkflowRunner, file: Path) -> None:
    """Answer with another worker after its answer to the query."""
    async with make_worker(client, runner, file):
        while not seen:  # noqa: ASYNC110 - there is no event
            await anyio.sleep(0.05)
        while True:
            with suppress(WorkflowUpdateFailedError):  # the same workflow task opens the question
                await handle.execute_update(AskingWorkflow.answer)
                break
        await handle.result()


async def ask_early(address: str, runner: WorkflowRunner, token_file: Path) -> WorkflowHistory:
    """Query a workflow before its workflow task, and then answer. Return the history."""
    async with queried(address, token_file) as (client, handle, seen):
        await answer(client, handle, seen, runner, token_file)
        assert seen == [True], "the question was shown before its workflow task"
        return await handle.fetch_history()


async def ask_beside(address: str, runner: WorkflowRunner, token_file: Path) -> WorkflowHistory | None:
    """Query a workflow while its workflow task is with a worker that is dead, and then answer.

    Return the history. None: the dead worker got the query instead.
    """
    async with queried(address, token_file, "0") as (client, handle, seen):
        task_queue = TaskQueue(name=QUEUE)
        taken = await client.workflow_service.poll_workflow_task_queue(
            PollWorkflowTaskQueueRequest(namespace="default", task_queue=task_queue, identity="dead")
        )
        if taken.HasField("query"):
            await handle.terminate()
            return None
        await answer(client, handle, seen, runner, token_file)
        return await handle.fetch_history()


both = pytest.mark.parametrize("ask", [ask_early, pytest.param(ask_beside, marks=pytest.mark.cluster)])


async def replay(history: WorkflowHistory) -> Exception | None:
    replayer = Replayer(workflows=[AskingWorkflow], workflow_runner=UnsandboxedWorkflowRunner())
    return (await replayer.replay_workflow(history, raise_on_replay_failure=False)).replay_failure


@both
async def test_history_replays_although_a_query_came_before_its_workflow_task(cluster, tmp_path, ask):
    """On a busy machine the workflow task may come first. Then no task fails, and the test tries again."""
    runner = CountingRunner()
    with anyio.fail_after(PATIENCE):
        for attempt in range(ATTEMPTS):
            history = await ask(cluster.address, runner, tmp_path / f"token-{attempt}")
            if history is None:
                continue
            assert await replay(history) is None
            if runner.refused:
                break
        assert runner.refused == 1, "in no attempt did the query come first"


@pytest.mark.campaign
@both
async def test_runner_of_the_library_writes_a_history_that_does_not_replay(cluster, tmp_path, ask):
    """When this test fails, the library is repaired, and the runner of craftcore is obsolete."""
    with anyio.fail_after(PATIENCE):
        for attempt in range(ATTEMPTS):
            history = await ask(cluster.address, UnsandboxedWorkflowRunner(), tmp_path / f"token-{attempt}")
            if history is not None and await replay(history) is not None:
                return
        raise AssertionError("all histories replay")


class CountingInstance(InstanceAround):
    """A workflow in memory that counts the workflow tasks which it does not take in."""

    def __init__(self, instance: WorkflowInstance, runner: CountingRunner) -> None:
        super().__init__(instance)
        self._runner = runner

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        completion = super().activate(act)
        self._runner.refused += completion.failed.failure.message == REBUILT
        return completion


class CountingRunner(ReplayableRunner):
    """The runner of craftcore, with the number of workflow tasks that it did not take in."""

    refused = 0

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return CountingInstance(super().create_instance(det), self)


class TakenIn:
    """A fake instance of the library that takes in everything."""

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        return WorkflowActivationCompletion()

    def get_info(self) -> Any:
        return SimpleNamespace(workflow_id="w", run_id="r")


def send(instance: ReplayableInstance, moment: int, job: str, *, replaying: bool = False) -> bool:
    """Send a job to an instance, and return whether it was taken in. `moment`: of its workflow task."""
    act = WorkflowActivation(history_length=moment, is_replaying=replaying)
    act.timestamp.seconds = moment
    sent = act.jobs.add()
    if job == "query":
        sent.query_workflow.query_id = LEGACY
    else:
        getattr(sent, job).SetInParent()
    return not instance.activate(act).failed.failure.message


@pytest.mark.parametrize(
    ("before", "is_taken_in"),
    [
        ("replayed task query", False),
        ("replayed query task query", False),
        ("replayed task", True),
        ("replayed query", True),
        ("replayed update query", True),
        ("replayed task update query", True),
        ("replayed task task query", True),
        ("task query", True),
    ],
)
def test_workflow_that_may_be_ahead_by_a_query_takes_in_no_more(before, is_taken_in):
    instance = ReplayableInstance(TakenIn())  # type: ignore[arg-type]
    for moment, kind in enumerate(before.split(), 1):
        if kind == "query":
            assert send(instance, moment - 1, "query", replaying=True)
        else:
            job = "do_update" if kind == "update" else "resolve_activity"
            assert send(instance, moment, job, replaying=kind == "replayed")

    assert send(instance, len(before), "do_update") is is_taken_in
