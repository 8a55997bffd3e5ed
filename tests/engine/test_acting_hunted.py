"""Bugs of irreversible actions that were hunted down, one test each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from craftcore import App, TaskContext
from tests.engine.acts import Provider
from tests.engine.lab import lab, settings
from tests.engine.turns import begin, result

pytestmark = pytest.mark.anyio


async def test_a_budget_that_acts_use_up_twice_is_asked_about_twice(tmp_path):
    """The second question had the name of the first, and the engine died of that."""
    app, provider = App(), Provider()
    send = app.action("send", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> list[Any]:
        return [await ctx.act(send) for _ in range(5)]

    config = replace(settings(), tasks=replace(settings().tasks, max_steps=2))
    async with lab(app, tmp_path, config) as it:
        task = await begin(it, turn)
        for _ in range(2):
            await app.answer((await it.question("budget"))["id"], "continue", answered_by="ada")
        assert result(await it.ended(task)) == [f"ref-{n}" for n in range(1, 6)]
        assert len(provider.calls) == 5
