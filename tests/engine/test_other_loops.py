"""Calls of `ctx` and of the app that are awaited on another event loop than the engine's: refused at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from craftcore import App, Call, Event, InvalidInput, TaskContext
from tests.support.engine_harness import lab
from tests.support.processes import PATIENCE
from tests.support.turns import Counting, result, run

pytestmark = pytest.mark.anyio

CALLS: dict[str, Callable[[TaskContext, Counting], Any]] = {
    "ctx.step": lambda ctx, called: ctx.step("inner", called),
    "ctx.step of a plain function": lambda ctx, called: ctx.step("inner", lambda: called.calls.append(())),
    "ctx.step in a process": lambda ctx, called: ctx.step("inner", abs, 1, executor="process"),
    "ctx.act": lambda ctx, called: ctx.act("pay", key="one"),
    "ctx.act by number": lambda ctx, called: ctx.act("pay"),
    "ctx.note": lambda ctx, called: ctx.note("seen"),
    "ctx.transaction": lambda ctx, called: ctx.transaction("write", lambda tx: called.calls.append(())),
    "ctx.emit": lambda ctx, called: ctx.emit("other", key="one"),
    "ctx.start_child": lambda ctx, called: ctx.start_child("other", key="one"),
    "ctx.signal": lambda ctx, called: ctx.signal("other", "go", key="one"),
    "ctx.ask": lambda ctx, called: ctx.ask("Go on?", key="one"),
    "ctx.sleep": lambda ctx, called: ctx.sleep(1, key="one"),
    "ctx.wait_for": lambda ctx, called: ctx.wait_for("go", key="one"),
    "ctx.wait_any": lambda ctx, called: ctx.wait_any({"go": Event("go")}, key="one"),
    "ctx.progress": lambda ctx, called: ctx.progress(1),
    "ctx.events": lambda ctx, called: ctx.events(),
    "ctx.schedules.pause": lambda ctx, called: ctx.schedules.pause("nightly"),
    "ctx.schedules.list": lambda ctx, called: ctx.schedules.list(),
}


def build_app(called: Counting) -> App:
    app = App("two loops")

    @app.action("pay", irreversible=True)
    async def pay(call: Call) -> None:
        await called()

    @app.workflow("other")
    async def other() -> None:
        await called()

    return app


async def test_ctx_call_on_another_loop_is_refused_at_once_and_names_its_place(tmp_path):
    called, messages = Counting(), list[str]()

    async def turn_of(ctx: TaskContext, name: str) -> str:
        async def call_on_another_loop() -> None:
            await CALLS[name](ctx, called)

        def plain() -> None:
            with pytest.raises(InvalidInput) as refused:
                asyncio.run(call_on_another_loop())
            messages.append(refused.value.message)

        await ctx.step("outer", plain)
        return "went on"

    async with lab(build_app(called), tmp_path) as harness:
        for name in CALLS:
            assert result(await run(harness, partial(turn_of, name=name))) == "went on", name
            assert not called.calls, name
    assert messages == [
        f"{name.split()[0]}(…) at {__file__}:{call.__code__.co_firstlineno} in <lambda> runs on another event loop "
        "than its turn, and did nothing: await it in the workflow. The function of a step can return the values that "
        "the workflow then passes to ctx"
        for name, call in CALLS.items()
    ]


async def test_step_on_another_loop_is_refused_when_the_turn_is_entered_again(tmp_path):
    called, messages = Counting(), list[str]()

    async def turn(ctx: TaskContext) -> str:
        def plain() -> None:
            with pytest.raises(InvalidInput) as refused:
                asyncio.run(ctx.step("inner", called))
            messages.append(refused.value.message)

        await ctx.sleep(0.01)
        await ctx.step("outer", plain)
        return "went on"

    async with lab(build_app(called), tmp_path) as harness:
        assert result(await run(harness, turn)) == "went on"
        assert not called.calls
    assert len(messages) == 1
    assert f"ctx.step(…) at {__file__}:" in messages[0]
    assert "runs on another event loop than its turn" in messages[0]


async def test_ctx_call_driven_in_a_thread_without_a_loop_is_refused_at_once(tmp_path):
    called = Counting()

    async def turn(ctx: TaskContext) -> str:
        def plain() -> str:
            with pytest.raises(InvalidInput, match="runs on another event loop than its turn") as refused:
                ctx.step("inner", called).send(None)
            return refused.value.message

        return await ctx.step("outer", plain)

    async with lab(build_app(called), tmp_path) as harness:
        assert "ctx.step(…) at " in result(await run(harness, turn))
        assert not called.calls


async def test_emit_of_the_app_on_another_loop_is_refused_and_the_engine_goes_on(tmp_path):
    called = Counting()
    app = build_app(called)

    async def turn(ctx: TaskContext) -> str:
        def plain() -> None:
            with pytest.raises(InvalidInput, match="runs on another event loop; nothing was written"):
                asyncio.run(app.emit("other"))

        await ctx.step("outer", plain)
        return "went on"

    async with lab(app, tmp_path) as harness:
        assert result(await run(harness, turn)) == "went on"
        await (await app.emit("other")).result(timeout=PATIENCE)
        assert len(called.calls) == 1


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_ctx_call_sent_from_a_thread_to_the_loop_of_the_turn_is_recorded(tmp_path, anyio_backend):
    async def one() -> int:
        return 1

    async def turn(ctx: TaskContext) -> int:
        loop = asyncio.get_running_loop()
        return await ctx.step(
            "outer", lambda: asyncio.run_coroutine_threadsafe(ctx.step("inner", one), loop).result(PATIENCE)
        )

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == 1
