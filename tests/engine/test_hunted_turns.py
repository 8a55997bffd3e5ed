"""Bugs of turns that were hunted down, one test each."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import anyio
import pytest

from craftcore import App, Fail, Retry, TaskContext
from craftcore.errors import StorageBusy
from tests.support.engine_harness import lab, settings
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio


async def test_note_larger_than_the_result_limit_fails_the_task(tmp_path):
    app = App()

    @app.workflow("big")
    async def big(ctx: TaskContext) -> None:
        await ctx.note("page", "x" * 1024)

    small = replace(settings(), tasks=replace(settings().tasks, result_max_bytes=1024))
    async with lab(app, tmp_path, small) as it:
        emitted = await app.emit("big")
        row = await it.ended(emitted.id)
        assert (row["status"], row["error_code"]) == ("FAILED", "PAYLOAD_TOO_LARGE")


async def test_trigger_of_a_begun_task_is_not_replaced_before_the_next_attempt(tmp_path):
    """The turn went on with what it had completed for the payload before."""
    app = App()

    @app.workflow("brief")
    async def brief(ctx: TaskContext, city: str) -> str:
        await ctx.note("city", city)
        raise Retry(after=3600)

    async with lab(app, tmp_path) as it:
        first = await app.emit("brief", {"city": "Rome"}, dedup_key="brief")
        await it.until(lambda: it.trigger(first.id)["reason"] == "AGENT_ERROR")
        again = await app.emit("brief", {"city": "Oslo"}, dedup_key="brief", on_duplicate="replace")
        assert (again.id, again.payload_differs) == (first.id, True)
        assert it.trigger(first.id)["payload_json"] == '{"city":"Rome"}'


async def test_storage_busy_in_a_workflow_is_retried(tmp_path):
    app = App()

    @app.workflow("report")
    async def report(ctx: TaskContext) -> None:
        if ctx.attempt == 1:
            raise StorageBusy("another process holds the write lock; nothing was written")

    async with lab(app, tmp_path) as it:
        emitted = await app.emit("report")
        assert (await it.ended(emitted.id))["status"] == "DONE"


async def test_step_is_recorded_when_the_turn_suspends_before_the_record_is_written(tmp_path):
    """It was withdrawn from the writer's queue, and ran again when the turn was entered again."""
    app = App()
    calls: list[int] = []
    ran, inside, go_on = anyio.Event(), threading.Event(), threading.Event()

    async def pay() -> None:
        calls.append(1)
        ran.set()
        await anyio.to_thread.run_sync(inside.wait)

    @app.workflow("order")
    async def order(ctx: TaskContext) -> None:
        async with anyio.create_task_group() as beside:
            beside.start_soon(ctx.step, "pay", pay)
            if ctx.resume == "FIRST":
                await it.until(lambda: len(it.engine.writer.queue) == 1)
            await ctx.sleep(0)

    def hold(_tx: Any) -> None:
        inside.set()
        go_on.wait(PATIENCE)

    async with lab(app, tmp_path) as it:
        emitted = await app.emit("order")
        await ran.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(it.engine.writer.commit, hold)
            await it.until(lambda: it.engine.consumer.running[1].turn.wait is not None)  # type: ignore[union-attr]
            await anyio.wait_all_tasks_blocked()
            go_on.set()
        assert (await it.ended(emitted.id))["status"] == "DONE"
        assert calls == [1]


@pytest.mark.parametrize("end", ["suspended", "timeout"])
async def test_plain_step_that_outlasts_the_turn_is_recorded_on_return(tmp_path, end):
    """It ran to its end while the turn was unwound, and ran again when the turn was entered again."""
    app = App()
    calls: list[int] = []
    inside, go_on = threading.Event(), threading.Event()

    def pay() -> str:
        calls.append(1)
        inside.set()
        go_on.wait(PATIENCE)
        return "paid"

    @app.workflow("order", timeout=0.05 if end == "timeout" else None)
    async def order(ctx: TaskContext) -> Any:
        if end == "timeout":
            return await ctx.step("pay", pay)
        async with anyio.create_task_group() as beside:
            beside.start_soon(ctx.step, "pay", pay)
            await anyio.to_thread.run_sync(inside.wait)
            await ctx.sleep(0)

    async with lab(app, tmp_path) as it:
        emitted = await app.emit("order")
        await anyio.to_thread.run_sync(inside.wait)
        [run] = it.engine.consumer.running.values()
        scope = run._scope
        assert scope is not None
        await it.until(lambda: scope.cancel_called or (run.turn is not None and run.turn.wait is not None))
        go_on.set()
        assert (await it.ended(emitted.id))["status"] == "DONE"
        assert calls == [1]


async def test_failure_details_larger_than_the_response_limit_are_not_stored(tmp_path):
    app = App()

    @app.workflow("order")
    async def order() -> None:
        raise Fail("REFUSED", "no such lamp", page="x" * 2000)

    small = replace(settings(), records=replace(settings().records, response_max_bytes=1024))
    async with lab(app, tmp_path, small) as it:
        emitted = await app.emit("order")
        await it.settled(emitted.id)
        error = it.response(emitted.id)["error"]
        assert (error["code"], error["message"]) == ("REFUSED", "no such lamp")
        assert error["details"]["details_unstored"] == "too large"
