"""What the crash campaigns of tasks found, each as small as it gets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from craftcore import App, ChildFailed, Fail, TaskContext
from tests.engine.lab import Lab, lab

pytestmark = pytest.mark.anyio


async def ended(it: Lab, task_id: str) -> dict[str, Any]:
    """The row of a task once it has ended."""
    of_task = "SELECT * FROM tasks WHERE id = :id AND ended_at IS NOT NULL"
    await it.until(lambda: bool(it.rows(of_task, id=task_id)))
    [row] = it.rows(of_task, id=task_id)
    return row


async def test_a_parent_is_told_how_its_child_failed(tmp_path):
    app = App()

    @app.workflow("broken")
    async def broken(ctx: TaskContext) -> None:
        raise Fail("BROKEN", "it never will")

    @app.workflow("parent")
    async def parent(ctx: TaskContext) -> Any:
        child = await ctx.start_child("broken")
        try:
            return await child.result()
        except ChildFailed as failed:
            return [failed.details["id"] == child.id, *(failed.details[word] for word in ("status", "code", "message"))]

    async with lab(app, tmp_path) as it:
        row = await ended(it, (await app.emit("parent")).id)
        assert json.loads(row["result_json"]) == [True, "FAILED", "BROKEN", "it never will"]
