"""Refused declarations and calls of actions, and the remedy in each error message."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from craftcore import Action, App, Call, InvalidInput, OnUnknown, RetryPolicy, TaskContext
from craftcore.errors import ConfigInvalid
from tests.support.acts import Provider, ledger, statuses
from tests.support.engine_harness import lab
from tests.support.log_capture import capture_logs
from tests.support.turns import begin, failure, result, run

NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def pay(call: Call, *, amount: int, note: str = "") -> str:
    return f"{amount} as {call.key}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "action pay needs amount"),
        ({"amonut": 1}, "action pay needs amount; it was given amonut, which it does not take"),
        ({"amount": 1, "to": "ada"}, "action pay takes amount, note; it was given to"),
    ],
)
def test_action_arguments_missing_or_unknown_are_named_in_the_error(arguments, message):
    action = App().action("pay", irreversible=True)(pay)
    with pytest.raises(InvalidInput) as refused:
        action.check(arguments)
    assert refused.value.message == message


@pytest.mark.anyio
async def test_action_arguments_by_place_are_refused(tmp_path):
    app = App()
    declared: Any = app.action("pay", irreversible=True)(pay)

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(declared, 3)

    async with lab(app, tmp_path) as harness:
        code, message = failure(await run(harness, turn))
    assert (code, message) == (
        "VALIDATION_ERROR",
        "ctx.act takes the arguments of an action by name, as in ctx.act(pay, amount=3)",
    )


def test_type_of_an_action_needs_only_its_result_at_run_time():
    assert Action[int] is Action


@pytest.mark.anyio
async def test_action_called_directly_in_a_workflow_is_refused(tmp_path):
    """The call is `await pay(amount=1)` instead of `await ctx.act(pay, amount=1)`."""
    app, provider = App(), Provider()
    send = app.action("send", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> Any:
        return await send(to="ada")

    async with lab(app, tmp_path) as harness:
        code, message = failure(await run(harness, turn))
    assert code == "VALIDATION_ERROR"
    assert message.startswith("action send was not called: in a workflow say `await ctx.act(…)`")
    assert provider.calls == []


@pytest.mark.anyio
async def test_action_can_be_called_directly_outside_a_workflow():
    action = App().action("pay", irreversible=True)(pay)
    assert await action(Call(key="k", attempt=1, deadline=NOW), amount=7) == "7 as k"
    with pytest.raises(InvalidInput, match="its first argument is a Call"):
        action("k", amount=7)  # type: ignore[arg-type]  # a type checker reports this


@pytest.mark.anyio
async def test_act_refuses_a_function_not_declared_as_an_action(tmp_path):
    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(pay, amount=1)  # type: ignore[call-overload]  # a type checker reports this

    async with lab(App(), tmp_path) as harness:
        code, message = failure(await run(harness, turn))
        assert ledger(harness) == []
    assert code == "VALIDATION_ERROR"
    assert message.startswith("ctx.act takes an action that was declared with @app.action, or its name; <function pay")


@pytest.mark.anyio
async def test_coroutine_that_a_plain_action_returns_is_awaited_once(tmp_path):
    app, provider = App(), Provider()
    send = app.action("send", irreversible=True)(lambda call, *, to: provider(call, to=to))

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(send, to="ada")

    async with lab(app, tmp_path) as harness:
        assert result(await run(harness, turn)) == "ref-1"
        assert statuses(harness) == ["DONE"]
        assert len(provider.calls) == 1


@pytest.mark.parametrize("kind", ["action", "workflow"])
def test_decorator_without_parentheses_is_refused(kind):
    """Without this refusal the decorator would silently declare nothing."""
    with pytest.raises(ConfigInvalid, match=rf'has no name: declare it with @app.{kind}\("its.name"\)'):
        getattr(App(), kind)(pay)


@pytest.mark.anyio
async def test_act_in_doubt_is_logged_as_a_warning_with_policy_and_error(tmp_path):
    app, provider = App(), Provider(ConnectionResetError("the line is dead"))
    send = app.action("send", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(send)

    async with lab(app, tmp_path) as harness:
        with capture_logs() as logs:
            task = await begin(harness, turn)
            await harness.waiting(task)

    [warning] = [line for line in logs if line["event"] == "activity.in_doubt"]
    assert (warning["log_level"], warning["action"], warning["key"]) == ("warning", "send", f"activity:{task}:1.1")
    assert (warning["policy"], warning["reason"]) == ("ask", "it failed after it was called")
    assert warning["error"] == "ConnectionResetError: the line is dead"


@pytest.mark.anyio
async def test_resend_error_message_after_spent_attempts_names_the_next_attempt(tmp_path):
    app, provider = App(), Provider(TimeoutError(), TimeoutError())
    send = app.action("send", irreversible=True, on_unknown=OnUnknown.RESEND, idempotent_provider=True)(provider)

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(send)

    async with lab(app, tmp_path) as harness:
        _, message = failure(await run(harness, turn, retry=RetryPolicy(max_attempts=2, base=0, cap=0)))
    assert message.endswith("; the next attempt calls it again with the same key")
    assert provider.attempts == [1, 2]
