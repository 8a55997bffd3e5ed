"""The recorder of histories of a task, a gate and a schedule, on a server at 127.0.0.1:7233.

python -m tests.temporal.cluster_history NAME
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHistory

from craftcore import App, Call, Continue, NoEffect, RetryPolicy, TaskContext
from craftcore.activities.model import Decision
from craftcore.temporal.ids import make_session_gate_id, workflow_id_of_schedule, workflow_id_of_task
from craftcore.temporal.schedules.schedule_client import ScheduleClient
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.worker import working
from craftcore.temporal.workflow.schedule_messages import ScheduleCall
from tests.temporal.doubt_app import DoubtCell
from tests.temporal.task_client import TaskClient
from tests.temporal.views import see_question
from tests.temporal.worker_processes import Workers, lines


def history_app() -> App:
    """Return an app with one task that uses steps, acts, children, signals, questions, a sleep and two turns."""
    app = App("histories")
    app.default_retry = RetryPolicy(max_attempts=3, base=0.01, cap=0.01)

    @app.action("pay", irreversible=True)
    async def pay(call: Call) -> str:
        if call.attempt == 1:
            raise NoEffect("not now")
        return "paid"

    @app.workflow("child")
    async def child(ctx: TaskContext) -> int:
        return 7

    @app.workflow("all")
    async def all_kinds(ctx: TaskContext[int], steps: int) -> Any:
        if ctx.turn == 1:
            for number in range(steps):
                await ctx.step("count", lambda: 1, key=str(number))
            started = await ctx.start_child("child")
            await ctx.act(pay)
            return Continue(await started.result(int), after=0.01)
        await ctx.sleep(0.01)
        await ctx.wait_for("go")
        return await ctx.ask("Well?", ["yes", "no"])

    @app.workflow("limited", concurrency=1)
    async def limited(ctx: TaskContext[int]) -> Any:
        if ctx.turn == 1:
            await ctx.emit("child", session_id="bob")
            return Continue(1, after=0.01)
        return await ctx.step("count", lambda: 1)

    return app


async def record_history(settings: TemporalSettings, *, steps: int) -> WorkflowHistory:
    """Run the task to its end, and return its history."""
    app = history_app()
    async with working(app, settings) as connection:
        client = TaskClient(connection, app, settings)
        task = await client.emit("all", {"steps": steps})
        await client.signal(task, "go")
        await client.answer(task, (await see_question(client, task)).id, "yes", by="ada")
        assert (await client.result(task)).result_json == '"yes"'
        return await connection.get_workflow_handle(workflow_id_of_task(task)).fetch_history()


async def record_session(settings: TemporalSettings) -> WorkflowHistory:
    """Run a task of a session and a limited workflow, which waits for another task at both gates. Return its
    history."""
    app = history_app()
    async with working(app, settings) as connection:
        client = TaskClient(connection, app, settings)
        for task in [await client.emit("limited", session_id="ada") for _ in range(2)]:
            await client.result(task)
        return await connection.get_workflow_handle(workflow_id_of_task(task)).fetch_history()


async def record_gate(settings: TemporalSettings) -> WorkflowHistory:
    """Run three tasks of a session, and return the history of its gate."""
    app = history_app()
    async with working(app, settings) as connection:
        client = TaskClient(connection, app, settings)
        for task in [await client.emit("child", session_id="ada") for _ in range(3)]:
            await client.result(task)
        gate = make_session_gate_id(settings.task_queue or app.name, "ada")
        return await connection.get_workflow_handle(gate).fetch_history()


async def record_schedule(settings: TemporalSettings) -> WorkflowHistory:
    """Run a schedule for two occurrences, pause it, and return its history."""
    app = history_app()
    schedule_id = f"every-second-{settings.task_queue}"
    app.schedule(schedule_id, "every 1s", workflow="child")
    async with working(app, settings) as connection:
        client = ScheduleClient(connection)
        while len((await client.view(schedule_id)).lines) < 2:  # noqa: ASYNC110 - there is no event
            await anyio.sleep(0.05)
        await client.apply_call(schedule_id, ScheduleCall(kind="pause", reason="tea"))
        return await connection.get_workflow_handle(workflow_id_of_schedule(schedule_id)).fetch_history()


async def record_cancel(settings: TemporalSettings, folder: Path, *, dies_first: bool) -> WorkflowHistory:
    """Cancel a task while no worker runs; its worker was killed in an act, after the effect.

    `dies_first`: the cluster notices the kill before the cancellation. Return the history of the task, whose doubt a
    person has decided.
    """
    settings = replace(settings, task_queue=folder.name, heartbeat_timeout=1.0, sticky_timeout=1.0)
    cell = ("ask", "does not", "crash", "effect")
    connection = await Client.connect(settings.address)
    client = TaskClient(connection, DoubtCell(folder, *cell).app, settings)
    workers = Workers("tests.temporal.doubt_app", [settings.address, *cell], folder, count=1)
    try:
        task = await client.emit("single")
        handle = connection.get_workflow_handle(workflow_id_of_task(task))

        async def wait_for(*events: EventType.ValueType) -> None:
            while not {*events} <= {event.event_type for event in (await handle.fetch_history()).events}:  # noqa: ASYNC110
                await anyio.sleep(0.05)

        if dies_first:
            await wait_for(EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT)
        while not lines(folder / "effects"):  # noqa: ASYNC110 - there is no event
            await anyio.sleep(0.02)
        await handle.cancel()
        await wait_for(
            EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED
        )
        workers.replace_dead()
        while (await client.view(task)).status != "CANCELLED":  # noqa: ASYNC110 - there is no event
            await anyio.sleep(0.1)
        await client.decide(task, lines(folder / "effects")[0], Decision.HAPPENED, by="ada", reference="seen")
        await client.result(task)
        return await handle.fetch_history()
    finally:
        workers.close()


async def main(arguments: list[str]) -> None:
    """Write the histories under this name."""
    (name,) = arguments
    settings = TemporalSettings(task_queue=name)
    folder = Path(tempfile.mkdtemp(prefix=name))
    found = {
        name: await record_history(settings, steps=3),
        f"{name}-cancel": await record_cancel(settings, folder, dies_first=False),
        f"{name}-session": await record_session(settings),
        f"{name}-gate": await record_gate(settings),
        f"{name}-schedule": await record_schedule(settings),
    }
    for stem, history in found.items():
        path = Path(__file__).parent / "histories" / f"{stem}.json"
        path.write_text(history.to_json() + "\n")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1:])
