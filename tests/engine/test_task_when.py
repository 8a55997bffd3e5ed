"""Workflows with task_when: a task for matching payloads, and a plain run for the others."""

from __future__ import annotations

from typing import Any

import pytest

from craftcore import App, TaskContext
from craftcore.errors import ConfigInvalid
from tests.support.engine_harness import lab
from tests.support.turns import result

pytestmark = pytest.mark.anyio


def build_app(seen: list[Any]) -> App:
    app = App()

    async def some(ctx: TaskContext[int] | None, number: int) -> int:
        seen.append((number, None if ctx is None else ctx.task_id))
        if len(seen) == 1:
            raise ValueError("not yet")
        if ctx is not None:
            await ctx.sleep(0)
        return number

    app.declare("some", some, task_when=lambda payload: "7" in payload)
    return app


async def test_payload_that_matches_task_when_runs_as_a_task_over_retries_and_waits(tmp_path):
    seen: list[Any] = []
    async with lab(build_app(seen), tmp_path) as harness:
        emitted = await harness.app.emit("some", {"number": 7})

        assert result(await harness.ended(emitted.id)) == 7
        assert set(seen) == {(7, emitted.id)}
        assert len(seen) == 3  # the task failed, slept, and continued by a trigger with another payload


async def test_payload_that_does_not_match_task_when_runs_without_a_task(tmp_path):
    seen: list[Any] = []
    async with lab(build_app(seen), tmp_path) as harness:
        emitted = await harness.app.emit("some", {"number": 8})

        assert (await harness.settled(emitted.id))["status"] == "DONE"
        assert seen == [(8, None), (8, None)]
        assert harness.rows("SELECT * FROM tasks") == []


async def test_state_type_is_read_from_an_optional_context_annotation(tmp_path):
    assert build_app([]).workflows["some"].state_type is int
    app = App()

    class Socket: ...

    async def unreadable(ctx: TaskContext[Socket] | None) -> None: ...

    unreadable.__annotations__["ctx"] = TaskContext[Socket] | None
    with pytest.raises(ConfigInvalid, match="state: Socket is not a type that JSON can become"):
        app.declare("unreadable", unreadable, task_when=lambda _: True)
