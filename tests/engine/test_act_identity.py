"""Identity of acts: key or position in the turn, over attempts, turns and concurrent calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest

from craftcore import App, Call, Continue, Fail, NoEffect, TaskContext
from craftcore.errors import InvalidInput
from tests.support.acts import Gate, Provider, assert_records_are_whole, ledger, questions
from tests.support.engine_harness import lab, settings
from tests.support.turns import failure, result, run

pytestmark = pytest.mark.anyio


def declare_send(app: App, provider: Provider, **terms: Any) -> Any:
    return app.action("send", **{"irreversible": True, **terms})(provider)


# Different arguments


async def test_key_reused_with_other_arguments_fails_and_opens_a_conflict_question(tmp_path):
    app, provider = App(), Provider()
    send = declare_send(app, provider)
    second = ["bob", "ada"]

    async def turn(ctx: TaskContext) -> Any:
        await ctx.act(send, key="invoice", to="ada")
        return await ctx.act(send, key="invoice", to=second.pop(0))

    async with lab(app, tmp_path) as harness:
        row = await run(harness, turn)
        code, message = failure(row)
        assert code == "IDEMPOTENCY_CONFLICT"
        assert f"activity:{row['id']}:invoice was used before with other arguments" in message
        assert len(provider.calls) == 1
        assert harness.trigger(row["id"])["attempts"] == 1  # a retry cannot succeed

        question = await harness.question("conflict")
        assert question["options_json"] == '["retry","leave"]'
        await app.answer(question["id"], "retry", answered_by="ada")
        await harness.until(lambda: harness.task(row["id"])["status"] == "DONE")
        assert harness.task(row["id"])["result_json"] == '"ref-1"'
        assert len(provider.calls) == 1


async def test_conflict_answered_with_leave_keeps_the_task_failed(tmp_path):
    app, provider = App(), Provider()
    send = declare_send(app, provider)

    async def turn(ctx: TaskContext) -> Any:
        await ctx.act(send, key="k", to="ada")
        await ctx.act(send, key="k", to="bob")

    async with lab(app, tmp_path) as harness:
        row = await run(harness, turn)
        await app.answer((await harness.question("conflict"))["id"], "leave", answered_by="ada")
        await harness.idle()
        assert harness.task(row["id"])["status"] == "FAILED"
        assert questions(harness) == [("conflict", "ANSWERED")]


async def test_act_with_other_arguments_at_the_next_attempt_is_refused(tmp_path):
    """Changed arguments, such as model output, a time or a random number, cannot cause a second call."""
    app, provider = App(), Provider()
    send = declare_send(app, provider)

    async def turn(ctx: TaskContext) -> Any:
        await ctx.act(send, to=f"written at attempt {ctx.attempt}")
        raise ValueError("not yet")

    async with lab(app, tmp_path) as harness:
        assert failure(await run(harness, turn))[0] == "IDEMPOTENCY_CONFLICT"
        assert [to for _, _, to in provider.calls] == ["written at attempt 1"]


async def test_conflict_on_an_act_in_doubt_opens_a_question_of_each_kind(tmp_path):
    app, provider = App(), Provider(ConnectionResetError("reset"))
    send = declare_send(app, provider, on_unknown="resend", idempotent_provider=True)

    async def turn(ctx: TaskContext) -> Any:
        await ctx.act(send, to=ctx.attempt)

    async with lab(app, tmp_path) as harness:
        assert failure(await run(harness, turn))[0] == "IDEMPOTENCY_CONFLICT"
        assert sorted(questions(harness)) == [("activity", "OPEN"), ("conflict", "OPEN")]
        assert provider.attempts == [1]


async def test_act_arguments_in_another_order_are_the_same_act(tmp_path):
    app, provider = App(), Provider()

    @app.action("send", irreversible=True)
    async def send(call: Call, *, to: str, tags: Any = (), at: float = 0) -> str:
        provider.calls.append((call.key, call.attempt, to))
        return to

    async def turn(ctx: TaskContext) -> Any:
        await ctx.act(send, key="k", to="ada", tags={"b", "a"}, at=1)
        await ctx.act(send, key="k", tags={"a", "b"}, at=1, to="ada")

    async with lab(app, tmp_path) as harness:
        assert (await run(harness, turn))["status"] == "DONE"
        assert len(provider.calls) == 1


async def test_invalid_arguments_action_or_key_are_refused_before_the_ledger_is_written(tmp_path):
    app, provider = App(), Provider()
    send = declare_send(app, provider)

    async def turn(ctx: TaskContext) -> Any:
        for arguments in ({"to": object()}, {"to": float("nan")}, {"to": "\ud800"}, {"cc": "bob"}):
            with pytest.raises(InvalidInput):
                await ctx.act(send, **arguments)
        with pytest.raises(InvalidInput, match="no action is named 'sent'; declared are send"):
            await ctx.act("sent")
        with pytest.raises(InvalidInput, match="action send is not declared on the App that runs: declare it there"):
            await ctx.act(declare_send(App(), provider), to="ada")
        for key in ("", "two words", "1.1", "12.345", "1.1@b", "x" * 201):
            with pytest.raises(InvalidInput):
                await ctx.act(send, key=key)

    async with lab(app, tmp_path) as harness:
        assert (await run(harness, turn))["status"] == "DONE"
        assert (ledger(harness), provider.calls) == ([], [])


# Concurrent calls


async def test_concurrent_acts_with_the_same_key_raise_the_same_refusal(tmp_path):
    app, gate = App(), Gate(Fail("CARD", "declined"))
    provider = Provider(gate)
    send = declare_send(app, provider)
    outcomes: list[str] = []

    async def turn(ctx: TaskContext) -> Any:
        async def act() -> None:
            try:
                await ctx.act(send, key="k")
            except Fail as error:
                outcomes.append(error.code)

        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(act)
            await gate.inside.wait()
            gate.go.set()

    async with lab(app, tmp_path) as harness:
        await run(harness, turn)
        assert (outcomes, provider.attempts) == (["CARD"] * 2, [1])


async def test_hundred_concurrent_acts_of_a_turn_are_called_once_each(tmp_path):
    app, provider = App(), Provider()
    send = declare_send(app, provider)
    got: dict[int, Any] = {}

    async def turn(ctx: TaskContext) -> Any:
        async def act(n: int) -> None:
            got[n] = await ctx.act(send, key=f"n{n}", to=n)

        async with anyio.create_task_group() as group:
            for n in range(100):
                group.start_soon(act, n)
        if ctx.attempt == 1:
            got.clear()
            raise ValueError("not yet")

    async with lab(app, tmp_path) as harness:
        await run(harness, turn)
        assert len(provider.calls) == 100
        assert {n: provider.calls[int(ref[4:]) - 1][2] for n, ref in got.items()} == {n: n for n in range(100)}
        assert_records_are_whole(harness)


async def test_step_with_a_keyed_act_calls_the_provider_once_over_attempts(tmp_path):
    app, provider = App(), Provider()
    send = declare_send(app, provider)

    async def turn(ctx: TaskContext) -> Any:
        async def act() -> Any:
            sent = await ctx.act(send, key="k")
            if ctx.attempt == 1:
                raise ValueError("the step fails after it")
            return sent

        return await ctx.step("send", act)

    async with lab(app, tmp_path) as harness:
        assert result(await run(harness, turn)) == "ref-1"
        assert provider.attempts == [1]


# Re-entry and retries


async def test_act_refused_for_invalid_arguments_takes_no_place_in_the_turn(tmp_path):
    app, provider = App(), Provider()
    send = declare_send(app, provider)

    async def turn(ctx: TaskContext) -> Any:
        if ctx.attempt == 1:
            with pytest.raises(InvalidInput):
                await ctx.act(send, cc="bob")
        sent = await ctx.act(send, to="ada")
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return sent

    async with lab(app, tmp_path) as harness:
        assert result(await run(harness, turn)) == "ref-1"
        assert len(provider.calls) == 1


async def test_act_place_is_scoped_to_the_turn_and_act_key_to_the_task(tmp_path):
    app, provider = App(), Provider()
    send = declare_send(app, provider)

    async def turn(ctx: TaskContext) -> Any:
        got = [*(ctx.state or []), await ctx.act(send), await ctx.act(send, key="once")]
        return got if ctx.turn == 3 else Continue(got)

    async with lab(app, tmp_path) as harness:
        row = await run(harness, turn)
        assert result(row) == ["ref-1", "ref-2", "ref-3", "ref-2", "ref-4", "ref-2"]
        assert [key.partition(f"{row['id']}:")[2] for key, _, _ in provider.calls] == ["1.1", "once", "2.1", "3.1"]


async def test_act_with_no_effect_is_called_again_by_key_in_the_next_turn(tmp_path):
    app, provider = App(), Provider(NoEffect("refused"))
    send = declare_send(app, provider)

    async def turn(ctx: TaskContext) -> Any:
        try:
            return await ctx.act(send, key="once")
        except NoEffect:
            return Continue(None)

    async with lab(app, tmp_path) as harness:
        assert result(await run(harness, turn)) == "ref-2"
        assert provider.attempts == [1, 2]


async def test_act_key_of_a_parent_does_not_clash_with_the_same_key_of_a_child(tmp_path):
    app, provider = App(), Provider()
    send = declare_send(app, provider)

    @app.workflow("child")
    async def child(ctx: TaskContext) -> Any:
        return await ctx.act(send, key="once")

    async def turn(ctx: TaskContext) -> Any:
        reference = await ctx.act(send, key="once")
        return [reference, await (await ctx.start_child("child")).result()]

    async with lab(app, tmp_path) as harness:
        assert result(await run(harness, turn)) == ["ref-1", "ref-2"]


async def test_retried_task_reuses_the_result_of_a_done_act(tmp_path):
    app, provider = App(), Provider()
    send = declare_send(app, provider)
    broken = [True]

    async def turn(ctx: TaskContext) -> Any:
        sent = await ctx.act(send)
        if broken:
            broken.clear()
            raise Fail("BROKEN", "mend it")
        return sent

    async with lab(app, tmp_path) as harness:
        row = await run(harness, turn)
        await app.retry_task(row["id"])
        await harness.until(lambda: harness.task(row["id"])["status"] == "DONE")
        assert provider.attempts == [1]


async def test_turn_resumed_after_a_wait_reuses_the_results_of_done_acts(tmp_path):
    app, provider = App(), Provider()
    send = declare_send(app, provider)

    async def turn(ctx: TaskContext) -> Any:
        got = [await ctx.act(send, to=1)]
        await ctx.sleep(0)
        got.append(await ctx.act(send, to=2))
        await ctx.sleep(0)
        return got

    async with lab(app, tmp_path) as harness:
        assert result(await run(harness, turn)) == ["ref-1", "ref-2"]
        assert len(provider.calls) == 2


# Identifiers


async def test_act_key_header_and_message_id_are_the_same_at_every_call(tmp_path):
    app = App()
    seen: list[Call] = []

    @app.action("send", irreversible=True)
    async def send(call: Call) -> None:
        seen.append(call)
        if call.attempt < 3:
            raise NoEffect("refused")

    async def turn(ctx: TaskContext) -> Any:
        await ctx.act(send)

    async with lab(app, tmp_path) as harness:
        row = await run(harness, turn)
        assert row["status"] == "DONE"
        assert [call.attempt for call in seen] == [1, 2, 3]
        assert {call.key for call in seen} == {f"activity:{row['id']}:1.1"}
        assert {call.headers["Idempotency-Key"] for call in seen} == {seen[0].key}
        assert len({call.message_id for call in seen}) == 1


async def test_act_accepts_the_name_of_a_declared_action(tmp_path):
    app, provider = App(), Provider()
    declare_send(app, provider)

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act("send", to="ada")

    async with lab(app, tmp_path) as harness:
        assert result(await run(harness, turn)) == "ref-1"


async def test_act_counts_once_in_the_step_budget_over_all_attempts(tmp_path):
    app, provider = App(), Provider()
    send = declare_send(app, provider)

    async def turn(ctx: TaskContext) -> Any:
        for n in range(3):
            await ctx.act(send, to=n)
        await ctx.act(send, key="again")
        await ctx.act(send, key="again")
        if ctx.attempt < 3:
            raise ValueError("not yet")

    config = replace(settings(), tasks=replace(settings().tasks, max_steps=4))
    async with lab(app, tmp_path, config) as harness:
        assert (await run(harness, turn))["status"] == "DONE"
        assert questions(harness) == []
        assert len(provider.calls) == 4
