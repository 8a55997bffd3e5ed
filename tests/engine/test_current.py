"""`craftcore.current()`: the context of the running turn, wherever its code is."""

from __future__ import annotations

import anyio
import pytest

import craftcore
from craftcore import App, Call, Continue, TaskContext
from tests.support import process_functions as functions
from tests.support.engine_harness import lab
from tests.support.turns import result, run

pytestmark = pytest.mark.anyio


async def test_code_of_a_turn_finds_its_context_without_an_argument(tmp_path):
    app = App()
    found = []

    @app.action("pay", irreversible=True)
    async def pay(call: Call) -> str:
        found.append(craftcore.current())
        return "paid"

    async def look() -> None:
        found.append(craftcore.current())

    def look_in_thread() -> None:
        found.append(craftcore.current())

    async def turn(ctx: TaskContext) -> str:
        await look()
        await ctx.step("async", look)
        await ctx.step("thread", look_in_thread)
        await ctx.step("inline", look_in_thread, executor="inline")
        await ctx.act(pay)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look)
        assert found == [ctx] * 6
        current = craftcore.current()
        assert current is not None
        await current.note("seen", 1)
        return "done"

    async with lab(app, tmp_path) as harness:
        assert result(await run(harness, turn)) == "done"
        assert [row["type"] for row in harness.rows("SELECT type FROM events")].count("NOTE") == 1


async def test_turns_have_contexts_of_their_own_and_leave_none_behind(tmp_path):
    numbers, late = [], []
    over = anyio.Event()

    async def turn(ctx: TaskContext) -> Continue[int] | int:
        current = craftcore.current()
        assert current is ctx
        numbers.append(current.turn)
        if ctx.turn < 3:
            return Continue(ctx.turn)
        return 3

    async with lab(App(), tmp_path) as harness:
        async with anyio.create_task_group() as tasks:

            async def look_late() -> None:
                await over.wait()
                late.append(craftcore.current())

            async def begin(ctx: TaskContext) -> int:
                tasks.start_soon(look_late)
                return 1

            assert result(await run(harness, turn)) == 3
            assert result(await run(harness, begin)) == 1
            over.set()
    assert numbers == [1, 2, 3]
    assert late == [None]


async def test_code_outside_of_a_turn_has_no_context(tmp_path):
    app = App()
    found = []

    @app.workflow("plain")
    async def plain() -> None:
        found.append(craftcore.current())

    @app.workflow("thread")
    def thread() -> None:
        found.append(craftcore.current())

    @app.workflow("process")
    async def process(ctx: TaskContext) -> object:
        return await ctx.step("process", functions.find_current, executor="process")

    assert craftcore.current() is None
    async with lab(app, tmp_path) as harness:
        for name in ("plain", "thread"):
            await (await app.emit(name)).result()
        assert result(await harness.ended((await app.emit("process")).id)) is None
    assert found == [None, None]
