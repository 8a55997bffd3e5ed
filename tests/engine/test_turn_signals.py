"""Signals that start a task, signals between tasks, and gathered child results."""

from __future__ import annotations

from typing import Any

import pytest

from craftcore import App, ChildFailed, Fail, Producer, TaskContext, TriggerSpec
from craftcore.errors import InvalidInput, NotFound, StateRefused, UnknownWorkflow
from tests.support.engine_harness import lab, look

pytestmark = pytest.mark.anyio


def build_app() -> App:
    app = App()

    @app.workflow("waits")
    async def waits(ctx: TaskContext) -> Any:
        return await ctx.wait_for("go")

    @app.workflow("tells")
    async def tells(ctx: TaskContext, task_id: str) -> list[bool]:
        results = [await ctx.signal(task_id, "go", {"n": 1}), await ctx.signal(task_id, "more")]
        if ctx.attempt == 1:
            raise ConnectionError("once more")
        return results

    return app


async def test_signal_starts_its_task_when_no_task_is_live(tmp_path):
    app = build_app()
    async with lab(app, tmp_path) as harness:
        start = TriggerSpec(workflow="waits", dedup_key="chat:ada")
        assert await app.signal(None, "go", "first", start=start) is False
        [work] = await app.find(dedup_key="chat:ada")
        assert await work.result() == "first"
        assert harness.rows("SELECT id FROM tasks") == [{"id": work.id}]


async def test_signal_reaches_the_live_task_and_starts_no_other(tmp_path):
    app = build_app()
    async with lab(app, tmp_path) as harness:
        start = TriggerSpec(workflow="waits", dedup_key="chat:ada")
        work = await app.emit("waits", dedup_key="chat:ada")
        await harness.waiting(work.id)
        assert await app.signal(None, "go", "by key", start=start) is True
        assert await work.result() == "by key"

        other = await app.emit("waits")
        await harness.waiting(other.id)
        assert await app.signal(other.id, "go", "by id", start=start) is True
        assert await other.result() == "by id"


async def test_signal_to_an_ended_task_starts_another(tmp_path):
    app = build_app()
    async with lab(app, tmp_path) as harness:
        ended = await app.emit("waits")
        await harness.waiting(ended.id)
        await app.signal(ended.id, "go", "first")
        await ended.result()
        with pytest.raises(StateRefused):
            await app.signal(ended.id, "go", "second")

        await app.signal(ended.id, "go", "second", start=TriggerSpec(workflow="waits"))
        [newest] = await app.find(workflow="waits", limit=1)
        assert newest.id != ended.id
        assert await newest.result() == "second"


async def test_signal_without_a_task_is_refused(tmp_path):
    app = build_app()
    async with lab(app, tmp_path) as harness:
        with pytest.raises(InvalidInput, match="signal names no task"):
            await app.signal(None, "go")
        with pytest.raises(UnknownWorkflow):
            await app.signal(None, "go", start=TriggerSpec(workflow="nobody"))
        with pytest.raises(InvalidInput, match="event"):
            await app.signal(None, "no name", start=TriggerSpec(workflow="waits"))
        assert harness.rows("SELECT * FROM triggers") == []


async def test_producer_signal_starts_its_task(tmp_path):
    with Producer(tmp_path / "agent.db") as producer:
        assert producer.signal(None, "go", "early", start=TriggerSpec(workflow="waits")) is False
    assert look(tmp_path / "agent.db", "SELECT event FROM early_mail") == [{"event": "go"}]

    app = build_app()
    async with lab(app, tmp_path):
        [work] = await app.find(workflow="waits")
        assert await work.result() == "early"


async def test_task_signals_another_once_over_a_reentry(tmp_path):
    app = build_app()
    async with lab(app, tmp_path) as harness:
        other = await app.emit("waits")
        await harness.waiting(other.id)
        results = await (await app.emit("tells", {"task_id": other.id})).result()

        assert results == [True, False]
        assert await other.result() == {"n": 1}
        mails = harness.rows("SELECT event, sent_by FROM mailbox")
        assert [mail["event"] for mail in mails].count("go") <= 1
        assert [mail["event"] for mail in mails].count("more") == 1


async def test_signal_to_itself_or_an_unknown_task_is_refused(tmp_path):
    app = build_app()
    refused: list[type[Exception]] = []

    @app.workflow("wrong")
    async def wrong(ctx: TaskContext) -> None:
        for task_id in (ctx.task_id, "01900000-0000-7000-8000-000000000000"):
            try:
                await ctx.signal(task_id, "go")
            except (InvalidInput, NotFound) as error:
                refused.append(type(error))

    async with lab(app, tmp_path):
        await (await app.emit("wrong")).result()

    assert refused == [InvalidInput, NotFound]


async def test_gather_returns_the_results_of_children_in_order(tmp_path):
    app = App()

    @app.workflow("double")
    async def double(ctx: TaskContext, n: int) -> int:
        await ctx.sleep(0.05 * (3 - n))
        return 2 * n

    @app.workflow("parent")
    async def parent(ctx: TaskContext) -> list[int]:
        children = [await ctx.start_child("double", {"n": n}) for n in range(3)]
        return await ctx.gather(children, int)

    async with lab(app, tmp_path):
        assert await (await app.emit("parent")).result() == [0, 2, 4]


async def test_gather_raises_the_failure_of_a_child(tmp_path):
    app = App()

    @app.workflow("maybe")
    async def maybe(ctx: TaskContext, works: bool) -> str:
        if not works:
            raise Fail("VALIDATION_ERROR", "it never will")
        return "well"

    @app.workflow("parent")
    async def parent(ctx: TaskContext) -> str:
        children = [await ctx.start_child("maybe", {"works": works}) for works in (True, False)]
        try:
            await ctx.gather(children)
        except ChildFailed as failed:
            return failed.message
        return "no failure"

    async with lab(app, tmp_path):
        assert "it never will" in await (await app.emit("parent")).result()
