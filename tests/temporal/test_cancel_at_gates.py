"""A cancel that comes with the answer of the cluster about a gate ends the task, and leaves the gate to others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import uuid4

import anyio
import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails

from craftcore import App
from craftcore.temporal.ids import make_limit_gate_id, workflow_id_of_task
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.temporal_client import TemporalClient
from craftcore.temporal.worker import working
from craftcore.temporal.workflow.messages import WORKFLOW
from craftcore.temporal.workflow.task import TaskWorkflow
from craftcore.temporal.workflow_runner import InstanceAround
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio
SIGNALLED, STARTED = "resolve_signal_external_workflow", "resolve_child_workflow_execution_start"
CANCEL_REQUESTED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED


class LateInstance(InstanceAround):
    """Hears of a moment of a task together with its cancel."""

    awaited: str | None = None
    held = 0

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Return the commands that follow from new jobs, or a failure until the cancel is among them."""
        jobs = {job.WhichOneof("variant") for job in act.jobs}
        is_of_task = self.get_info().workflow_type == WORKFLOW
        if not is_of_task or LateInstance.awaited not in jobs:
            return super().activate(act)
        if "cancel_workflow" in jobs:
            LateInstance.awaited = None
            return super().activate(act)
        LateInstance.held += 1
        completion = WorkflowActivationCompletion(run_id=act.run_id)
        completion.failed.failure.message = "it waits for the cancel"
        return completion


class LateRunner(UnsandboxedWorkflowRunner):
    """Runs workflows that hear of two things at once."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return LateInstance(super().create_instance(det))


@pytest.fixture
def app() -> App:
    app = App(f"gates-{uuid4().hex}")

    @app.workflow("alone", concurrency=1)
    async def alone() -> None:
        pass

    return app


@pytest.fixture
async def client(app: App, cluster: TemporalSettings, monkeypatch) -> AsyncIterator[TemporalClient]:
    monkeypatch.setattr("craftcore.temporal.worker.ReplayableRunner", LateRunner)
    settings = replace(cluster, task_queue=app.name)
    with anyio.fail_after(PATIENCE):
        async with working(app, settings) as connection:
            yield TemporalClient(connection, app, settings)


@pytest.mark.parametrize(
    ("moment", "has_gate"),
    [("initialize_workflow", False), (SIGNALLED, False), (SIGNALLED, True), (STARTED, False)],
    ids=["begins", "finds no gate", "has told its gate", "has started its gate"],
)
async def test_cancel_at_the_moment_of_an_answer_ends_the_task_and_not_its_gate(app, client, moment, has_gate):
    """The library would cancel the gate, or fail each workflow task from then on."""
    if has_gate:
        assert (await client.result(await client.emit("alone"))).status == "DONE"
    LateInstance.awaited, LateInstance.held = moment, 0
    task = await client.emit("alone")
    while not LateInstance.held:  # noqa: ASYNC110 - it has no event
        await anyio.sleep(0.05)
    await client.cancel(task)

    assert (await client.result(task)).status == "CANCELLED"
    gate = client.connection.get_workflow_handle(make_limit_gate_id(app.name, "alone", None))
    assert CANCEL_REQUESTED not in [event.event_type for event in (await gate.fetch_history()).events]
    assert (await client.result(await client.emit("alone"))).status == "DONE"
    history = await client.connection.get_workflow_handle(workflow_id_of_task(task)).fetch_history()
    await Replayer(workflows=[TaskWorkflow]).replay_workflow(history)
