"""Bugs of irreversible actions that were hunted down, one test each."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import pytest

from craftcore import App, NoEffect, OnUnknown, TaskContext
from tests.engine.acts import Gate, Held, Provider, statuses
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


async def test_an_act_that_fails_while_the_turn_is_parked_does_not_fail_the_turn(tmp_path):
    """A sibling's question had suspended it; that the other act did nothing was told to nobody but the engine, which
    took it for a workflow that had gone on."""
    app, gate = App(), Gate(NoEffect("refused"))
    provider = Provider(gate)
    send = app.action("send", irreversible=True)(provider)
    pay = app.action("pay", irreversible=True)(Provider(ValueError("who knows")))

    async def turn(ctx: TaskContext) -> Any:
        async def pay_once_it_is_on_its_way() -> None:
            await gate.inside.wait()
            await ctx.act(pay, key="pay")

        async with anyio.create_task_group() as beside:
            beside.start_soon(partial(ctx.act, send, key="send"))
            if ctx.attempt == 1 and ctx.resume == "FIRST":
                beside.start_soon(pay_once_it_is_on_its_way)
            else:
                beside.start_soon(partial(ctx.act, pay, key="pay"))

    async with lab(app, tmp_path) as it:
        task = await begin(it, turn)
        await it.until(lambda: any(run.stopped_by == "parked" for run in it.engine.consumer.running.values()))
        gate.go.set()
        await it.waiting(task)
        await app.answer((await it.question("activity"))["id"], "happened", answered_by="ada")

        assert (await it.ended(task))["status"] == "DONE"
        assert provider.attempts == [1, 2]
        assert it.trigger(task)["attempts"] == 1


@pytest.mark.parametrize("when", ["before the call", "during the call"])
async def test_a_cancelled_task_interrupts_its_calls_although_its_turn_is_parked(tmp_path, monkeypatch, when):
    """The first reason to stop was the question of a sibling, and nobody heard of the second."""
    app, gate = App(), Gate()
    provider = Provider(gate)
    send = app.action("send", irreversible=True)(provider)
    pay = app.action("pay", irreversible=True)(Provider(ValueError("who knows")))
    go = anyio.Event()

    async def turn(ctx: TaskContext) -> Any:
        async def send_shielded() -> None:
            await go.wait()
            with anyio.CancelScope(shield=True):
                await ctx.act(send, key="send")

        async def pay_once_it_is_on_its_way() -> None:
            await on_its_way()
            await ctx.act(pay, key="pay")

        async with anyio.create_task_group() as beside:
            beside.start_soon(send_shielded)
            beside.start_soon(pay_once_it_is_on_its_way)

    async with lab(app, tmp_path) as it:
        held = Held(it, monkeypatch, "begin_all")
        on_its_way = gate.inside.wait if when == "during the call" else held.inside
        task = await begin(it, turn)
        go.set()
        await held.inside()
        if when == "during the call":
            held.go_on()
            await it.until(lambda: statuses(it) == ["INTENT", "UNKNOWN"])
        run_ = it.engine.consumer.running[1]
        if when == "before the call":
            run_.stop("parked")
        await it.until(lambda: run_.stopped_by == "parked")
        run_.stop("cancelled")
        held.go_on()
        await it.settled(task)

        [status, *_] = statuses(it)
        assert (status, len(provider.calls)) == (("UNKNOWN", 1) if when == "during the call" else ("FAILED", 0))
