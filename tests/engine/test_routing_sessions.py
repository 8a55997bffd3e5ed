"""A message finds its task: the live one of its session, the one it names, the one a router chooses, or a new one."""

from __future__ import annotations

from typing import Any

import pytest

from craftcore import App, Done, Retry, TaskContext
from tests.engine.lab import lab

pytestmark = pytest.mark.anyio


async def test_a_first_message_that_is_tried_again_goes_on_with_the_task_it_created(tmp_path):
    """By then its session has a live task: its own. It is no message to that."""
    app = App()

    @app.workflow("chat", sources=["MESSAGE"])
    async def chat(ctx: TaskContext[int], text: str) -> Any:
        if ctx.attempt == 1:
            raise Retry("not yet")
        return Done(f"{text} {ctx.resume}")

    async with lab(app, tmp_path) as it:
        emitted = await app.emit(None, {"text": "hello"}, source="MESSAGE", session_id="s")
        row = await it.ended(emitted.id)

        assert row["result_json"] == '"hello RETRY"'
        assert it.rows("SELECT * FROM mailbox") == []
