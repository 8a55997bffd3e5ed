"""Cancellations during a call or after the kill of a worker: the task ends, and its doubt is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import anyio
import pytest
from temporalio.api.enums.v1 import EventType

from craftcore import App, Call, Continue, Fail, Retry, RetryPolicy, TaskContext
from craftcore.activities.model import Decision
from craftcore.errors import StateRefused
from craftcore.tasks.model import Resume, TaskStatus, Wait, WaitKind
from craftcore.temporal.records.recorded_task import RecordedTask
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.task_operations import TaskOperations
from craftcore.temporal.task_retry import TaskRetry
from craftcore.temporal.worker import working
from craftcore.temporal.workflow.messages import TaskStart, TaskState
from craftcore.temporal.workflow.task import TaskWorkflow
from tests.support.processes import PATIENCE
from tests.temporal.cluster_history import record_cancel
from tests.temporal.replayed import replay
from tests.temporal.task_client import TaskClient
from tests.temporal.test_task_ledger import TASK
from tests.temporal.views import see, see_waiting
from tests.temporal.worker_processes import lines

pytestmark = pytest.mark.anyio


@pytest.fixture
def app(request: pytest.FixtureRequest) -> App:
    app = App(request.node.name.partition("[")[0])
    app.default_retry = RetryPolicy(max_attempts=3, base=0, cap=0)
    return app


@pytest.fixture
async def client(app: App, cluster: TemporalSettings) -> AsyncIterator[TaskClient]:
    settings = replace(cluster, task_queue=app.name)
    with anyio.fail_after(PATIENCE):
        async with working(app, settings) as connection:
            yield TaskClient(connection, app, settings)


@pytest.mark.cluster
@pytest.mark.parametrize("goes_on", ["waits", "retries", "continues"])
async def test_cancel_that_does_not_reach_the_entry_ends_the_task(app, client, goes_on):
    """The entry ends before its next heartbeat, and would be continued after an hour."""

    @app.workflow("order")
    async def order(ctx: TaskContext) -> object:
        await client.cancel(ctx.task_id)
        match goes_on:
            case "waits":
                await ctx.sleep(3600)
            case "retries":
                raise Retry("later", after=3600)
        return Continue(None, after=3600)

    assert (await client.result(await client.emit("order"))).status == "CANCELLED"


@pytest.mark.cluster
async def test_cancel_of_a_task_with_a_doubt_leaves_the_doubt_to_a_person(app, client):
    effects: list[str] = []
    scopes: list[anyio.CancelScope] = []

    @app.action("send", irreversible=True)
    async def send(call: Call) -> None:
        effects.append(call.key)
        scopes[-1].cancel()
        raise ConnectionError("the answer of the provider is lost")

    @app.workflow("order")
    async def order(ctx: TaskContext) -> str:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            await ctx.act(send)
        return "went on"

    task = await client.emit("order")
    while (await client.view(task)).status != "DONE":  # noqa: ASYNC110 - there is no event
        await anyio.sleep(0.05)
    await client.cancel(task)
    view = await client.view(task)
    assert [(one.status, one.decision) for one in view.activities] == [("UNKNOWN", None)]
    await client.decide(task, effects[0], Decision.HAPPENED, by="ada")

    end = await client.result(task)
    assert (end.status, end.result_json) == ("DONE", '"went on"')


@pytest.mark.cluster
@pytest.mark.parametrize("dies_first", [False, True], ids=["cancelled first", "dead first"])
async def test_cancel_together_with_the_kill_of_a_worker_loses_no_doubt(cluster, tmp_path, dies_first):
    """The two arrive together. The act is in doubt, and the task ends with the decision of a person."""
    folder = tmp_path / f"doubt-dead-{dies_first}"
    folder.mkdir()
    with anyio.fail_after(PATIENCE):
        history = await record_cancel(cluster, folder, dies_first=dies_first)

    assert history.events[-1].event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED
    end = history.events[-1].workflow_execution_completed_event_attributes.result.payloads[0].data
    assert (b"CANCELLED" in end, len(lines(folder / "effects"))) == (True, 1)
    await replay(history)


@pytest.mark.cluster
@pytest.mark.parametrize("has_waited", [True, False])
async def test_children_cancelled_with_a_failed_task_continue_at_its_retry(app, client, has_waited):
    """In an earlier version, the retried task waited for a child without a run."""
    ran: list[str] = []
    fixed: list[bool] = []

    @app.workflow("grandchild")
    async def grandchild(ctx: TaskContext) -> str:
        await ctx.step("begin", ran.append, "grandchild")
        return str(await ctx.wait_for("go"))

    @app.workflow("child")
    async def child(ctx: TaskContext) -> str:
        await ctx.step("begin", ran.append, "child")
        if not has_waited:
            return "at once"
        below = await ctx.start_child("grandchild", on_parent_end="cancel")
        await ctx.step("below", ids.append, below.id)
        return str(await below.result(str))

    @app.workflow("parent")
    async def parent(ctx: TaskContext) -> str:
        one = await ctx.start_child("child", on_parent_end="cancel")
        await ctx.step("child", ids.append, one.id)
        if not fixed:
            if has_waited:
                await ctx.wait_for("fail")
            raise Fail("VALIDATION_ERROR", "not yet")
        return str(await one.result(str))

    ids: list[str] = []
    task = await client.emit("parent")
    if has_waited:
        while len(ids) < 2:  # noqa: ASYNC110 - another loop sets this
            await anyio.sleep(0.02)
        await see_waiting(client, ids[1])
        await client.signal(task, "fail", None)
    assert (await client.result(task)).status == "FAILED"
    for one in ids:  # a view may show the end before the server has closed the run
        assert (await client.result(one)).status in ("CANCELLED", "DONE")
    fixed.append(True)

    await TaskOperations(client.connection).retry(task, by="ada", note=None)
    if has_waited:
        await see_waiting(client, ids[1])
        await client.signal(ids[1], "go", "done")
    end = await client.result(task)

    assert (end.status, end.result_json) == ("DONE", '"done"' if has_waited else '"at once"')
    assert ran == (["child", "grandchild"] if has_waited else ["child"])


def test_end_of_a_child_ends_no_wait_of_an_ended_task():
    """The retry of the parent continues the child, so a wait with the old end of the child would fail."""
    child = Wait(
        seq=1,
        id="w",
        task_seq=1,
        turn=1,
        name="child:1",
        kind=WaitKind.CHILD,
        event="child",
        due_at=None,
        status="WAITING",
        resolved_by=None,
        value_json=None,
        created_at=0.0,
        resolved_at=None,
        at_given=0,
        any_of=None,
    )
    state = TaskState(task=replace(TASK, status=TaskStatus.CANCELLED), resume=Resume.RESUME, open_waits=[child])
    start = TaskStart(workflow="order", payload_json="{}", source="IMMEDIATE", due_at=0.0)
    handlers = TaskWorkflow(start, state, None)

    handlers.ended("child", "its end")

    assert (state.open_waits, state.kept_waits) == ([child], [])
    assert state.child_ends == {"child": "its end"}


@pytest.mark.cluster
async def test_child_that_ended_while_its_parent_had_failed_is_known_at_the_retry(app, client):
    fixed: list[bool] = []
    ids: list[str] = []

    @app.workflow("child")
    async def child(ctx: TaskContext) -> str:
        return str(await ctx.wait_for("go"))

    @app.workflow("parent")
    async def parent(ctx: TaskContext) -> str:
        one = await ctx.start_child("child", on_parent_end="abandon")
        await ctx.step("child", ids.append, one.id)
        if not fixed:
            raise Fail("VALIDATION_ERROR", "not yet")
        return str(await one.result(str))

    task = await client.emit("parent")
    assert (await client.result(task)).status == "FAILED"
    await see_waiting(client, ids[0])
    await client.signal(ids[0], "go", "done")
    assert (await client.result(ids[0])).status == "DONE"
    fixed.append(True)

    await TaskOperations(client.connection).retry(task, by="ada", note=None)

    assert (await client.result(task)).result_json == '"done"'


@pytest.mark.cluster
async def test_result_of_a_child_in_doubt_is_known_at_the_retry_of_its_parent(app, client):
    """The workflow of the child stays open until a person decides, and ends without a running parent."""
    fixed: list[bool] = []
    ids: list[str] = []
    scopes: list[anyio.CancelScope] = []

    @app.action("send", irreversible=True)
    async def send(call: Call) -> None:
        scopes[-1].cancel()
        raise ConnectionError("the answer of the provider is lost")

    @app.workflow("child")
    async def child(ctx: TaskContext) -> str:
        await ctx.wait_for("go")
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            await ctx.act(send)
        return "went on"

    @app.workflow("parent")
    async def parent(ctx: TaskContext) -> str:
        one = await ctx.start_child("child")
        await ctx.step("child", ids.append, one.id)
        if not fixed:
            raise Fail("VALIDATION_ERROR", "not yet")
        return str(await one.result(str))

    task = await client.emit("parent")
    assert (await client.result(task)).status == "FAILED"
    await client.signal(ids[0], "go", None)
    await see(client, ids[0], lambda view: view.status == "DONE")
    fixed.append(True)

    await TaskOperations(client.connection).retry(task, by="ada", note=None)

    assert (await client.result(task)).result_json == '"went on"'
    await client.cancel(ids[0])


@pytest.mark.cluster
async def test_interrupted_retry_is_completed_by_the_next_call(app, client):
    """The child ends between the check and the new run of its parent, and the call fails before the notice."""
    fixed: list[bool] = []
    ids: list[str] = []
    looks: list[str] = []

    @app.workflow("child")
    async def child(ctx: TaskContext) -> str:
        return str(await ctx.wait_for("go"))

    @app.workflow("parent")
    async def parent(ctx: TaskContext) -> str:
        one = await ctx.start_child("child")
        await ctx.step("child", ids.append, one.id)
        if not fixed:
            raise Fail("VALIDATION_ERROR", "not yet")
        return str(await one.result(str))

    operations = TaskOperations(client.connection)

    async def load(task_id: str) -> RecordedTask:
        found = await operations.load(task_id)
        if task_id == ids[0]:
            looks.append(task_id)
            if len(looks) == 1:
                await client.signal(task_id, "go", "done")
                await client.result(task_id)
            elif len(looks) == 2:
                raise ConnectionError("the program was killed here")
        return found

    task = await client.emit("parent")
    assert (await client.result(task)).status == "FAILED"
    await see_waiting(client, ids[0])
    fixed.append(True)
    with pytest.raises(ConnectionError):
        await TaskRetry(client.connection, load, by="ada", note=None).retry(task)
    await see_waiting(client, task)

    with pytest.raises(StateRefused, match="only a FAILED task"):
        await operations.retry(task, by="ada", note=None)

    assert (await client.result(task)).result_json == '"done"'


@pytest.mark.cluster
async def test_retry_waits_for_the_second_cancel_of_a_child_that_was_retried_before(app, client):
    """An earlier retry of the child does not mean that the child runs now."""
    rounds, ids, began, released = [1], list[str](), list[bool](), list[bool]()

    async def work() -> None:
        began.append(True)
        with anyio.CancelScope(shield=True):
            while not released:  # noqa: ASYNC110 - another loop sets this
                await anyio.sleep(0.02)

    @app.workflow("child")
    async def child(ctx: TaskContext) -> str:
        await ctx.wait_for("work")
        await ctx.step("work", work)
        return str(await ctx.wait_for("go"))

    @app.workflow("parent")
    async def parent(ctx: TaskContext) -> str:
        one = await ctx.start_child("child", on_parent_end="cancel")
        await ctx.step("child", ids.append, one.id)
        if rounds[-1] < 3:
            for number in range(rounds[-1]):
                await ctx.wait_for(f"fail.{number + 1}")
            raise Fail("VALIDATION_ERROR", "not yet")
        return str(await one.result(str))

    operations = TaskOperations(client.connection)
    task = await client.emit("parent")
    await see_waiting(client, task)
    await client.signal(task, "fail.1", None)
    assert (await client.result(task)).status == "FAILED"
    assert (await client.result(ids[0])).status == "CANCELLED"
    rounds.append(2)
    await operations.retry(task, by="ada", note=None)
    await see_waiting(client, task)
    await see_waiting(client, ids[0])
    await client.signal(ids[0], "work", None)
    while not began:  # noqa: ASYNC110 - another loop sets this
        await anyio.sleep(0.02)
    await client.signal(task, "fail.2", None)
    assert (await client.result(task)).status == "FAILED"
    rounds.append(3)

    with pytest.raises(StateRefused, match="still being cancelled"):
        await operations.retry(task, by="ada", note=None)
    released.append(True)
    assert (await client.result(ids[0])).status == "CANCELLED"
    await operations.retry(task, by="ada", note=None)
    await see_waiting(client, ids[0])
    await client.signal(ids[0], "go", "done")

    assert (await client.result(task)).result_json == '"done"'
