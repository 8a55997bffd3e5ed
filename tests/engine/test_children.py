"""A child is a task of its own: it runs by itself, and who started it may wait for its end."""

from __future__ import annotations

import pytest

from craftcore import App, ChildFailed, TaskContext
from tests.support.engine_harness import lab

pytestmark = pytest.mark.anyio


async def test_child_result_can_be_awaited_again_after_a_timeout(tmp_path):
    app = App()

    @app.workflow("slow")
    async def slow(ctx: TaskContext) -> str:
        return str(await ctx.wait_for("go"))

    @app.workflow("parent")
    async def parent(ctx: TaskContext) -> list[str]:
        child = await ctx.start_child("slow")
        told = []
        for timeout in (0, 0, None):
            try:
                told.append(await child.result(str, timeout=timeout))
            except ChildFailed:
                told.append("not yet")
        return [*told, await child.result(str)]

    async with lab(app, tmp_path) as it:
        parent_id = (await app.emit("parent")).id
        two_ended = "SELECT 1 FROM waits WHERE kind = 'child' AND resolved_by = 'timer'"
        await it.until(lambda: len(it.rows(two_ended)) == 2)
        [row] = it.rows("SELECT id FROM tasks WHERE workflow = 'slow'")
        await app.signal(row["id"], "go", "done")

        assert (await it.ended(parent_id))["result_json"] == '["not yet","not yet","done","done"]'
        assert len(it.rows("SELECT 1 FROM waits WHERE kind = 'child'")) == 3
