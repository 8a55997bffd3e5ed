"""The shared commit of an engine with concurrency 1: it settles one trigger and starts the next."""

from __future__ import annotations

from typing import Any

import pytest

from craftcore import App, Continue, TaskContext, TriggerSpec
from tests.support.engine_harness import lab, look, settings

pytestmark = pytest.mark.anyio


async def test_handler_finds_the_earlier_trigger_settled_on_disk(tmp_path):
    app, seen = App(), []

    @app.workflow("look")
    async def record_statuses(n: int) -> None:
        seen.append({row["id"]: row["status"] for row in look(harness.path, "SELECT id, status FROM triggers")})

    async with lab(app, tmp_path, settings(concurrency=1)) as harness:
        await app.emit_many([TriggerSpec(workflow="look", payload={"n": n}, id=f"t{n}") for n in range(5)])
        await harness.idle()

    settled = [[id for id, status in rows.items() if status == "DONE"] for rows in seen]
    assert settled == [[f"t{m}" for m in range(n)] for n in range(5)]


async def test_further_turn_of_an_urgent_task_runs_before_other_work(tmp_path):
    app, order = App(), []

    @app.workflow("urgent")
    async def urgent(ctx: TaskContext[int]) -> Any:
        order.append(f"urgent {ctx.turn}")
        return Continue(1) if ctx.turn == 1 else None

    @app.workflow("plain")
    async def plain() -> None:
        order.append("plain")

    async with lab(app, tmp_path, settings(concurrency=1)) as harness:
        await app.emit_many([TriggerSpec(workflow="urgent", priority=0), TriggerSpec(workflow="plain", priority=99)])
        await harness.idle()

    assert order == ["urgent 1", "urgent 2", "plain"]


async def test_claim_that_is_cancelled_before_the_shared_commit_is_not_run(tmp_path):
    app, ran = App(), []

    @app.workflow("first")
    async def first() -> None:
        ran.append("first")
        await app.cancel("second")

    @app.workflow("second")
    async def second() -> None:
        ran.append("second")

    @app.workflow("third")
    async def third() -> None:
        ran.append("third")

    async with lab(app, tmp_path, settings(concurrency=1)) as harness:
        await app.emit_many([TriggerSpec(workflow=name, id=name) for name in ("first", "second")])
        await app.emit("third", id="third")
        await harness.idle()
        reasons = {row["id"]: row["reason"] for row in look(harness.path, "SELECT id, reason FROM triggers")}

    assert ran == ["first", "third"]
    assert reasons == {"first": "succeeded", "second": "cancelled", "third": "succeeded"}
