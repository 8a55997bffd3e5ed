"""The effect_possible field of a failure: false only if no irreversible action can have had an effect."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from craftcore import App, Call, Done, Fail, IdempotencyConflict, NoEffect, OnUnknown, RetryPolicy, TaskContext
from craftcore.errors import CraftcoreError, ErrorCode
from tests.support.acts import Gate, Provider, statuses
from tests.support.engine_harness import Lab, lab
from tests.support.fakes import NEW_YEAR, VirtualClock
from tests.support.processes import PATIENCE
from tests.support.turns import begin, run

pytestmark = pytest.mark.anyio


def errors(harness: Lab) -> list[tuple[str, bool]]:
    """Return (code, effect_possible) for each error response, oldest first."""
    rows = harness.rows("SELECT response_json FROM executions WHERE error_code IS NOT NULL ORDER BY seq")
    failures = [json.loads(row["response_json"])["error"] for row in rows]
    return [(error["code"], error["effect_possible"]) for error in failures]


async def test_effect_possible_is_false_without_an_irreversible_action(tmp_path):
    app, provider = App(), Provider(ValueError("no"))
    look = app.action("look")(provider)

    async def turn(ctx: TaskContext) -> None:
        await ctx.act(look)

    async with lab(app, tmp_path) as harness:
        await run(harness, turn, max_attempts=1)
        assert errors(harness) == [("INTERNAL_AGENT_ERROR", False)]


async def test_effect_possible_is_true_for_attempts_that_met_a_done_act(tmp_path):
    app, provider = App(), Provider()
    send = app.action("send", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> None:
        if ctx.attempt == 3:
            raise ConnectionError("before it came to it")
        await ctx.act(send)
        raise ValueError("after it")

    async with lab(app, tmp_path) as harness:
        await run(harness, turn, max_attempts=3)
        assert errors(harness) == [
            ("INTERNAL_AGENT_ERROR", True),
            ("INTERNAL_AGENT_ERROR", True),
            ("TRANSPORT_ERROR", False),
        ]
        assert provider.attempts == [1]


@pytest.mark.parametrize(
    ("answer", "code"),
    [(NoEffect("refused", code="TRANSPORT_ERROR"), "TRANSPORT_ERROR"), (Fail("UNAUTHORIZED", "no"), "UNAUTHORIZED")],
)
async def test_effect_possible_is_false_after_no_effect_or_a_refusal(tmp_path, answer, code):
    app, provider = App(), Provider(answer)
    send = app.action("send", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> None:
        await ctx.act(send)

    async with lab(app, tmp_path) as harness:
        await run(harness, turn, max_attempts=1)
        assert errors(harness) == [(code, False)]
        assert harness.rows("SELECT status, error_code FROM activity_log") == [{"status": "FAILED", "error_code": code}]


class Broken(NoEffect):
    @property
    def code(self) -> ErrorCode:
        raise OSError("no code")

    @code.setter
    def code(self, code: ErrorCode) -> None: ...


async def test_act_error_with_an_unreadable_code_leaves_the_act_in_doubt(tmp_path):
    app, provider = App(), Provider(Broken("refused"))
    send = app.action("send", irreversible=True, on_unknown=OnUnknown.ASSUME_DONE)(provider)

    async def turn(ctx: TaskContext) -> None:
        assert await ctx.act(send) is None

    async with lab(app, tmp_path) as harness:
        await run(harness, turn)
        assert provider.attempts == [1]
        [row] = harness.rows("SELECT decision, error_message FROM activity_log")
        assert row == {"decision": "happened", "error_message": "Broken: refused"}


async def test_effect_possible_is_true_for_a_done_act_before_an_act_without_effect(tmp_path):
    app, provider = App(), Provider("sent", NoEffect("refused"))
    send = app.action("send", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> None:
        await ctx.act(send)
        await ctx.act(send)

    async with lab(app, tmp_path) as harness:
        await run(harness, turn, max_attempts=1)
        assert (statuses(harness), errors(harness)) == (["DONE", "FAILED"], [("AGENT_UNAVAILABLE", True)])


async def test_effect_possible_is_true_for_an_act_given_up_by_a_person(tmp_path):
    app, provider = App(), Provider(ValueError("?"))
    send = app.action("send", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> None:
        await ctx.act(send)

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await app.answer((await harness.question("activity"))["id"], "give up", answered_by="ada")
        await harness.ended(task)
        assert errors(harness) == [("ACTIVITY_UNKNOWN", True)]


async def test_effect_possible_is_true_when_an_attempt_times_out_during_a_call(tmp_path):
    app, gate = App(), Gate()
    send = app.action("send", irreversible=True, timeout=2 * PATIENCE)(Provider(gate))

    async def turn(ctx: TaskContext) -> None:
        await ctx.act(send)

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn, timeout=PATIENCE, max_attempts=1)
        await gate.inside.wait()
        harness.end_time()
        await harness.ended(task)
        assert (statuses(harness), errors(harness)) == (["UNKNOWN"], [("AGENT_TIMEOUT", True)])


@pytest.mark.parametrize("acts", [False, True])
async def test_effect_possible_of_a_cancelled_task_is_true_if_a_call_was_running(tmp_path, acts):
    app, gate = App(), Gate()
    send = app.action("send", irreversible=True)(Provider(gate))
    began = gate.inside if acts else anyio.Event()

    async def turn(ctx: TaskContext) -> None:
        if acts:
            await ctx.act(send)
        began.set()
        await anyio.sleep_forever()

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await began.wait()
        await app.cancel_task(task)
        assert (await harness.ended(task))["status"] == "CANCELLED"
        assert errors(harness) == [("WORKFLOW_ABORTED", acts)]


async def test_effect_possible_is_true_for_an_idempotency_conflict(tmp_path):
    app, provider = App(), Provider()
    send = app.action("send", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> None:
        await ctx.act(send, to=ctx.attempt)
        raise ValueError("again")

    async with lab(app, tmp_path) as harness:
        await run(harness, turn)
        assert errors(harness) == [("INTERNAL_AGENT_ERROR", True), (IdempotencyConflict.code, True)]


async def test_effect_possible_is_false_after_reconcile_answers_no_effect(tmp_path):
    app, provider = App(), Provider(ValueError("?"))
    send = app.action("send", irreversible=True, on_unknown=OnUnknown.RECONCILE, settle_after=0)(provider)

    @send.reconcile
    async def find(call: Call, *, to: Any = None) -> Done[str] | NoEffect | None:
        return NoEffect("there is none")

    async def turn(ctx: TaskContext) -> None:
        await ctx.act(send)

    async with lab(app, tmp_path) as harness:
        await run(harness, turn, max_attempts=1)
        assert errors(harness) == [("AGENT_UNAVAILABLE", False)]


class Busy(CraftcoreError):
    code = ErrorCode.AGENT_UNAVAILABLE
    retry_after = 20_000.0


async def test_effect_possible_is_true_for_a_resend_that_waits_for_retry_after(tmp_path):
    app, clock = App(), VirtualClock()
    provider = Provider(Busy("HTTP status 503"))
    send = app.action("send", irreversible=True, on_unknown=OnUnknown.RESEND, idempotent_provider=True)(provider)

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(send)

    async with lab(app, tmp_path, clock=clock) as harness:
        task = await begin(harness, turn, retry=RetryPolicy(base=10, cap=10))
        await harness.until(lambda: harness.trigger(task)["error_code"] is not None)
        assert harness.trigger(task)["not_before"] == NEW_YEAR + 20_000
        assert errors(harness) == [("ACTIVITY_UNKNOWN", True)]
        clock.advance(seconds=20_000)
        harness.engine.ring(schedules=False)
        assert (await harness.ended(task))["result_json"] == '"ref-2"'
