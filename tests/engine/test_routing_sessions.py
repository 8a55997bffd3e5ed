"""Delivery of messages: to the live task of a session, a named task, a routed task or a new task."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from craftcore import (
    App,
    Continue,
    Done,
    Retry,
    Route,
    RoutedTrigger,
    RoutingContext,
    TaskContext,
    TriggerSource,
    TriggerSpec,
)
from craftcore.tasks import waits
from craftcore.triggers.model import OWN_SOURCES
from tests.support.engine_harness import Lab, lab, settings

pytestmark = pytest.mark.anyio


class RecordingRouter:
    """A router that counts its calls and records the sessions in each context."""

    def __init__(self, choose: Callable[[RoutingContext], Route]) -> None:
        self.asked = 0
        self.sessions_seen: list[list[str]] = []
        self._choose = choose

    async def route(self, trigger: RoutedTrigger, context: RoutingContext) -> Route:
        self.asked += 1
        self.sessions_seen.append(sorted(session.session_id for session in context.sessions))
        return self._choose(context)


def refuse_call(context: RoutingContext) -> Route:
    raise AssertionError("the router must not be called")


def chat_app(
    choose: Callable[[RoutingContext], Route] | None = None, *, by_source: bool = True
) -> tuple[App, RecordingRouter]:
    """Build an app with a router. `chat` takes messages until "bye" and returns them; `note` ends at once."""
    router = RecordingRouter(choose or refuse_call)
    app = App(router=router)

    @app.workflow("chat", sources=["MESSAGE"] if by_source else [])
    async def chat(ctx: TaskContext[list[str]], text: str) -> Any:
        messages = [*(ctx.state or []), ctx.received["text"] if ctx.received else text]
        return Done(messages) if messages[-1] == "bye" else Continue(messages, on="message")

    @app.workflow("note")
    async def note(ctx: TaskContext, text: str) -> str:
        return text

    return app, router


async def send_message(
    app: App, text: str, session_id: str | None = None, workflow: str | None = None, **more: Any
) -> str:
    emitted = await app.emit(workflow, {"text": text}, source="MESSAGE", session_id=session_id, **more)
    return emitted.id


async def start_chats(harness: Lab, app: App, *sessions: str) -> list[str]:
    """Start a chat in each session, wait until all wait for a message, and return the task ids."""
    ids = [await send_message(app, "hello", session, "chat") for session in sessions]
    for task_id in ids:
        await harness.waiting(task_id)
    return ids


async def end_chat(harness: Lab, app: App, task_id: str) -> Any:
    """End a chat by "bye" and return all its messages."""
    await app.signal(task_id, "message", {"text": "bye"})
    return json.loads((await harness.ended(task_id))["result_json"])


async def test_message_reaches_the_live_task_of_the_session_and_starts_no_task(tmp_path):
    app, router = chat_app()
    async with lab(app, tmp_path) as harness:
        a, b = await start_chats(harness, app, "a", "b")
        message = await harness.settled(await send_message(app, "are you there?", "a"))

        assert (message["reason"], message["attempts"]) == ("delivered", 1)
        assert await end_chat(harness, app, a) == ["hello", "are you there?", "bye"]
        assert await end_chat(harness, app, b) == ["hello", "bye"]
        assert (len(harness.rows("SELECT 1 FROM tasks")), router.asked) == (2, 0)
        assert harness.events(message["id"])[-2:] == ["DELIVERED", "FINAL_RESPONSE"]


@pytest.mark.parametrize("source", [one for one in TriggerSource if one not in OWN_SOURCES])
async def test_trigger_of_each_source_reaches_the_live_task_of_its_session(tmp_path, source):
    app, router = chat_app()
    async with lab(app, tmp_path) as harness:
        [chat] = await start_chats(harness, app, "a")
        emitted = await app.emit(None, {"text": "time for a walk"}, source=source, session_id="a")

        assert (await harness.settled(emitted.id))["reason"] == "delivered"
        assert await end_chat(harness, app, chat) == ["hello", "time for a walk", "bye"]
        assert (len(harness.rows("SELECT 1 FROM tasks")), router.asked) == (1, 0)


async def test_trigger_of_a_schedule_is_not_taken_for_the_answer_of_a_person(tmp_path):
    app = App()

    @app.workflow("asks")
    async def asks(ctx: TaskContext) -> list[str | None]:
        address = await ctx.ask("Your address?", by_message=True)
        return [address, (await ctx.wait_for("message"))["text"]]

    async with lab(app, tmp_path) as harness:
        task = await app.emit("asks", session_id="s")
        await harness.waiting(task.id)
        for source, text in (("SCHEDULED", "time for a walk"), ("MESSAGE", "Elm Street 1")):
            emitted = await app.emit(None, {"text": text}, source=source, session_id="s")
            await harness.settled(emitted.id)

        assert (await harness.ended(task.id))["result_json"] == '["Elm Street 1","time for a walk"]'


async def test_message_for_a_session_with_an_ended_task_starts_a_new_task(tmp_path):
    app, router = chat_app()
    async with lab(app, tmp_path) as harness:
        [first] = await start_chats(harness, app, "a")
        await end_chat(harness, app, first)

        second = await send_message(app, "hello again", "a")
        await harness.waiting(second)

        assert harness.task(second)["session_id"] == "a"
        assert router.asked == 0


async def test_messages_of_the_same_commit_reach_the_session_in_order(tmp_path):
    app, _ = chat_app()
    async with lab(app, tmp_path) as harness:
        [task_id] = await start_chats(harness, app, "a")
        texts = [str(n) for n in range(20)]
        specs = [TriggerSpec(source="MESSAGE", session_id="a", payload={"text": text}) for text in texts]
        emitted = await app.emit_many(specs)
        for one in emitted:
            await harness.settled(one.id)

        assert await end_chat(harness, app, task_id) == ["hello", *texts, "bye"]


async def test_message_with_a_workflow_starts_a_task_despite_a_live_session_task(tmp_path):
    app, router = chat_app()
    async with lab(app, tmp_path) as harness:
        [task_id] = await start_chats(harness, app, "a")

        note = await send_message(app, "remember this", "a", "note")

        assert (await harness.ended(note))["result_json"] == '"remember this"'
        assert await end_chat(harness, app, task_id) == ["hello", "bye"]
        assert router.asked == 0


async def test_message_with_the_workflow_of_a_live_chat_goes_to_that_chat(tmp_path):
    """Each message with the workflow would otherwise begin a chat without the earlier messages."""
    app, _ = chat_app()
    async with lab(app, tmp_path) as harness:
        [chat] = await start_chats(harness, app, "a")

        again = await harness.settled(await send_message(app, "do you remember?", "a", "chat"))
        other = await app.emit("chat", {"text": "asked for"}, session_id="a")
        await harness.waiting(other.id)
        version = await harness.settled(await send_message(app, "which one?", "a", "chat"))

        assert (again["reason"], version["reason"]) == ("delivered", "delivered")
        assert await end_chat(harness, app, chat) == ["hello", "do you remember?", "which one?", "bye"]
        assert await end_chat(harness, app, other.id) == ["asked for", "bye"]


async def test_message_with_the_workflow_of_a_live_task_that_takes_none_starts_another(tmp_path):
    """For this workflow each message is a task of its own."""
    app = App()

    @app.workflow("answer")
    async def answer(ctx: TaskContext, text: str) -> str:
        return text if text == "quick" else await ctx.wait_for("go")

    async with lab(app, tmp_path) as harness:
        await harness.waiting(await send_message(app, "slow", "a", "answer"))
        quick = await send_message(app, "quick", "a", "answer")

        assert (await harness.ended(quick))["result_json"] == '"quick"'


async def test_second_live_task_takes_no_message_from_the_first(tmp_path):
    """Neither task waits for a message: both are in the middle of a turn."""
    app = App()

    @app.workflow("chat", sources=["MESSAGE"])
    async def chat(ctx: TaskContext[str], text: str) -> Any:
        if ctx.state is None:
            await ctx.wait_for("found")
            return Continue(text, on="message")
        return [ctx.state, ctx.received["text"]]

    @app.workflow("brief")
    async def brief(ctx: TaskContext) -> None:
        await ctx.wait_for("never")

    async with lab(app, tmp_path) as harness:
        task = await send_message(app, "hello", "a")
        await harness.waiting(task)
        await harness.waiting((await app.emit("brief", source="SCHEDULED", session_id="a")).id)
        await harness.settled(await send_message(app, "still there?", "a"))
        await app.signal(task, "found")

        assert (await harness.ended(task))["result_json"] == '["hello","still there?"]'


async def test_message_with_a_live_task_id_reaches_that_task_before_any_other(tmp_path):
    app, router = chat_app()
    async with lab(app, tmp_path) as harness:
        a, b = await start_chats(harness, app, "a", "b")
        spec = TriggerSpec(workflow="note", source="MESSAGE", session_id="a", task_id=b, payload={"text": "for b"})
        [message] = await app.emit_many([spec])

        assert (await harness.settled(message.id))["reason"] == "delivered"
        assert await end_chat(harness, app, b) == ["hello", "for b", "bye"]
        assert await end_chat(harness, app, a) == ["hello", "bye"]
        assert router.asked == 0


async def test_message_with_an_ended_task_id_goes_by_workflow_or_session(tmp_path):
    app, _ = chat_app()
    async with lab(app, tmp_path) as harness:
        a, b = await start_chats(harness, app, "a", "b")
        await end_chat(harness, app, b)
        to_b: dict[str, Any] = {"source": "MESSAGE", "task_id": b, "payload": {"text": "late"}}
        specs = [TriggerSpec(workflow="note", **to_b), TriggerSpec(session_id="a", **to_b)]
        [by_workflow, by_session] = await app.emit_many(specs)

        assert (await harness.ended(by_workflow.id))["workflow"] == "note"
        assert (await harness.settled(by_session.id))["reason"] == "delivered"
        assert await end_chat(harness, app, a) == ["hello", "late", "bye"]


# Schedules


async def test_session_message_of_a_schedule_reaches_the_chat_and_takes_no_messages(tmp_path):
    app, _ = chat_app()
    async with lab(app, tmp_path) as harness:
        [chat] = await start_chats(harness, app, "ada")
        await app.schedules.add(
            "walk",
            "every day at 5pm",
            deliver="session",
            session_id="ada",
            source="PROACTIVE",
            payload={"text": "walk"},
        )
        fired = await app.schedules.run_now("walk")
        assert (await harness.settled(fired.trigger_id or ""))["reason"] == "delivered"
        await harness.settled(await send_message(app, "not now", "ada"))

        assert await end_chat(harness, app, chat) == ["hello", "walk", "not now", "bye"]
        assert len(harness.rows("SELECT 1 FROM tasks")) == 1


async def test_session_message_of_a_schedule_without_a_live_task_goes_by_source(tmp_path):
    app = App()

    @app.workflow("chat", sources=["MESSAGE", "PROACTIVE"])
    async def chat(ctx: TaskContext, text: str) -> str:
        return text

    async with lab(app, tmp_path) as harness:
        await app.schedules.add(
            "walk",
            "every day at 5pm",
            deliver="session",
            session_id="ada",
            source="PROACTIVE",
            payload={"text": "walk"},
        )
        fired = await app.schedules.run_now("walk")

        assert (await harness.ended(fired.trigger_id or ""))["result_json"] == '"walk"'


# Calls of the router


async def test_router_is_asked_once_for_a_message_without_session_if_several_live(tmp_path):
    app, router = chat_app(lambda _: Route(session_id="b"))
    async with lab(app, tmp_path) as harness:
        _, b = await start_chats(harness, app, "a", "b")

        message = await harness.settled(await send_message(app, "which one?"))

        assert (message["reason"], router.asked, router.sessions_seen) == ("delivered", 1, [["a", "b"]])
        assert await end_chat(harness, app, b) == ["hello", "which one?", "bye"]


@pytest.mark.parametrize("live", [(), ("a",)], ids=["none", "one"])
async def test_router_is_not_asked_with_fewer_than_two_live_sessions(tmp_path, live):
    app, router = chat_app()
    async with lab(app, tmp_path) as harness:
        await start_chats(harness, app, *live)

        task_id = await send_message(app, "hello")
        await harness.waiting(task_id)

        assert (harness.task(task_id)["workflow"], router.asked) == ("chat", 0)


async def test_router_is_not_asked_for_a_message_with_a_session(tmp_path):
    app, router = chat_app()
    async with lab(app, tmp_path) as harness:
        await start_chats(harness, app, "a", "b")

        await harness.waiting(await send_message(app, "hello", "c"))

        assert router.asked == 0


async def test_router_is_asked_for_a_message_to_an_ended_task_if_several_live(tmp_path):
    app, router = chat_app(lambda _: Route(session_id="a"))
    async with lab(app, tmp_path) as harness:
        a, _, gone = await start_chats(harness, app, "a", "b", "c")
        await end_chat(harness, app, gone)
        [message] = await app.emit_many([TriggerSpec(source="MESSAGE", task_id=gone, payload={"text": "late"})])
        await harness.settled(message.id)

        assert (router.asked, await end_chat(harness, app, a)) == (1, ["hello", "late", "bye"])


async def test_router_is_not_asked_again_for_a_trigger_that_has_a_task(tmp_path):
    """A second route could select another workflow, which would read the completed steps of the first."""
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

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit(None, source="MESSAGE", session_id="s")
        row = await harness.ended(emitted.id)
        assert (row["workflow"], row["result_json"], asked) == ("one", '"one"', [emitted.id])


async def test_route_to_a_session_or_task_that_is_not_live_costs_an_attempt(tmp_path):
    routes = iter([Route(session_id="gone"), Route(task_id="nobody"), Route(session_id="a")])
    app, router = chat_app(lambda _: next(routes))
    async with lab(app, tmp_path) as harness:
        a, _ = await start_chats(harness, app, "a", "b")

        message = await harness.settled(await send_message(app, "hm"))

        assert (message["reason"], message["attempts"], router.asked) == ("delivered", 3, 3)
        assert await end_chat(harness, app, a) == ["hello", "hm", "bye"]


async def test_message_with_an_invalid_route_goes_to_the_workflow_of_the_source(tmp_path):
    app, router = chat_app(lambda _: Route(workflow=""))
    async with lab(app, tmp_path) as harness:
        a, b = await start_chats(harness, app, "a", "b")

        new = await send_message(app, "hello")
        await harness.waiting(new)

        assert router.asked == 1
        assert await end_chat(harness, app, a) == await end_chat(harness, app, b) == ["hello", "bye"]


async def test_message_routed_to_a_busy_task_is_delivered_later_without_rerouting(tmp_path):
    """The task has no session and is found by its own lane."""
    app, router = chat_app(lambda _: Route(task_id=busy_id))
    gate = anyio.Event()

    @app.workflow("busy")
    async def busy(ctx: TaskContext) -> Any:
        if ctx.turn == 1:
            return Continue(None)
        if ctx.resume == "NEXT":
            await gate.wait()
        return (await ctx.wait_for("message"))["text"]

    async with lab(app, tmp_path) as harness:
        await start_chats(harness, app, "a", "b")
        busy_id = (await app.emit("busy")).id
        second_turn = "SELECT 1 FROM tasks WHERE id = :id AND turn = 2"
        await harness.until(lambda: bool(harness.rows(second_turn, id=busy_id)) and harness.engine.running == 1)
        message = await send_message(app, "for the busy one")
        await harness.until(lambda: harness.trigger(message)["reason"] == f"waits for session {busy_id}")
        gate.set()

        assert (await harness.ended(busy_id))["result_json"] == '"for the busy one"'
        assert (router.asked, harness.trigger(message)["attempts"]) == (1, 1)


async def test_task_routed_into_a_new_session_belongs_to_that_session(tmp_path):
    app, _ = chat_app(lambda _: Route(workflow="chat", session_id="new"), by_source=False)
    async with lab(app, tmp_path) as harness:
        task_id = await send_message(app, "hello")
        await harness.waiting(task_id)
        await harness.settled(await send_message(app, "more", "new"))

        assert await end_chat(harness, app, task_id) == ["hello", "more", "bye"]


# Tasks that end or fail


@pytest.mark.parametrize("error", [Retry("not yet"), ConnectionError("not yet")], ids=repr)
async def test_first_message_retried_continues_the_task_and_is_not_delivered(tmp_path, error):
    """At the retry the live task of the session is the one that the message started."""
    app = App()

    @app.workflow("chat", sources=["MESSAGE"])
    async def chat(ctx: TaskContext[int], text: str) -> Any:
        if ctx.attempt == 1:
            raise error
        return Done(f"{text} {ctx.resume}")

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit(None, {"text": "hello"}, source="MESSAGE", session_id="s")
        row = await harness.ended(emitted.id)

        assert row["result_json"] == '"hello RETRY"'
        assert harness.rows("SELECT * FROM mailbox") == []


async def test_message_during_the_last_turn_of_a_session_task_starts_a_new_task(tmp_path):
    app = App()
    gate = anyio.Event()

    @app.workflow("chat", sources=["MESSAGE"])
    async def chat(ctx: TaskContext, text: str) -> str:
        if text == "first":
            await gate.wait()
        return text

    async with lab(app, tmp_path) as harness:
        first = await send_message(app, "first", "s")
        await harness.until(lambda: harness.engine.running == 1)
        second = await send_message(app, "second", "s")
        gate.set()

        assert (await harness.ended(second))["result_json"] == '"second"'
        assert harness.task(first)["ended_at"] <= harness.task(second)["created_at"]


async def test_message_left_unread_by_an_ended_task_is_emitted_again_unchanged(tmp_path):
    """The new trigger keeps the fields and the due time of the message."""
    app = App()
    gate = anyio.Event()
    received: list[tuple[str, str | None]] = []

    @app.workflow("busy")
    async def busy(ctx: TaskContext) -> None:
        await gate.wait()

    @app.workflow("note", sources=["MESSAGE"])
    async def note(ctx: TaskContext, text: str) -> None:
        received.append((text, ctx.trigger.description))

    async with lab(app, tmp_path) as harness:
        first = await app.emit("busy", session_id="s")
        await harness.until(lambda: harness.engine.running == 1)
        task_spec = TriggerSpec(
            task_id=first.id, source="MESSAGE", payload={"text": "1"}, description="first", priority=7, max_attempts=2
        )
        [message] = await app.emit_many([task_spec])
        assert (await harness.settled(message.id))["reason"] == "delivered"
        later = await send_message(app, "2", "s", priority=7)
        gate.set()
        await harness.settled(later)
        await harness.until(lambda: len(received) == 2)

        [emitted_again] = harness.rows("SELECT * FROM triggers WHERE seq > :seq", seq=harness.trigger(later)["seq"])
        sent = harness.trigger(message.id)
        kept = ("source", "task_id", "session_id", "fire_at", "priority", "description", "payload_json", "max_attempts")
        assert {name: emitted_again[name] for name in kept} == {name: sent[name] for name in kept}
        assert sorted(received) == [("1", "first"), ("2", None)]
        assert [row["status"] for row in harness.rows("SELECT status FROM mailbox")] == ["EMITTED"]


async def test_message_to_a_full_mailbox_is_retried_and_ends_dead(tmp_path, monkeypatch):
    monkeypatch.setattr(waits, "MAILBOX_MAX", 2)
    app = App()

    @app.workflow("silent", sources=["MESSAGE"])
    async def silent(ctx: TaskContext, text: str) -> None:
        await ctx.wait_for("never")

    async with lab(app, tmp_path) as harness:
        await harness.waiting(await send_message(app, "hello", "s"))
        for text in ("1", "2"):
            await harness.settled(await send_message(app, text, "s"))
        row = await harness.settled(await send_message(app, "3", "s"))

        assert (row["status"], row["error_code"], row["attempts"]) == ("DEAD", "RATE_LIMIT", 3)
        assert len(harness.rows("SELECT 1 FROM mailbox")) == 2


async def test_message_goes_to_the_session_task_that_waits_for_a_message(tmp_path):
    app, _ = chat_app()

    @app.workflow("other")
    async def other(ctx: TaskContext) -> None:
        await ctx.wait_for("never")

    @app.workflow("asks")
    async def asks(ctx: TaskContext) -> str | None:
        return await ctx.ask("Which?", by_message=True)

    async with lab(app, tmp_path) as harness:
        [chat] = await start_chats(harness, app, "s")
        asking = (await app.emit("asks", session_id="t")).id
        await harness.waiting(asking)
        for session in ("s", "t"):
            await harness.waiting((await app.emit("other", session_id=session)).id)
        for session in ("s", "t"):
            await harness.settled(await send_message(app, "this one", session))

        assert await end_chat(harness, app, chat) == ["hello", "this one", "bye"]
        assert (await harness.ended(asking))["result_json"] == '"this one"'


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_message_is_delivered_before_the_next_turn_of_a_task_in_a_tight_loop(tmp_path, concurrency):
    app = App()

    @app.workflow("chat", sources=["MESSAGE"])
    async def chat(ctx: TaskContext[int], text: str) -> Any:
        count = (ctx.state or 0) + 1
        if count == 1:
            await app.emit(None, {"text": "are you there?"}, source="MESSAGE", session_id="s")
        return Continue(count) if count < 50 else await ctx.wait_for("message", timeout=0)

    async with lab(app, tmp_path, settings(concurrency=concurrency)) as harness:
        first = await send_message(app, "hello", "s")
        await harness.ended(first)

        [message] = harness.rows("SELECT * FROM triggers WHERE source = 'MESSAGE' AND id <> :id", id=first)
        second_turn, third_turn = harness.rows(
            "SELECT * FROM triggers WHERE source = 'CONTINUATION' ORDER BY seq LIMIT 2"
        )
        assert message["reason"] == "delivered"
        assert message["started_at"] <= second_turn["started_at"] < third_turn["started_at"]
