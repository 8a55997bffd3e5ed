"""Functions that are not declared with `def` or `async def` alone: wrapped ones, partials, objects, and plain functions
that return something to await."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial, wraps
from typing import Any
from unittest.mock import AsyncMock, Mock

import anyio
import anyio.lowlevel
import pytest

from craftcore import App, Call, ConfigInvalid, Continue, Done, InvalidInput, OnUnknown, RetryPolicy, TaskContext
from tests.support import process_functions as functions
from tests.support.engine_harness import lab
from tests.support.fakes import VirtualClock
from tests.support.loops import ON_ASYNCIO
from tests.support.turns import failure, result, run

pytestmark = pytest.mark.anyio


def timed(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function as a decorator for plain functions does."""

    @wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return call


async def add(a: int, b: int = 1) -> int:
    await anyio.lowlevel.checkpoint()
    return a + b


def add_plainly(a: int, b: int) -> int:
    return a + b


class Adder:
    async def __call__(self, a: int) -> int:
        return a + 1

    def plainly(self, a: int) -> int:
        return a + 1

    @staticmethod
    async def static(a: int) -> int:
        return a + 1


class PlainAdder:
    b: str = "no parameter"

    def __call__(self, a: int) -> int:
        return a + 1


class Later:
    """An awaitable that is not a coroutine."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __await__(self) -> Any:
        yield from anyio.lowlevel.checkpoint().__await__()
        return self.value


CALLABLES: dict[str, Callable[..., Any]] = {
    "a wrapped async function": timed(add),
    "a partial of an async function": partial(add, b=1),
    "a partial of a plain function": partial(add_plainly, b=1),
    "a partial of a partial of a wrapped one": partial(partial(timed(add), b=7), b=1),
    "an object that is called": PlainAdder(),
    "an object that is awaited": Adder(),
    "a wrapped object": timed(Adder().__call__),
    "a method": Adder().plainly,
    "a static method before it is bound": Adder.__dict__["static"],
    "a lambda that returns a coroutine": lambda a: add(a),
    "a lambda that returns an awaitable": lambda a: Later(a + 1),
}


async def test_workflow_awaits_the_result_of_any_callable(tmp_path):
    app = App()
    names = {kind: kind.replace(" ", "_") for kind in CALLABLES}
    for kind, name in names.items():
        app.declare(name, CALLABLES[kind], max_attempts=1)
    async with lab(app, tmp_path) as harness:
        for kind, name in names.items():
            assert await (await app.emit(name, {"a": 1})).result() == 2, kind
            assert harness.app.workflows[name].payload_type.__struct_fields__[0] == "a", kind


@ON_ASYNCIO
@pytest.mark.parametrize("executor", ["thread", "inline"])
async def test_step_awaits_the_result_of_any_callable(tmp_path, executor):
    async def turn_of(ctx: TaskContext, kind: str) -> Any:
        if executor == "inline" and kind in ("a partial of an async function", "an object that is awaited"):
            with pytest.raises(InvalidInput, match="needs a plain function"):
                await ctx.step("add", CALLABLES[kind], 1, executor=executor)
            return 2
        return await ctx.step("add", CALLABLES[kind], 1, executor=executor)

    async with lab(App(), tmp_path) as harness:
        for kind in CALLABLES:
            assert result(await run(harness, partial(turn_of, kind=kind))) == 2, kind


@ON_ASYNCIO
async def test_payload_of_a_partial_or_an_object_has_the_types_of_its_function(tmp_path):
    app = App()
    app.declare("partial", partial(add_plainly, b=1))
    app.declare("object", PlainAdder())
    async with lab(app, tmp_path):
        for name in ("partial", "object"):
            with pytest.raises(InvalidInput, match=r"Expected `int`, got `str` - at `\$.a`"):
                await app.emit(name, {"a": "one"})
        assert await (await app.emit("partial", {"a": 1, "b": 2})).result() == 3
        with pytest.raises(InvalidInput, match="contains unknown field `b`"):
            await app.emit("object", {"a": 1, "b": 2})


async def test_wrapped_workflow_with_ctx_takes_turns_and_waits(tmp_path):
    app = App()

    @app.workflow("turns")
    @timed
    async def turns(ctx: TaskContext[int], a: int) -> Any:
        await ctx.sleep(0.001)
        return await ctx.step("add", add, a) if ctx.turn == 2 else Continue(ctx.turn)

    async with lab(app, tmp_path):
        assert await (await app.emit("turns", {"a": 1})).result() == 2


@ON_ASYNCIO
async def test_plain_function_that_is_annotated_to_return_a_coroutine_may_take_ctx(tmp_path):
    app = App()

    async def body(ctx: TaskContext, a: int) -> int:
        return await ctx.step("add", add, a)

    @app.workflow("made")
    def made(ctx: TaskContext, a: int) -> Coroutine[Any, Any, int]:
        return body(ctx, a)

    assert app.workflows["made"].result_type is int
    async with lab(app, tmp_path):
        assert await (await app.emit("made", {"a": 1})).result() == 2


@ON_ASYNCIO
async def test_awaited_result_has_the_type_inside_its_annotation(tmp_path):
    def late() -> Awaitable[tuple[int, int]]:
        async def made() -> tuple[int, int]:
            return 1, 2

        return made()

    async def turn(ctx: TaskContext) -> Any:
        return type(await ctx.step("late", late)).__name__

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == "tuple"


async def test_wrapped_async_workflow_is_cancelled_at_its_timeout(tmp_path):
    app = App()

    @app.workflow("slow", timeout=0.05, max_attempts=1)
    @timed
    async def slow() -> None:
        await anyio.sleep_forever()

    async with lab(app, tmp_path) as harness:
        row = await harness.settled((await app.emit("slow")).id)
        assert row["error_message"] == "slow did not end within 0.05 s"


@ON_ASYNCIO
async def test_timeout_of_a_step_interrupts_a_wrapped_async_function(tmp_path):
    @timed
    async def slow() -> None:
        await anyio.sleep_forever()

    async def turn(ctx: TaskContext) -> Any:
        with pytest.raises(TimeoutError, match=r"step slow did not end within 0\.05 seconds"):
            await ctx.step("slow", slow, timeout=0.05)
        return "went on"

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == "went on"


@ON_ASYNCIO
async def test_failure_of_an_awaitable_that_a_plain_step_returned_is_retried_by_its_policy(tmp_path):
    tries = []

    async def fail() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("not yet")
        return len(tries)

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.step("fail", lambda: fail(), retry=RetryPolicy(max_attempts=3, base=0))

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == 3


@ON_ASYNCIO
@pytest.mark.parametrize("irreversible", [True, False])
async def test_wrapped_async_action_is_called_once_and_its_reference_recorded(tmp_path, irreversible):
    app, calls = App(), []

    @app.action("pay", irreversible=irreversible)
    @timed
    async def pay(call: Call, *, amount: int) -> str:
        await anyio.lowlevel.checkpoint()
        calls.append(amount)
        return f"paid-{amount}"

    async def turn(ctx: TaskContext) -> Any:
        done = await ctx.act(pay, amount=3)
        if ctx.attempt == 1:
            raise ValueError("again")
        return done

    async with lab(app, tmp_path) as harness:
        assert result(await run(harness, turn)) == "paid-3"
    assert calls == [3]


@ON_ASYNCIO
async def test_doubt_about_a_wrapped_async_action_is_reconciled_by_a_wrapped_function(tmp_path):
    """The clock does not move while the intent is written, so the call has its whole time."""
    app = App()

    @app.action("pay", irreversible=True, on_unknown=OnUnknown.RECONCILE, timeout=0.05, settle_after=0)
    @timed
    async def pay(call: Call) -> str:
        await anyio.sleep_forever()
        return "never"

    @pay.reconcile
    @timed
    async def find(call: Call) -> Any:
        await anyio.lowlevel.checkpoint()
        return Done("found")

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(pay)

    async with lab(app, tmp_path, clock=VirtualClock()) as harness:
        assert result(await run(harness, turn)) == "found"


@ON_ASYNCIO
async def test_coroutine_of_a_cancelled_plain_step_is_closed_and_never_runs(tmp_path, recwarn):
    begun, proceed, ran = threading.Event(), threading.Event(), []

    async def never() -> None:
        ran.append(1)

    def plain() -> Any:
        begun.set()
        proceed.wait(30)
        return never()

    async def turn(ctx: TaskContext) -> Any:
        async with anyio.create_task_group() as group:
            group.start_soon(ctx.step, "plain", plain)
            await anyio.to_thread.run_sync(begun.wait)
            group.cancel_scope.cancel()
            proceed.set()
        return "went on"

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == "went on"
    assert not ran
    assert not [one for one in recwarn if "never awaited" in str(one.message)]


@ON_ASYNCIO
async def test_function_that_returns_an_awaitable_is_refused_in_a_worker_process(tmp_path):
    async def turn(ctx: TaskContext) -> Any:
        return await ctx.step("wait", functions.return_awaitable, executor="process")

    async with lab(App(), tmp_path) as harness:
        assert failure(await run(harness, turn)) == (
            "VALIDATION_ERROR",
            "the function of step wait returned something to await, and a worker process has no event loop: leave out "
            'executor="process", or make it a plain function',
        )


@ON_ASYNCIO
@pytest.mark.parametrize("mock", [Mock(return_value=3), AsyncMock(return_value=3)])
async def test_mock_is_a_function_for_a_step(tmp_path, mock):
    async def turn(ctx: TaskContext) -> Any:
        return await ctx.step("mock", mock, 1)

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == 3


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (lambda ctx: None, "a plain function has no ctx; make it async"),
        (PlainAdder.__call__, "its first parameter is self: declare the method of an object"),
        (3, "3 must be a function"),
        (classmethod(lambda cls: None), "must be a function"),
    ],
)
async def test_callable_that_cannot_be_a_workflow_is_refused_with_its_reason(fn, reason):
    with pytest.raises(ConfigInvalid, match=f"workflow it: .*{reason}"):
        App().declare("it", fn)


@pytest.mark.parametrize("declare", [App().every("5m"), App().cron("0 7 * * *"), App().on_failure])
async def test_decorator_that_needs_a_name_refuses_a_partial(declare):
    with pytest.raises(ConfigInvalid, match="has no name of its own: "):
        declare(partial(add, 1))


async def test_decorator_with_a_name_takes_a_partial():
    app = App()
    app.every("5m", "add")(partial(add, 1))
    assert "add" in app.declared_schedules
