"""User code that blocks its event loop: a short block is tolerated, and a long one loses the entries.

A worker returns its entries when it stops, and tasks of an unknown workflow. Neither uses an attempt.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import pytest
from temporalio import activity

from craftcore import App, RetryPolicy, TaskContext
from craftcore.temporal.entries.entry_runner import make_entry
from craftcore.temporal.entries.heartbeats import Heartbeats
from craftcore.temporal.entries.turn_activity import TurnActivity
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.worker import working
from craftcore.temporal.workflow import task as task_workflow
from craftcore.temporal.workflow.messages import ACTIVITY, BEGUN, EntryEnd, EntryStart, TaskStart, TaskState
from craftcore.temporal.workflow.task import TaskWorkflow
from tests.support.processes import PATIENCE
from tests.temporal.task_client import TaskClient
from tests.temporal.test_task_ledger import TASK

pytestmark = pytest.mark.anyio
START = TaskStart(workflow="order", payload_json="{}", source="IMMEDIATE", due_at=0.0)


@pytest.fixture
def app(request: pytest.FixtureRequest) -> App:
    app = App(request.node.name)
    app.default_retry = RetryPolicy(max_attempts=1, base=0, cap=0)
    return app


@pytest.fixture
def settings(app: App, cluster: TemporalSettings) -> TemporalSettings:
    return replace(cluster, task_queue=app.name, heartbeat_timeout=1.0, shutdown_grace=0.1)


@pytest.fixture
def patient(settings: TemporalSettings) -> TemporalSettings:
    """Return settings with which a worker keeps its entries on a slow machine."""
    return replace(settings, heartbeat_timeout=PATIENCE)


def change_turns(monkeypatch: pytest.MonkeyPatch, **seconds: Any) -> None:
    monkeypatch.setattr("craftcore.temporal.worker.TurnActivity", partial(TurnActivity, **seconds))


async def test_blocked_loop_is_no_dead_worker(app, settings):
    """It is blocked for longer than the lease, which is long enough for a busy machine."""
    settings = replace(settings, heartbeat_timeout=4.0)

    @app.workflow("blocks")
    async def blocks(ctx: TaskContext) -> str:
        time.sleep(5)
        return "done"

    with anyio.fail_after(PATIENCE):
        async with working(app, settings) as connection:
            client = TaskClient(connection, app, settings)
            task = await client.emit("blocks")
            assert (await client.result(task)).result_json == '"done"'
            view = await client.view(task)
    assert (view.entries, view.crashes) == (1, 0)


@pytest.mark.campaign
async def test_loop_that_is_blocked_too_long_loses_its_entries(app, settings, monkeypatch):
    change_turns(monkeypatch, blocked_seconds=0.5, hand_back_seconds=0.3)
    entries: list[int] = []

    @app.workflow("blocks")
    async def blocks(ctx: TaskContext) -> str:
        entries.append(1)
        if len(entries) == 1:
            time.sleep(3)
            await ctx.step("late", lambda: entries.append(-1))
        return "done"

    with anyio.fail_after(PATIENCE):
        async with working(app, settings) as connection:
            client = TaskClient(connection, app, settings)
            task = await client.emit("blocks")
            assert (await client.result(task)).result_json == '"done"'
            view = await client.view(task)
    assert entries == [1, 1]
    assert view.crashes == 1


async def test_entry_with_late_heartbeats_is_returned_without_an_attempt(app, patient, monkeypatch):
    lost = iter([False, True])
    monkeypatch.setattr(Heartbeats, "may_be_lost", lambda heartbeats: next(lost, False))
    ran: list[str] = []

    @app.workflow("order")
    async def order(ctx: TaskContext) -> int:
        await ctx.step("first", ran.append, "first")
        await ctx.step("second", ran.append, "second")
        return ctx.attempt

    with anyio.fail_after(PATIENCE):
        async with working(app, patient) as connection:
            client = TaskClient(connection, app, patient)
            task = await client.emit("order")
            assert (await client.result(task)).result_json == "1"
            view = await client.view(task)
    assert ran == ["first", "second"]
    assert (view.entries, view.crashes) == (2, 0)


async def test_entry_of_a_stopping_worker_is_returned_without_an_attempt(app, patient):
    entered = anyio.Event()
    seen: list[tuple[int, str]] = []

    @app.workflow("order")
    async def order(ctx: TaskContext) -> Any:
        await ctx.step("first", lambda: seen.append((ctx.attempt, str(ctx.resume))))
        if not entered.is_set():
            entered.set()
            await anyio.sleep(PATIENCE)
        return ctx.attempt

    with anyio.fail_after(PATIENCE):
        async with working(app, patient) as connection:
            task = await TaskClient(connection, app, patient).emit("order")
            while not entered.is_set():  # noqa: ASYNC110 - another loop sets this
                await anyio.sleep(0.02)
        async with working(app, patient) as connection:
            client = TaskClient(connection, app, patient)
            assert (await client.result(task)).result_json == "1"
            view = await client.view(task)
    assert (len(seen), view.entries, view.crashes) == (1, 2, 0)


async def test_unknown_workflow_is_left_to_a_worker_with_its_code(app, settings, monkeypatch):
    change_turns(monkeypatch, hand_back_seconds=0.2)
    newer = App(app.name)

    @newer.workflow("order")
    async def order(ctx: TaskContext) -> int:
        return ctx.attempt

    with anyio.fail_after(PATIENCE):
        async with working(app, settings) as connection:
            client = TaskClient(connection, newer, settings)
            task = await client.emit("order")
            seen = await client.view(task)
            while seen.entries < 2 or "does not know workflow order" not in seen.reason:
                await anyio.sleep(0.02)
                seen = await client.view(task)
        async with working(newer, settings) as connection:
            client = TaskClient(connection, newer, settings)
            assert (await client.result(task)).result_json == "1"


@pytest.mark.campaign
async def test_workflow_without_a_worker_fails_after_its_time(app, settings, monkeypatch):
    change_turns(monkeypatch, unknown_seconds=0.3, hand_back_seconds=0.2)
    newer = App(app.name)

    @newer.workflow("order")
    async def order(ctx: TaskContext) -> None: ...

    with anyio.fail_after(PATIENCE):
        async with working(app, settings) as connection:
            client = TaskClient(connection, newer, settings)
            end = await client.result(await client.emit("order"))
    assert (end.status, end.error_code) == ("FAILED", "CAPABILITY_NOT_FOUND")


def test_deadline_counts_from_the_first_entry_also_after_a_crash():
    app = App("late")

    @app.workflow("order", deadline=60.0)
    async def order(ctx: TaskContext) -> None: ...

    again = EntryStart(
        token=2,
        task=replace(TASK, workflow="order"),
        start=START,
        resume="CRASH",
        attempts=2,
        starts=2,
        crashes=1,
        now=150.0,
        first_at=100.0,
        memo={},
        waits=[],
    )

    entry = make_entry(app, again)

    assert entry is not None
    assert entry.task.deadline_at == 160.0


# Counted crashes


class KilledTurnActivity(TurnActivity):
    """An activity that simulates a kill in the first entries of a task, before or after the start of their code."""

    deaths = 3
    has_begun = False

    @activity.defn(name=ACTIVITY)
    async def run(self, given: EntryStart) -> EntryEnd:
        if given.token > self.deaths:
            return await super().run(given)
        if self.has_begun:
            handle = self._client.get_async_activity_handle(task_token=activity.info().task_token)
            await handle.heartbeat(BEGUN)
        activity.raise_complete_async()  # no heartbeat follows


@pytest.mark.cluster
@pytest.mark.parametrize("has_begun", [False, True])
async def test_entry_whose_code_had_not_begun_is_no_crash_of_its_turn(app, settings, monkeypatch, has_begun):
    """In an earlier version, tasks became POISON when several workers were killed before the code began."""
    monkeypatch.setattr(task_workflow, "IDLE_CRASHES_MAX", 2)
    monkeypatch.setattr(KilledTurnActivity, "has_begun", has_begun)
    monkeypatch.setattr("craftcore.temporal.worker.TurnActivity", KilledTurnActivity)

    @app.workflow("order")
    async def order(ctx: TaskContext) -> str:
        return "done"

    with anyio.fail_after(PATIENCE):
        async with working(app, settings) as connection:
            client = TaskClient(connection, app, settings)
            task = await client.emit("order")
            end = await client.result(task)
            view = await client.view(task)

    ended = (end.status, end.error_code, view.entries, view.crashes)
    assert ended == (("FAILED", "POISON", 2, 2) if has_begun else ("DONE", None, 4, 3))


@pytest.mark.cluster
async def test_entry_after_a_crash_reports_the_start_of_its_code(app, settings, monkeypatch):
    monkeypatch.setattr(KilledTurnActivity, "deaths", 1)
    monkeypatch.setattr("craftcore.temporal.worker.TurnActivity", KilledTurnActivity)
    heartbeats: list[Any] = []

    @app.workflow("order")
    async def order(ctx: TaskContext) -> None:
        seen = await connections[0].get_workflow_handle(ctx.task_id).describe()
        [running] = seen.raw_description.pending_activities
        heartbeats.extend(json.loads(one.data) for one in running.heartbeat_details.payloads)

    connections: list[Any] = []
    with anyio.fail_after(PATIENCE):
        async with working(app, settings) as connection:
            connections.append(connection)
            client = TaskClient(connection, app, settings)
            assert (await client.result(await client.emit("order"))).status == "DONE"

    assert heartbeats == [BEGUN]


def crash(task: TaskWorkflow, token: int) -> None:
    task._state.entries = token
    task._has_recorded = False
    task._count_crash()


def test_entry_of_a_surviving_worker_is_no_crash_of_its_turn():
    task = TaskWorkflow(START, TaskState(task=TASK, resume="FIRST"), None)
    crash(task, 1)
    crash(task, 2)
    task.accept_survivor(1)
    assert task._state.idle_entries == [2]
    task._state.entries = 3
    task.accept_survivor(3)  # reported before the cluster recorded the end of its entry
    crash(task, 3)
    assert task._state.idle_entries == [2]
    crash(task, 4)
    assert task._state.idle_entries == [2, 4]


@pytest.mark.campaign
async def test_outages_of_the_server_bury_no_innocent_task(app, mortal_cluster):
    settings = replace(mortal_cluster.settings, task_queue=app.name, heartbeat_timeout=1.0)
    entries: list[int] = []

    @app.workflow("order")
    async def order(ctx: TaskContext) -> int:
        entries.append(1)
        if len(entries) <= 4:
            await anyio.sleep(PATIENCE)
        return len(entries)

    with anyio.fail_after(PATIENCE * 3):
        async with working(app, settings) as connection:
            client = TaskClient(connection, app, settings)
            task = await client.emit("order")
            for number in range(1, 5):
                while len(entries) < number:  # noqa: ASYNC110 - another loop sets this
                    await anyio.sleep(0.02)
                await anyio.to_thread.run_sync(mortal_cluster.kill, 2.5)
            assert (await client.result(task)).result_json == "5"
