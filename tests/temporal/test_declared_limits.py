"""Limits that a worker applies by itself: those of a routed workflow, and the start of a rate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import anyio
import pytest
from temporalio.client import Client

from craftcore import App, Rate, RetryPolicy, Route, RoutedTrigger, RoutingContext
from craftcore.temporal.entries import declared_limits
from craftcore.temporal.entries.declared_limits import find_limits, report_start
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.worker import working
from craftcore.triggers.model import TriggerSource
from tests.support.processes import PATIENCE
from tests.temporal.broken_line import faulty_proxy
from tests.temporal.task_client import TaskClient

pytestmark = pytest.mark.anyio


class Count:
    """The number of concurrent entries, and its maximum."""

    running = maximum = 0


@pytest.fixture
def count() -> Count:
    return Count()


@pytest.fixture
def app(request: pytest.FixtureRequest, count: Count) -> App:
    app = App(request.node.name)
    app.default_retry = RetryPolicy(max_attempts=1, base=0, cap=0)

    @app.workflow("alone", concurrency=1)
    async def alone() -> None:
        count.running += 1
        count.maximum = max(count.maximum, count.running)
        await anyio.sleep(0.2)
        count.running -= 1

    @app.workflow("slow", rate=Rate(10, per=600))
    async def slow() -> None:
        pass

    class Alone:
        async def route(self, trigger: RoutedTrigger, context: RoutingContext) -> Route:
            return Route(workflow="alone")

    app.router = Alone()
    return app


@pytest.fixture
async def client(app: App, cluster: TemporalSettings) -> AsyncIterator[TaskClient]:
    settings = replace(cluster, task_queue=app.name)
    with anyio.fail_after(PATIENCE):
        async with working(app, settings) as connection:
            yield TaskClient(connection, app, settings)


@pytest.mark.cluster
async def test_limit_of_the_workflow_that_a_router_chose_is_kept(client, count):
    tasks = [await client.emit(payload={}, source=TriggerSource.MESSAGE) for _ in range(3)]
    assert [(await client.result(task)).status for task in tasks] == ["DONE"] * 3
    assert count.maximum == 1


async def test_start_of_a_rate_is_reported_until_the_cluster_answers(app, client, cluster, monkeypatch):
    """An entry that began without a cluster does not count as a crash."""
    monkeypatch.setattr(declared_limits, "ANSWER_SECONDS", 0.3)
    await client.result(await client.emit("slow"))
    limits = find_limits(app, "slow", None, "{}", app.name)
    gate = client.connection.get_workflow_handle(limits[0].id)

    async def count_reported() -> int:
        events = (await gate.fetch_history()).events
        signals = [event.workflow_execution_signaled_event_attributes.signal_name for event in events]
        return signals.count("started")

    before = await count_reported()
    async with faulty_proxy(cluster.address) as line, anyio.create_task_group() as group:
        far = await Client.connect(line.address)
        line.loses_answers = True
        group.start_soon(report_start, far, "someone", limits, {limits[0].id: 1}, lambda: False)
        while await count_reported() < before + 2:  # noqa: ASYNC110 - there is no event
            await anyio.sleep(0.02)
        line.break_off()
    assert (await client.result(await client.emit("slow"))).status == "DONE"
