"""Refused answers and decisions: the history of the task has no event of them."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest
from temporalio.api.enums.v1 import EventType

from craftcore import App, TaskContext
from craftcore.activities.model import Decision
from craftcore.errors import StateRefused
from craftcore.temporal.worker import working
from tests.support.processes import PATIENCE
from tests.temporal.task_client import TaskClient

pytestmark = pytest.mark.anyio


async def test_refused_answer_and_decision_leave_no_event(cluster):
    app = App("refused")

    @app.workflow("order")
    async def order(ctx: TaskContext) -> str | None:
        return await ctx.ask("Send it?", ["yes", "no"])

    settings = replace(cluster, task_queue=app.name)
    with anyio.fail_after(PATIENCE):
        async with working(app, settings) as connection:
            client = TaskClient(connection, app, settings)
            task = await client.emit("order")
            while not (questions := (await client.view(task)).questions):  # noqa: ASYNC110 - there is no event
                await anyio.sleep(0.02)
            with pytest.raises(StateRefused, match="is not one of the options"):
                await client.answer(task, questions[0].id, "maybe", by="ada")
            with pytest.raises(StateRefused, match="is not open"):
                await client.answer(task, f"{task}.9", "yes", by="ada")
            with pytest.raises(StateRefused, match="no activity"):
                await client.decide(task, "activity:none", Decision.HAPPENED, by="ada")
            history = await connection.get_workflow_handle(task).fetch_history()
            await client.answer(task, questions[0].id, "yes", by="ada")
            assert (await client.result(task)).result_json == '"yes"'

    accepted = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
    assert accepted not in [event.event_type for event in history.events]
