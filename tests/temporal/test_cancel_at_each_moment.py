"""A cancellation at each workflow task: the task ends, or the cancellation is too late, and no work remains."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import anyio
import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.client import WorkflowHistory

from craftcore import App, Call, Continue, TaskContext
from craftcore.activities.model import Decision
from craftcore.errors import CraftcoreError
from craftcore.temporal.ids import workflow_id_of_task
from craftcore.temporal.worker import working
from craftcore.temporal.workflow.messages import TaskEnd
from tests.support.processes import PATIENCE
from tests.temporal.late_cancel import LateRunner, Moment
from tests.temporal.replayed import replay
from tests.temporal.task_client import TaskClient

pytestmark = [pytest.mark.anyio, pytest.mark.campaign]
TASK_STARTED = EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED


def make_app(effects: list[str]) -> App:
    """Return an app with one task that has a session, steps, an act, a child, signals, a question and two turns."""
    app = App(f"cancels-{uuid4().hex}")

    @app.action("pay", irreversible=True)
    async def pay(call: Call) -> str:
        effects.append(call.key)
        return "paid"

    @app.workflow("child")
    async def child(ctx: TaskContext) -> int:
        return 7

    @app.workflow("all", concurrency=2)
    async def all_kinds(ctx: TaskContext[int]) -> Any:
        if ctx.turn == 1:
            await ctx.step("count", lambda: 1)
            started = await ctx.start_child("child")
            await ctx.act(pay)
            return Continue(await started.result(int), after=0.01)
        await ctx.emit("child", session_id="bob")
        await ctx.sleep(0.01)
        await ctx.wait_for("go")
        return await ctx.ask("Well?", ["yes", "no"])

    return app


async def serve(client: TaskClient, task: str) -> None:
    """Signal, answer and decide as the people and programs of a task."""
    with suppress(CraftcoreError):
        await client.signal(task, "go")
    while True:
        view = await client.view(task)
        for act in view.activities:
            if act.status == "UNKNOWN" and act.decision is None:
                with suppress(CraftcoreError):
                    await client.decide(task, act.key, Decision.HAPPENED, by="ada", reference="seen")
        for question in view.questions:
            with suppress(CraftcoreError):
                await client.answer(task, question.id, "yes", by="ada")
        await anyio.sleep(0.1)


async def run_one(client: TaskClient, moment: Moment) -> tuple[str, TaskEnd]:
    """Run the task with a cancellation at this moment. Return its id and its end."""
    task = await client.emit("all", session_id="ada")
    async with anyio.create_task_group() as group:
        group.start_soon(serve, client, task)

        async def cancel() -> None:
            while not moment.held:  # noqa: ASYNC110 - there is no event
                await anyio.sleep(0.02)
            await client.cancel(task)

        group.start_soon(cancel)
        end = await client.result(task)
        group.cancel_scope.cancel()
    return task, end


def has_length(length: int, act: WorkflowActivation) -> bool:
    return act.history_length >= length


async def read_history(client: TaskClient, task: str) -> WorkflowHistory:
    return await client.connection.get_workflow_handle(workflow_id_of_task(task)).fetch_history()


async def test_cancel_at_each_workflow_task_ends_the_task_or_comes_too_late(cluster, monkeypatch):
    """All tasks are of one session, so a task that does not end would block the next one."""
    effects: list[str] = []
    app, runner = make_app(effects), LateRunner()
    monkeypatch.setattr("craftcore.temporal.worker.ReplayableRunner", lambda: runner)
    ends: Counter[str] = Counter()
    async with working(app, replace(cluster, task_queue=app.name)) as connection:
        client = TaskClient(connection, app, replace(cluster, task_queue=app.name))
        task, end = await run_one(client, runner.moment)
        assert (end.status, end.result_json) == ("DONE", '"yes"')
        events = (await read_history(client, task)).events
        for length in [event.event_id for event in events if event.event_type == TASK_STARTED]:
            with anyio.fail_after(PATIENCE):
                runner.moment = Moment(partial(has_length, length))
                task, end = await run_one(client, runner.moment)
                await replay(await read_history(client, task))
            assert end.status in ("CANCELLED", "DONE")  # the last turn may have returned
            acts = [one for one in (await client.view(task)).activities if one.status != "DONE"]
            assert [(one.status, one.decision) for one in acts] == [("UNKNOWN", "HAPPENED")] * len(acts)
            ends[end.status] += 1
        runner.moment = Moment(lambda _: False)
        assert (await run_one(client, runner.moment))[1].status == "DONE"
    assert ends["CANCELLED"] > 5 * ends["DONE"]
    assert len(effects) == len({*effects})
