"""A failure says whether an irreversible action of its attempt may have had its effect; "no" is a promise."""

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
from tests.support.turns import begin, run

pytestmark = pytest.mark.anyio


def errors(it: Lab) -> list[tuple[str, bool]]:
    """Code and `effect_possible` of each response that is an error, the first first."""
    rows = it.rows("SELECT response_json FROM executions WHERE error_code IS NOT NULL ORDER BY seq")
    told = [json.loads(row["response_json"])["error"] for row in rows]
    return [(error["code"], error["effect_possible"]) for error in told]


async def test_without_an_irreversible_action_there_is_none(tmp_path):
    app, provider = App(), Provider(ValueError("no"))
    look = app.action("look")(provider)

    async def turn(ctx: TaskContext) -> None:
        await ctx.act(look)

    async with lab(app, tmp_path) as it:
        await run(it, turn, max_attempts=1)
        assert errors(it) == [("INTERNAL_AGENT_ERROR", False)]


async def test_what_was_done_before_the_failure_and_in_an_earlier_attempt_is_one(tmp_path):
    app, provider = App(), Provider()
    send = app.action("send", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> None:
        if ctx.attempt == 3:
            raise ConnectionError("before it came to it")
        await ctx.act(send)
        raise ValueError("after it")

    async with lab(app, tmp_path) as it:
        await run(it, turn, max_attempts=3)
        assert errors(it) == [
            ("INTERNAL_AGENT_ERROR", True),
            ("INTERNAL_AGENT_ERROR", True),
            ("TRANSPORT_ERROR", False),
        ]
        assert provider.attempts == [1]


@pytest.mark.parametrize(
    ("answer", "code"),
    [(NoEffect("refused", code="TRANSPORT_ERROR"), "TRANSPORT_ERROR"), (Fail("UNAUTHORIZED", "no"), "UNAUTHORIZED")],
)
async def test_what_is_known_not_to_have_happened_is_none(tmp_path, answer, code):
    app, provider = App(), Provider(answer)
    send = app.action("send", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> None:
        await ctx.act(send)

    async with lab(app, tmp_path) as it:
        await run(it, turn, max_attempts=1)
        assert errors(it) == [(code, False)]
        assert it.rows("SELECT status, error_code FROM activity_log") == [{"status": "FAILED", "error_code": code}]


class Broken(NoEffect):
    @property
    def code(self) -> ErrorCode:
        raise OSError("no code")

    @code.setter
    def code(self, code: ErrorCode) -> None: ...


async def test_an_error_of_an_action_that_cannot_be_read_promises_nothing(tmp_path):
    app, provider = App(), Provider(Broken("refused"))
    send = app.action("send", irreversible=True, on_unknown=OnUnknown.ASSUME_DONE)(provider)

    async def turn(ctx: TaskContext) -> None:
        assert await ctx.act(send) is None

    async with lab(app, tmp_path) as it:
        await run(it, turn)
        assert provider.attempts == [1]
        [row] = it.rows("SELECT decision, error_message FROM activity_log")
        assert row == {"decision": "happened", "error_message": "Broken: refused"}


async def test_what_may_have_happened_beside_what_did_not_is_one(tmp_path):
    app, provider = App(), Provider("sent", NoEffect("refused"))
    send = app.action("send", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> None:
        await ctx.act(send)
        await ctx.act(send)

    async with lab(app, tmp_path) as it:
        await run(it, turn, max_attempts=1)
        assert (statuses(it), errors(it)) == (["DONE", "FAILED"], [("AGENT_UNAVAILABLE", True)])


async def test_what_a_person_gave_up_is_one(tmp_path):
    app, provider = App(), Provider(ValueError("?"))
    send = app.action("send", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> None:
        await ctx.act(send)

    async with lab(app, tmp_path) as it:
        task = await begin(it, turn)
        await app.answer((await it.question("activity"))["id"], "give up", answered_by="ada")
        await it.ended(task)
        assert errors(it) == [("ACTIVITY_UNKNOWN", True)]


async def test_an_attempt_whose_time_is_over_during_a_call_says_that_it_may_have_happened(tmp_path):
    app, gate = App(), Gate()
    send = app.action("send", irreversible=True, timeout=60)(Provider(gate))

    async def turn(ctx: TaskContext) -> None:
        await ctx.act(send)

    async with lab(app, tmp_path) as it:
        task = await begin(it, turn, timeout=1.5, max_attempts=1)  # time enough for an intent
        await gate.inside.wait()
        await it.ended(task)
        assert (statuses(it), errors(it)) == (["UNKNOWN"], [("AGENT_TIMEOUT", True)])


@pytest.mark.parametrize("acts", [False, True])
async def test_a_cancelled_task_says_whether_a_call_was_on_its_way(tmp_path, acts):
    app, gate = App(), Gate()
    send = app.action("send", irreversible=True)(Provider(gate))
    began = gate.inside if acts else anyio.Event()

    async def turn(ctx: TaskContext) -> None:
        if acts:
            await ctx.act(send)
        began.set()
        await anyio.sleep_forever()

    async with lab(app, tmp_path) as it:
        task = await begin(it, turn)
        await began.wait()
        await app.cancel_task(task)
        assert (await it.ended(task))["status"] == "CANCELLED"
        assert errors(it) == [("WORKFLOW_ABORTED", acts)]


async def test_a_key_that_was_used_for_something_else_may_have_had_its_effect(tmp_path):
    app, provider = App(), Provider()
    send = app.action("send", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> None:
        await ctx.act(send, to=ctx.attempt)
        raise ValueError("again")

    async with lab(app, tmp_path) as it:
        await run(it, turn)
        assert errors(it) == [("INTERNAL_AGENT_ERROR", True), (IdempotencyConflict.code, True)]


async def test_what_the_provider_says_did_not_happen_is_none_any_more(tmp_path):
    app, provider = App(), Provider(ValueError("?"))
    send = app.action("send", irreversible=True, on_unknown=OnUnknown.RECONCILE, settle_after=0)(provider)

    @send.reconcile
    async def find(call: Call, *, to: Any = None) -> Done[str] | NoEffect | None:
        return NoEffect("there is none")

    async def turn(ctx: TaskContext) -> None:
        await ctx.act(send)

    async with lab(app, tmp_path) as it:
        await run(it, turn, max_attempts=1)
        assert errors(it) == [("AGENT_UNAVAILABLE", False)]


class Busy(CraftcoreError):
    code = ErrorCode.AGENT_UNAVAILABLE
    retry_after = 20_000.0


async def test_what_is_called_again_later_may_have_happened_and_the_provider_is_left_alone_as_long_as_it_said(tmp_path):
    app, clock = App(), VirtualClock()
    provider = Provider(Busy("HTTP status 503"))
    send = app.action("send", irreversible=True, on_unknown=OnUnknown.RESEND, idempotent_provider=True)(provider)

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(send)

    async with lab(app, tmp_path, clock=clock) as it:
        task = await begin(it, turn, retry=RetryPolicy(base=10, cap=10))
        await it.until(lambda: it.trigger(task)["error_code"] is not None)
        assert it.trigger(task)["not_before"] == NEW_YEAR + 20_000
        assert errors(it) == [("ACTIVITY_UNKNOWN", True)]
        clock.advance(seconds=20_000)
        it.engine.ring(schedules=False)
        assert (await it.ended(task))["result_json"] == '"ref-2"'
