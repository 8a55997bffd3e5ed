"""Calls of `ctx` without `await`: the attempt fails, and the error names the place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from inspect import getmembers
from typing import Any

import anyio
import pytest

from craftcore import App, Call, Continue, Event, TaskContext
from tests.support.engine_harness import lab
from tests.support.loops import ON_ASYNCIO
from tests.support.turns import Counting, failure, result, run


async def nothing(*_: Any) -> None: ...


CALLS: dict[str, Callable[[TaskContext], Any]] = {
    "ctx.step": lambda ctx: ctx.step("price", nothing),
    "ctx.act": lambda ctx: ctx.act("pay"),
    "ctx.note": lambda ctx: ctx.note("seen"),
    "ctx.transaction": lambda ctx: ctx.transaction("write", lambda tx: None),
    "ctx.ask": lambda ctx: ctx.ask("Go on?"),
    "ctx.sleep": lambda ctx: ctx.sleep(1),
    "ctx.reply": lambda ctx: ctx.reply("yes"),
    "ctx.progress": lambda ctx: ctx.progress(1),
    "ctx.schedules.pause": lambda ctx: ctx.schedules.pause("nightly"),
    "ctx.schedules.list": lambda ctx: ctx.schedules.list(),
    "ctx.sleep_until": lambda ctx: ctx.sleep_until(datetime(2026, 1, 1, tzinfo=UTC)),
    "ctx.wait_any": lambda ctx: ctx.wait_any({"go": Event("go")}),
    "ctx.wait_for": lambda ctx: ctx.wait_for("go"),
    "ctx.emit": lambda ctx: ctx.emit("other"),
    "ctx.start_child": lambda ctx: ctx.start_child("other"),
    "ctx.signal": lambda ctx: ctx.signal("other", "go"),
    "ctx.gather": lambda ctx: ctx.gather([]),
    "ctx.events": lambda ctx: ctx.events(),
}


def build_app(counting: Counting) -> App:
    app = App("careless")

    @app.action("pay", irreversible=True)
    async def pay(call: Call) -> None:
        await counting(call.key)

    @app.workflow("other")
    def other() -> None: ...

    return app


def test_ctx_methods_checked_for_await_are_all_coroutine_methods():
    async_names = {
        name for name, method in getmembers(TaskContext) if hasattr(method, "__wrapped__") and name[0] != "_"
    }
    assert {f"ctx.{name}" for name in async_names} == {name for name in CALLS if not name.startswith("ctx.schedules.")}
    assert not {name for name, method in getmembers(TaskContext) if asyncio.iscoroutinefunction(method)}


@pytest.mark.anyio
@ON_ASYNCIO
async def test_ctx_call_without_await_fails_the_attempt_and_names_the_place(tmp_path):
    counting = Counting()

    async def turn_of(ctx: TaskContext, name: str) -> str:
        CALLS[name](ctx)
        return "done"

    async with lab(build_app(counting), tmp_path) as harness:
        for name, call in CALLS.items():
            row = await run(harness, partial(turn_of, name=name), max_attempts=1)
            place = f"{__file__}:{call.__code__.co_firstlineno} in <lambda>"
            assert failure(row) == (
                "INTERNAL_AGENT_ERROR",
                f"{name}(…) at {place} was not awaited, so it did nothing. Write: await {name}(…)",
            )
            assert harness.response(row["trigger_id"])["error"]["details"]["where"] == [place]
            assert counting.calls == []


@pytest.mark.anyio
async def test_child_result_without_await_fails_the_attempt(tmp_path):
    async def turn(ctx: TaskContext) -> None:
        child = await ctx.start_child("other")
        child.result()  # type: ignore[unused-coroutine]

    async with lab(build_app(Counting()), tmp_path) as harness:
        assert failure(await run(harness, turn, max_attempts=1))[1].startswith("child.result(…) at ")


@pytest.mark.anyio
async def test_ctx_call_without_await_fails_the_attempt_despite_continue(tmp_path):
    async def turn(ctx: TaskContext) -> Any:
        ctx.step("price", nothing)  # type: ignore[unused-coroutine]
        return Continue(1)

    async with lab(build_app(Counting()), tmp_path) as harness:
        row = await run(harness, turn, max_attempts=1)
    assert failure(row)[0] == "INTERNAL_AGENT_ERROR"
    assert (row["turn"], row["state_json"]) == (1, "null")


@ON_ASYNCIO
@pytest.mark.anyio
async def test_attempt_failed_by_a_missing_await_is_retried_with_completed_steps_kept(tmp_path):
    """A new deployment may have added the missing `await` by then."""
    counting = Counting()

    async def turn(ctx: TaskContext) -> Any:
        done = await ctx.step("fetch", counting, 7)
        late = ctx.note("seen")
        if ctx.attempt > 1:
            await late
        return done

    async with lab(build_app(counting), tmp_path) as harness:
        assert result(await run(harness, turn, max_attempts=3)) == 7
    assert counting.calls == [(7,)]


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_asyncio_task_of_a_ctx_call_counts_as_awaited_once_begun(tmp_path, anyio_backend):
    """A task that is cancelled after its start counts as awaited, as in a race. A task that never ran does not."""

    async def race(ctx: TaskContext) -> Any:
        tasks = [asyncio.create_task(ctx.step(name, sleep, name)) for name in ("quick", "slow")]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        return [task.result() for task in done]

    async def sleep(name: str) -> str:
        if name == "slow":
            await anyio.sleep_forever()
        return name

    kept: list[asyncio.Task[Any]] = []

    async def forget(ctx: TaskContext) -> None:
        kept.append(asyncio.create_task(ctx.step("price", nothing)))

    async with lab(build_app(Counting()), tmp_path) as harness:
        assert result(await run(harness, race, max_attempts=1)) == ["quick"]
        assert "was not awaited" in failure(await run(harness, forget, max_attempts=1))[1]
        await asyncio.wait(kept)
        assert kept[0].exception() is not None


@pytest.mark.anyio
async def test_ctx_call_awaited_later_or_in_a_task_group_counts_as_awaited(tmp_path):
    counting = Counting()

    async def turn(ctx: TaskContext) -> Any:
        late = ctx.step("late", counting, 1)
        await ctx.step("inner", partial(ctx.note, "inside"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ctx.step, "beside", counting, 2)
            tasks.start_soon(partial(ctx.note, "seen", key="k"))
        for number in range(200):  # more than the engine remembers
            await ctx.step("many", counting, 3, key=str(number))
        return [await late, [event.type for event in await ctx.events()].count("NOTE")]

    async with lab(build_app(counting), tmp_path) as harness:
        row = await run(harness, turn)
    assert json.loads(row["result_json"]) == [1, 2]


@pytest.mark.anyio
async def test_ctx_call_left_by_a_suspended_turn_does_not_replace_the_turn_error(tmp_path):
    async def turn(ctx: TaskContext) -> Any:
        late = ctx.step("late", nothing)
        await ctx.sleep(0)
        await late
        raise ValueError("its own")

    async with lab(build_app(Counting()), tmp_path) as harness:
        assert failure(await run(harness, turn, max_attempts=1))[1] == "its own"
