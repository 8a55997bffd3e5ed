"""A cluster that is unreachable or refuses updates: an entry continues only while it may hold its lease."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import anyio
import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from craftcore import App, LeaseLost, TaskContext
from craftcore.clock import SystemClock
from craftcore.temporal.entries import turn_activity
from craftcore.temporal.entries.entry_runner import ClusterClock
from craftcore.temporal.entries.heartbeats import Answer, Heartbeats
from craftcore.temporal.entries.open_entry import OpenEntry
from craftcore.temporal.entries.update_sender import UpdateSender
from craftcore.temporal.rpc_errors import is_missing
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.worker import working
from craftcore.temporal.workflow.journal_messages import (
    LEASE_LOST,
    STATE_REFUSED,
    Intent,
    JournalAnswer,
    JournalCall,
    Outcome,
)
from tests.support.fakes import NEW_YEAR, VirtualClock
from tests.support.processes import PATIENCE
from tests.temporal.broken_line import FaultyProxy, faulty_proxy
from tests.temporal.task_client import TaskClient

pytestmark = pytest.mark.anyio
RECORD = JournalCall(kind="record", text="{}", memo="note:1")
DONE = Outcome(status="DONE", reason="the provider answered", result_json='"sent"', provider_ref="ref-1")


@pytest.fixture
def settings(cluster: TemporalSettings) -> TemporalSettings:
    return replace(cluster, task_queue="unreachable", heartbeat_timeout=1, shutdown_grace=1)


@pytest.fixture
async def line(cluster: TemporalSettings) -> AsyncIterator[FaultyProxy]:
    with anyio.fail_after(PATIENCE):
        async with faulty_proxy(cluster.address) as line:
            yield line


@pytest.fixture
def entered() -> anyio.Event:
    return anyio.Event()


@pytest.fixture
def app(entered: anyio.Event) -> App:
    app = App("unreachable")

    @app.workflow("waits")
    async def waits(ctx: TaskContext) -> None:
        entered.set()
        await anyio.sleep_forever()

    @app.workflow("steps")
    async def steps(ctx: TaskContext) -> None:
        for number in range(10_000):
            await ctx.step("one", anyio.sleep, 0.01, key=str(number))
            entered.set()

    return app


@pytest.fixture
async def client(app: App, settings: TemporalSettings) -> AsyncIterator[TaskClient]:
    """Run a worker whose own entries keep their lease on a slow machine."""
    settings = replace(settings, heartbeat_timeout=PATIENCE)
    async with working(app, settings) as connection:
        yield TaskClient(connection, app, settings)


@pytest.fixture
async def task(client: TaskClient, entered: anyio.Event) -> AsyncIterator[str]:
    """Start a task whose first entry is open, and records nothing."""
    task = await client.emit("waits")
    await entered.wait()
    yield task
    await client.cancel(task)


async def open_entry(line: FaultyProxy, task: str, **asked: Any) -> OpenEntry:
    return OpenEntry(client=await Client.connect(line.address), workflow_id=task, task_id=task, token=1, **asked)


class JumpingClock(SystemClock):
    """The clock of a machine that was suspended for some seconds."""

    ahead = 0.0

    def boot_time(self) -> float:
        return super().boot_time() + self.ahead


def begin(key: str) -> JournalCall:
    intent = Intent(key=key, action="send", policy="ask", args_hash="hash", request_json=None, ends_at=0.0)
    return JournalCall(kind="begin", intent=intent)


@pytest.mark.cluster
async def test_worker_stops_while_the_cluster_is_down(app, settings, line, entered):
    """In an earlier version, a step that could not be recorded blocked its worker for ever."""
    async with working(app, replace(settings, address=line.address)) as connection:
        task = await TaskClient(connection, app, settings).emit("steps")
        await entered.wait()
        line.cut()
    line.is_cut = False
    async with working(app, settings) as connection:
        await TaskClient(connection, app, settings).cancel(task)


async def test_entry_that_may_be_lost_sends_only_the_end_of_a_call(client, task, line):
    state = {"lost": False, "stopped": False}
    entry = await open_entry(line, task, may_be_lost=lambda: state["lost"], has_stopped=lambda: state["stopped"])
    updates, key = UpdateSender(entry), f"activity:{task}:1.1"
    settle = JournalCall(kind="settle", key=key, calls=1, outcome=DONE)
    answers: dict[str, JournalAnswer] = {}

    async def send(name: str, call: JournalCall) -> None:
        answers[name] = await updates.send(call)

    assert (await updates.send(begin(key))).is_begun
    line.cut()
    async with anyio.create_task_group() as group:
        group.start_soon(send, "settle", settle)
        group.start_soon(send, "record", RECORD)
        await anyio.sleep(1)
        assert answers == {}  # with the lease held, both wait for the cluster
        state["lost"] = True
        with pytest.raises(LeaseLost):
            await updates.query("act_keys", [], list[str])
        assert "settle" not in answers
        line.is_cut = False
    assert (answers["settle"].error, answers["record"].error) == (None, LEASE_LOST)
    assert [one.status for one in (await client.view(task)).activities] == ["DONE"]
    line.cut()
    state["stopped"] = True
    assert (await updates.send(settle)).error == LEASE_LOST


@pytest.mark.cluster
async def test_entry_that_lost_its_lease_for_a_moment_is_not_ended_by_its_turn(monkeypatch, app, settings):
    """A handler that catches the loss as a failure of its step would end the task with a wrong result."""
    ends: list[str] = []

    @app.workflow("catches")
    async def catches(ctx: TaskContext) -> str:
        if not ends:
            JumpingClock.ahead += 3600
        try:
            await ctx.step("one", anyio.sleep, 0)
            ends.append("done")
        except LeaseLost:
            ends.append("compensated")
        await anyio.sleep(settings.heartbeat_timeout)  # meanwhile the cluster acknowledges heartbeats
        return ends[-1]

    monkeypatch.setattr(turn_activity, "SystemClock", JumpingClock)
    with anyio.fail_after(PATIENCE):
        async with working(app, settings) as connection:
            client = TaskClient(connection, app, settings)
            end = await client.result(await client.emit("catches"))
    assert ({*ends}, end.result_json) == ({"compensated", "done"}, '"done"')
    assert ends == sorted(ends)  # a slow machine may lose the lease twice, but not after the record of its step


@pytest.mark.parametrize(("namespace", "missing"), [("default", True), ("absent", False)])
async def test_missing_namespace_is_not_reported_as_a_missing_task(cluster, namespace, missing):
    """A server that has just started reports each namespace as missing."""
    client = await Client.connect(cluster.address, namespace=namespace)
    with pytest.raises(RPCError) as refused:
        await client.get_workflow_handle("nobody").describe()
    assert refused.value.status is RPCStatusCode.NOT_FOUND
    assert is_missing(refused.value) is missing


async def test_update_that_the_cluster_refuses_for_good_is_not_repeated(line):
    updates = UpdateSender(await open_entry(line, ""))  # a workflow without an id
    settle = JournalCall(kind="settle", key="one", calls=1, outcome=DONE)
    answers: list[JournalAnswer] = []

    async def send(call: JournalCall) -> None:
        answers.append(await updates.send(call))

    async with anyio.create_task_group() as group:
        for call in (RECORD, RECORD, settle):
            group.start_soon(send, call)
    assert [one.error for one in answers] == [STATE_REFUSED] * 3
    assert "the cluster refused it" in answers[0].message


async def test_suspend_of_the_machine_takes_the_lease_and_the_time_of_a_call(cluster):
    machine = VirtualClock()  # its `awake_time` does not advance with it
    handle = (await Client.connect(cluster.address)).get_async_activity_handle(task_token=b"none")
    heartbeats, clock = Heartbeats(handle, 10.0, machine), ClusterClock(NEW_YEAR, machine)
    machine.advance(9.0)
    assert (heartbeats.may_be_lost(), heartbeats.judge()) == (False, Answer.SILENT)
    machine.advance(3600.0)
    assert (heartbeats.may_be_lost(), heartbeats.judge()) == (True, Answer.LOST)
    assert clock.now() == NEW_YEAR + 3609.0
