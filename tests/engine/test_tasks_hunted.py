"""What the crash campaigns of tasks found, each as small as it gets."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from craftcore import App, ChildFailed, Fail, Route, RoutedTrigger, RoutingContext, TaskContext
from tests.support.engine_harness import Lab, lab, settings

pytestmark = pytest.mark.anyio


async def ended(it: Lab, task_id: str) -> dict[str, Any]:
    """The row of a task once it has ended."""
    of_task = "SELECT * FROM tasks WHERE id = :id AND ended_at IS NOT NULL"
    await it.until(lambda: bool(it.rows(of_task, id=task_id)))
    [row] = it.rows(of_task, id=task_id)
    return row


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

    async with lab(app, tmp_path) as it:
        row = await ended(it, (await app.emit("parent")).id)
        assert json.loads(row["result_json"]) == [True, "FAILED", "BROKEN", "it never will"]


async def test_message_that_started_a_task_continues_the_task_on_retry(tmp_path):
    """Its session has a live task by then: its own. It was delivered to itself, and nothing was left to run it."""
    app = App()

    @app.workflow("chat", sources=["MESSAGE"])
    async def chat(ctx: TaskContext, text: str) -> list[Any]:
        if ctx.attempt == 1:
            raise ConnectionError("not the first time")
        return [text, ctx.resume]

    async with lab(app, tmp_path) as it:
        row = await ended(it, (await app.emit(None, {"text": "hello"}, source="MESSAGE", session_id="s")).id)
        assert json.loads(row["result_json"]) == ["hello", "RETRY"]
        assert it.rows("SELECT * FROM mailbox") == []


async def test_router_is_not_asked_again_for_a_trigger_that_has_a_task(tmp_path):
    """It might send the second attempt elsewhere, into another workflow with the memo of this one."""
    asked: list[str] = []

    class Rule:
        async def route(self, trigger: RoutedTrigger, context: RoutingContext) -> Route:
            asked.append(trigger.id)
            return Route(workflow=("one", "other")[len(asked) - 1])

    app = App(router=Rule())

    @app.workflow("one")
    async def one(ctx: TaskContext) -> str:
        if ctx.attempt == 1:
            raise ConnectionError("not the first time")
        return "one"

    @app.workflow("other")
    async def other(ctx: TaskContext) -> str:
        return "other"

    async with lab(app, tmp_path) as it:
        emitted = await app.emit(None, source="MESSAGE", session_id="s")
        row = await ended(it, emitted.id)
        assert (row["workflow"], row["result_json"], asked) == ("one", '"one"', [emitted.id])


async def test_task_of_a_removed_workflow_is_held_and_fails_with_the_trigger_on_retry(tmp_path):
    """A deployment without it came while its first turn was interrupted: its trigger failed, and it ran for ever."""
    before, after = App(), App()

    @before.workflow("gone")
    async def gone(ctx: TaskContext) -> None:
        await anyio.sleep_forever()

    async with lab(before, tmp_path, settings(shutdown_grace=0.0)) as it:
        emitted = await before.emit("gone")
        await it.until(lambda: it.engine.running == 1)
    async with lab(after, tmp_path) as it:
        assert await it.held(emitted.id) == "workflow gone is not declared"
        await after.retry_task(emitted.id)
        row = await ended(it, emitted.id)
        trigger = it.trigger(emitted.id)
        assert (row["status"], row["error_code"]) == ("FAILED", "CAPABILITY_NOT_FOUND")
        assert (trigger["status"], trigger["error_code"]) == ("FAILED", "CAPABILITY_NOT_FOUND")
