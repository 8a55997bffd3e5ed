"""The id of a task with a dedup key: it names only that task, also after a retry or a new task with the key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from secrets import token_hex

import anyio
import pytest

from craftcore import App, Call, RetryPolicy, TaskContext
from craftcore.errors import InvalidInput, NotFound, PayloadTooLarge, StateRefused
from craftcore.outcome_exceptions import Fail
from craftcore.tasks.work_store import WorkFilter
from craftcore.temporal.cluster_requests import ClusterRequests
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.task_operations import TaskOperations
from craftcore.temporal.worker import working
from craftcore.temporal.workflow.messages import WORKFLOW, TaskStart, first_arguments
from craftcore.triggers.model import TriggerSpec
from tests.support.processes import PATIENCE
from tests.temporal.task_client import TaskClient
from tests.temporal.views import see_question

pytestmark = pytest.mark.anyio
LARGE = 900_000


@pytest.fixture
def app(request: pytest.FixtureRequest) -> App:
    app = App(request.node.name)
    app.default_retry = RetryPolicy(max_attempts=1, base=0, cap=0)

    @app.workflow("waits")
    async def waits(ctx: TaskContext) -> str:
        await ctx.wait_for("go")
        return ctx.task_id

    @app.workflow("signals")
    async def signals(ctx: TaskContext, to: str) -> bool:
        return await ctx.signal(to, "go")

    return app


@pytest.fixture
async def requests(app: App, cluster: TemporalSettings) -> AsyncIterator[ClusterRequests]:
    settings = replace(cluster, task_queue=app.name)
    with anyio.fail_after(PATIENCE):
        async with working(app, settings) as connection:
            requests = ClusterRequests(connection, app, settings)
            requests._client = TaskClient(connection, app, settings)
            yield requests


async def start(requests: ClusterRequests, workflow: str, **options: object) -> str:
    return (await requests.emit(TriggerSpec(workflow=workflow, **options))).id  # type: ignore[arg-type]


async def test_id_of_an_ended_task_does_not_reach_the_next_task_of_its_key(app, requests):
    first = await start(requests, "waits", dedup_key="used", dedup_scope="active")
    assert await requests.signal(first, "go") in (True, False)
    assert await requests.result_of(first, str, PATIENCE) == first
    second = await start(requests, "waits", dedup_key="used", dedup_scope="active")

    for call in (
        requests.signal(first, "go"),
        requests.cancel(first),
        requests.retry_task(first),
        requests.answer(f"{first}.1", "yes", note=None, reference=None, answered_by="ada"),
    ):
        with pytest.raises(NotFound, match=f"task {second} has used the key since"):
            await call
    refused = await requests._client.result(await start(requests, "signals", payload={"to": first}))
    assert (refused.status, f"task {second} has used the key" in (refused.error_message or "")) == ("FAILED", True)

    before, now = await requests.state_of(first), await requests.task(first)
    assert now is not None
    assert (before.id, before.status, now.id) == (first, "DONE", first)
    assert (await requests._client.view(second)).status != "CANCELLED"
    assert (await requests._client.result(await start(requests, "signals", payload={"to": second}))).status == "DONE"
    assert await requests.result_of(second, str, PATIENCE) == second


@pytest.fixture
def broken(app: App) -> list[str]:
    """Return the list of failing tasks, which a test empties."""
    broken = ["all"]

    @app.workflow("breaks")
    async def breaks(ctx: TaskContext) -> str:
        for number in range(3):
            await ctx.step("large", lambda: "x" * LARGE, key=str(number))
        if broken:
            raise Fail("AGENT_ERROR", "broken")
        return ctx.task_id

    return broken


@pytest.mark.cluster
async def test_retried_task_keeps_its_id_its_large_state_and_its_priority(requests, broken):
    client: TaskClient = requests._client
    task = await start(requests, "breaks", dedup_key="retried", priority=90, dedup_scope="active")
    assert (await client.result(task)).status == "FAILED"
    broken.clear()
    await requests.retry_task(task)
    assert await requests.result_of(task, str, PATIENCE) == task
    with pytest.raises(StateRefused, match="only a FAILED task"):
        await requests.retry_task(task)

    assert (await TaskOperations(client.connection).find(task)).task.status == "DONE"
    described = await client.connection.get_workflow_handle("k:retried").describe()
    assert described.raw_description.workflow_execution_info.priority.priority_key == 5
    assert await client.read_task_id("k:retried") == task

    following = await start(requests, "waits", dedup_key="retried", dedup_scope="active")
    assert following != task
    while (await client.result(task)).status != "DONE":  # a list may lag  # noqa: ASYNC110
        await anyio.sleep(0.1)
    await requests.cancel(following)


@pytest.mark.cluster
async def test_retry_of_a_state_over_the_limit_of_a_run_is_refused(app, requests):
    @app.workflow("random")
    async def random(ctx: TaskContext) -> None:
        for number in range(3):
            await ctx.step("random", lambda: token_hex(700_000), key=str(number))
        raise Fail("AGENT_ERROR", "broken")

    task = await start(requests, "random")
    assert (await requests._client.result(task)).status == "FAILED"
    with pytest.raises(PayloadTooLarge, match="The records of its turn"):
        await requests.retry_task(task)


@pytest.mark.cluster
async def test_retried_task_of_several_runs_is_signalled_under_the_first_id(app, requests):
    broken = ["yes"]

    @app.workflow("long")
    async def long(ctx: TaskContext) -> str:
        for number in range(12 if broken else 36):
            await ctx.step("one", lambda: None, key=str(number))
        if broken:
            raise Fail("AGENT_ERROR", "broken")
        for event in ("early", "late"):
            await ctx.wait_for(event)
        return ctx.task_id

    client: TaskClient = requests._client
    begun = TaskStart(workflow="long", payload_json="{}", source="IMMEDIATE", due_at=0.0, run_updates_max=10)
    await client.connection.start_workflow(WORKFLOW, args=first_arguments(begun), id="k:long", task_queue=app.name)
    task = await client.read_task_id("k:long")
    assert (await client.result(task)).status == "FAILED"
    broken.clear()
    await requests.retry_task(task)
    for event in ("early", "late"):
        await requests.signal(task, event)
    assert await requests.result_of(task, str, PATIENCE) == task
    runs = (await TaskOperations(client.connection).find(task)).runs.histories
    assert len(runs) > 4
    assert await client.read_task_id("k:long") == task


async def test_search_by_a_key_finds_its_task_among_newer_ones(requests):
    task = await start(requests, "waits", dedup_key="sought")
    newer = [await start(requests, "waits") for _ in range(2)]
    while await requests.find_ids(WorkFilter(dedup_key="sought"), 1) != [task]:  # a list may lag  # noqa: ASYNC110
        await anyio.sleep(0.05)
    for status in ("done", "CLAIMED"):
        with pytest.raises(InvalidInput, match="it must be one of CANCELLED, DEAD, DONE"):
            await requests.find_ids(WorkFilter(status=status), 1)
    later = await start(requests, "waits", dedup_key="later", delay=3600)
    while await requests.find_ids(WorkFilter(dedup_key="later", status="PENDING"), 1) != [later]:  # noqa: ASYNC110
        await anyio.sleep(0.05)
    for one in (task, *newer, later):
        await requests.cancel(one)


async def test_act_with_a_changed_key_is_not_done_again(app, requests):
    """Another worker may run a version of the code in which the act has a key."""
    calls: list[str] = []
    keys = iter([None, "fee", "fee"])

    @app.action("pay", irreversible=True)
    async def pay(call: Call, *, to: str) -> str:
        calls.append(call.key)
        return f"ref-{len(calls)}"

    @app.workflow("pays")
    async def pays(ctx: TaskContext) -> list[str]:
        done = [await ctx.act("pay", key=next(keys), to="ada")]
        await ctx.wait_for("go")
        done.append(await ctx.act("pay", to="bob"))
        await ctx.wait_for("go")
        return done

    task = await start(requests, "pays")
    for _ in range(2):
        await requests.signal(task, "go")

    assert await requests.result_of(task, list[str], PATIENCE) == ["ref-1", "ref-2"]
    assert calls == [f"activity:{task}:1.1", f"activity:{task}:1.2"]


async def test_act_like_several_acts_is_held_until_a_person_answers(app, requests):
    calls: list[str] = []
    keys = iter([(None, None), ("fee",), ("fee",)])

    @app.action("pay", irreversible=True)
    async def pay(call: Call, *, to: str) -> str:
        calls.append(call.key)
        return f"ref-{len(calls)}"

    @app.workflow("pays")
    async def pays(ctx: TaskContext) -> list[str]:
        done = [await ctx.act("pay", key=key, to="ada") for key in next(keys)]
        await ctx.wait_for("go")
        return done

    task = await start(requests, "pays")
    await requests.signal(task, "go")
    asked = await see_question(requests._client, task)
    assert len(calls) == 2
    await requests.answer(asked.id, "same", note=None, reference=None, answered_by="ada")

    assert await requests.result_of(task, list[str], PATIENCE) == ["ref-1"]
    assert len(calls) == 2
