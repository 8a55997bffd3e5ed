"""A turn that waits is suspended: its code unwinds, nothing of it stays in memory, and it is entered again when what it
waited for has come."""

from __future__ import annotations

import anyio
import pytest

from craftcore import App, TaskContext
from tests.engine.lab import lab

pytestmark = pytest.mark.anyio


async def nothing() -> None: ...


async def test_a_task_beside_a_turn_that_is_suspended_may_be_about_to_begin_a_step(tmp_path):
    """It was woken before it could be told: that is no failure of the turn."""
    app = App()

    @app.workflow("both")
    async def both(ctx: TaskContext) -> str:
        woken = anyio.Event()

        async def beside() -> None:
            await woken.wait()
            await ctx.step("beside", nothing)

        async with anyio.create_task_group() as group:
            group.start_soon(beside)
            await ctx.step("first", nothing)
            woken.set()
            await ctx.sleep(0)
        return str(ctx.resume)

    async with lab(app, tmp_path) as it:
        row = await it.ended((await app.emit("both")).id)

        assert (row["status"], row["result_json"]) == ("DONE", '"TIMER"')
        assert [r["attempts"] for r in it.rows("SELECT attempts FROM triggers")] == [1, 1]
