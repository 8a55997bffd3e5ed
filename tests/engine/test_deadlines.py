"""Deadlines of tasks and timeouts of attempts.

A task fails at its deadline while it runs, waits or is in backoff. An attempt is cancelled at its timeout and retried.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from craftcore import App, Call, Continue, RetryPolicy, Snooze, TaskContext
from tests.support.engine_harness import Lab, lab, settings
from tests.support.fakes import NEW_YEAR, VirtualClock
from tests.support.loops import ON_ASYNCIO
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio

HOUR = 3600.0


async def assert_failed_at_deadline(harness: Lab, clock: VirtualClock, task_id: str) -> None:
    """Advance the clock by an hour and assert that the task has failed without another run."""
    clock.advance(hours=1)
    harness.engine.ring(schedules=False)
    row = await harness.ended(task_id)
    assert (row["status"], row["error_code"]) == ("FAILED", "AGENT_TIMEOUT")
    assert row["error_message"].endswith("the task did not end before its deadline")
    assert not harness.rows("SELECT 1 FROM triggers WHERE status IN ('PENDING', 'CLAIMED')")


WAITS: list[Callable[[TaskContext], Awaitable[object]]] = [
    lambda ctx: ctx.sleep(86_400),
    lambda ctx: ctx.wait_for("never"),
    lambda ctx: ctx.wait_for("never", timeout=86_400),
    lambda ctx: ctx.ask("Send it?"),
]


@ON_ASYNCIO
@pytest.mark.parametrize("wait", WAITS, ids=["a sleep", "an event", "an event with a timeout", "a question"])
async def test_waiting_task_fails_at_the_deadline(tmp_path, wait):
    app, clock, entered = App(), VirtualClock(), list[str]()

    @app.workflow("waits", deadline=HOUR)
    async def waits(ctx: TaskContext) -> None:
        entered.append(ctx.resume)
        assert ctx.deadline == datetime.fromtimestamp(NEW_YEAR + HOUR, UTC)
        await wait(ctx)

    async with lab(app, tmp_path, clock=clock) as harness:
        emitted = await app.emit("waits")
        await harness.waiting(emitted.id)
        await assert_failed_at_deadline(harness, clock, emitted.id)
        assert entered == ["FIRST"]
        assert not harness.rows("SELECT 1 FROM questions WHERE status = 'OPEN'")


@ON_ASYNCIO
async def test_task_waiting_for_a_child_or_the_next_turn_fails_at_the_deadline(tmp_path):
    app, clock = App(), VirtualClock()

    @app.workflow("child")
    async def child(ctx: TaskContext) -> None:
        await ctx.wait_for("never")

    @app.workflow("waits", deadline=HOUR)
    async def waits(ctx: TaskContext, kind: str) -> object:
        if kind == "child":
            return await (await ctx.start_child("child")).result()
        return Continue(None, after=86_400) if kind == "after" else Continue(None, on="message")

    async with lab(app, tmp_path, clock=clock) as harness:
        ids = [(await app.emit("waits", {"kind": kind})).id for kind in ("child", "after", "on")]
        for task_id in ids:
            await harness.waiting(task_id)
        clock.advance(hours=1)
        harness.engine.ring(schedules=False)
        for task_id in ids:
            assert (await harness.ended(task_id))["error_code"] == "AGENT_TIMEOUT"
        [row] = harness.rows("SELECT status FROM tasks WHERE workflow = 'child'")
        assert row["status"] == "WAITING", "the end of a child wakes its parent"


@ON_ASYNCIO
@pytest.mark.parametrize("kind", ["backoff", "snooze"])
async def test_task_with_a_retry_after_the_deadline_fails_at_the_deadline(tmp_path, kind):
    app, clock, entered = App(), VirtualClock(), list[str]()

    @app.workflow("later", deadline=HOUR, retry=RetryPolicy(base=86_400, cap=86_400))
    async def later(ctx: TaskContext) -> None:
        entered.append(ctx.resume)
        raise Snooze(until=NEW_YEAR + 86_400) if kind == "snooze" else ValueError("not yet")

    async with lab(app, tmp_path, clock=clock) as harness:
        emitted = await app.emit("later")
        await harness.until(lambda: harness.trigger(emitted.id)["not_before"] == NEW_YEAR + HOUR)
        await assert_failed_at_deadline(harness, clock, emitted.id)
        assert entered == ["FIRST"]


async def test_running_turn_is_cancelled_at_the_task_deadline_and_not_retried(tmp_path):
    """The clock does not move, so a slow start takes no time from the task."""
    app, unwound = App(), list[int]()

    @app.workflow("runs", deadline=0.05)
    async def runs(ctx: TaskContext) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            unwound.append(ctx.attempt)

    async with lab(app, tmp_path, clock=VirtualClock()) as harness:
        emitted = await app.emit("runs")
        row = await harness.ended(emitted.id)
        assert (row["status"], row["error_code"], unwound) == ("FAILED", "AGENT_TIMEOUT", [1])


@ON_ASYNCIO
async def test_context_deadline_is_none_without_deadline_or_timeout(tmp_path):
    app = App()

    @app.workflow("free")
    async def free(ctx: TaskContext) -> bool:
        return ctx.deadline is None

    @app.workflow("timed", timeout=3600)
    async def timed(ctx: TaskContext) -> bool:
        return ctx.deadline is not None and abs(ctx.deadline.timestamp() - time.time() - 3600) < 600

    async with lab(app, tmp_path) as harness:
        for name in ("free", "timed"):
            assert (await harness.ended((await app.emit(name)).id))["result_json"] == "true"


# Timeouts of attempts


async def suppress_first_cancel() -> str:
    """Suppress the first cancellation and return normally."""
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        pass
    return "all is well"


async def suppress_all_cancels() -> None:
    while True:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            pass


async def suppress_all_cancels_in_a_scope() -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep_forever)
        while True:
            try:
                with anyio.move_on_after(HOUR):
                    await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                pass


async def hang_in_a_step(ctx: TaskContext) -> None:
    await ctx.step("hangs", anyio.sleep_forever)


async def hang_in_a_task(ctx: TaskContext) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep_forever)


HANGING: list[Callable[..., Awaitable[Any]]] = [
    anyio.sleep_forever,
    suppress_first_cancel,
    suppress_all_cancels,
    suppress_all_cancels_in_a_scope,
    hang_in_a_step,
    hang_in_a_task,
]


@pytest.mark.parametrize("hangs", HANGING, ids=[one.__name__ for one in HANGING])
async def test_hanging_workflow_ends_at_the_timeout_and_frees_the_place_and_session(tmp_path, hangs):
    """The only slot of the engine serves both attempts."""
    app = App()
    app.declare("hangs", hangs, timeout=0.05, max_attempts=2)

    @app.workflow("quick")
    async def quick() -> None: ...

    async with lab(app, tmp_path, settings(concurrency=1)) as harness:
        hung = (await app.emit("hangs", session_id="s")).id
        behind = (await app.emit("quick", session_id="s")).id
        row = await harness.settled(hung)
        assert (row["status"], row["error_code"], row["attempts"]) == ("DEAD", "AGENT_TIMEOUT", 2)
        assert row["error_message"] == "hangs did not end within 0.05 s"
        error = harness.response(hung)["error"]
        assert (error["retryable"], error["details"]) == (True, {"timeout_ms": 50})
        codes = harness.rows("SELECT error_code FROM executions WHERE trigger_id = :id", id=hung)
        assert codes == [{"error_code": "AGENT_TIMEOUT"}] * 2
        assert (await harness.settled(behind))["status"] == "DONE"


async def test_plain_workflow_past_the_timeout_holds_the_session_until_the_return(tmp_path):
    """A thread cannot be stopped. The attempt holds its session until the thread returns, and its late result is
    discarded."""
    app, inside, gate = App(), threading.Event(), threading.Event()

    @app.workflow("unstoppable", timeout=PATIENCE, max_attempts=1)
    def unstoppable() -> str:
        inside.set()
        gate.wait(PATIENCE)
        return "too late"

    @app.workflow("quick")
    async def quick() -> None: ...

    async with lab(app, tmp_path) as harness:
        hung = (await app.emit("unstoppable", session_id="s")).id
        behind = (await app.emit("quick", session_id="s")).id
        await harness.until(inside.is_set)
        harness.end_time()
        await harness.until(lambda: any(run.on_shutdown for run in harness.engine.consumer.running.values()))
        assert harness.trigger(behind)["attempts"] == 0
        gate.set()
        assert (await harness.settled(hung))["error_code"] == "AGENT_TIMEOUT"
        assert harness.response(hung)["error"]["details"] == {"timeout_ms": int(PATIENCE * 1000)}
        assert (await harness.settled(behind))["status"] == "DONE"


@ON_ASYNCIO
async def test_plain_step_past_the_timeout_keeps_the_result_for_the_next_attempt(tmp_path):
    app, gate = App(), threading.Event()
    ran: list[int] = []

    def unstoppable() -> str:
        ran.append(1)
        gate.wait(PATIENCE)
        return "done after all"

    @app.workflow("task", timeout=PATIENCE, max_attempts=2)
    async def task(ctx: TaskContext) -> str:
        return await ctx.step("unstoppable", unstoppable)

    async with lab(app, tmp_path) as harness:
        hung = (await app.emit("task")).id
        await harness.until(lambda: ran == [1])
        harness.end_time()
        await harness.until(lambda: any(run.on_shutdown for run in harness.engine.consumer.running.values()))
        gate.set()
        assert (await harness.ended(hung))["result_json"] == '"done after all"'
        codes = harness.rows("SELECT error_code FROM executions ORDER BY seq")
        assert (codes, ran) == ([{"error_code": "AGENT_TIMEOUT"}, {"error_code": None}], [1])


async def test_shielded_workflow_that_completes_after_the_timeout_is_done(tmp_path):
    app, is_over = App(), anyio.Event()

    @app.workflow("careful", timeout=0.05, max_attempts=1)
    async def careful() -> str:
        with anyio.CancelScope(shield=True):
            await is_over.wait()
        return "it is done"

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit("careful")
        await harness.until(lambda: any(run.is_over for run in harness.engine.consumer.running.values()))
        is_over.set()
        assert (await harness.settled(emitted.id))["status"] == "DONE"


async def test_workflow_with_many_cancelled_scopes_is_not_stopped(tmp_path):
    app = App()

    @app.workflow("polls")
    async def polls() -> int:
        for _ in range(1_500):
            with anyio.move_on_after(0):
                await anyio.sleep_forever()
        return 1_500

    async with lab(app, tmp_path) as harness:
        await harness.settled((await app.emit("polls")).id)
        assert harness.rows("SELECT status FROM executions") == [{"status": "success"}]


async def test_workflow_that_ignores_cancellation_is_still_cancelled(tmp_path):
    app, began = App(), anyio.Event()

    @app.workflow("unstoppable")
    async def unstoppable() -> None:
        began.set()
        await suppress_all_cancels()

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit("unstoppable")
        await began.wait()
        await app.cancel(emitted.id)
        row = await harness.settled(emitted.id)
        assert (row["status"], row["error_code"]) == ("DONE", "WORKFLOW_ABORTED")


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_timeout_inside_a_trio_nursery_is_recorded_as_a_timeout(tmp_path):
    import trio

    app = App()

    @app.workflow("nursery", timeout=0.05, max_attempts=1)
    async def nursery() -> None:
        async with trio.open_nursery() as group:
            group.start_soon(trio.sleep_forever)
            group.start_soon(trio.sleep_forever)

    async with lab(app, tmp_path) as harness:
        row = await harness.settled((await app.emit("nursery")).id)
        assert row["error_code"] == "AGENT_TIMEOUT", row["error_message"]


async def test_fallback_after_an_agent_that_ignored_the_timeout_is_not_timed_out(tmp_path):
    app = App()
    app.declare("hangs", suppress_first_cancel, timeout=0.05, fallback=["quick"])

    @app.workflow("quick", timeout=HOUR)
    async def quick() -> str:
        await anyio.lowlevel.checkpoint()
        return "done instead"

    async with lab(app, tmp_path) as harness:
        hung = (await app.emit("hangs")).id
        assert (await harness.settled(hung))["status"] == "DONE"
        assert harness.response(hung)["payload"] == "done instead"


# Code that blocks the event loop, so that no timer fires


def block_thread(seconds: float) -> None:
    """Block the thread that runs it."""
    threading.Event().wait(seconds)


async def block_and_return() -> str:
    block_thread(0.3)
    return "too late"


async def block_after_an_await() -> str:
    await anyio.lowlevel.checkpoint()
    block_thread(0.3)
    return "too late"


async def block_and_await_before_the_timer() -> str:
    block_thread(0.3)
    with anyio.CancelScope(shield=True):
        await anyio.lowlevel.checkpoint()
    return "too late"


async def block_and_continue(ctx: TaskContext) -> Continue[None]:
    block_thread(0.3)
    return Continue(None)


async def block_in_a_step(ctx: TaskContext) -> str:
    async def slow() -> str:
        block_thread(0.3)
        return "done"

    return await ctx.step("slow", slow)


BLOCKING: list[Callable[..., Awaitable[Any]]] = [
    block_and_return,
    block_after_an_await,
    block_and_await_before_the_timer,
    block_and_continue,
    block_in_a_step,
]


@pytest.mark.parametrize("blocks", BLOCKING, ids=[one.__name__ for one in BLOCKING])
async def test_workflow_that_blocks_the_loop_past_the_timeout_times_out(tmp_path, blocks):
    app = App()
    app.declare("blocks", blocks, timeout=0.2, max_attempts=1)

    async with lab(app, tmp_path) as harness:
        row = await harness.settled((await app.emit("blocks")).id)
        assert (row["status"], row["error_code"]) == ("DEAD", "AGENT_TIMEOUT")
        assert row["error_message"] == "blocks did not end within 0.2 s: it blocked the event loop"


@ON_ASYNCIO
async def test_step_that_blocks_the_loop_past_the_timeout_is_not_run_again(tmp_path):
    app, ran = App(), list[int]()

    async def slow() -> str:
        ran.append(1)
        block_thread(1.2)
        return "done after all"

    @app.workflow("task", timeout=1.0, max_attempts=2)
    async def task(ctx: TaskContext) -> str:
        return await ctx.step("slow", slow)

    async with lab(app, tmp_path) as harness:
        row = await harness.ended((await app.emit("task")).id)
        assert (row["status"], row["result_json"], ran) == ("DONE", '"done after all"', [1])
        codes = harness.rows("SELECT error_code FROM executions ORDER BY seq")
        assert codes == [{"error_code": "AGENT_TIMEOUT"}, {"error_code": None}]


async def test_act_that_blocks_the_loop_past_the_timeout_is_done_once(tmp_path):
    app, called = App(), list[str]()

    @app.action("pay", irreversible=True, timeout=HOUR)
    async def pay(call: Call) -> str:
        called.append(call.key)
        block_thread(1.2)
        return "paid"

    @app.workflow("task", timeout=1.0, max_attempts=2)
    async def task(ctx: TaskContext) -> str:
        result: str = await ctx.act("pay")
        return result

    async with lab(app, tmp_path) as harness:
        row = await harness.ended((await app.emit("task")).id)
        assert (row["status"], row["result_json"], len(called)) == ("DONE", '"paid"', 1)
        assert harness.rows("SELECT status FROM activity_log") == [{"status": "DONE"}]
        codes = harness.rows("SELECT error_code FROM executions ORDER BY seq")
        assert codes == [{"error_code": "AGENT_TIMEOUT"}, {"error_code": None}]


async def test_workflow_that_blocks_the_loop_within_the_timeout_is_done(tmp_path):
    app = App()
    app.declare("blocks", block_and_await_before_the_timer, timeout=HOUR)

    async with lab(app, tmp_path) as harness:
        assert (await harness.settled((await app.emit("blocks")).id))["status"] == "DONE"


async def test_shielded_workflow_does_not_time_out_while_another_blocks_the_loop(tmp_path):
    app, waits, is_over = App(), anyio.Event(), anyio.Event()

    @app.workflow("careful", timeout=0.5, max_attempts=1)
    async def careful() -> str:
        with anyio.CancelScope(shield=True):
            waits.set()
            await is_over.wait()
        return "it is done"

    @app.workflow("blocks")
    async def blocks() -> None:
        await waits.wait()
        block_thread(0.8)
        is_over.set()

    async with lab(app, tmp_path) as harness:
        careful_id = (await app.emit("careful")).id
        await app.emit("blocks")
        assert (await harness.settled(careful_id))["status"] == "DONE"
