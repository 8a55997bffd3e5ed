"""Bugs of irreversible actions that were hunted down, one test each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest

from craftcore import App, OnUnknown, TaskContext
from tests.engine.acts import Held, Provider, statuses
from tests.engine.lab import lab, settings
from tests.engine.turns import begin, result

pytestmark = pytest.mark.anyio

RESEND: dict[str, Any] = {"irreversible": True, "on_unknown": OnUnknown.RESEND, "idempotent_provider": True}


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


async def test_a_call_withdrawn_before_it_was_made_leaves_the_doubt_of_the_one_before(tmp_path, monkeypatch):
    """It was recorded as proof that nothing had happened, at the call before either."""
    app, provider = App(), Provider(ConnectionResetError("reset"))
    pay = app.action("pay", **RESEND)(provider)
    second, go = anyio.Event(), anyio.Event()

    async def turn(ctx: TaskContext) -> Any:
        if ctx.attempt == 2:
            second.set()
            await go.wait()
        return await ctx.act(pay)

    async with lab(app, tmp_path) as it:
        task = await begin(it, turn)
        await second.wait()
        held = Held(it, monkeypatch, "begin_all", nth=2)  # the first finds it in doubt
        go.set()
        await held.inside()
        it.engine.consumer.running[1].stop("cancelled")
        held.go_on()
        await it.settled(task)

        assert provider.attempts == [1]
        assert statuses(it) == ["UNKNOWN"]
