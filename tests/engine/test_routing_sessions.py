"""A message finds its task: the live one of its session, the one it names, the one a router chooses, or a new one."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from craftcore import App, Continue, Done, Retry, TaskContext, TriggerSpec
from tests.engine.lab import lab, settings

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


async def test_a_message_that_its_task_left_unread_is_emitted_anew_as_it_was_sent(tmp_path):
    """With all that it was sent with, and due when it was."""
    app = App()
    gate = anyio.Event()
    said: list[tuple[str, str | None]] = []

    @app.workflow("busy")
    async def busy(ctx: TaskContext) -> None:
        await gate.wait()

    @app.workflow("note", sources=["MESSAGE"])
    async def note(ctx: TaskContext, text: str) -> None:
        said.append((text, ctx.trigger.description))

    async with lab(app, tmp_path) as it:
        first = await app.emit("busy", session_id="s")
        await it.until(lambda: it.engine.running == 1)
        to_the_task = TriggerSpec(
            task_id=first.id, source="MESSAGE", payload={"text": "1"}, description="first", priority=7, max_attempts=2
        )
        [message] = await app.emit_many([to_the_task])
        assert (await it.settled(message.id))["reason"] == "delivered"
        later = await app.emit(None, {"text": "2"}, source="MESSAGE", session_id="s", priority=7)
        gate.set()
        await it.settled(later.id)
        await it.until(lambda: len(said) == 2)

        [anew] = it.rows("SELECT * FROM triggers WHERE seq > :seq", seq=it.trigger(later.id)["seq"])
        sent = it.trigger(message.id)
        kept = ("source", "task_id", "session_id", "fire_at", "priority", "description", "payload_json", "max_attempts")
        assert {name: anew[name] for name in kept} == {name: sent[name] for name in kept}
        assert sorted(said) == [("1", "first"), ("2", None)]
        assert [row["status"] for row in it.rows("SELECT status FROM mailbox")] == ["EMITTED"]


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_a_message_of_its_session_goes_before_the_next_turn_of_a_task_that_never_rests(tmp_path, concurrency):
    app = App()

    @app.workflow("chat", sources=["MESSAGE"])
    async def chat(ctx: TaskContext[int], text: str) -> Any:
        count = (ctx.state or 0) + 1
        if count == 1:
            await app.emit(None, {"text": "are you there?"}, source="MESSAGE", session_id="s")
        return Continue(count) if count < 50 else await ctx.wait_for("message", timeout=0)

    async with lab(app, tmp_path, settings(concurrency=concurrency)) as it:
        first = await app.emit(None, {"text": "hello"}, source="MESSAGE", session_id="s")
        await it.ended(first.id)

        [message] = it.rows("SELECT * FROM triggers WHERE source = 'MESSAGE' AND id <> :id", id=first.id)
        second_turn, third_turn = it.rows("SELECT * FROM triggers WHERE source = 'CONTINUATION' ORDER BY seq LIMIT 2")
        assert message["reason"] == "delivered"
        assert message["started_at"] <= second_turn["started_at"] < third_turn["started_at"]
