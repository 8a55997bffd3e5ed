"""A task advances by turns: what a turn returns is what the task comes to, in the commit that settles its trigger."""

from __future__ import annotations

from typing import Any

import pytest

from craftcore import App, Continue, TaskContext
from tests.engine.lab import lab, settings

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("key", ["turn:{id}:2", "turn:{id}:3"])
async def test_who_holds_the_key_of_a_turn_to_come_loses_it_and_stops_nobody(tmp_path, concurrency, key):
    """Nobody but a task has business with such a key, but anybody may ask for one."""
    app = App()

    @app.workflow("count")
    async def count(ctx: TaskContext[int]) -> Any:
        if ctx.turn == 1:
            await app.emit("other", dedup_key=key.format(id=ctx.task_id), delay=3600)
        return Continue(ctx.turn) if ctx.turn < 4 else ctx.turn

    @app.workflow("other")
    async def other() -> None: ...

    async with lab(app, tmp_path, settings(concurrency=concurrency)) as it:
        row = await it.ended((await app.emit("count")).id)
        assert (row["status"], row["result_json"]) == ("DONE", "4")
        [other_row] = it.rows("SELECT * FROM triggers WHERE workflow = 'other'")
        assert (other_row["status"], other_row["dedup_key"]) == ("PENDING", None)
        assert (await app.emit("other")).created
