"""The limits of a task on a cluster: large values are refused with a reason, and many children and steps work."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any

import anyio
import pytest

from craftcore import App, Call, Continue, RetryPolicy, TaskContext
from craftcore.errors import NotFound
from craftcore.tasks.model import Resume
from craftcore.temporal.workflow.messages import TaskState
from tests.support.processes import PATIENCE
from tests.temporal import test_rollover
from tests.temporal.test_task_ledger import TASK

pytestmark = pytest.mark.anyio
tasks = test_rollover.tasks


@pytest.fixture
def app(request: pytest.FixtureRequest) -> App:
    app = App(request.node.name)
    app.default_retry = RetryPolicy(max_attempts=1, base=0, cap=0)
    return app


def make_noise(size: int) -> str:
    """Return text that cannot be compressed to less than half its size."""
    return random.Random(size).randbytes(size // 2).hex()


async def failure_of(tasks: test_rollover.Tasks, task: str) -> tuple[str | None, str]:
    with anyio.fail_after(PATIENCE):
        end = await tasks.client.result(task)
    assert end.status == "FAILED", end
    return end.error_code, end.error_message or ""


@pytest.mark.cluster
async def test_result_of_a_megabyte_and_a_half_is_kept(app, tasks):
    @app.workflow("order")
    async def order(ctx: TaskContext) -> int:
        found = await ctx.step("big", make_noise, 1_499_990)
        await ctx.sleep(0.01)
        return len(found)

    assert await tasks.end(await tasks.start("order", {}, updates=100)) == 1_499_990


async def test_result_of_a_step_that_is_too_large_is_refused(app, tasks):
    @app.workflow("order")
    async def order(ctx: TaskContext) -> None:
        await ctx.step("big", make_noise, 2_200_000)

    code, message = await failure_of(tasks, await tasks.start("order", {}, updates=100))
    assert code in ("VALIDATION_ERROR", "PAYLOAD_TOO_LARGE")
    assert "2,200,002 bytes; the limit is 1,500,000" in message


async def test_result_of_a_task_that_is_too_large_is_a_stub(app, tasks):
    @app.workflow("order")
    async def order(ctx: TaskContext) -> str:
        return make_noise(2_200_000)

    found = await tasks.end(await tasks.start("order", {}, updates=100))
    assert (found["result_unstored"], found["bytes"]) == ("too large", 2_200_002)


async def test_state_that_is_too_large_for_a_message_is_refused(app, tasks):
    @app.workflow("order")
    async def order(ctx: TaskContext) -> Any:
        return Continue("\N{SNOWMAN}" * 320_000)

    code, message = await failure_of(tasks, await tasks.start("order", {}, updates=100))
    assert code == "PAYLOAD_TOO_LARGE"
    assert "the state has 2,240,006 bytes as it is sent" in message


async def test_turn_that_finds_a_state_over_the_limit_is_not_begun(app, tasks):
    entered: list[int] = []

    @app.workflow("order")
    async def order(ctx: TaskContext) -> Any:
        entered.append(ctx.turn)
        return Continue("x" * 1_200_000)

    code, message = await failure_of(tasks, await tasks.start("order", {}, updates=100))
    assert code == "PAYLOAD_TOO_LARGE"
    assert "the state has 1,200,002 bytes; the limit is 1,048,576 (tasks.state_max_bytes), so turn 2 was not" in message
    assert entered == [1]


async def test_entry_that_is_too_large_to_be_sent_ends_its_task(app, tasks):
    """In an earlier version, a state and a progress that cannot be sent together blocked their task."""

    @app.workflow("order")
    async def order(ctx: TaskContext[str]) -> None:
        raise AssertionError("not reached")

    state = f'"{"x" * 1_900_000}"'
    task = replace(TASK, workflow="order", turn=2, state_json=state, progress_json=f'"{"x" * 300_000}"')
    carried = TaskState(task=task, resume=Resume.NEXT)
    code, message = await failure_of(tasks, await tasks.start("order", {}, updates=100, carried=carried))
    assert code == "PAYLOAD_TOO_LARGE"
    assert "the limit is 2,000,000. Its state has 1,900,006: store" in message


@pytest.mark.campaign
async def test_state_over_the_limit_of_a_run_names_its_largest_part(app, tasks):
    @app.workflow("order")
    async def order(ctx: TaskContext) -> None:
        for number in range(4):
            await ctx.step("big", make_noise, 1_400_000, key=str(number))
        await ctx.sleep(0.01)
        for number in range(1_000):
            await ctx.step("small", lambda: 1, key=str(number))

    code, message = await failure_of(tasks, await tasks.start("order", {}, updates=1))
    assert code == "PAYLOAD_TOO_LARGE"
    assert "The records of its turn are 5,6" in message


@pytest.mark.campaign
async def test_state_of_a_megabyte_is_carried(app, tasks):
    @app.workflow("order")
    async def order(ctx: TaskContext[str]) -> Any:
        if ctx.turn < 3:
            await ctx.step("one", lambda: 1)
            return Continue(make_noise(1_000_000))
        return len(ctx.state or "")

    assert await tasks.end(await tasks.start("order", {}, updates=1)) == 1_000_000


@pytest.mark.cluster
async def test_result_of_an_act_that_is_too_large_to_be_sent_is_not_stored(app, tasks):
    """The end of the call is recorded, and the turn gets at once the error that a repeated entry will get."""

    @app.action("send", irreversible=True)
    async def send(call: Call) -> str:
        return '"' * 700_000

    @app.workflow("order")
    async def order(ctx: TaskContext) -> Any:
        found = [await ctx.act(send, key="letter")]
        if ctx.turn == 1:
            return Continue(found[0]["result_unstored"])
        return [ctx.state, found[0]["result_unstored"]]

    task = await tasks.start("order", {}, updates=100)
    before, after = await tasks.end(task)
    assert before == after
    assert "2,800,006 bytes as it is sent; on a cluster the limit is 1,800,000" in before
    [act] = (await tasks.client.view(task)).activities
    assert (act.status, act.result_json, act.result_unstored) == ("DONE", None, before)


@pytest.mark.cluster
async def test_results_of_acts_that_are_too_large_together_are_found_at_a_re_entry(app, tasks):
    calls: list[str] = []

    @app.action("send", irreversible=True)
    async def send(call: Call) -> str:
        calls.append(call.key)
        return make_noise(900_000)

    @app.workflow("order")
    async def order(ctx: TaskContext) -> int:
        found: list[str] = []

        async def one(number: int) -> None:
            found.append(await ctx.act(send, key=f"letter-{number}"))

        async with anyio.create_task_group() as group:
            for number in range(4):
                group.start_soon(one, number)
        await ctx.sleep(0.01)
        return sum(map(len, found))

    assert await tasks.end(await tasks.start("order", {}, updates=100)) == 3_600_000
    assert len(calls) == 4


async def test_question_that_is_too_large_is_refused(app, tasks):
    @app.workflow("order")
    async def order(ctx: TaskContext) -> Any:
        return await ctx.ask("which?", options=["\N{SNOWMAN}" * 3_990 + str(number) for number in range(100)])

    code, message = await failure_of(tasks, await tasks.start("order", {}, updates=100))
    assert code == "PAYLOAD_TOO_LARGE"
    assert "its wait has 2,39" in message


@pytest.mark.cluster
async def test_forty_steps_run_at_once(app, tasks):
    running, maximum = 0, 0

    @app.workflow("order")
    async def order(ctx: TaskContext) -> int:
        all_run = anyio.Event()

        async def wait_for_all(number: int) -> int:
            nonlocal running, maximum
            running, maximum = running + 1, max(maximum, running + 1)
            if running == 40:
                all_run.set()
            await all_run.wait()
            return number

        async def one(number: int) -> None:
            found.append(await ctx.step("one", wait_for_all, number, key=str(number)))

        found: list[int] = []
        async with anyio.create_task_group() as group:
            for number in range(40):
                group.start_soon(one, number)
        return sum(found)

    assert await tasks.end(await tasks.start("order", {}, updates=100)) == sum(range(40))
    assert maximum == 40


@pytest.mark.cluster
async def test_mailbox_that_is_full_fails_the_task(app, tasks):
    @app.workflow("order")
    async def order(ctx: TaskContext) -> None:
        await ctx.wait_for("go")

    task = await tasks.start("order", {}, updates=100)
    with suppress(NotFound):  # the task may have ended before the last signal
        for _ in range(6):
            await tasks.client.signal(task, "other", make_noise(200_000))
    code, message = await failure_of(tasks, task)
    assert code == "PAYLOAD_TOO_LARGE"
    assert "its unread signals have 1," in message  # some signals arrive together


def add_children(app: App) -> None:
    @app.workflow("child")
    async def child(ctx: TaskContext, number: int) -> int:
        await ctx.sleep(0.01)
        return number

    @app.workflow("parent")
    async def parent(ctx: TaskContext, count: int) -> int:
        started = [await ctx.start_child("child", {"number": number}, key=str(number)) for number in range(count)]
        return sum([await one.result(int) for one in started])


@pytest.mark.cluster
async def test_children_beyond_the_limit_are_started_in_the_next_run(app, tasks):
    add_children(app)
    task = await tasks.start("parent", {"count": 6}, updates=100, children=3)
    assert await tasks.end(task) == sum(range(6))
    assert await tasks.runs(task) > 1


@pytest.mark.campaign
async def test_five_thousand_children_run_once(app, tasks):
    ran: Counter[int] = Counter()

    @app.workflow("child")
    async def child(number: int) -> None:
        ran[number] += 1

    @app.workflow("parent")
    async def parent(ctx: TaskContext, count: int) -> int:
        for number in range(count):
            await ctx.start_child("child", {"number": number}, key=str(number))
        return count

    task = await tasks.start("parent", {"count": 5_000}, updates=1_500)
    with anyio.fail_after(1_800):
        assert (await tasks.client.result(task)).result_json == "5000"
        while len(ran) < 5_000:  # noqa: ASYNC110 - there is no event
            await anyio.sleep(0.1)
    assert set(ran.values()) == {1}


@pytest.mark.cluster
async def test_step_costs_five_events(app, tasks):
    @app.workflow("order")
    async def order(ctx: TaskContext, count: int) -> None:
        for number in range(count):
            await ctx.step("one", lambda: 1, key=str(number))

    events: list[int] = []
    for count in (0, 20):
        task = await tasks.client.emit("order", {"count": count})
        await tasks.client.result(task)
        events.append(len((await tasks.client.connection.get_workflow_handle(task).fetch_history()).events))
    assert (events[1] - events[0]) / 20 <= 5
