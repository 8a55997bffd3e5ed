"""Tasks on a cluster that were interrupted for more than a day: they ask a person before they continue."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import anyio
import pytest
from temporalio.client import Client

from craftcore import App, TaskContext
from craftcore.tasks.model import Resume
from craftcore.temporal.workflow.messages import TaskState
from tests.support.processes import PATIENCE
from tests.temporal import test_rollover
from tests.temporal.doubt_app import DoubtCell
from tests.temporal.task_client import TaskClient
from tests.temporal.test_task_ledger import TASK
from tests.temporal.worker_processes import Workers, lines

pytestmark = pytest.mark.anyio
tasks = test_rollover.tasks
DAY = 86_400.0


@pytest.fixture
def app(request: pytest.FixtureRequest) -> App:
    app = App(request.node.name.partition("[")[0])

    @app.workflow("order")
    async def order(ctx: TaskContext) -> str:
        return ctx.resume

    return app


def interrupted(days: float) -> TaskState:
    """Return the state of a task whose worker was killed this number of days ago."""
    task = replace(TASK, workflow="order")
    return TaskState(
        task=task,
        resume=Resume.CRASH,
        entries=1,
        first_at=0.0,
        touched_at=time.time() - days * DAY,
        is_interrupted=True,
    )


@pytest.mark.parametrize(("answer", "status"), [("continue", "DONE"), ("cancel", "CANCELLED")])
async def test_long_interruption_asks_before_work_goes_on(app, tasks, answer, status):
    task = await tasks.start("order", {}, updates=100, carried=interrupted(1.25))
    with anyio.fail_after(PATIENCE):
        while not (questions := (await tasks.client.view(task)).questions):  # noqa: ASYNC110 - there is no event
            await anyio.sleep(0.02)
        assert (questions[0].kind, questions[0].question) == (
            "stale",
            "Task t-1 (order) was interrupted 30 hours ago. Go on with it?",
        )
        await tasks.client.answer(task, questions[0].id, answer, by="ada")
        assert (await tasks.client.result(task)).status == status


async def test_short_interruption_asks_nothing(app, tasks):
    assert await tasks.end(await tasks.start("order", {}, updates=100, carried=interrupted(0.9))) == "CRASH"


@pytest.mark.cluster
async def test_entry_after_a_kill_has_the_duration_of_the_interruption(cluster, tmp_path):
    settings = replace(cluster, task_queue=tmp_path.name, heartbeat_timeout=1.0, sticky_timeout=1.0)
    cell = ("ask", "does not", "crash", "effect")
    connection = await Client.connect(cluster.address)
    client = TaskClient(connection, DoubtCell(tmp_path, *cell).app, settings)
    workers = Workers("tests.temporal.doubt_app", [cluster.address, *cell], tmp_path, count=1)
    try:
        with anyio.fail_after(PATIENCE):
            task = await client.emit("single")
            while not lines(tmp_path / "effects"):  # noqa: ASYNC110 - there is no event
                await anyio.sleep(0.02)
            entries: list[dict[str, Any]] = []
            while len(entries) < 2:
                workers.replace_dead()
                history = await connection.get_workflow_handle(task).fetch_history()
                scheduled = [event.activity_task_scheduled_event_attributes for event in history.events]
                entries = [json.loads(one.input.payloads[0].data) for one in scheduled if one.input.payloads]
                await anyio.sleep(0.1)
    finally:
        workers.close()
    first, second = entries
    assert (first["touched_at"], second["resume"]) == (None, "CRASH")
    assert first["now"] <= second["touched_at"] < second["now"] - 1  # the time until the cluster noticed the kill
