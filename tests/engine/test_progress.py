"""Detection of stalled turns, which does not count the time of a call within its action timeout."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from craftcore import App, Call, TaskContext
from craftcore.config import TaskSettings
from tests.support.engine_harness import lab, settings
from tests.support.processes import PATIENCE
from tests.support.turns import begin, result

pytestmark = pytest.mark.anyio


async def test_turn_in_a_call_within_the_action_timeout_is_not_stalled(tmp_path):
    """The turn in a call has lasted longer than the waiting turn, and each check covers both."""
    app, called, go = App(), anyio.Event(), anyio.Event()

    @app.action("slow", irreversible=True, timeout=10 * PATIENCE)
    async def slow(call: Call) -> str:
        called.set()
        await go.wait()
        return "done"

    async def calls(ctx: TaskContext) -> str:
        return str(await ctx.act(slow))

    async def waits(ctx: TaskContext) -> None:
        await go.wait()

    config = replace(settings(), tasks=TaskSettings(stall_after=0.05))
    async with lab(app, tmp_path, config) as harness:
        calling = await begin(harness, calls)
        await called.wait()
        waiting = await begin(harness, waits)

        question = await harness.question("stalled")
        [asked] = harness.rows("SELECT DISTINCT tasks.id FROM questions JOIN tasks ON tasks.seq = task_seq")
        go.set()

        assert question["kind"] == "stalled"
        assert asked["id"] == waiting
        assert result(await harness.ended(calling)) == "done"
