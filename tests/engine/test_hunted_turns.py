"""Bugs of turns that were hunted down, one test each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from craftcore import App, Retry, TaskContext
from craftcore.errors import StorageBusy
from tests.engine.lab import lab, settings

pytestmark = pytest.mark.anyio


async def test_a_note_has_the_limit_of_a_result(tmp_path):
    app = App()

    @app.workflow("big")
    async def big(ctx: TaskContext) -> None:
        await ctx.note("page", "x" * 1024)

    small = replace(settings(), tasks=replace(settings().tasks, result_max_bytes=1024))
    async with lab(app, tmp_path, small) as it:
        emitted = await app.emit("big")
        row = await it.ended(emitted.id)
        assert (row["status"], row["error_code"]) == ("FAILED", "PAYLOAD_TOO_LARGE")


async def test_a_trigger_that_has_begun_a_task_is_not_replaced_while_it_waits_for_its_next_attempt(tmp_path):
    """The turn went on with what it had completed for the payload before."""
    app = App()

    @app.workflow("brief")
    async def brief(ctx: TaskContext, city: str) -> str:
        await ctx.note("city", city)
        raise Retry(after=3600)

    async with lab(app, tmp_path) as it:
        first = await app.emit("brief", {"city": "Rome"}, dedup_key="brief")
        await it.until(lambda: it.trigger(first.id)["reason"] == "AGENT_ERROR")
        again = await app.emit("brief", {"city": "Oslo"}, dedup_key="brief", on_duplicate="replace")
        assert (again.id, again.payload_differs) == (first.id, True)
        assert it.trigger(first.id)["payload_json"] == '{"city":"Rome"}'


async def test_a_file_that_another_process_held_too_long_is_tried_again(tmp_path):
    app = App()

    @app.workflow("report")
    async def report(ctx: TaskContext) -> None:
        if ctx.attempt == 1:
            raise StorageBusy("another process holds the write lock; nothing was written")

    async with lab(app, tmp_path) as it:
        emitted = await app.emit("report")
        assert (await it.ended(emitted.id))["status"] == "DONE"
