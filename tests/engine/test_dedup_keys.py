"""Dedup keys of triggers and tasks: duplicates, replacement, and reuse after the end of the work."""

from __future__ import annotations

import pytest

from craftcore import App, DedupScope, Retry, TaskContext
from tests.support.engine_harness import lab

pytestmark = pytest.mark.anyio


async def test_dedup_key_is_free_again_after_the_trigger_has_settled(tmp_path):
    app = App()
    greeted = []

    @app.workflow("greet")
    async def greet(name: str) -> None:
        greeted.append(name)

    for run in (1, 2):
        async with lab(app, tmp_path) as harness:
            grace = await app.emit("greet", {"name": "Grace"}, delay=0.05, dedup_key="greet:grace")
            await harness.settled(grace.id)

        assert grace.created, run
        assert greeted == ["Grace"] * run


async def test_dedup_key_of_a_waiting_task_is_held_until_the_task_ends(tmp_path):
    app = App()

    @app.workflow("purchase")
    async def purchase(ctx: TaskContext) -> str:
        return str(await ctx.wait_for("paid"))

    async with lab(app, tmp_path) as harness:
        first = await app.emit("purchase", dedup_key="purchase:7")
        await harness.waiting(first.id)
        while_it_waits = await app.emit("purchase", dedup_key="purchase:7")
        await app.signal(first.id, "paid", "now")
        await harness.ended(first.id)
        afterwards = await app.emit("purchase", dedup_key="purchase:7")

        assert (while_it_waits.id, while_it_waits.created, while_it_waits.held) == (first.id, False, "dedup_key")
        assert afterwards.created
        await harness.waiting(afterwards.id)


async def test_trigger_of_a_begun_task_is_not_replaced_before_the_next_attempt(tmp_path):
    """The completed notes and steps of the task belong to the first payload."""
    app = App()

    @app.workflow("brief")
    async def brief(ctx: TaskContext, city: str) -> str:
        await ctx.note("city", city)
        raise Retry(after=3600)

    async with lab(app, tmp_path) as harness:
        first = await app.emit("brief", {"city": "Rome"}, dedup_key="brief")
        await harness.until(lambda: harness.trigger(first.id)["reason"] == "AGENT_ERROR")
        again = await app.emit("brief", {"city": "Oslo"}, dedup_key="brief", on_duplicate="replace")
        assert (again.id, again.payload_differs) == (first.id, True)
        assert harness.trigger(first.id)["payload_json"] == '{"city":"Rome"}'


async def test_emit_with_a_held_dedup_key_returns_the_same_result_at_each_attempt(tmp_path):
    app = App()
    results = []

    @app.workflow("sleeper")
    async def sleeper() -> None: ...

    @app.workflow("emits")
    async def emits(ctx: TaskContext) -> None:
        results.append(await ctx.emit("sleeper", dedup_key="taken"))
        if len(results) == 1:
            raise RuntimeError("once more")

    async with lab(app, tmp_path) as harness:
        holder = await app.emit("sleeper", dedup_key="taken", dedup_scope="ever", delay=3600)
        emitted = await app.emit("emits")
        await harness.settled(emitted.id)

    assert results[0] == results[1]
    assert (results[1].id, results[1].held, results[1].dedup_scope) == (holder.id, "dedup_key", DedupScope.EVER)
