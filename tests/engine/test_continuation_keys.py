"""Dedup keys of the triggers that continue a task: long task ids, and no collisions."""

from __future__ import annotations

from typing import Any

import pytest

from craftcore import App, Continue, TaskContext, TriggerSpec
from craftcore.errors import InvalidInput
from tests.support.engine_harness import lab

pytestmark = pytest.mark.anyio


async def test_task_with_the_longest_allowed_id_runs_the_next_turn(tmp_path):
    app = App()
    longest = "x" * 200

    @app.workflow("loop")
    async def loop(ctx: TaskContext) -> Any:
        return Continue(1) if ctx.turn == 1 else "done"

    async with lab(app, tmp_path) as harness:
        await app.emit_many([TriggerSpec(workflow="loop", id=longest)])
        assert (await harness.ended(longest))["status"] == "DONE"


async def test_dedup_key_of_a_future_turn_is_refused_in_emit(tmp_path):
    """Without the refusal the next turn could not be written, nor the results of other work in the same commit."""
    app = App()

    @app.workflow("loop")
    async def loop(ctx: TaskContext) -> Any:
        if ctx.turn == 2:
            return "done"
        with pytest.raises(InvalidInput, match="give it another name"):
            await ctx.emit("loop", dedup_key=f"turn:{ctx.task_id}:2")
        return Continue(1)

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit("loop")
        assert (await harness.ended(emitted.id))["status"] == "DONE"
