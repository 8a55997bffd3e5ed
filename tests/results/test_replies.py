"""Replies to messages: what a turn gives to `ctx.reply` is the result of the message that it received."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from craftcore import App, Continue, Fail, RetryPolicy, TaskContext, TriggerSource, WorkFailed, WorkUpdate
from craftcore.errors import ErrorCode, InvalidInput, NotFound, PayloadTooLarge, StateRefused
from tests.support.engine_harness import lab

pytestmark = pytest.mark.anyio

MESSAGE = TriggerSource.MESSAGE


@dataclass
class Answer:
    text: str
    turn: int


def build_chat(app: App) -> None:
    """Declare a chat that answers each message; some of them otherwise."""

    @app.workflow("chat", sources=[MESSAGE], retry=RetryPolicy(max_attempts=2, base=0))
    async def chat(ctx: TaskContext[int], text: str) -> Any:
        said = text if ctx.turn == 1 else ctx.received["text"]
        match said:
            case "be silent":
                pass
            case "end":
                return "the end"
            case "fail":
                raise Fail("NO_IDEA", "it has no answer")
            case "work":
                await ctx.progress("half")
                await ctx.wait_for("go")
                await ctx.reply("worked")
            case "crash":
                await ctx.reply(Answer(said, ctx.turn))
                if ctx.attempt == 1:
                    raise ConnectionError("once more")
            case _:
                await ctx.reply(Answer(said, ctx.turn))
        return Continue(ctx.turn, on="message")


async def say(app: App, text: str, **options: Any) -> Any:
    return await app.emit(None, {"text": text}, source=MESSAGE, session_id="ada", **options)


async def open_chat(app: App) -> str:
    """Begin the chat, and return the id of its task, which waits for a message."""
    first = await say(app, "hello")
    assert await first.result(Answer) == Answer("hello", 1)
    return str(first.id)


@pytest.fixture
async def chat(tmp_path):
    app = App()
    build_chat(app)
    async with lab(app, tmp_path) as host:
        yield app, host


async def test_message_has_its_own_reply(chat):
    app, host = chat
    task_id = await open_chat(app)
    second = await say(app, "and you?")
    third = await say(app, "bye")

    assert await third.result() == {"text": "bye", "turn": 3}
    assert await second.result(Answer) == Answer("and you?", 2)
    assert await app.handle(second.id).result(Answer, timeout=0) == Answer("and you?", 2)
    assert await app.handle(task_id).result(Answer) == Answer("hello", 1), "the first one created the task"
    assert host.task(task_id)["status"] in ("RUNNING", "WAITING")


async def test_reply_is_there_while_its_turn_goes_on(tmp_path):
    app, go_on = App(), anyio.Event()

    @app.workflow("quick", sources=[MESSAGE])
    async def quick(ctx: TaskContext, text: str) -> str:
        await ctx.reply("at once")
        await go_on.wait()
        return "late"

    async with lab(app, tmp_path) as host:
        work = await say(app, "hello")
        assert await work.result() == "at once"
        assert host.task(work.id)["status"] == "RUNNING"
        go_on.set()
        await host.ended(work.id)
        assert await work.result() == "at once"


async def test_message_without_a_reply_has_none_once_its_turn_is_over(chat):
    app, _ = chat
    await open_chat(app)
    silent = await say(app, "be silent")

    assert await silent.result() is None

    last = await say(app, "end")
    assert await last.result() is None


async def test_message_whose_turn_is_not_over_has_no_result_yet(chat):
    app, host = chat
    task_id = await open_chat(app)
    working = await say(app, "work")
    await host.until(lambda: host.task(task_id)["reason"] == "waits for the event go")
    with pytest.raises(TimeoutError):
        await working.result(timeout=0)

    await app.signal(task_id, "go")
    assert await working.result() == "worked"


async def test_failure_of_the_turn_is_that_of_its_message_and_of_no_other(chat):
    app, _ = chat
    await open_chat(app)
    good = await say(app, "good")
    assert await good.result(Answer) == Answer("good", 2)
    bad = await say(app, "fail")

    with pytest.raises(WorkFailed, match="it has no answer") as failed:
        await bad.result()

    assert failed.value.code == "NO_IDEA"
    assert failed.value.details["id"] == bad.id
    assert await good.result(Answer) == Answer("good", 2)


async def test_repeated_turn_replies_once(chat):
    app, host = chat
    task_id = await open_chat(app)
    crashing = await say(app, "crash")

    assert await crashing.result(Answer) == Answer("crash", 2)
    await host.until(lambda: host.task(task_id)["turn"] == 3)
    replies = host.rows("SELECT memo FROM event_rows WHERE memo LIKE 'reply%' AND turn = 2")
    assert replies == [{"memo": "reply#1"}]


async def test_repeated_turn_with_another_reply_is_refused_and_keeps_the_first(tmp_path):
    app = App()

    @app.workflow("fickle", sources=[MESSAGE], retry=RetryPolicy(max_attempts=2, base=0))
    async def fickle(ctx: TaskContext, text: str) -> None:
        await ctx.reply(ctx.attempt)
        raise ConnectionError("once more")

    async with lab(app, tmp_path) as host:
        work = await say(app, "hello")
        assert (await host.ended(work.id))["error_code"] == ErrorCode.STEP_CONFLICT
        assert await work.result() == 1


async def test_second_reply_and_reply_to_no_message_are_refused(tmp_path):
    app = App()
    refusals: list[str] = []

    @app.workflow("eager", sources=[MESSAGE])
    async def eager(ctx: TaskContext, text: str) -> Any:
        if ctx.turn == 1:
            await ctx.reply("one")
        try:
            await ctx.reply("two")
        except StateRefused as error:
            refusals.append(str(error))
        return Continue(None) if ctx.turn == 1 else "the end"

    async with lab(app, tmp_path) as host:
        work = await say(app, "hello")
        await host.ended(work.id)
        assert await work.result() == "one"
    assert [refusal.partition(" of task")[0] for refusal in refusals] == ["turn 1", "turn 2"]
    assert all("has nothing to reply to" in refusal for refusal in refusals)


async def test_messages_of_a_turn_have_replies_of_their_own_or_together(tmp_path):
    app = App()

    @app.workflow("waits", sources=[MESSAGE])
    async def waits(ctx: TaskContext, text: str) -> None:
        await ctx.reply("begun")
        first = await ctx.wait_for("message")
        await ctx.reply(f"{first['text']}, alone")
        second, third = await ctx.wait_for("message"), await ctx.wait_for("message")
        await ctx.reply(f"{second['text']} and {third['text']}")

    async with lab(app, tmp_path) as host:
        works = [await say(app, text) for text in ("begin", "a", "b", "c")]
        await host.ended(works[0].id)
        assert [await work.result() for work in works] == ["begun", "a, alone", "b and c", "b and c"]


async def test_message_that_its_task_did_not_read_goes_on_under_the_same_handle(tmp_path):
    app = App()

    @app.workflow("echo", sources=[MESSAGE])
    async def echo(ctx: TaskContext, text: str) -> str:
        if text == "first":
            await ctx.wait_for("go")
        return f"echo {text}"

    async with lab(app, tmp_path) as host:
        first = await say(app, "first")
        await host.waiting(first.id)
        second = await say(app, "second")
        await host.until(lambda: bool(host.rows("SELECT 1 FROM mailbox")))
        with pytest.raises(TimeoutError):
            await second.result(timeout=0)
        await app.signal(first.id, "go")

        assert await first.result() == "echo first"
        assert await second.result() == "echo second"
        assert [update.status async for update in second.events()] == ["DONE"]
        assert len(host.rows("SELECT id FROM tasks")) == 2


async def test_events_follow_the_turn_that_received_the_message(chat):
    app, _ = chat
    task_id = await open_chat(app)
    working = await say(app, "work")
    seen: list[WorkUpdate] = []
    async for update in working.events():
        seen.append(update)
        if update.status == "WAITING" and update.turn == 2 and update.progress == "half":
            await app.signal(task_id, "go")

    assert [update.is_over for update in seen].count(True) == 1
    assert seen[-1].is_over
    assert ("half", 2) in {(update.progress, update.turn) for update in seen}


async def test_cancelled_message_stops_its_turn_and_keeps_its_task(chat):
    app, host = chat
    task_id = await open_chat(app)
    working = await say(app, "work")
    await host.until(lambda: host.task(task_id)["reason"] == "waits for the event go")

    await working.cancel()

    with pytest.raises(WorkFailed, match="its turn was stopped") as failed:
        await working.result()
    assert failed.value.details["status"] == "CANCELLED"
    assert failed.value.code is ErrorCode.WORKFLOW_ABORTED
    after = await say(app, "still there?")
    assert await after.result(Answer) == Answer("still there?", 3)
    with pytest.raises(WorkFailed, match="its turn was stopped"):
        await working.result()


async def test_unread_message_is_taken_back(chat):
    app, host = chat
    task_id = await open_chat(app)
    await say(app, "work")
    await host.until(lambda: host.task(task_id)["reason"] == "waits for the event go")
    unread = await say(app, "never mind")
    await host.until(lambda: bool(host.rows("SELECT 1 FROM mailbox WHERE status = 'UNREAD'")))

    await unread.cancel()

    with pytest.raises(WorkFailed, match="cancelled"):
        await unread.result()
    await app.signal(task_id, "go")
    after = await say(app, "next")
    assert await after.result(Answer) == Answer("next", 3)


async def test_message_that_was_taken_back_stays_so_when_its_task_is_retried(chat):
    app, host = chat
    task_id = await open_chat(app)
    await say(app, "work")
    await host.until(lambda: host.task(task_id)["reason"] == "waits for the event go")
    unread = await say(app, "never mind")
    await host.until(lambda: bool(host.rows("SELECT 1 FROM mailbox WHERE status = 'UNREAD'")))
    await unread.cancel()

    def fail_and_forget(tx: Any) -> None:
        """Fail the task, and remove the trigger of the message, as its retention does."""
        tx.run("UPDATE tasks SET status = 'FAILED', error_code = 'X', ended_at = :now WHERE id = :id", id=task_id)
        tx.run(
            "UPDATE waits SET status = 'RESOLVED', resolved_by = 'end', resolved_at = :now WHERE resolved_at IS NULL"
        )
        tx.run("DELETE FROM triggers WHERE id = :id", id=unread.id)

    await host.engine.client.commit(fail_and_forget)
    await app.retry_task(task_id)
    await host.until(lambda: host.task(task_id)["reason"] == "waits for the event go")

    assert host.rows("SELECT status FROM mailbox WHERE unanswered IS NOT NULL") == [{"status": "LEFT"}]


async def test_answered_message_cannot_be_cancelled(chat):
    app, host = chat
    task_id = await open_chat(app)
    second = await say(app, "second")
    await second.result()
    silent = await say(app, "be silent")
    await silent.result()

    for handle, why in ((second, "has its reply"), (silent, "is over"), (app.handle(task_id), "has its reply")):
        with pytest.raises(StateRefused, match=why):
            await handle.cancel()
    assert host.task(task_id)["status"] == "WAITING"


async def test_reply_that_cannot_be_kept_is_refused(tmp_path):
    app, refused = App(), list[type[Exception]]()

    @app.workflow("odd", sources=[MESSAGE])
    async def odd(ctx: TaskContext, text: str) -> None:
        for value in (object(), "x" * (9 << 20)):
            try:
                await ctx.reply(value, key=f"k{len(refused)}")
            except (InvalidInput, PayloadTooLarge) as error:
                refused.append(type(error))
        await ctx.reply("small", key="small")

    async with lab(app, tmp_path):
        assert await (await say(app, "hello")).result() == "small"
    assert refused == [InvalidInput, PayloadTooLarge]


async def test_later_agent_leaves_the_reply_of_the_first(tmp_path):
    app = App()

    @app.workflow("second")
    async def second(ctx: TaskContext, text: str) -> str:
        await ctx.reply("of the second")
        return "done"

    @app.workflow("first", sources=[MESSAGE], fallback=["second"], max_attempts=1)
    async def first(ctx: TaskContext, text: str) -> str:
        await ctx.reply("of the first")
        raise ConnectionError("no model answers")

    async with lab(app, tmp_path) as host:
        work = await say(app, "hello")
        assert (await host.ended(work.id))["status"] == "DONE"
        assert await work.result() == "of the first"


async def test_reply_that_retention_took_is_not_found(chat):
    app, host = chat
    await open_chat(app)
    second = await say(app, "second")
    await second.result()
    await host.idle()
    await host.engine.client.commit(lambda tx: tx.run("DELETE FROM mailbox"))

    with pytest.raises(NotFound, match="is not kept any more"):
        await second.result()
