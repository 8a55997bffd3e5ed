"""Tasks that continue in a new run of their workflow: each step and each act happens once."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import anyio
import pytest
from temporalio.client import Client

from craftcore import App, Call, Continue, RetryPolicy, TaskContext
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.task_operations import TaskOperations
from craftcore.temporal.worker import working
from craftcore.temporal.workflow.entry_input import PAGE_MAX_BYTES, is_inline, make_page
from craftcore.temporal.workflow.messages import WORKFLOW, Mail, TaskStart, TaskState, first_arguments
from craftcore.temporal.workflow.rollover import CARRIED_MAX_BYTES, make_refusal, pack, size_of, unpack
from tests.support.processes import PATIENCE
from tests.temporal.task_client import TaskClient
from tests.temporal.test_task_ledger import TASK

pytestmark = pytest.mark.anyio


@pytest.fixture
def app(request: pytest.FixtureRequest) -> App:
    app = App(request.node.name)
    app.default_retry = RetryPolicy(max_attempts=3, base=0, cap=0)
    return app


class Tasks:
    """The tasks of one app, with a limit of updates per run."""

    def __init__(self, connection: Client, app: App, settings: TemporalSettings) -> None:
        self.client = TaskClient(connection, app, settings)
        self._connection = connection
        self._settings = settings

    async def start(
        self,
        workflow: str,
        payload: dict[str, Any],
        *,
        updates: int,
        children: int = 1_000,
        carried: TaskState | None = None,
    ) -> str:
        start = TaskStart(
            workflow=workflow,
            payload_json=json.dumps(payload),
            source="IMMEDIATE",
            due_at=0.0,
            heartbeat_timeout=self._settings.heartbeat_timeout,
            run_updates_max=updates,
            run_children_max=children,
        )
        task = f"t:{uuid4()}"
        queue = self._settings.task_queue or ""
        arguments = first_arguments(start) if carried is None else pack(start, carried)
        assert arguments is not None, carried
        await self._connection.start_workflow(WORKFLOW, args=arguments, id=task, task_queue=queue)
        return task

    async def end(self, task: str) -> Any:
        with anyio.fail_after(PATIENCE):
            end = await self.client.result(task)
        assert end.status == "DONE", end
        return json.loads(end.result_json or "null")

    async def carried(self, task: str) -> TaskState:
        """Return the state that a task would carry to its next run."""
        state = (await TaskOperations(self._connection).load(task)).state
        assert state is not None, task
        return state

    async def runs(self, task: str) -> int:
        """Return the number of runs of a workflow."""
        count, handle = 1, self._connection.get_workflow_handle(task)
        started = (await handle.fetch_history()).events[0].workflow_execution_started_event_attributes
        while run := started.continued_execution_run_id:
            count += 1
            handle = self._connection.get_workflow_handle(task, run_id=run)
            started = (await handle.fetch_history()).events[0].workflow_execution_started_event_attributes
        return count


@pytest.fixture
async def tasks(app: App, cluster: TemporalSettings) -> AsyncIterator[Tasks]:
    settings = replace(cluster, task_queue=app.name)
    async with working(app, settings) as connection:
        yield Tasks(connection, app, settings)


def add_steps(app: App, ran: Counter[int]) -> None:
    @app.workflow("steps")
    async def steps(ctx: TaskContext, count: int) -> int:
        def run(number: int) -> int:
            ran[number] += 1
            return number

        return sum([await ctx.step("one", run, number, key=str(number)) for number in range(count)])


@pytest.mark.cluster
async def test_steps_of_a_turn_run_once_over_several_runs(app, tasks):
    ran: Counter[int] = Counter()
    add_steps(app, ran)
    task = await tasks.start("steps", {"count": 25}, updates=10)
    assert await tasks.end(task) == sum(range(25))
    assert (len(ran), set(ran.values())) == (25, {1})
    assert await tasks.runs(task) == 3


@pytest.mark.campaign
async def test_ten_thousand_steps_of_a_turn_run_once(app, tasks):
    ran: Counter[int] = Counter()
    add_steps(app, ran)
    task = await tasks.start("steps", {"count": 9_999}, updates=1_500)
    with anyio.fail_after(900):
        end = await tasks.client.result(task)
    assert end.result_json == str(sum(range(9_999)))
    assert (len(ran), set(ran.values())) == (9_999, {1})


@pytest.mark.cluster
async def test_concurrent_acts_are_called_once_over_several_runs(app, tasks):
    called: Counter[str] = Counter()

    @app.action("pay", irreversible=True)
    async def pay(call: Call) -> str:
        called[call.key] += 1
        await anyio.sleep(0.01)
        return call.key

    @app.workflow("order")
    async def order(ctx: TaskContext) -> int:
        keys: list[str] = []

        async def one(number: int) -> None:
            keys.append(await ctx.act(pay, key=f"act-{number}"))

        for first in range(0, 30, 5):
            async with anyio.create_task_group() as group:
                for number in range(first, first + 5):
                    group.start_soon(one, number)
        return len(set(keys))

    task = await tasks.start("order", {}, updates=10)
    assert await tasks.end(task) == 30
    assert (len(called), set(called.values())) == (30, {1})
    assert await tasks.runs(task) > 1


@pytest.mark.campaign
async def test_attempts_are_counted_over_several_runs(app, tasks):
    attempts: list[int] = []

    @app.workflow("order")
    async def order(ctx: TaskContext) -> int:
        for number in range(8):
            await ctx.step("one", lambda: 1, key=str(number))
        attempts.append(ctx.attempt)
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return ctx.attempt

    task = await tasks.start("order", {}, updates=5)
    assert await tasks.end(task) == 3
    assert attempts == [1, 2, 3]


@pytest.mark.cluster
async def test_signals_reach_a_later_run_in_their_order(app, tasks):
    @app.workflow("order")
    async def order(ctx: TaskContext[list[int]]) -> Any:
        state = ctx.state or []
        if ctx.turn == 1:
            await ctx.wait_for("go")
        for number in range(2):
            await ctx.step("one", lambda: 1, key=str(number))
        state.append(await ctx.wait_for("number"))
        return state if len(state) == 4 else Continue(state)

    task = await tasks.start("order", {}, updates=4)
    for number in range(4):
        await tasks.client.signal(task, "number", number)
    await tasks.client.signal(task, "go")
    assert await tasks.end(task) == list(range(4))
    assert await tasks.runs(task) > 1


@pytest.mark.cluster
async def test_waiting_task_continues_to_wait_in_its_next_run(app, tasks):
    @app.workflow("order")
    async def order(ctx: TaskContext) -> list[Any]:
        await ctx.step("one", lambda: 1)
        return [await ctx.ask(f"Question {number}?") for number in range(2)]

    task = await tasks.start("order", {}, updates=1)
    with anyio.fail_after(PATIENCE):
        for number in range(2):
            while not (open_ := (await tasks.client.view(task)).questions):  # noqa: ASYNC110 - there is no event
                await anyio.sleep(0.02)
            await tasks.client.answer(task, open_[0].id, f"answer {number}", by="ada")
    assert await tasks.end(task) == [f"answer {number}" for number in range(2)]
    assert await tasks.runs(task) > 1


@pytest.mark.campaign
async def test_large_results_are_paged_and_carried(app, tasks):
    @app.workflow("order")
    async def order(ctx: TaskContext) -> list[int]:
        found = [len(await ctx.step("big", lambda: "x" * 700_000, key=str(number))) for number in range(4)]
        await ctx.sleep(0.01)
        return found

    task = await tasks.start("order", {}, updates=3)
    assert await tasks.end(task) == [700_000] * 4
    assert await tasks.runs(task) == 2


# The carried state

START = TaskStart(workflow="order", payload_json="{}", source="IMMEDIATE", due_at=0.0)


def a_state(**changes: Any) -> TaskState:
    return TaskState(task=TASK, resume="NEXT", **changes)


@pytest.mark.parametrize("size", [10, 300_000], ids=["small", "compressed"])
def test_packed_state_is_unpacked_to_the_same(size):
    mails = [Mail(event="go", payload_json=f'"{number}{"x" * size}"', sent_by=None) for number in range(10)]
    state = a_state(mails=mails, memo={"step:one": "1"})
    arguments = pack(START, state)
    assert arguments is not None
    assert sum(len(each) if isinstance(each, bytes) else size_of(each) for each in arguments) <= CARRIED_MAX_BYTES
    assert unpack(arguments[1], arguments[2]) == state


def test_state_that_is_too_large_names_its_largest_part():
    chance = random.Random(1)
    state = a_state(memo={str(number): chance.randbytes(500_000).hex() for number in range(5)})
    assert pack(START, state) is None
    assert "The records of its turn are 5,000" in make_refusal(state).message


def test_pages_have_the_whole_memo():
    state = a_state(memo={str(number): "x" * 300_000 for number in range(10)})
    assert not is_inline(state)
    found: dict[str, str] = {}
    first: int | None = 0
    pages = 0
    while first is not None:
        page = make_page(state, first)
        assert size_of(page) < PAGE_MAX_BYTES * 1.1
        found.update(page.memo)
        first, pages = page.following, pages + 1
    assert (found, pages) == (state.memo, 4)


async def test_task_that_continues_for_ever_carries_its_last_turn_only(app, tasks):
    """The state of earlier turns would grow without a limit. A live child still ends with its parent."""

    @app.action("send", irreversible=True)
    async def send(call: Call) -> str:
        return "ok"

    @app.workflow("child")
    async def child(ctx: TaskContext, lives: bool) -> None:
        if lives:
            await ctx.wait_for("never")

    @app.workflow("loop")
    async def loop(ctx: TaskContext[int]) -> Any:
        turn = ctx.state or 1
        started = await ctx.start_child("child", {"lives": turn == 2}, on_parent_end="cancel")
        if turn != 2:
            await started.result()
        await ctx.act(send)
        if turn == 3:
            await ctx.wait_for("go")
            return started.id
        return Continue(turn + 1)

    task = await tasks.start("loop", {}, updates=100)
    with anyio.fail_after(PATIENCE):
        while True:
            view = await tasks.client.view(task)
            if view.activities and (view.turn, view.status) == (3, "WAITING"):
                break
            await anyio.sleep(0.05)
        state = await tasks.carried(task)
    assert (len(state.acts), len(state.ends_at), len(state.child_ends)) == (1, 1, 1)
    alive, ended = state.children_to_cancel
    await tasks.client.signal(task, "go")
    assert await tasks.end(task) == ended
    with anyio.fail_after(PATIENCE):
        assert [(await tasks.client.result(one)).status for one in (alive, ended)] == ["CANCELLED", "DONE"]
