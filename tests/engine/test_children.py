"""Child tasks: results and failures that their parent receives, and their end with or after the parent."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from craftcore import App, ChildFailed, Fail, TaskContext, WorkFailed
from craftcore.errors import StateRefused
from tests.support.engine_harness import lab

pytestmark = pytest.mark.anyio


async def test_child_result_can_be_awaited_again_after_a_timeout(tmp_path):
    app = App()

    @app.workflow("slow")
    async def slow(ctx: TaskContext) -> str:
        return str(await ctx.wait_for("go"))

    @app.workflow("parent")
    async def parent(ctx: TaskContext) -> list[str]:
        child = await ctx.start_child("slow")
        results = []
        for timeout in (0, 0, None):
            try:
                results.append(await child.result(str, timeout=timeout))
            except ChildFailed:
                results.append("not yet")
        return [*results, await child.result(str)]

    async with lab(app, tmp_path) as harness:
        parent_id = (await app.emit("parent")).id
        two_ended = "SELECT 1 FROM waits WHERE kind = 'child' AND resolved_by = 'timer'"
        await harness.until(lambda: len(harness.rows(two_ended)) == 2)
        [row] = harness.rows("SELECT id FROM tasks WHERE workflow = 'slow'")
        await app.signal(row["id"], "go", "done")

        assert (await harness.ended(parent_id))["result_json"] == '["not yet","not yet","done","done"]'
        assert len(harness.rows("SELECT 1 FROM waits WHERE kind = 'child'")) == 3


async def test_child_failure_carries_status_code_and_message_to_the_parent(tmp_path):
    app = App()

    @app.workflow("broken")
    async def broken(ctx: TaskContext) -> None:
        raise Fail("BROKEN", "it never will")

    @app.workflow("parent")
    async def parent(ctx: TaskContext) -> Any:
        child = await ctx.start_child("broken")
        try:
            return await child.result()
        except ChildFailed as failed:
            return [failed.details["id"] == child.id, *(failed.details[word] for word in ("status", "code", "message"))]

    async with lab(app, tmp_path) as harness:
        row = await harness.ended((await app.emit("parent")).id)
        assert json.loads(row["result_json"]) == [True, "FAILED", "BROKEN", "it never will"]


def build_family(gate: anyio.Event) -> App:
    """Build a parent that starts one child for each on_parent_end policy and ends in the given way."""
    app = App()

    @app.workflow("parent")
    async def parent(ctx: TaskContext, on_parent_end: str, ending: str) -> None:
        ends: Any = on_parent_end
        await ctx.start_child("waits", on_parent_end=ends)
        await ctx.start_child("waits", delay=3600, on_parent_end=ends)
        await ctx.start_child("runs", on_parent_end=ends)
        await ctx.start_child("middle", on_parent_end=ends)
        await ctx.wait_for("end")
        if ending == "fails":
            raise Fail("VALIDATION_ERROR", "it cannot")

    @app.workflow("middle")
    async def middle(ctx: TaskContext) -> None:
        await ctx.start_child("waits", on_parent_end="cancel")
        await ctx.wait_for("never")

    @app.workflow("waits")
    async def waits(ctx: TaskContext) -> None:
        await ctx.wait_for("never")

    @app.workflow("runs")
    async def runs(ctx: TaskContext) -> None:
        await gate.wait()

    return app


STATES = "SELECT workflow, status FROM tasks WHERE workflow <> 'parent' ORDER BY seq"


@pytest.mark.parametrize("ending", ["returns", "fails", "is cancelled"])
async def test_children_that_end_with_their_parent_are_cancelled(tmp_path, ending):
    app = build_family(anyio.Event())
    async with lab(app, tmp_path) as harness:
        parent = await app.emit("parent", {"on_parent_end": "cancel", "ending": ending})
        await harness.until(lambda: len([row for row in harness.rows(STATES) if row["status"] == "WAITING"]) == 3)
        await harness.waiting(parent.id)
        await harness.until(lambda: harness.engine.running == 1)
        if ending == "is cancelled":
            await parent.cancel()
        else:
            await app.signal(parent.id, "end")
        await harness.ended(parent.id)
        await harness.until(lambda: {row["status"] for row in harness.rows(STATES)} == {"CANCELLED"})

        assert sorted(row["workflow"] for row in harness.rows(STATES)) == ["middle", "runs", "waits", "waits", "waits"]
        assert {row["reason"] for row in harness.rows("SELECT reason FROM tasks WHERE parent_id IS NOT NULL")} == {
            "its parent has ended"
        }


async def test_retried_parent_has_its_cancelled_children_alive_again(tmp_path):
    released = anyio.Event()
    app = build_family(released)
    is_mended = False

    @app.workflow("parent-of-all", max_attempts=1)
    async def parent_of_all(ctx: TaskContext) -> None:
        await ctx.start_child("waits", on_parent_end="cancel")
        await ctx.start_child("waits", delay=3600, on_parent_end="cancel")
        await ctx.start_child("runs", on_parent_end="cancel")
        middle = await ctx.start_child("middle", on_parent_end="cancel")
        if not is_mended:
            await gate.wait()
            raise ConnectionError("down")
        await middle.result()

    gate = anyio.Event()
    works = "SELECT workflow, status FROM tasks WHERE parent_id IS NOT NULL ORDER BY workflow, status"
    later = "SELECT due_at FROM triggers WHERE status = 'PENDING' AND due_at > created_at + 1000"
    async with lab(app, tmp_path) as harness:
        parent = await app.emit("parent-of-all")
        lively = [("middle", "WAITING"), ("runs", "RUNNING"), ("waits", "RUNNING"), *(("waits", "WAITING"),) * 2]
        await harness.until(lambda: [tuple(row.values()) for row in harness.rows(works)] == lively)
        await harness.until(lambda: harness.engine.running == 2)
        [due] = harness.rows(later)
        gate.set()
        await harness.ended(parent.id)
        await harness.until(lambda: {row["status"] for row in harness.rows(works)} == {"CANCELLED"})

        is_mended = True
        await app.retry_task(parent.id)

        await harness.waiting(parent.id)
        await harness.until(lambda: [tuple(row.values()) for row in harness.rows(works)] == lively)
        assert harness.rows(later) == [due]
        released.set()  # otherwise the engine waits for the running child at its stop


async def test_retry_is_refused_while_a_child_is_still_being_cancelled(tmp_path):
    app, gate = App(), anyio.Event()

    @app.workflow("parent", max_attempts=1)
    async def parent(ctx: TaskContext) -> None:
        await ctx.start_child("slow", on_parent_end="cancel")
        await ctx.wait_for("end")
        raise ConnectionError("down")

    @app.workflow("slow")
    async def slow(ctx: TaskContext) -> None:
        ran.set()
        with anyio.CancelScope(shield=True):
            await gate.wait()
        await anyio.sleep_forever()

    ran = anyio.Event()
    async with lab(app, tmp_path) as harness:
        work = await app.emit("parent")
        await ran.wait()
        await harness.waiting(work.id)
        await app.signal(work.id, "end")
        await harness.ended(work.id)
        with pytest.raises(StateRefused, match="is still being cancelled with it: retry once that has ended"):
            await app.retry_task(work.id)
        assert harness.task(work.id)["status"] == "FAILED"
        gate.set()
        [child] = harness.rows("SELECT id FROM tasks WHERE workflow = 'slow'")
        assert (await harness.ended(child["id"]))["status"] == "CANCELLED"
        await app.retry_task(work.id)
        assert (await harness.ended(work.id))["status"] == "FAILED"


async def test_abandoned_children_continue_after_their_parent(tmp_path):
    gate = anyio.Event()
    app = build_family(gate)
    async with lab(app, tmp_path) as harness:
        parent = await app.emit("parent", {"on_parent_end": "abandon", "ending": "returns"})
        await harness.waiting(parent.id)
        await app.signal(parent.id, "end")
        await harness.ended(parent.id)
        await harness.until(lambda: len([row for row in harness.rows(STATES) if row["status"] == "WAITING"]) == 3)
        assert "CANCELLED" not in {row["status"] for row in harness.rows(STATES)}
        gate.set()


async def test_unknown_end_of_a_child_is_refused(tmp_path):
    app = build_family(anyio.Event())
    async with lab(app, tmp_path):
        parent = await app.emit("parent", {"on_parent_end": "stop", "ending": "returns"}, max_attempts=1)
        with pytest.raises(WorkFailed, match="on_parent_end 'stop' must be one of abandon, cancel"):
            await parent.result()
