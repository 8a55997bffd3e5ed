"""An encrypting data converter: the cluster stores no readable payload, and tasks work."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from craftcore import App, TaskContext
from craftcore.temporal.cluster_connection import connect
from craftcore.temporal.records.history import read_runs
from craftcore.temporal.task_operations import TaskOperations
from craftcore.temporal.worker import working
from tests.support.processes import PATIENCE
from tests.temporal.task_client import TaskClient
from tests.temporal.test_rollover import Tasks

pytestmark = pytest.mark.anyio
SECRET = "a-confidential-word"


@pytest.mark.cluster
async def test_encrypted_task_is_unreadable_and_continues_in_its_next_run(cluster):
    app = App("encrypted")

    @app.workflow("order")
    async def order(ctx: TaskContext, what: str) -> str:
        for number in range(6):
            await ctx.step(f"step{number}", lambda: what)
        stored = await ctx.ask(f"Buy {what}?", ["yes", "no"])
        return f"{stored} {what}"

    settings = replace(cluster, task_queue=app.name, data_converter="tests.temporal.scrambled:converter")
    with anyio.fail_after(PATIENCE):
        async with working(app, settings) as connection:
            client = TaskClient(connection, app, settings)
            task = await Tasks(connection, app, settings).start("order", {"what": SECRET}, updates=4)
            while not (questions := (await client.view(task)).questions):  # noqa: ASYNC110 - there is no event
                await anyio.sleep(0.02)
            assert questions[0].question == f"Buy {SECRET}?"
            await client.answer(task, questions[0].id, "yes", by="ada")
            assert (await client.result(task)).result_json == f'"yes {SECRET}"'
            read = await TaskOperations(connection).load(task)
        plain = await connect(replace(settings, data_converter=None))
        runs = (await read_runs(plain, task)).histories

    assert read.task.result_json == f'"yes {SECRET}"'
    assert [event.type for event in read.history.events].count("STEP_COMPLETED") == 6
    assert len(runs) > 1
    assert all(SECRET.encode() not in event.SerializeToString() for run in runs for event in run.events)
