"""Late cancels of the asyncio task of an ended run: no other run is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from craftcore import App, Call, TaskContext
from tests.support.engine_harness import lab, settings
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """Select asyncio, because tasks of trio cannot be cancelled from outside."""
    return "asyncio"


@pytest.mark.parametrize("form", ["plain", "step", "act"])
async def test_run_is_tried_again_after_a_cancel_of_the_task_of_an_ended_run(tmp_path, form):
    """A stop button keeps the task of a running chat and is pressed after the end of the chat."""
    app = App()
    running: list[Any] = []
    begun, proceed = anyio.Event(), anyio.Event()

    @app.workflow("chat")
    async def chat() -> None:
        running.append(asyncio.current_task())

    async def move() -> str:
        begun.set()
        await proceed.wait()
        return "moved"

    @app.action("transfer.move", irreversible=True, idempotent_provider=True, on_unknown="resend")
    async def call(call: Call) -> str:
        return await move()

    @app.workflow("transfer", max_attempts=1)
    async def transfer(ctx: TaskContext) -> str:
        match form:
            case "plain":
                return await move()
            case "step":
                return await ctx.step("move", move)
        moved: str = await ctx.act(call)
        return moved

    async with lab(app, tmp_path, settings(concurrency=1)):
        await (await app.emit("chat")).result()
        work = await app.emit("transfer")
        with anyio.fail_after(PATIENCE):
            await begun.wait()
        running[0].cancel()
        proceed.set()

        assert await work.result(timeout=PATIENCE) == "moved"


async def test_workflow_that_cancels_the_own_task_each_time_fails_in_the_end(tmp_path):
    app = App()
    starts: list[int] = []

    @app.workflow("cancels_itself", max_attempts=1)
    async def cancels_itself() -> None:
        starts.append(1)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)

    async with lab(app, tmp_path) as harness:
        row = await harness.settled((await app.emit("cancels_itself")).id)

    assert (row["status"], len(starts)) == ("DEAD", 4)
    assert "cancelled 4 times, and not by craftcore" in row["error_message"]
