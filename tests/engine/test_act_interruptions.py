"""Interrupted calls: timeouts, cancellation, shutdown, suspended turns, and threads of plain actions."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import anyio
import pytest

from craftcore import App, Call, Fail, NoEffect, TaskContext
from tests.support.acts import (
    Gate,
    HeldBatch,
    Provider,
    activity_events,
    assert_records_are_whole,
    ledger,
    questions,
    statuses,
    stream,
)
from tests.support.engine_harness import lab, settings
from tests.support.fakes import VirtualClock
from tests.support.loops import ON_ASYNCIO
from tests.support.processes import PATIENCE
from tests.support.turns import begin, failure, result, run

pytestmark = pytest.mark.anyio


async def forever(call: Call) -> None:
    await anyio.sleep_forever()


# Interrupted calls


async def test_call_past_the_action_timeout_is_in_doubt(tmp_path):
    """The clock does not move while the intent is written, so the call has its whole time."""
    app, provider = App(), Provider(forever)
    send = app.action("send", irreversible=True, timeout=0.5)(provider)

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(send)

    async with lab(app, tmp_path, clock=VirtualClock()) as harness:
        task = await begin(harness, turn)
        await harness.waiting(task)
        [row] = ledger(harness)
        assert (row["status"], row["reason"], row["error_message"]) == (
            "UNKNOWN",
            "it did not answer in time",
            "within 0.5 s",
        )


@ON_ASYNCIO
@pytest.mark.parametrize(
    "error", [ValueError("?"), TimeoutError(), ExceptionGroup("one", [NoEffect("no")]), SystemExit(1)], ids=repr
)
async def test_call_that_raises_an_undeclared_error_is_in_doubt(tmp_path, error):
    """A group with NoEffect and another error does not prove that the call had no effect."""
    app, provider = App(), Provider(error)
    send = app.action("send", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(send)

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await harness.waiting(task)
        assert (statuses(harness), provider.attempts) == (["UNKNOWN"], [1])


async def test_task_cancelled_during_a_call_ends_after_the_call_and_asks_a_person(tmp_path):
    app, gate = App(), Gate()
    send = app.action("send", irreversible=True)(Provider(gate))

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(send)

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await gate.inside.wait()
        await app.cancel_task(task)

        assert (await harness.ended(task))["status"] == "CANCELLED"
        [row] = ledger(harness)
        assert (row["status"], row["reason"]) == ("UNKNOWN", "it was cancelled while it was called")
        assert activity_events(harness, task) == ["INTENT", "UNKNOWN"]
        assert stream(harness, task)[-1] == "FINAL_RESPONSE"
        assert_records_are_whole(harness)
        assert questions(harness) == [("activity", "OPEN")]


async def test_shielded_call_of_a_cancelled_task_is_recorded_as_done(tmp_path):
    """The call shields itself from cancellation, so its outcome is known and recorded after the cancel."""
    app, gate = App(), Gate()
    hold = anyio.Event()

    @app.action("send", irreversible=True)
    async def send(call: Call) -> str:
        gate.inside.set()
        with anyio.CancelScope(shield=True):
            await hold.wait()
        return "sent"

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(send)

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await gate.inside.wait()
        await app.cancel_task(task)
        await harness.until(lambda: harness.engine.consumer.running[1].interrupted_by == "cancelled")
        assert harness.task(task)["status"] == "RUNNING"
        hold.set()

        assert (await harness.ended(task))["status"] == "CANCELLED"
        assert [(row["status"], row["provider_ref"]) for row in ledger(harness)] == [("DONE", "sent")]
        assert questions(harness) == []
        assert_records_are_whole(harness)


async def test_task_cancelled_before_the_call_calls_nothing_and_asks_no_question(tmp_path, monkeypatch):
    app, provider = App(), Provider()
    send = app.action("send", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(send)

    async with lab(app, tmp_path) as harness:
        held = HeldBatch(harness, monkeypatch, "begin_all")
        task = await begin(harness, turn)
        await held.inside()
        harness.engine.consumer.running[1].stop("cancelled")
        held.go_on()

        assert (await harness.ended(task))["status"] == "CANCELLED"
        assert (statuses(harness), provider.calls) == (["FAILED"], [])
        assert questions(harness) == []


@pytest.mark.parametrize("when", ["before the call", "during the call"])
async def test_cancel_of_a_task_with_a_parked_turn_interrupts_running_calls(tmp_path, monkeypatch, when):
    """The question of a sibling has already stopped the turn when the task is cancelled."""
    app, gate = App(), Gate()
    provider = Provider(gate)
    send = app.action("send", irreversible=True)(provider)
    pay = app.action("pay", irreversible=True)(Provider(ValueError("who knows")))
    go = anyio.Event()

    async def turn(ctx: TaskContext) -> Any:
        async def send_shielded() -> None:
            await go.wait()
            with anyio.CancelScope(shield=True):
                await ctx.act(send, key="send")

        async def pay_after_the_question_begins() -> None:
            await on_its_way()
            await ctx.act(pay, key="pay")

        async with anyio.create_task_group() as group:
            group.start_soon(send_shielded)
            group.start_soon(pay_after_the_question_begins)

    async with lab(app, tmp_path) as harness:
        held = HeldBatch(harness, monkeypatch, "begin_all")
        on_its_way = gate.inside.wait if when == "during the call" else held.inside
        task = await begin(harness, turn)
        go.set()
        await held.inside()
        if when == "during the call":
            held.go_on()
            await harness.until(lambda: statuses(harness) == ["INTENT", "UNKNOWN"])
        run_ = harness.engine.consumer.running[1]
        if when == "before the call":
            run_.stop("parked")
        await harness.until(lambda: run_.stopped_by == "parked")
        run_.stop("cancelled")
        held.go_on()
        await harness.settled(task)

        [status, *_] = statuses(harness)
        assert (status, len(provider.calls)) == (("UNKNOWN", 1) if when == "during the call" else ("FAILED", 0))


async def test_shutdown_interrupts_a_call_after_the_grace_and_refunds_the_attempt(tmp_path):
    app, gate = App(), Gate()
    send = app.action("send", irreversible=True)(Provider(gate))

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(send)

    async with lab(app, tmp_path, settings(shutdown_grace=0.0)) as harness:
        task = await begin(harness, turn, max_attempts=1)
        await gate.inside.wait()

    assert [(row["status"], row["reason"]) for row in ledger(harness)] == [
        ("UNKNOWN", "it was cancelled while it was called")
    ]
    assert (harness.trigger(task)["status"], harness.trigger(task)["attempts"]) == ("PENDING", 0)
    assert activity_events(harness, task) == ["INTENT", "UNKNOWN"]
    assert_records_are_whole(harness)


async def test_shutdown_before_the_call_refunds_the_attempt_and_the_next_start_calls(tmp_path, monkeypatch):
    app, provider = App(), Provider()
    send = app.action("send", irreversible=True)(provider)

    @app.workflow("turn", max_attempts=1)
    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(send)

    async with lab(app, tmp_path, settings(shutdown_grace=0.0)) as harness:
        held = HeldBatch(harness, monkeypatch, "begin_all")
        task = (await app.emit("turn")).id
        await held.inside()
        harness.engine.consumer.running[1].stop("shutdown")
        harness.engine.stop()
        held.go_on()
    assert (statuses(harness), provider.calls) == (["FAILED"], [])
    assert (harness.trigger(task)["status"], harness.trigger(task)["attempts"]) == ("PENDING", 0)

    async with lab(app, tmp_path) as harness:
        assert result(await harness.ended(task)) == "ref-1"
        assert provider.attempts == [2]


async def test_workflow_timeout_interrupts_the_running_call(tmp_path):
    app, gate = App(), Gate()
    send = app.action("send", irreversible=True)(Provider(gate))

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(send)

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn, timeout=3600, max_attempts=1)
        await gate.inside.wait()
        [run_] = harness.engine.consumer.running.values()
        assert run_._scope is not None
        for scope in (run_._scope, *run_.calls):
            scope.deadline = anyio.current_time()  # one hour later

        assert failure(await harness.ended(task))[0] == "AGENT_TIMEOUT"
        assert statuses(harness) == ["UNKNOWN"]
        assert questions(harness) == [("activity", "OPEN")]
        assert_records_are_whole(harness)


@ON_ASYNCIO
async def test_call_deadline_is_limited_by_workflow_timeout_and_task_deadline(tmp_path):
    app, clock, deadlines = App(), VirtualClock(), []

    @app.action("send", irreversible=True, timeout=60)
    async def send(call: Call) -> None:
        deadlines.append(call.deadline.timestamp() - clock.now())

    async def turn(ctx: TaskContext) -> Any:
        await ctx.act(send)

    async with lab(app, tmp_path, clock=clock) as harness:
        await run(harness, turn)
        await run(harness, turn, timeout=10)
        await run(harness, turn, deadline=7)
    assert deadlines == [60, 10, 7]


async def test_act_after_the_attempt_timeout_is_not_called(tmp_path):
    """The wall clock jumps past the timeout before the cancel scope of the attempt has expired."""
    app, clock, provider = App(), VirtualClock(), Provider()
    send = app.action("send", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> Any:
        clock.advance(hours=1)
        with pytest.raises(NoEffect, match="its time was over before it was called"):
            await ctx.act(send)

    async with lab(app, tmp_path, clock=clock) as harness:
        assert (await run(harness, turn, timeout=600))["status"] == "DONE"
        assert (statuses(harness), provider.calls) == (["FAILED"], [])


# Calls that run to their end


async def test_cancel_scope_of_the_workflow_does_not_interrupt_a_call(tmp_path):
    app, gate = App(), Gate()
    send = app.action("send", irreversible=True)(Provider(gate))
    over = anyio.Event()

    async def turn(ctx: TaskContext) -> Any:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def give_up() -> None:
                    await gate.inside.wait()
                    scope.cancel()
                    over.set()

                group.start_soon(give_up)
                await ctx.act(send)
        return scope.cancelled_caught

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await over.wait()
        await anyio.wait_all_tasks_blocked()
        assert statuses(harness) == ["INTENT"]
        gate.go.set()

        assert (await harness.ended(task))["status"] == "DONE"
        assert statuses(harness) == ["DONE"]


async def test_call_is_not_interrupted_by_a_failing_sibling(tmp_path):
    app, gate = App(), Gate()
    provider = Provider(gate)
    send = app.action("send", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> Any:
        async def fail() -> None:
            await gate.inside.wait()
            if ctx.attempt == 1:
                raise ValueError("the sibling")

        async with anyio.create_task_group() as group:
            group.start_soon(lambda: ctx.act(send, key="send"))
            group.start_soon(fail)

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await gate.inside.wait()
        await anyio.wait_all_tasks_blocked()
        assert statuses(harness) == ["INTENT"]
        gate.go.set()

        assert (await harness.ended(task))["status"] == "DONE"
        assert provider.attempts == [1]
        assert_records_are_whole(harness)


async def test_turn_suspended_during_a_call_unwinds_after_the_call_settles(tmp_path):
    app, gate = App(), Gate()
    provider = Provider(gate)
    send = app.action("send", irreversible=True)(provider)
    got: list[Any] = []

    async def turn(ctx: TaskContext) -> Any:
        async def act() -> None:
            got.append(await ctx.act(send, key="send"))

        async with anyio.create_task_group() as group:
            group.start_soon(act)
            await gate.inside.wait()
            await ctx.sleep(0)

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await gate.inside.wait()
        await harness.until(lambda: harness.engine.consumer.running[1].turn.wait is not None)  # type: ignore[union-attr]
        await anyio.wait_all_tasks_blocked()
        assert (harness.task(task)["status"], statuses(harness)) == ("RUNNING", ["INTENT"])
        gate.go.set()

        assert (await harness.ended(task))["status"] == "DONE"
        assert (got[-1], provider.attempts) == ("through the gate", [1])
        assert_records_are_whole(harness)


async def test_act_with_no_effect_while_the_turn_is_parked_does_not_fail_the_turn(tmp_path):
    """An act in doubt of the turn's own task has suspended the turn when the call raises NoEffect."""
    app, gate = App(), Gate(NoEffect("refused"))
    provider = Provider(gate)
    send = app.action("send", irreversible=True)(provider)
    pay = app.action("pay", irreversible=True)(Provider(ValueError("who knows")))

    async def turn(ctx: TaskContext) -> Any:
        async with anyio.create_task_group() as group:
            group.start_soon(partial(ctx.act, send, key="send"))
            await gate.inside.wait()
            await ctx.act(pay, key="pay")

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await harness.until(lambda: any(run.stopped_by == "parked" for run in harness.engine.consumer.running.values()))
        gate.go.set()
        await harness.waiting(task)
        await app.answer((await harness.question("activity"))["id"], "happened", answered_by="ada")

        assert (await harness.ended(task))["status"] == "DONE"
        assert provider.attempts == [1, 2]
        assert harness.trigger(task)["attempts"] == 1


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
@pytest.mark.parametrize("when", ["during the call", "before it"])
async def test_asyncio_cancel_of_a_running_call_leaves_the_act_in_doubt(tmp_path, monkeypatch, when):
    """The cancel bypasses every scope. An act that was not called is not in doubt."""
    app, provider = App(), Provider(forever)
    send = app.action("send", irreversible=True)(provider)
    held: HeldBatch | None = None

    async def turn(ctx: TaskContext) -> Any:
        if ctx.resume != "FIRST":
            return await ctx.act(send)
        task = asyncio.current_task()
        assert task is not None
        try:
            async with anyio.create_task_group() as group:

                async def cancel() -> None:
                    if held is not None:
                        await held.inside()
                    else:
                        await harness.until(lambda: len(provider.calls) == 1)
                    task.cancel()
                    if held is not None:
                        held.go_on()

                group.start_soon(cancel)
                await ctx.act(send)
        except asyncio.CancelledError:
            task.uncancel()
            raise ValueError("the time is over") from None

    async with lab(app, tmp_path) as harness:
        if when == "before it":
            held = HeldBatch(harness, monkeypatch, "begin_all")
        task_id = await begin(harness, turn, max_attempts=1)
        assert failure(await harness.ended(task_id))[1] == "the time is over"
        assert statuses(harness) == ["FAILED" if when == "before it" else "UNKNOWN"]
        assert len(provider.calls) == (0 if when == "before it" else 1)
        assert questions(harness) == ([] if when == "before it" else [("activity", "OPEN")])


# Threads


async def test_plain_action_past_the_timeout_is_awaited_and_the_result_counts(tmp_path):
    app, inside, go = App(), threading.Event(), threading.Event()

    @app.action("send", irreversible=True, timeout=PATIENCE)
    def send(call: Call) -> str:
        inside.set()
        go.wait(PATIENCE)
        return "sent"

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(send)

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await anyio.to_thread.run_sync(inside.wait)
        [run_] = harness.engine.consumer.running.values()
        [scope] = run_.calls
        scope.deadline = anyio.current_time()
        await harness.until(lambda: scope.cancel_called)
        assert statuses(harness) == ["INTENT"]
        go.set()
        assert result(await harness.ended(task)) == "sent"


@pytest.mark.parametrize("outcome", ["returned", NoEffect("refused"), Fail("CARD", "declined")], ids=repr)
async def test_action_thread_outcome_after_the_timeout_is_recorded(tmp_path, outcome):
    """The engine cannot cancel a thread, so it waits until the action returns or raises NoEffect or Fail."""
    app, inside, go = App(), threading.Event(), threading.Event()

    @app.action("pay", irreversible=True, timeout=PATIENCE)
    def pay(call: Call) -> Any:
        inside.set()
        go.wait(PATIENCE)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(pay)

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn, max_attempts=1)
        await anyio.to_thread.run_sync(inside.wait)
        [run_] = harness.engine.consumer.running.values()
        [scope] = run_.calls
        scope.deadline = anyio.current_time()
        await harness.until(lambda: scope.cancel_called)
        go.set()
        await harness.ended(task)
        assert statuses(harness) == ["DONE" if outcome == "returned" else "FAILED"]


async def test_shutdown_during_a_plain_action_leaves_the_call_in_doubt(tmp_path):
    app, inside, go = App(), threading.Event(), threading.Event()
    calls: list[int] = []

    @app.action("send", irreversible=True)
    def send(call: Call) -> str:
        calls.append(call.attempt)
        inside.set()
        go.wait(PATIENCE)
        return "sent"

    @app.workflow("turn")
    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(send)

    try:
        async with lab(app, tmp_path, settings(shutdown_grace=0.0)) as harness:
            task = (await app.emit("turn")).id
            await anyio.to_thread.run_sync(inside.wait)
        assert statuses(harness) == ["UNKNOWN"]
    finally:
        go.set()

    async with lab(app, tmp_path) as harness:
        await harness.waiting(task)
        assert questions(harness) == [("activity", "OPEN")]
        assert calls == [1]


async def test_cancelled_task_waits_for_the_thread_of_a_plain_action(tmp_path):
    app, inside, go = App(), threading.Event(), threading.Event()

    @app.action("send", irreversible=True)
    def send(call: Call) -> str:
        inside.set()
        go.wait(PATIENCE)
        return "sent"

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(send)

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await anyio.to_thread.run_sync(inside.wait)
        await app.cancel_task(task)
        await harness.until(lambda: harness.engine.consumer.running[1].interrupted_by == "cancelled")
        assert harness.task(task)["status"] == "RUNNING"
        go.set()
        assert (await harness.ended(task))["status"] == "CANCELLED"
        assert statuses(harness) == ["DONE"]


async def test_plain_action_that_never_got_a_thread_is_recorded_as_not_called(tmp_path, monkeypatch):
    """The timeout ends while the action waits for a thread, so the act is not in doubt."""
    monkeypatch.setattr("craftcore.engine.engine.STEP_THREADS", 1)
    app, inside, go = App(), threading.Event(), threading.Event()
    calls: list[int] = []

    @app.action("pay", irreversible=True, timeout=0.01)
    def pay(call: Call) -> None:
        calls.append(call.attempt)

    async def turn(ctx: TaskContext) -> Any:
        def hold() -> None:
            inside.set()
            go.wait(PATIENCE)

        async with anyio.create_task_group() as group:
            group.start_soon(ctx.step, "hold", hold)
            await anyio.to_thread.run_sync(inside.wait)
            with pytest.raises(NoEffect, match="its time was over before it was called"):
                await ctx.act(pay)
            go.set()

    async with lab(app, tmp_path) as harness:
        assert (await run(harness, turn))["status"] == "DONE"
        assert (statuses(harness), calls) == (["FAILED"], [])


# Outcomes of failures


@ON_ASYNCIO
async def test_retry_after_of_an_act_without_effect_sets_the_next_attempt_time(tmp_path):
    app, clock, provider = App(), VirtualClock(), Provider(NoEffect("busy", retry_after=900))
    send = app.action("send", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(send)

    async with lab(app, tmp_path, clock=clock) as harness:
        task = await begin(harness, turn)
        await harness.until(lambda: harness.trigger(task)["status"] == "PENDING" and statuses(harness) == ["FAILED"])
        assert harness.trigger(task)["not_before"] == clock.now() + 900
        assert harness.trigger(task)["error_code"] == "AGENT_UNAVAILABLE"


@ON_ASYNCIO
async def test_refusal_caught_by_the_workflow_is_repeated_without_another_call(tmp_path):
    app, provider = App(), Provider(Fail("CARD", "declined", card="4242"))
    pay = app.action("pay", irreversible=True)(provider)
    caught: list[tuple[str, str]] = []

    async def turn(ctx: TaskContext) -> Any:
        try:
            await ctx.act(pay)
        except Fail as error:
            caught.append((error.code, str(error)))
        if ctx.attempt < 3:
            raise ValueError("not yet")

    async with lab(app, tmp_path) as harness:
        await run(harness, turn)
        assert caught == [("CARD", "declined")] * 3
        assert provider.attempts == [1]


@ON_ASYNCIO
async def test_act_without_effect_caught_by_the_workflow_is_called_again_on_retry(tmp_path):
    app, provider = App(), Provider(NoEffect("refused"))
    send = app.action("send", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> Any:
        try:
            return await ctx.act(send)
        except NoEffect:
            raise ValueError("not yet") from None

    async with lab(app, tmp_path) as harness:
        assert result(await run(harness, turn)) == "ref-2"
        assert provider.attempts == [1, 2]
