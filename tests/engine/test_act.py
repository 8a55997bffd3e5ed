"""Irreversible actions: one call per act, retries, and questions about acts in doubt."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from craftcore import App, Call, Done, Fail, NoEffect, OnUnknown, Producer, TaskContext
from craftcore.triggers.start_holds import release as release_holds
from tests.support.engine_harness import Lab, lab
from tests.support.turns import begin, failure, result, run

pytestmark = pytest.mark.anyio


class Provider:
    """A provider that records its calls in order."""

    def __init__(self, *answers: Any) -> None:
        self.calls: list[tuple[str, int, Any]] = []
        self.answers = list(answers)

    async def __call__(self, call: Call, *, to: Any = None) -> Any:
        self.calls.append((call.key, call.attempt, to))
        answer = self.answers.pop(0) if self.answers else f"ref-{len(self.calls)}"
        if isinstance(answer, BaseException) or (isinstance(answer, type) and issubclass(answer, BaseException)):
            raise answer
        return answer


def ledger(harness: Lab) -> list[dict[str, Any]]:
    return harness.rows("SELECT * FROM activity_log ORDER BY seq")


async def test_done_act_is_not_called_again_when_the_turn_is_retried(tmp_path):
    app, provider = App(), Provider()
    send = app.action("send", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> list[Any]:
        got = [await ctx.act(send, to="ada"), await ctx.act(send, to="ada")]
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return got

    async with lab(app, tmp_path) as harness:
        row = await run(harness, turn)

        assert result(row) == ["ref-1", "ref-2"]
        keys = [f"activity:{row['id']}:1.1", f"activity:{row['id']}:1.2"]
        assert provider.calls == [(keys[0], 1, "ada"), (keys[1], 1, "ada")]
        assert [(one["idem_key"], one["status"], one["provider_ref"]) for one in ledger(harness)] == [
            (keys[0], "DONE", "ref-1"),
            (keys[1], "DONE", "ref-2"),
        ]


async def test_act_with_no_effect_is_retried_and_a_refused_act_fails(tmp_path):
    app, provider = App(), Provider(NoEffect("refused"), "ok", Fail("CARD", "declined"))
    pay = app.action("pay", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> Any:
        return [await ctx.act(pay), await ctx.act(pay)]

    async with lab(app, tmp_path) as harness:
        assert failure(await run(harness, turn)) == ("CARD", "declined")
        assert [one["status"] for one in ledger(harness)] == ["DONE", "FAILED"]
        assert [attempt for _, attempt, _ in provider.calls] == [1, 2, 1]


async def test_act_in_doubt_asks_a_person_and_returns_the_answered_reference(tmp_path):
    app, provider = App(), Provider(ValueError("who knows"))
    pay = app.action("pay", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(pay, to=7)

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await harness.waiting(task)
        [question] = await app.questions()
        assert question.options == ("happened", "resend", "give up")
        await app.answer(question.id, "happened", reference="pay-1", answered_by="ada")

        assert result(await harness.ended(task)) == "pay-1"
        assert len(provider.calls) == 1


async def test_act_on_an_idempotent_provider_is_resent_when_in_doubt(tmp_path):
    app, provider = App(), Provider(ConnectionResetError("reset"))
    pay = app.action("pay", irreversible=True, on_unknown=OnUnknown.RESEND, idempotent_provider=True)(provider)

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(pay)

    async with lab(app, tmp_path) as harness:
        assert result(await run(harness, turn)) == "ref-2"
        assert {key for key, _, _ in provider.calls} == {ledger(harness)[0]["idem_key"]}


async def test_act_without_a_ledger_row_after_a_restore_is_asked_about_and_not_sent(tmp_path):
    """The copy was made before the task began. Only the lost file recorded that the act was sent."""
    path, copy_path = tmp_path / "agent.db", tmp_path / "copy.db"
    app, provider = App(), Provider()
    send = app.action("send", irreversible=True)(provider)

    @app.workflow("letter")
    async def letter(ctx: TaskContext) -> Any:
        return await ctx.act(send, to="ada")

    async with lab(app, tmp_path) as harness:  # the lock file now records the database
        await harness.idle()
    with Producer(path) as producer:
        task = producer.emit("letter").id
    shutil.copy(path, copy_path)
    async with lab(app, tmp_path) as harness:
        assert result(await harness.ended(task)) == "ref-1"

    shutil.copy(copy_path, path)
    async with lab(app, tmp_path) as harness:
        await harness.engine.writer.commit(release_holds)
        harness.engine.ring(schedules=False)
        await harness.waiting(task)
        [question] = await app.questions()
        assert question.question.startswith("Did send happen? The database was restored, and it may have been called")
        assert "It was called at" not in question.question
        later = (await app.emit("letter")).id
        assert result(await harness.ended(later)) == "ref-2"
        await app.answer(question.id, "happened", answered_by="ada")
        await harness.ended(task)

    assert len(provider.calls) == 2


async def test_question_about_an_act_in_doubt_quotes_the_reconcile_answer(tmp_path):
    app, provider = App(), Provider(ValueError("who knows"))
    pay = app.action("pay", irreversible=True)(provider)

    @pay.reconcile
    async def report_paid(call: Call, *, to: Any = None) -> Done[str]:
        return Done("pay-1")

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(pay)

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await harness.waiting(task)
        [question] = await app.questions()

        assert "the provider says that it happened (pay-1)" in question.question
        await app.answer(question.id, "give up", answered_by="ada")
        assert failure(await harness.ended(task))[0] == "ACTIVITY_UNKNOWN"


async def test_reconcile_done_counts_at_once_and_no_effect_only_after_settle_after(tmp_path):
    app, provider, asked = App(), Provider(ValueError("who knows"), ValueError("again")), []
    options: Any = {"irreversible": True, "on_unknown": OnUnknown.RECONCILE}

    @app.action("early", settle_after=3600, **options)
    async def early(call: Call) -> Any:
        return await provider(call)

    @early.reconcile
    async def report_done(call: Call) -> Done[str]:
        return Done("early-1")

    @app.action("late", settle_after=0, **options)
    async def late(call: Call) -> Any:
        return await provider(call)

    @late.reconcile
    async def report_no_effect(call: Call) -> type[NoEffect]:
        asked.append(call.attempt)
        return NoEffect

    async def turn(ctx: TaskContext) -> Any:
        return [await ctx.act(early), await ctx.act(late)]

    async with lab(app, tmp_path) as harness:
        assert result(await run(harness, turn)) == ["early-1", "ref-3"]
        assert asked == [1]
