"""Plain functions in worker threads or inline on the event loop."""

from __future__ import annotations

import threading
import time
from contextvars import ContextVar
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from craftcore import App, ConfigInvalid, InvalidInput, TaskContext
from craftcore.engine.workers import thread_pool
from craftcore.engine.workers.thread_pool import ThreadPool
from craftcore.storage.event_loop import get_current_loop
from tests.support.engine_harness import lab
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio


class Calls:
    """Jobs of a pool that wait for a gate, in the order of start and end."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.begun: list[int] = []
        self.ended: list[int] = []

    def submit(self, pool: ThreadPool, number: int) -> None:
        pool.submit(partial(self._run, number), partial(self.ended.append, number))

    def _run(self, number: int) -> None:
        self.begun.append(number)
        self.gate.wait(PATIENCE)


async def until(condition: Any) -> None:
    with anyio.fail_after(PATIENCE):
        while not condition():  # noqa: ASYNC110 - a thread has no event of the loop
            await anyio.sleep(0.001)


def pool_threads() -> int:
    return sum(thread.name == "craftcore-call" for thread in threading.enumerate())


async def test_jobs_beyond_the_size_wait_in_order():
    calls = Calls()
    async with ThreadPool(get_current_loop(), 2) as pool:
        for number in range(6):
            calls.submit(pool, number)
        await until(lambda: len(calls.begun) == 2)
        await anyio.sleep(0.02)
        assert sorted(calls.begun) == [0, 1]
        calls.gate.set()
        await until(lambda: len(calls.ended) == 6)
        assert pool_threads() == 2
    assert sorted(calls.begun[2:4]) == [2, 3]
    await until(lambda: pool_threads() == 0)


async def test_idle_threads_end_and_a_later_job_gets_a_thread(monkeypatch):
    monkeypatch.setattr(thread_pool, "IDLE_SECONDS", 0.02)
    calls = Calls()
    async with ThreadPool(get_current_loop(), 2) as pool:
        for round_ in range(3):
            calls.gate.clear()
            for number in range(5):
                calls.submit(pool, number)
            calls.gate.set()
            await until(lambda done=5 * (round_ + 1): len(calls.ended) == done)
            await until(lambda: pool_threads() == 0)


async def test_burst_of_short_jobs_loses_none(monkeypatch):
    monkeypatch.setattr(thread_pool, "IDLE_SECONDS", 0.0005)
    ended: list[int] = []
    async with ThreadPool(get_current_loop(), 4) as pool:
        for number in range(3000):
            pool.submit(partial(time.sleep, 0), partial(ended.append, number))
            if number % 50 == 0:
                await anyio.sleep(0.001)  # threads may end meanwhile
        await until(lambda: len(ended) == 3000)
    assert sorted(ended) == list(range(3000))


async def test_system_without_threads_refuses_the_first_job_and_runs_later_ones(monkeypatch):
    calls = Calls()
    calls.gate.set()

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async with ThreadPool(get_current_loop(), 2) as pool:
        with monkeypatch.context() as full, pytest.raises(RuntimeError, match="start new thread"):
            full.setattr(threading.Thread, "start", refuse)
            calls.submit(pool, 0)
        calls.submit(pool, 1)
        await until(lambda: calls.ended == [1])
        calls.gate.clear()
        calls.submit(pool, 2)
        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", refuse)
            calls.submit(pool, 3)
        calls.gate.set()
        await until(lambda: sorted(calls.ended) == [1, 2, 3])


async def test_inline_functions_run_on_the_thread_of_the_loop(tmp_path):
    app, seen, mark = App(), {}, ContextVar("mark", default="outside")

    def record_call(name: str) -> str:
        seen[name] = (threading.get_ident(), mark.get())
        mark.set("changed within")
        return name

    @app.workflow("task")
    async def task(ctx: TaskContext) -> list[Any]:
        mark.set("task")
        inline = await ctx.step("inline", record_call, "inline", executor="inline")
        in_thread = await ctx.step("thread", record_call, "thread")
        return [inline, in_thread, mark.get()]

    @app.workflow("plain", executor="inline")
    def plain() -> str:
        return record_call("plain")

    async with lab(app, tmp_path) as harness:
        assert await (await app.emit("task")).result() == ["inline", "thread", "task"]
        assert await (await app.emit("plain")).result() == "plain"
        await harness.idle()

    main_thread = threading.get_ident()
    assert seen["inline"] == (main_thread, "task")
    assert seen["plain"] == (main_thread, "outside")
    assert seen["thread"][0] != main_thread
    assert seen["thread"][1] == "task"


async def test_inline_failures_end_as_failures(tmp_path):
    app, tries = App(), []

    def fail() -> None:
        tries.append(1)
        raise ValueError("no")

    @app.workflow("task", max_attempts=1)
    async def task(ctx: TaskContext) -> None:
        await ctx.step("fails", fail, executor="inline")

    @app.workflow("slow", max_attempts=1, timeout=0.05, executor="inline")
    def slow() -> None:
        time.sleep(0.3)

    @app.workflow("limited", max_attempts=1)
    async def limited(ctx: TaskContext) -> None:
        await ctx.step("len", len, "abc", executor="inline", timeout=1)

    async with lab(app, tmp_path) as harness:
        errors = {}
        for name in ("task", "slow", "limited"):
            row = await harness.settled((await app.emit(name)).id)
            errors[name] = row["error_message"]

    assert len(tries) == 1
    assert errors["task"] == "no"
    assert "did not end within 0.05 s: it blocked the event loop" in errors["slow"]
    assert "nothing interrupts a plain function in a thread or on the loop" in errors["limited"]


async def test_inline_async_functions_are_refused(tmp_path):
    async def work() -> None: ...

    with pytest.raises(ConfigInvalid, match='executor="inline" needs a plain function: declare it with def'):
        App().workflow("w", executor="inline")(work)

    app = App()

    @app.workflow("task", max_attempts=1)
    async def task(ctx: TaskContext) -> str:
        with pytest.raises(InvalidInput, match='executor="inline" needs a plain function'):
            await ctx.step("s", work, executor="inline")
        return "refused"

    async with lab(app, tmp_path):
        assert await (await app.emit("task")).result() == "refused"


async def test_plain_function_may_run_an_event_loop_of_its_own(tmp_path):
    app = App()

    async def answer() -> int:
        await anyio.lowlevel.checkpoint()
        return 42

    @app.workflow("task")
    def task() -> int:
        return anyio.run(answer)

    async with lab(app, tmp_path):
        assert await (await app.emit("task")).result() == 42
