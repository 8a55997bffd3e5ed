"""Turns that a person stops: the task stays alive with the state from before the turn."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from craftcore import App, Ask, Continue, Event, Fail, NotFound, StateRefused, StoppedTurn, TaskContext
from tests.support.acts import Gate, Provider, questions, statuses
from tests.support.engine_harness import Lab, lab
from tests.support.turns import begin, result

pytestmark = pytest.mark.anyio


def build_chat() -> App:
    """Build a chat with a turn for each message: `slow` never ends, `ask` waits for an answer, `end` ends the chat."""
    app = App()

    @app.workflow("chat", sources=("MESSAGE",))
    async def chat(ctx: TaskContext[list[str]], text: str) -> Any:
        message = text if ctx.turn == 1 or ctx.received is None else ctx.received["text"]
        await ctx.note("received", message)
        if message == "slow":
            await anyio.sleep_forever()
        if message == "ask":
            await ctx.wait_any({"answer": Ask("Which one?"), "event": Event("never")})
        if message == "fail":
            raise Fail("VALIDATION_ERROR", "no")
        messages = [*(ctx.state or []), message]
        return messages if message == "end" else Continue(messages, on="message")

    return app


async def send_messages(harness: Lab, *texts: str) -> str:
    """Send messages one by one, each after the turn of the one before has begun. Return the id of the chat."""
    notes = "SELECT 1 FROM events WHERE type = 'NOTE'"
    for number, text in enumerate(texts, 1):
        await harness.app.emit(None, {"text": text}, source="MESSAGE", session_id="s")
        await harness.until(lambda number=number: len(harness.rows(notes)) == number)  # type: ignore[misc]
    [task] = harness.rows("SELECT id FROM tasks")
    return str(task["id"])


async def send_messages_after(harness: Lab, sent: int, *texts: str) -> None:
    """Send messages one by one after `sent` others."""
    notes = "SELECT 1 FROM events WHERE type = 'NOTE'"
    for number, text in enumerate(texts, sent + 1):
        await harness.app.emit(None, {"text": text}, source="MESSAGE", session_id="s")
        await harness.until(lambda number=number: len(harness.rows(notes)) == number)  # type: ignore[misc]


async def test_running_turn_stops_and_the_chat_continues_with_the_state_before(tmp_path):
    async with lab(build_chat(), tmp_path) as harness:
        task_id = await send_messages(harness, "a", "slow")

        await harness.app.stop_turn(task_id)
        await harness.until(lambda: harness.task(task_id)["status"] == "WAITING")
        assert (harness.task(task_id)["reason"], harness.task(task_id)["turn"]) == ("waits for the event message", 3)

        await harness.app.signal(task_id, "message", {"text": "end"})
        assert result(await harness.ended(task_id)) == ["a", "end"]
        assert harness.rows("SELECT error_code FROM executions WHERE turn = 2") == [{"error_code": "WORKFLOW_ABORTED"}]


async def test_first_turn_of_a_session_stops_too(tmp_path):
    async with lab(build_chat(), tmp_path) as harness:
        task_id = await send_messages(harness, "slow")
        await harness.app.stop_turn(task_id)
        await harness.until(lambda: harness.task(task_id)["status"] == "WAITING")

        await harness.app.signal(task_id, "message", {"text": "end"})
        assert result(await harness.ended(task_id)) == ["end"]


async def test_turn_that_waits_stops_at_once_and_its_question_is_withdrawn(tmp_path):
    async with lab(build_chat(), tmp_path) as harness:
        task_id = await send_messages(harness, "a", "ask")
        await harness.waiting(task_id)
        await harness.until(lambda: bool(harness.rows("SELECT 1 FROM questions")))

        await harness.app.stop_turn(task_id)

        assert (harness.task(task_id)["status"], harness.task(task_id)["turn"]) == ("WAITING", 3)
        assert harness.rows("SELECT status FROM questions") == [{"status": "WITHDRAWN"}]
        with pytest.raises(StateRefused, match="no turn of it has begun"):
            await harness.app.stop_turn(task_id)
        await harness.app.signal(task_id, "message", {"text": "end"})
        assert result(await harness.ended(task_id)) == ["a", "end"]


async def test_message_received_meanwhile_begins_the_next_turn(tmp_path):
    async with lab(build_chat(), tmp_path) as harness:
        task_id = await send_messages(harness, "a", "slow")
        await harness.app.signal(task_id, "message", {"text": "end"})

        await harness.app.stop_turn(task_id)

        assert result(await harness.ended(task_id)) == ["a", "end"]


async def test_next_turn_finds_the_message_and_the_steps_of_the_stopped_turn(tmp_path):
    seen: list[Any] = []
    app = App()

    @app.workflow("chat", sources=("MESSAGE",))
    async def chat(ctx: TaskContext[None, dict[str, str]], text: str) -> Any:
        message = text if ctx.turn == 1 else ctx.received["text"]
        seen.append(ctx.stopped)
        if message == "slow":
            await ctx.step("model", str, "half")
            await ctx.step("tool", str, 1, key="a")
            await ctx.stream("answer").write(f"{ctx.turn}: half")
            await ctx.note("received", message)
            await anyio.sleep_forever()
        if message == "fail" and ctx.attempt == 1:
            raise Fail("NO", "no")
        await ctx.note("received", message)
        return None if message == "end" else Continue(None, on="message")

    async with lab(app, tmp_path) as harness:
        task_id = await send_messages(harness, "slow")
        await harness.app.stop_turn(task_id)
        await harness.until(lambda: harness.task(task_id)["status"] == "WAITING")
        await send_messages_after(harness, 1, "b", "slow")
        await harness.app.stop_turn(task_id)
        await harness.until(lambda: harness.task(task_id)["status"] == "WAITING")
        await harness.app.emit(None, {"text": "fail"}, source="MESSAGE", session_id="s")
        await harness.ended(task_id)
        await harness.app.retry_task(task_id)
        await harness.until(lambda: len(seen) == 5)

    steps = ("model", "tool/a")
    first = StoppedTurn(turn=1, received={"text": "slow"}, steps=steps, streams={"answer": "1: half"})
    third = StoppedTurn(turn=3, received={"text": "slow"}, steps=steps, streams={"answer": "3: half"})
    assert seen == [None, first, None, third, third]  # the last one after the retry


async def test_periodic_turn_stops_until_its_next_time(tmp_path):
    entered: list[int] = []

    async def poll(ctx: TaskContext) -> Any:
        entered.append(ctx.turn)
        if ctx.turn == 2:
            await anyio.sleep_forever()
        return "over" if ctx.turn == 3 else Continue(None, after=0.2)

    async with lab(App(), tmp_path) as harness:
        task_id = await begin(harness, poll)
        await harness.until(lambda: entered == [1, 2])
        await harness.app.stop_turn(task_id)

        assert result(await harness.ended(task_id)) == "over"
        first, second = harness.rows("SELECT due_at - created_at AS delay FROM waits ORDER BY seq")
        assert second["delay"] == pytest.approx(first["delay"], abs=0.001)


async def test_cancel_after_a_stop_ends_the_task(tmp_path):
    entered, leaves = anyio.Event(), anyio.Event()

    async def turn(ctx: TaskContext) -> None:
        with anyio.CancelScope(shield=True):
            entered.set()
            await leaves.wait()
        await anyio.sleep_forever()

    async with lab(App(), tmp_path) as harness:
        harness.app.declare("ignores_stop", turn)
        task_id = (await harness.app.emit("ignores_stop", session_id="s")).id
        await entered.wait()
        await harness.app.stop_turn(task_id)
        await harness.app.cancel_task(task_id)
        leaves.set()

        assert (await harness.ended(task_id))["status"] == "CANCELLED"


async def test_failed_task_has_no_turn_to_stop(tmp_path):
    async with lab(build_chat(), tmp_path) as harness:
        task_id = await send_messages(harness, "a", "fail")
        await harness.ended(task_id)
        with pytest.raises(StateRefused, match="is FAILED"):
            await harness.app.stop_turn(task_id)


async def test_turn_without_a_next_wake_up_cannot_be_stopped(tmp_path):
    async def turn(ctx: TaskContext) -> None:
        await ctx.wait_for("never")

    async with lab(App(), tmp_path) as harness:
        task_id = await begin(harness, turn)
        await harness.waiting(task_id)
        with pytest.raises(StateRefused, match="nothing would begin another; nothing was written"):
            await harness.app.stop_turn(task_id)
        with pytest.raises(NotFound):
            await harness.app.stop_turn("nobody")
        assert harness.task(task_id)["stopped_turn"] is None


def build_paying_chat(provider: Provider) -> App:
    """Build a chat in which each message is a turn that pays."""
    app = App()
    pay = app.action("pay", irreversible=True)(provider)

    @app.workflow("chat", sources=("MESSAGE",))
    async def chat(ctx: TaskContext, text: str) -> Any:
        await ctx.act(pay, to=text)
        return Continue(None, on="message")

    return app


async def test_running_act_of_a_stopped_turn_is_asked_about(tmp_path):
    gate = Gate()
    async with lab(build_paying_chat(Provider(gate)), tmp_path) as harness:
        task_id = (await harness.app.emit(None, {"text": "ada"}, source="MESSAGE", session_id="s")).id
        await gate.inside.wait()

        await harness.app.stop_turn(task_id)
        await harness.waiting(task_id)
        assert statuses(harness) == ["UNKNOWN"]
        assert questions(harness) == [("activity", "OPEN")]  # opened in the same commit
        asked = await harness.question("activity")

        await harness.app.answer(asked["id"], "happened", answered_by="ada")
        assert statuses(harness) == ["DONE"]
        assert harness.task(task_id)["status"] == "WAITING"


async def test_question_about_an_act_stays_open_when_its_turn_is_stopped(tmp_path):
    async with lab(build_paying_chat(Provider(ConnectionResetError("lost"))), tmp_path) as harness:
        task_id = (await harness.app.emit(None, {"text": "ada"}, source="MESSAGE", session_id="s")).id
        asked = await harness.question("activity")

        await harness.app.stop_turn(task_id)
        assert [(row["id"], row["status"]) for row in harness.rows("SELECT id, status FROM questions")] == [
            (asked["id"], "OPEN")
        ]

        await harness.app.answer(asked["id"], "happened", answered_by="ada")
        assert statuses(harness) == ["DONE"]
        assert (harness.task(task_id)["status"], harness.task(task_id)["turn"]) == ("WAITING", 2)
