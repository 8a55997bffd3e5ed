"""Bugs of irreversible actions that were hunted down, one test each."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import pytest

from craftcore import App, Call, Fail, NoEffect, OnUnknown, TaskContext
from craftcore.daemon.lock import read_note
from craftcore.errors import ErrorCode, KeyRequired
from craftcore.testing.faulty_disk import FaultyDisk
from tests.support.acts import Gate, Held, Provider, ledger, questions, statuses
from tests.support.engine_harness import lab, look, settings
from tests.support.fakes import VirtualClock
from tests.support.processes import PATIENCE
from tests.support.turns import begin, failure, result, run

pytestmark = pytest.mark.anyio

RESEND: dict[str, Any] = {"irreversible": True, "on_unknown": OnUnknown.RESEND, "idempotent_provider": True}


async def test_budget_used_up_twice_by_acts_opens_a_second_question(tmp_path):
    """The second question had the name of the first, and the engine died of that."""
    app, provider = App(), Provider()
    send = app.action("send", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> list[Any]:
        return [await ctx.act(send) for _ in range(5)]

    config = replace(settings(), tasks=replace(settings().tasks, max_steps=2))
    async with lab(app, tmp_path, config) as it:
        task = await begin(it, turn)
        for _ in range(2):
            await app.answer((await it.question("budget"))["id"], "continue", answered_by="ada")
        assert result(await it.ended(task)) == [f"ref-{n}" for n in range(1, 6)]
        assert len(provider.calls) == 5


async def test_act_stays_in_doubt_when_a_resend_is_withdrawn_before_the_call(tmp_path, monkeypatch):
    """It was recorded as proof that nothing had happened, at the call before either."""
    app, provider = App(), Provider(ConnectionResetError("reset"))
    pay = app.action("pay", **RESEND)(provider)
    second, go = anyio.Event(), anyio.Event()

    async def turn(ctx: TaskContext) -> Any:
        if ctx.attempt == 2:
            second.set()
            await go.wait()
        return await ctx.act(pay)

    async with lab(app, tmp_path) as it:
        task = await begin(it, turn)
        await second.wait()
        held = Held(it, monkeypatch, "begin_all", nth=2)  # the first finds it in doubt
        go.set()
        await held.inside()
        it.engine.consumer.running[1].stop("cancelled")
        held.go_on()
        await it.settled(task)

        assert provider.attempts == [1]
        assert statuses(it) == ["UNKNOWN"]


async def test_act_with_no_effect_while_the_turn_is_parked_does_not_fail_the_turn(tmp_path):
    """A sibling's question had suspended it; that the other act did nothing was told to nobody but the engine, which
    took it for a workflow that had gone on."""
    app, gate = App(), Gate(NoEffect("refused"))
    provider = Provider(gate)
    send = app.action("send", irreversible=True)(provider)
    pay = app.action("pay", irreversible=True)(Provider(ValueError("who knows")))

    async def turn(ctx: TaskContext) -> Any:
        async def pay_once_it_is_on_its_way() -> None:
            await gate.inside.wait()
            await ctx.act(pay, key="pay")

        async with anyio.create_task_group() as beside:
            beside.start_soon(partial(ctx.act, send, key="send"))
            if ctx.attempt == 1 and ctx.resume == "FIRST":
                beside.start_soon(pay_once_it_is_on_its_way)
            else:
                beside.start_soon(partial(ctx.act, pay, key="pay"))

    async with lab(app, tmp_path) as it:
        task = await begin(it, turn)
        await it.until(lambda: any(run.stopped_by == "parked" for run in it.engine.consumer.running.values()))
        gate.go.set()
        await it.waiting(task)
        await app.answer((await it.question("activity"))["id"], "happened", answered_by="ada")

        assert (await it.ended(task))["status"] == "DONE"
        assert provider.attempts == [1, 2]
        assert it.trigger(task)["attempts"] == 1


@pytest.mark.parametrize("when", ["before the call", "during the call"])
async def test_cancel_of_a_task_with_a_parked_turn_interrupts_running_calls(tmp_path, monkeypatch, when):
    """The first reason to stop was the question of a sibling, and nobody heard of the second."""
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

        async def pay_once_it_is_on_its_way() -> None:
            await on_its_way()
            await ctx.act(pay, key="pay")

        async with anyio.create_task_group() as beside:
            beside.start_soon(send_shielded)
            beside.start_soon(pay_once_it_is_on_its_way)

    async with lab(app, tmp_path) as it:
        held = Held(it, monkeypatch, "begin_all")
        on_its_way = gate.inside.wait if when == "during the call" else held.inside
        task = await begin(it, turn)
        go.set()
        await held.inside()
        if when == "during the call":
            held.go_on()
            await it.until(lambda: statuses(it) == ["INTENT", "UNKNOWN"])
        run_ = it.engine.consumer.running[1]
        if when == "before the call":
            run_.stop("parked")
        await it.until(lambda: run_.stopped_by == "parked")
        run_.stop("cancelled")
        held.go_on()
        await it.settled(task)

        [status, *_] = statuses(it)
        assert (status, len(provider.calls)) == (("UNKNOWN", 1) if when == "during the call" else ("FAILED", 0))


async def test_plain_action_that_returns_a_coroutine_fails_without_a_call(tmp_path):
    """It was DONE, and nothing had run."""
    app, provider = App(), Provider()
    send = app.action("send", irreversible=True)(lambda call, *, to: provider(call, to=to))

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(send, to="ada")

    async with lab(app, tmp_path) as it:
        assert failure(await run(it, turn))[0] == ErrorCode.INTERNAL_AGENT_ERROR
        assert statuses(it) == ["FAILED"]
        assert provider.calls == []


async def test_act_inside_an_action_needs_a_key(tmp_path):
    """It was counted at the first entry only; the one after it was taken for it at the next, and never done."""
    app, provider = App(), Provider()
    send = app.action("send", irreversible=True)(provider)
    entered: list[TaskContext] = []

    @app.action("twofold", irreversible=True)
    async def twofold(call: Call) -> str:
        with pytest.raises(KeyRequired, match="inside a step or an action"):
            await entered[-1].act(send, to="ada")
        await entered[-1].act(send, key="within", to="ada")
        return "both"

    async def turn(ctx: TaskContext) -> Any:
        entered.append(ctx)
        done = [await ctx.act(twofold), await ctx.act(send, to="ada")]
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return done

    async with lab(app, tmp_path) as it:
        assert result(await run(it, turn)) == ["both", "ref-2"]
        assert len(provider.calls) == 2


@pytest.mark.parametrize("told", ["returned", NoEffect("refused"), Fail("CARD", "declined")], ids=repr)
async def test_action_thread_outcome_after_the_timeout_is_recorded(tmp_path, told):
    """It cannot be stopped, and was waited for; but of what it came to only a result was heard."""
    app, inside, go = App(), threading.Event(), threading.Event()

    @app.action("pay", irreversible=True, timeout=0.5)
    def pay(call: Call) -> Any:
        inside.set()
        go.wait(PATIENCE)
        if isinstance(told, Exception):
            raise told
        return told

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(pay)

    async with lab(app, tmp_path) as it:
        task = await begin(it, turn, max_attempts=1)
        await anyio.to_thread.run_sync(inside.wait)
        [run_] = it.engine.consumer.running.values()
        [scope] = run_.calls
        await it.until(lambda: scope.cancel_called)
        go.set()
        await it.ended(task)
        assert statuses(it) == ["DONE" if told == "returned" else "FAILED"]


async def test_plain_action_that_never_got_a_thread_is_recorded_as_not_called(tmp_path, monkeypatch):
    """It was in doubt: somebody was asked about a call that nobody had made."""
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

        async with anyio.create_task_group() as beside:
            beside.start_soon(ctx.step, "hold", hold)
            await anyio.to_thread.run_sync(inside.wait)
            with pytest.raises(NoEffect, match="its time was over before it was called"):
                await ctx.act(pay)
            go.set()

    async with lab(app, tmp_path) as it:
        assert (await run(it, turn))["status"] == "DONE"
        assert (statuses(it), calls) == (["FAILED"], [])


async def test_act_is_done_when_the_returned_mapping_raises_on_get(tmp_path):
    """It had happened, and was in doubt."""

    class Broken(dict[str, Any]):
        def get(self, *_: Any) -> Any:
            raise RuntimeError("broken")

    app = App()
    send = app.action("send", irreversible=True)(Provider(Broken(id=7)))

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(send)

    async with lab(app, tmp_path) as it:
        assert result(await run(it, turn)) == {"id": 7}
        assert [(row["status"], row["provider_ref"]) for row in ledger(it)] == [("DONE", None)]


async def test_refusal_with_an_overlong_invalid_code_is_recorded_as_failed(tmp_path):
    """It could not be written, and was in doubt."""
    app = App()
    pay = app.action("pay", irreversible=True)(Provider(Fail("\ud800" + "X" * 10_000, "declined")))

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(pay)

    async with lab(app, tmp_path) as it:
        code, message = failure(await run(it, turn))
        assert (code[:3], len(code), message) == ("?XX", 100, "declined")
        assert [(row["status"], row["error_code"]) for row in ledger(it)] == [("FAILED", code)]


async def test_engine_stops_in_order_when_an_act_ends_on_a_full_disk(tmp_path, monkeypatch):
    """It tried to write what the act had come to, over and over, in a scope that nothing cancelled. The stop ends in
    order: the lock note says so, since the database had no room, and the next start hands back."""
    monkeypatch.setattr("craftcore.engine.durable_commit.FULL_DISK_SECONDS", 0.01)
    monkeypatch.setattr("craftcore.engine.engine.DRAIN_SECONDS", 0.0)
    app, gate = App(), Gate()
    send = app.action("send", irreversible=True)(Provider(gate))

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(send)

    with FaultyDisk() as disk:
        with anyio.fail_after(PATIENCE):
            async with lab(app, tmp_path, settings(shutdown_grace=0.0)) as it:
                await begin(it, turn)
                await gate.inside.wait()
                disk.fill()
        note, is_held = read_note(tmp_path / "agent.db")
        assert note is not None
        assert (note.epoch, note.ended_at is not None, is_held) == (1, True, False)
        disk.free()
        assert look(tmp_path / "agent.db", "SELECT epoch, ended_at FROM epochs") == [{"epoch": 1, "ended_at": None}]

        async with lab(app, tmp_path) as it:
            assert statuses(it) == ["UNKNOWN"]
            assert it.rows("SELECT ended_at FROM epochs WHERE epoch = 1") == [{"ended_at": note.ended_at}]
            assert it.rows("SELECT crash_count FROM triggers WHERE crash_count > 0") == []


async def test_reconcile_answer_no_effect_after_every_call_is_limited_by_attempts(tmp_path):
    """Nothing had happened, said the provider each time; so it was called again at once, without a wait or an end."""
    app = App()
    calls: list[int] = []

    @app.action("pay", irreversible=True, on_unknown=OnUnknown.RECONCILE, settle_after=0)
    async def pay(call: Call) -> None:
        calls.append(call.attempt)
        if len(calls) < 50:
            raise ConnectionResetError("reset")

    @pay.reconcile
    async def look(call: Call) -> Any:
        return NoEffect

    async def turn(ctx: TaskContext) -> Any:
        await ctx.act(pay)

    async with lab(app, tmp_path) as it:
        assert failure(await run(it, turn))[0] == "AGENT_UNAVAILABLE"
        assert calls == [1, 2, 3]


async def test_reconcile_answer_no_effect_after_ten_calls_asks_a_person(tmp_path):
    """Each call is waited for until a no can be believed, and each wait begins a trigger with all its attempts."""
    app, clock = App(), VirtualClock()
    calls: list[int] = []

    @app.action("pay", irreversible=True, on_unknown=OnUnknown.RECONCILE, settle_after=30)
    async def pay(call: Call) -> None:
        calls.append(call.attempt)
        raise ConnectionResetError("reset")

    @pay.reconcile
    async def look(call: Call) -> Any:
        return NoEffect

    async def turn(ctx: TaskContext) -> Any:
        await ctx.act(pay)

    async with lab(app, tmp_path, clock=clock) as it:
        task = await begin(it, turn)
        while not questions(it):
            await it.waiting(task)
            await it.idle()
            assert len(calls) <= 10
            clock.advance(31)
            it.engine.ring(schedules=False)
            await it.idle_window()
        assert len(calls) == 10
        assert "it was called 10 times" in (await it.question("activity"))["question"]


async def test_idempotency_window_that_ends_during_the_intent_commit_stops_a_resend(tmp_path, monkeypatch):
    """Another process held the file, or the machine slept: the provider had forgotten the key when it was called."""
    app, clock, provider = App(), VirtualClock(), Provider(ConnectionResetError("reset"))
    pay = app.action("pay", **RESEND, idempotency_window=3600, timeout=10)(provider)
    second, go = anyio.Event(), anyio.Event()

    async def turn(ctx: TaskContext) -> Any:
        if ctx.attempt == 2:
            second.set()
            await go.wait()
        return await ctx.act(pay)

    async with lab(app, tmp_path, clock=clock) as it:
        task = await begin(it, turn)
        await second.wait()
        held = Held(it, monkeypatch, "begin_all", nth=2)  # the first finds it in doubt
        go.set()
        await held.inside()
        clock.advance(hours=2)
        held.go_on()
        await it.waiting(task)

        assert provider.attempts == [1]
        [row] = ledger(it)
        assert (row["status"], row["in_doubt"]) == ("UNKNOWN", 1)
        assert "remembers a key for 3600 s" in (await it.question("activity"))["question"]


async def test_retry_after_of_a_busy_provider_delays_the_resend_of_an_act_in_doubt(tmp_path):
    """It was called again after the backoff, and the attempts were soon spent."""
    app, clock = App(), VirtualClock()
    provider = Provider(ConnectionResetError("reset"), NoEffect("busy", retry_after=900))
    pay = app.action("pay", **RESEND)(provider)

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(pay)

    async with lab(app, tmp_path, clock=clock) as it:
        task = await begin(it, turn)
        await it.until(lambda: len(provider.calls) == 2 and it.trigger(task)["status"] == "PENDING")
        assert it.trigger(task)["not_before"] == clock.now() + 900
