"""Step and turn budgets of tasks: the counted steps and turns, and the question at each limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest

from craftcore import App, Continue, TaskContext
from craftcore.config import Config
from tests.support.acts import Provider
from tests.support.engine_harness import lab, settings
from tests.support.turns import begin, result

pytestmark = pytest.mark.anyio


def budget_settings(**tasks: int) -> Config:
    return replace(settings(), tasks=replace(settings().tasks, **tasks))


async def test_step_budget_exceeded_in_a_shielded_scope_suspends_the_turn(tmp_path):
    """The cancel scope of the turn cannot cancel a shielded scope."""
    app = App()

    @app.workflow("busy")
    async def busy(ctx: TaskContext) -> None:
        with anyio.CancelScope(shield=True):
            await ctx.note("one")
            await ctx.note("two")

    async with lab(app, tmp_path, budget_settings(max_steps=1)) as harness:
        emitted = await app.emit("busy")
        question = await harness.question("budget")
        await app.answer(question["id"], "continue", answered_by="ada")
        assert (await harness.ended(emitted.id))["status"] == "DONE"


async def test_budget_used_up_twice_by_acts_opens_a_second_question(tmp_path):
    """The second question of a turn has a name of its own."""
    app, provider = App(), Provider()
    send = app.action("send", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> list[Any]:
        return [await ctx.act(send) for _ in range(5)]

    async with lab(app, tmp_path, budget_settings(max_steps=2)) as harness:
        task = await begin(harness, turn)
        for _ in range(2):
            await app.answer((await harness.question("budget"))["id"], "continue", answered_by="ada")
        assert result(await harness.ended(task)) == [f"ref-{n}" for n in range(1, 6)]
        assert len(provider.calls) == 5


async def test_turn_budget_counts_turns_of_a_task_that_polls_for_an_event(
    tmp_path,
):
    app = App()
    turns: list[Any] = []

    @app.workflow("poll")
    async def poll(ctx: TaskContext) -> Any:
        turns.append(ctx.turn)
        return Continue(None, after=0, on="stop") if ctx.turn < 4 else ctx.received

    async with lab(app, tmp_path, budget_settings(max_turns=3)) as harness:
        emitted = await app.emit("poll")
        question = await harness.question("budget")
        assert turns == [1, 2, 3]
        await app.answer(question["id"], "continue", answered_by="ada")
        assert (await harness.ended(emitted.id))["status"] == "DONE"


async def test_turn_budget_does_not_limit_a_task_that_waits_for_events(tmp_path):
    app = App()

    @app.workflow("chat")
    async def chat(ctx: TaskContext) -> Any:
        return Continue(None, on="said") if ctx.turn < 4 else "bye"

    async with lab(app, tmp_path, budget_settings(max_turns=1)) as harness:
        emitted = await app.emit("chat")
        for turn in (2, 3, 4):
            await harness.waiting(emitted.id, turn)
            await app.signal(emitted.id, "said", {})
        assert (await harness.ended(emitted.id))["status"] == "DONE"
