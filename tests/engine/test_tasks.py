"""Tasks from start to end: turns, steps, waits, questions, children, signals and retries."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import anyio
import pytest

from craftcore import (
    App,
    Call,
    Continue,
    Done,
    Fail,
    NoEffect,
    OnUnknown,
    Resume,
    Retry,
    RetryPolicy,
    TaskContext,
)
from tests.support.engine_harness import lab
from tests.support.fakes import VirtualClock, VirtualCore

pytestmark = pytest.mark.anyio


@dataclass
class Chat:
    count: int = 0
    texts: list[str] = field(default_factory=list)


async def test_chat_task_counts_thirty_messages_in_order_of_arrival(tmp_path):
    app = App()

    @app.workflow("chat", sources=["MESSAGE"])
    async def chat(ctx: TaskContext[Chat], text: str) -> Any:
        state = ctx.state or Chat()
        message = ctx.received["text"] if ctx.received else text
        state = Chat(count=state.count + 1, texts=[*state.texts, message])
        return Done(state) if state.count == 30 else Continue(state, on="message")

    async with lab(app, tmp_path) as harness:
        first = await app.emit(None, {"text": "0"}, source="MESSAGE", session_id="s")
        await harness.waiting(first.id)
        for n in range(1, 30):
            await app.emit(None, {"text": str(n)}, source="MESSAGE", session_id="s")
        row = await harness.ended(first.id)
        assert (row["status"], row["turn"]) == ("DONE", 30)
        assert json.loads(row["result_json"]) == {"count": 30, "texts": [str(n) for n in range(30)]}
        reasons = {r["reason"] for r in harness.rows("SELECT reason FROM triggers WHERE source = 'MESSAGE'")}
        assert reasons == {"suspended: continues later", "delivered"}


async def test_turns_after_continue_run_in_order_with_the_state(tmp_path):
    app = App()
    seen: list[Any] = []

    @app.workflow("loop")
    async def loop(ctx: TaskContext[int], upto: int) -> Any:
        seen.append((ctx.turn, ctx.state, ctx.resume))
        count = (ctx.state or 0) + 1
        return Continue(count) if count < upto else count

    async with lab(app, tmp_path) as harness:
        row = await harness.ended((await app.emit("loop", {"upto": 4})).id)
        assert row["result_json"] == "4"
        assert seen == [(1, None, Resume.FIRST), (2, 1, Resume.NEXT), (3, 2, Resume.NEXT), (4, 3, Resume.NEXT)]


async def test_completed_step_is_not_run_again_after_a_failure(tmp_path):
    app = App()
    calls: list[str] = []

    async def fetch(city: str) -> dict[str, str]:
        calls.append(city)
        return {"city": city}

    @app.workflow("brief")
    async def brief(ctx: TaskContext, city: str) -> str:
        weather = await ctx.step("weather", fetch, city)
        await ctx.note("seen", weather)
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return f"{weather['city']} {ctx.resume}"

    async with lab(app, tmp_path) as harness:
        row = await harness.ended((await app.emit("brief", {"city": "Rome"})).id)
        assert (row["status"], row["result_json"], calls) == ("DONE", '"Rome RETRY"', ["Rome"])


async def test_sleep_resumes_the_task_by_timer(tmp_path):
    app = App()

    @app.workflow("nap")
    async def nap(ctx: TaskContext) -> str:
        await ctx.sleep(0.05)
        await ctx.sleep(timedelta(seconds=0.05))
        return ctx.resume

    async with lab(app, tmp_path) as harness:
        row = await harness.ended((await app.emit("nap")).id)
        assert row["result_json"] == '"TIMER"'
        assert [w["resolved_by"] for w in harness.rows("SELECT * FROM waits")] == ["timer", "timer"]


async def test_answer_to_a_question_resumes_the_turn(tmp_path):
    app = App()

    @app.workflow("ask")
    async def ask(ctx: TaskContext) -> str:
        answer = await ctx.ask("Send it?", options=["send", "hold"], timeout=3600, default="hold")
        return f"{answer} {ctx.resume}"

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit("ask")
        await harness.waiting(emitted.id)
        [question] = harness.rows("SELECT * FROM questions")
        await app.answer(question["id"], "send", answered_by="ada")
        row = await harness.ended(emitted.id)
        assert row["result_json"] == '"send ANSWER"'


async def test_child_results_are_returned_to_the_parent(tmp_path):
    app = App()

    @app.workflow("double")
    async def double(ctx: TaskContext, n: int) -> int:
        await ctx.sleep(0.01)
        return n * 2

    @app.workflow("plain")
    async def plain(n: int) -> int:
        return n + 1

    @app.workflow("parent")
    async def parent(ctx: TaskContext) -> list[int]:
        children = [await ctx.start_child("double", {"n": n}) for n in range(3)]
        children.append(await ctx.start_child("plain", {"n": 10}))
        return [await child.result(int) for child in children]

    async with lab(app, tmp_path) as harness:
        row = await harness.ended((await app.emit("parent")).id)
        assert row["result_json"] == "[0,2,4,11]"


async def test_signal_sent_before_the_wait_is_kept(tmp_path):
    app = App()
    gate = anyio.Event()

    @app.workflow("wait")
    async def wait(ctx: TaskContext) -> Any:
        await gate.wait()
        return [await ctx.wait_for("go"), await ctx.wait_for("go"), await ctx.wait_for("no", timeout=0, default="none")]

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit("wait")
        await harness.until(lambda: harness.engine.running == 1)
        assert not await app.signal(emitted.id, "go", {"n": 1})
        assert not await app.signal(emitted.id, "go", {"n": 2})
        gate.set()
        row = await harness.ended(emitted.id)
        assert json.loads(row["result_json"]) == [{"n": 1}, {"n": 2}, "none"]


async def test_cancelled_task_unwinds_the_workflow_before_the_end(tmp_path):
    app = App()
    unwound: list[str] = []

    @app.workflow("long")
    async def long(ctx: TaskContext) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            unwound.append(ctx.task_id)

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit("long")
        await harness.until(lambda: harness.engine.running == 1)
        await app.cancel_task(emitted.id)
        row = await harness.ended(emitted.id)
        assert (row["status"], row["error_code"], unwound) == ("CANCELLED", "WORKFLOW_ABORTED", [emitted.id])


async def test_failed_task_is_retried_from_the_last_turn(tmp_path):
    app = App()
    works = False

    @app.workflow("shaky")
    async def shaky(ctx: TaskContext[int]) -> Any:
        if ctx.turn == 1:
            return Continue(7)
        if not works:
            raise Fail("BROKEN", "the world is not ready")
        return ctx.state

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit("shaky")
        row = await harness.ended(emitted.id)
        assert (row["status"], row["error_code"], row["turn"]) == ("FAILED", "BROKEN", 2)
        works = True
        await app.retry_task(emitted.id)
        await harness.until(lambda: harness.task(emitted.id)["status"] == "DONE")
        assert harness.task(emitted.id)["result_json"] == "7"


async def test_task_id_is_the_same_in_all_attempts_and_turns_and_after_a_restart(tmp_path):
    """A provider discards a second request with the same id, and the same holds for the key of an irreversible act."""
    app = App()
    ids: list[str] = []
    keys: list[str] = []

    @app.action("bank.pay", irreversible=True, on_unknown=OnUnknown.RESEND, idempotent_provider=True)
    async def pay(call: Call) -> str:
        keys.append(call.key)
        if len(keys) == 1:
            raise NoEffect("refused")
        return "ref-1"

    @app.workflow("order", retry=RetryPolicy(max_attempts=5, base=0, cap=0))
    async def order(ctx: TaskContext[int]) -> Any:
        ids.append(ctx.task_id)
        if ctx.turn == 2:
            return Done(None)
        if len(ids) == 1:
            raise Retry("again")
        if len(ids) == 2:
            await anyio.sleep_forever()
        await ctx.act(pay)
        return Continue(1)

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit("order")
        await harness.until(lambda: len(ids) == 2)
        harness.engine.stop_now()  # interrupted in the middle, and restarted by the next engine
    async with lab(app, tmp_path) as harness:
        row = await harness.ended(emitted.id)
        request = "json_extract(envelope_json, '$.metadata.requestId')"
        asked = harness.rows(
            f"SELECT {request} AS id, count(*) AS attempts FROM executions GROUP BY 1 ORDER BY min(seq)"
        )

    assert (row["status"], set(ids), len(ids)) == ("DONE", {emitted.id}, 5)
    assert len(keys) == 2
    assert len(set(keys)) == 1
    assert [row["attempts"] for row in asked] == [4, 1], "a request for each turn"
    assert asked[0]["id"] == emitted.id


async def test_cancelled_work_does_not_come_back_after_a_restart(tmp_path):
    app = App()
    ran: list[str] = []

    @app.workflow("runs")
    async def runs(ctx: TaskContext) -> None:
        ran.append("runs")
        await anyio.sleep_forever()

    @app.workflow("sleeps")
    async def sleeps(ctx: TaskContext) -> None:
        ran.append("sleeps")
        await ctx.sleep(3600)

    @app.workflow("later")
    async def later() -> None:
        ran.append("later")

    clock = VirtualClock()
    async with lab(app, tmp_path, clock=clock) as harness:
        running, asleep = await app.emit("runs"), await app.emit("sleeps")
        waiting = await app.emit("later", delay=60)
        await harness.waiting(asleep.id)
        await harness.until(lambda: harness.engine.running == 1)
        harness.engine.stop_now()
    core = VirtualCore(tmp_path / "agent.db", clock)
    assert len(core.do(core.cancel_all, "wiped").triggers) == 3
    core.close()
    clock.advance(hours=2)
    async with lab(app, tmp_path, clock=clock) as harness:
        await harness.idle()
        left = harness.rows("SELECT id, status FROM triggers WHERE settled_at IS NULL OR status <> 'DONE'")
        tasks = harness.rows("SELECT id, status FROM tasks ORDER BY seq")

    assert (ran, left) == (["runs", "sleeps"], [])
    assert tasks == [{"id": running.id, "status": "CANCELLED"}, {"id": asleep.id, "status": "CANCELLED"}]
    assert waiting.id not in {row["id"] for row in tasks}
