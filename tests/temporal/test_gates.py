"""The gates of sessions and limited workflows on a cluster: order, concurrency, rates and messages."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import anyio
import pytest
from temporalio.client import WorkflowExecutionStatus

from craftcore import App, Continue, Rate, RetryPolicy, TaskContext
from craftcore.temporal.emission import start_of
from craftcore.temporal.ids import make_limit_gate_id, make_session_gate_id
from craftcore.temporal.session_gates import SessionGates
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.worker import working
from craftcore.temporal.workflow.gate_messages import GateState
from craftcore.triggers.model import TriggerSource, TriggerSpec
from tests.support.processes import PATIENCE
from tests.temporal.task_client import TaskClient
from tests.temporal.views import see_waiting

pytestmark = pytest.mark.anyio


class Log:
    """The calls of the workflows of a test in order, and the number of concurrent ones."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.moments: list[float] = []
        self.running = 0
        self.most = 0
        self.is_released = False

    async def work(self, name: str, seconds: float = 0.0) -> None:
        self.moments.append(time.monotonic())
        self.running += 1
        self.most = max(self.most, self.running)
        await anyio.sleep(seconds)
        self.running -= 1
        self.seen.append(name)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def app(request: pytest.FixtureRequest, log: Log) -> App:
    app = App(request.node.name.partition("[")[0])
    app.default_retry = RetryPolicy(max_attempts=1, base=0, cap=0)

    @app.workflow("note")
    async def note(name: str) -> None:
        await log.work(name, 0.02)

    @app.workflow("pair", concurrency=2)
    async def pair(name: str) -> None:
        await log.work(name, 0.2)

    @app.workflow("each", concurrency=1, limit_by="key")
    async def each(name: str, key: str) -> None:
        await log.work(name, 0.5)

    @app.workflow("held")
    async def held(name: str) -> None:
        while not log.is_released:  # noqa: ASYNC110 - another loop runs this
            await anyio.sleep(0.01)
        log.seen.append(name)

    @app.workflow("slow", rate=Rate(2, per=1.5))
    async def slow(name: str) -> None:
        await log.work(name)

    @app.workflow("chat", sources=["MESSAGE"])
    async def chat(ctx: TaskContext[list[str]], text: str) -> Any:
        texts = [*(ctx.state or []), text if ctx.turn == 1 else ctx.received["text"]]
        await log.work(texts[-1])
        return texts if texts[-1] == "bye" else Continue(texts, on="message")

    @app.workflow("deaf")
    async def deaf(ctx: TaskContext) -> None:
        await ctx.wait_for("go")

    return app


@pytest.fixture
async def client(app: App, cluster: TemporalSettings) -> AsyncIterator[TaskClient]:
    settings = replace(cluster, task_queue=app.name)
    with anyio.fail_after(PATIENCE):
        async with working(app, settings) as connection:
            yield TaskClient(connection, app, settings, gate_check=0.4, gate_idle=1)


async def test_work_of_a_session_runs_in_the_order_of_emission(client, log):
    tasks = [await client.emit("note", {"name": str(number)}, session_id="ada") for number in range(5)]
    for task in tasks:
        assert (await client.result(task)).status == "DONE"
    assert log.seen == [str(number) for number in range(5)]
    assert log.most == 1


async def until(condition: Any) -> None:
    """Wait until a condition is true. Gates and tasks have no event to wait on."""
    while not await condition():  # noqa: ASYNC110 - there is no event
        await anyio.sleep(0.02)


async def emit_and_wait(client: TaskClient, workflow: str, payload: dict[str, Any]) -> str:
    """Start a task of the session, and return its id once it waits. An earlier message would overtake the task."""
    task = await client.emit(workflow, payload, session_id="ada")
    await see_waiting(client, task)
    return task


async def emit_and_enter(client: TaskClient, app: App, name: str) -> str:
    """Start a task that holds the place of its session until the test releases it."""
    task = await client.emit("held", {"name": name}, session_id="ada")

    async def is_inside() -> bool:
        return task in (await view_gate(client, make_session_gate_id(app.name, "ada"))).places

    await until(is_inside)
    return task


async def view_gate(client: TaskClient, gate: str) -> GateState:
    """Return the state of a gate."""
    state: GateState = await client.connection.get_workflow_handle(gate).query("view", result_type=GateState)
    return state


@pytest.mark.cluster
async def test_two_sessions_run_at_once(client, log):
    tasks = [await client.emit("note", {"name": name}, session_id=name) for name in ("ada", "bob")]
    for task in tasks:
        assert (await client.result(task)).status == "DONE"
    assert sorted(log.seen) == ["ada", "bob"]


@pytest.mark.cluster
async def test_concurrency_is_never_exceeded(client, log):
    tasks = [await client.emit("pair", {"name": str(number)}) for number in range(6)]
    for task in tasks:
        await client.result(task)
    assert len(log.seen) == 6
    assert log.most == 2


@pytest.mark.cluster
async def test_concurrency_by_key_counts_each_key_separately(client, log):
    tasks = [await client.emit("each", {"name": f"{key}{number}", "key": key}) for key in "ab" for number in range(2)]
    for task in tasks:
        await client.result(task)
    assert {name[0] for name in log.seen[:2]} == {"a", "b"}
    assert log.most == 2


@pytest.mark.cluster
async def test_limit_that_is_unknown_to_the_emitter_is_kept(app, client, cluster, log):
    """The emitting program lacks the code of the app, so only the worker has the limit."""
    settings = replace(cluster, task_queue=app.name)
    invalid = TaskClient(client.connection, None, settings)
    tasks = [await invalid.emit("pair", {"name": str(number)}) for number in range(4)]
    for task in tasks:
        assert (await client.result(task)).status == "DONE"
    assert log.most == 2


@pytest.mark.cluster
async def test_rate_keeps_its_window(client, log):
    tasks = [await client.emit("slow", {"name": str(number)}) for number in range(3)]
    for task in tasks:
        await client.result(task)
    starts = sorted(log.moments)
    assert starts[2] - starts[0] > 1.0


@pytest.mark.cluster
async def test_newer_trigger_supersedes_unstarted_triggers_of_its_session(app, client, log):
    running = await emit_and_enter(client, app, "running")
    old = await client.emit("note", {"name": "old"}, session_id="ada")
    later = await client.emit("note", {"name": "later"}, session_id="ada", delay=1)
    other = await client.emit("note", {"name": "other"}, session_id="ada", source=TriggerSource.SYSTEM)
    new = await client.emit("note", {"name": "new"}, session_id="ada", supersedes="session")
    for task in (old, later):
        end = await client.result(task)
        assert (end.status, end.reason) == ("CANCELLED", f"superseded by {new}")
    log.is_released = True
    for task in (running, other, new):
        assert (await client.result(task)).status == "DONE"
    assert sorted(log.seen) == ["new", "other", "running"]


@pytest.mark.cluster
async def test_stale_trigger_is_not_run(client, log):
    end = await client.result(await client.emit("note", {"name": "late"}, expires_at=time.time() + 0.001, delay=0.2))
    assert (end.status, end.reason) == ("CANCELLED", "stale")
    assert log.seen == []


async def test_message_goes_to_the_live_task_of_its_session(client, log):
    chat = await emit_and_wait(client, "chat", {"text": "hello"})
    for text in ("well", "bye"):
        message = await client.emit(payload={"text": text}, source=TriggerSource.MESSAGE, session_id="ada")
        assert (await client.result(message)).reason == f"delivered to {chat}"
    end = await client.result(chat)
    assert end.result_json == '["hello","well","bye"]'


@pytest.mark.cluster
async def test_trigger_of_another_source_goes_to_the_live_task_of_its_session(client, log):
    chat = await emit_and_wait(client, "chat", {"text": "hello"})
    message = await client.emit(payload={"text": "bye"}, source=TriggerSource.PROACTIVE, session_id="ada")
    assert (await client.result(message)).reason == f"delivered to {chat}"
    assert (await client.result(chat)).result_json == '["hello","bye"]'


async def test_message_without_a_live_task_starts_a_task(client, log):
    first = await client.emit(payload={"text": "bye"}, source=TriggerSource.MESSAGE, session_id="ada")
    assert (await client.result(first)).result_json == '["bye"]'


@pytest.mark.cluster
async def test_unread_message_is_emitted_again_when_its_task_ends(client, log):
    deaf = await emit_and_wait(client, "deaf", {})
    message = await client.emit(payload={"text": "bye"}, source=TriggerSource.MESSAGE, session_id="ada")
    assert (await client.result(message)).reason == f"delivered to {deaf}"
    await client.signal(deaf, "go")
    await client.result(deaf)

    async def has_run() -> bool:
        return bool(log.seen == ["bye"])

    await until(has_run)


@pytest.mark.campaign
async def test_trigger_that_never_starts_is_skipped(app, client, log):
    """A producer is killed after the announcement of its trigger."""
    spec = TriggerSpec(workflow="note", payload={"name": "lost"}, session_id="ada")
    start = start_of(client._accept(spec), 2.0)
    announced = await SessionGates(client.connection, app.name).announce(
        "never-started", replace(start, gate_check=0.4)
    )
    assert announced is not None
    end = await client.result(await client.emit("note", {"name": "next"}, session_id="ada"))
    assert end.status == "DONE"


@pytest.mark.cluster
async def test_duplicate_withdraws_its_place(app, client, log):
    first = await client.emit("note", {"name": "first"}, dedup_key="gates:1", dedup_scope="ever", session_id="ada")
    await client.result(first)
    assert (
        await client.emit("note", {"name": "again"}, dedup_key="gates:1", dedup_scope="ever", session_id="ada") == first
    )
    state = await view_gate(client, make_session_gate_id(app.name, "ada"))
    assert state.tickets == {}


@pytest.mark.cluster
async def test_task_that_ended_without_leaving_is_detected(app, client, log):
    """An operator terminates a workflow that holds the place of its session."""
    held = await emit_and_enter(client, app, "held")
    await client.connection.get_workflow_handle(held).terminate()
    assert (await client.result(await client.emit("note", {"name": "next"}, session_id="ada"))).status == "DONE"
    assert log.seen == ["next"]


@pytest.mark.campaign
async def test_gate_ends_when_idle_and_is_started_again(app, client, log):
    limit = make_limit_gate_id(app.name, "pair", None)
    lane = make_session_gate_id(app.name, "ada")
    for _ in range(2):
        await client.result(await client.emit("pair", {"name": "one"}, session_id="ada"))

        async def are_gone() -> bool:
            found = [await client.connection.get_workflow_handle(gate).describe() for gate in (limit, lane)]
            return all(one.status is WorkflowExecutionStatus.COMPLETED for one in found)

        await until(are_gone)
    assert log.seen == ["one", "one"]


@pytest.mark.cluster
async def test_gate_continues_in_its_next_run(app, client, log, monkeypatch):
    gate = make_limit_gate_id(app.name, "pair", None)
    start = TaskClient._start_of

    def start_with_few(self: TaskClient, row: Any) -> Any:
        return replace(start(self, row), gate_signals_max=4)

    monkeypatch.setattr(TaskClient, "_start_of", start_with_few)
    for task in [await client.emit("pair", {"name": str(number)}) for number in range(6)]:
        await client.result(task)
    assert log.most == 2
    runs = [one.run_id async for one in client.connection.list_workflows(f"WorkflowId = '{gate}'")]
    assert len(runs) > 1


@pytest.mark.cluster
async def test_cancelled_task_leaves_the_order(app, client, log):
    first = await client.emit("held", {"name": "first"}, session_id="ada")
    second, third = [await client.emit("note", {"name": name}, session_id="ada") for name in ("second", "third")]
    await client.cancel(second)
    assert (await client.result(second)).status == "CANCELLED"
    log.is_released = True
    for task in (first, third):
        assert (await client.result(task)).status == "DONE"
    assert log.seen == ["first", "third"]


@pytest.mark.cluster
async def test_child_with_a_session_runs_in_its_order(app, client, log):
    @app.workflow("parent")
    async def parent(ctx: TaskContext) -> None:
        for number in range(3):
            await ctx.emit("note", {"name": str(number)}, session_id="ada")

    await client.result(await client.emit("parent"))

    async def have_run() -> bool:
        return bool(log.seen == ["0", "1", "2"])

    await until(have_run)
