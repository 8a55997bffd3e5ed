"""A cancellation together with the answer about a gate: the task ends, and the gate is free for others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import uuid4

import anyio
import pytest
from temporalio.api.enums.v1 import EventType

from craftcore import App
from craftcore.temporal.ids import make_limit_gate_id, workflow_id_of_task
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.worker import working
from tests.support.processes import PATIENCE
from tests.temporal.late_cancel import LateRunner, Moment
from tests.temporal.replayed import replay
from tests.temporal.task_client import TaskClient

pytestmark = pytest.mark.anyio
SIGNALLED, STARTED = "resolve_signal_external_workflow", "resolve_child_workflow_execution_start"
CANCEL_REQUESTED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED


@pytest.fixture
def app() -> App:
    app = App(f"gates-{uuid4().hex}")

    @app.workflow("alone", concurrency=1)
    async def alone() -> None:
        pass

    return app


@pytest.fixture
def runner(monkeypatch) -> LateRunner:
    runner = LateRunner()
    monkeypatch.setattr("craftcore.temporal.worker.ReplayableRunner", lambda: runner)
    return runner


@pytest.fixture
async def client(app: App, cluster: TemporalSettings, runner: LateRunner) -> AsyncIterator[TaskClient]:
    settings = replace(cluster, task_queue=app.name)
    with anyio.fail_after(PATIENCE):
        async with working(app, settings) as connection:
            yield TaskClient(connection, app, settings)


@pytest.mark.parametrize(
    ("job", "has_gate"),
    [
        pytest.param("initialize_workflow", False, id="begins", marks=pytest.mark.cluster),
        pytest.param(SIGNALLED, False, id="finds no gate", marks=pytest.mark.cluster),
        pytest.param(SIGNALLED, True, id="gate was notified", marks=pytest.mark.cluster),
        pytest.param(STARTED, False, id="has started its gate"),
    ],
)
async def test_cancel_at_the_moment_of_an_answer_ends_the_task_and_not_its_gate(app, client, runner, job, has_gate):
    """Without a guard, the library would cancel the gate, or fail each later workflow task."""
    if has_gate:
        assert (await client.result(await client.emit("alone"))).status == "DONE"
    runner.moment = Moment(lambda act: any(one.WhichOneof("variant") == job for one in act.jobs))
    task = await client.emit("alone")
    while not runner.moment.held:  # noqa: ASYNC110 - there is no event
        await anyio.sleep(0.05)
    await client.cancel(task)

    assert (await client.result(task)).status == "CANCELLED"
    gate = client.connection.get_workflow_handle(make_limit_gate_id(app.name, "alone", None))
    assert CANCEL_REQUESTED not in [event.event_type for event in (await gate.fetch_history()).events]
    assert (await client.result(await client.emit("alone"))).status == "DONE"
    history = await client.connection.get_workflow_handle(workflow_id_of_task(task)).fetch_history()
    await replay(history)
