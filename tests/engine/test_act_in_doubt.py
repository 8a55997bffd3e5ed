"""Acts in doubt: each on_unknown policy, the reconcile function, and the answers of a person."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from craftcore import App, Call, Done, Fail, NoEffect, OnUnknown, RetryPolicy, TaskContext
from craftcore.activities.model import Decision
from craftcore.activities.store import ActivityStore
from craftcore.errors import ActivityUnknown, NotFound, StateRefused
from tests.support.acts import Gate, HeldBatch, Provider, activity_events, decisions, ledger, questions, statuses
from tests.support.engine_harness import Lab, lab, settings
from tests.support.fakes import VirtualClock
from tests.support.turns import begin, failure, result, run

pytestmark = pytest.mark.anyio

LOST = ConnectionResetError("reset")
RESENDS: dict[str, Any] = {"irreversible": True, "on_unknown": OnUnknown.RESEND, "idempotent_provider": True}
RECONCILES: dict[str, Any] = {"irreversible": True, "on_unknown": OnUnknown.RECONCILE, "settle_after": 0}


def paying_turn(app: App, provider: Provider, **terms: Any) -> Any:
    """Return a turn that pays and returns the result of the act."""
    pay = app.action("pay", **{"irreversible": True, **terms})(provider)

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(pay, to="ada")

    return turn


async def answer_question(harness: Lab, choice: str, **more: Any) -> None:
    await harness.app.answer((await harness.question("activity"))["id"], choice, answered_by="ada", **more)


async def wait_for_done(harness: Lab, task_id: str) -> dict[str, Any]:
    """Wait until a task is DONE and return its row."""
    await harness.until(lambda: harness.task(task_id)["status"] == "DONE")
    return harness.task(task_id)


# Policy `ask`


@pytest.mark.parametrize(
    ("choice", "reference", "outcome"),
    [("happened", "pay-7", "pay-7"), ("happened", None, None), ("resend", None, "ref-2")],
)
async def test_answer_to_an_act_in_doubt_sets_the_result_or_resends(tmp_path, choice, reference, outcome):
    app, provider = App(), Provider(LOST)
    turn = paying_turn(app, provider)
    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await answer_question(harness, choice, reference=reference)

        assert result(await harness.ended(task)) == outcome
        assert provider.attempts == ([1, 2] if choice == "resend" else [1])
        assert statuses(harness) == ["DONE"]
        assert decisions(harness) == [(choice, "ada")]
        assert questions(harness) == [("activity", "ANSWERED")]


async def test_act_given_up_fails_the_task_without_another_attempt(tmp_path):
    app, provider = App(), Provider(LOST)
    turn = paying_turn(app, provider)
    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await answer_question(harness, "give up")

        code, message = failure(await harness.ended(task))
        assert (code, "unknown whether pay happened" in message) == ("ACTIVITY_UNKNOWN", True)
        assert harness.trigger(harness.task(task)["trigger_id"])["attempts"] == 1
        assert (provider.attempts, statuses(harness)) == ([1], ["UNKNOWN"])
        assert [row for row in questions(harness) if row[1] == "OPEN"] == []


async def test_workflow_may_catch_the_error_of_a_given_up_act(tmp_path):
    app = App()
    pay = app.action("pay", irreversible=True)(Provider(LOST))

    async def turn(ctx: TaskContext) -> Any:
        try:
            await ctx.act(pay)
        except ActivityUnknown as error:
            return error.details["key"]

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await answer_question(harness, "give up")
        assert result(await harness.ended(task)) == ledger(harness)[0]["idem_key"]


async def test_act_in_doubt_after_each_resend_is_asked_about_each_time(tmp_path):
    app, provider = App(), Provider(LOST, LOST, LOST)
    turn = paying_turn(app, provider)
    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        for calls in (1, 2, 3):
            await harness.until(lambda calls=calls: len(questions(harness)) == calls)  # type: ignore[misc]
            await harness.waiting(task)
            await answer_question(harness, "resend")

        assert result(await harness.ended(task)) == "ref-4"
        assert provider.attempts == [1, 2, 3, 4]
        assert len({key for key, _, _ in provider.calls}) == 1


async def test_question_about_an_act_refuses_a_second_answer(tmp_path):
    app = App()
    turn = paying_turn(app, Provider(LOST))
    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        question = await harness.question("activity")
        await answer_question(harness, "happened", reference="pay-7")
        with pytest.raises(StateRefused, match=r"too late.*was answered by ada"):
            await app.answer(question["id"], "resend", answered_by="bob")
        assert result(await harness.ended(task)) == "pay-7"


async def test_decision_between_the_unknown_result_and_the_question_is_applied(tmp_path, monkeypatch):
    """The decision arrives between the commit of the unknown result and the commit of the question."""
    app, provider = App(), Provider(LOST)
    turn = paying_turn(app, provider)
    async with lab(app, tmp_path) as harness:
        held = HeldBatch(harness, monkeypatch, "get", owner=ActivityStore)
        task = await begin(harness, turn)
        await held.inside()
        async with anyio.create_task_group() as group:
            decide = harness.engine.client.services.activity_decisions.decide
            key = f"activity:{task}:1.1"
            group.start_soon(lambda: harness.engine.writer.commit(decide, key, Decision.RESEND, decided_by="ada"))
            await harness.until(lambda: len(harness.engine.writer.queue) > 0)
            held.go_on()

        assert result(await harness.ended(task)) == "ref-2"
        assert decisions(harness) == [("resend", "ada")]
        assert "OPEN" not in [status for _, status in questions(harness)]


@pytest.mark.parametrize("decision", [Decision.HAPPENED, Decision.RESEND, Decision.GIVE_UP])
async def test_decision_before_the_wait_is_written_is_applied(tmp_path, monkeypatch, decision):
    """The turn has already stopped, and its question is not yet on disk."""
    app, provider = App(), Provider(LOST)
    turn = paying_turn(app, provider)
    decided = False

    async with lab(app, tmp_path) as harness:
        deciding = harness.engine.client.services.activity_decisions
        attempts = harness.engine.consumer._attempts
        work = attempts.settle_all

        def record_decision_first(tx: Any, runs: Any) -> Any:
            nonlocal decided
            if not decided:
                decided = True
                deciding.decide(tx, f"activity:{runs[0].claim.id}:1.1", decision, decided_by="ada")
            return work(tx, runs)

        monkeypatch.setattr(attempts, "settle_all", record_decision_first)
        task = await begin(harness, turn)
        row = await harness.ended(task)

        match decision:
            case Decision.HAPPENED:
                assert (result(row), provider.attempts) == (None, [1])
            case Decision.RESEND:
                assert (result(row), provider.attempts) == ("ref-2", [1, 2])
            case Decision.GIVE_UP:
                assert (failure(row)[0], provider.attempts) == ("ACTIVITY_UNKNOWN", [1])
        assert "OPEN" not in [status for _, status in questions(harness)]


async def test_question_about_an_act_stays_answerable_after_the_task_is_cancelled(tmp_path):
    app, provider = App(), Provider(LOST)
    turn = paying_turn(app, provider)
    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await harness.waiting(task)
        await app.cancel_task(task)
        assert (await harness.ended(task))["status"] == "CANCELLED"

        assert questions(harness) == [("activity", "OPEN")]
        await answer_question(harness, "happened", reference="pay-7")
        assert [(row["status"], row["provider_ref"]) for row in ledger(harness)] == [("DONE", "pay-7")]
        await harness.idle()
        assert provider.attempts == [1]


async def test_deadline_ends_the_task_and_leaves_the_question_about_an_act_open(tmp_path):
    app, clock, provider = App(), VirtualClock(), Provider(LOST)
    turn = paying_turn(app, provider)
    async with lab(app, tmp_path, clock=clock) as harness:
        task = await begin(harness, turn, deadline=600)
        await harness.waiting(task)
        clock.advance(minutes=11)
        harness.engine.ring(schedules=False)

        assert failure(await harness.ended(task))[0] == "AGENT_TIMEOUT"
        assert questions(harness) == [("activity", "OPEN")]
        assert statuses(harness) == ["UNKNOWN"]


async def test_message_to_the_task_does_not_answer_a_question_about_an_act(tmp_path):
    """A chat message can contain the text "resend"."""
    app = App()
    pay = app.action("pay", irreversible=True)(Provider(LOST))

    @app.workflow("talk", sources=["MESSAGE"])
    async def talk(ctx: TaskContext) -> Any:
        return await ctx.act(pay)

    async with lab(app, tmp_path) as harness:
        task = (await app.emit("talk", session_id="s")).id
        await harness.waiting(task)
        message = await app.emit(None, {"text": "resend"}, source="MESSAGE", session_id="s")
        await harness.settled(message.id)
        assert harness.task(task)["status"] == "WAITING"
        assert questions(harness) == [("activity", "OPEN")]


async def test_concurrent_acts_in_doubt_open_a_question_each(tmp_path):
    app, provider = App(), Provider(LOST, LOST)
    pay = app.action("pay", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> Any:
        got: dict[str, Any] = {}

        async def one(key: str) -> None:
            got[key] = await ctx.act(pay, key=key)

        async with anyio.create_task_group() as group:
            group.start_soon(one, "a")
            group.start_soon(one, "b")
        return got

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await harness.until(lambda: len(questions(harness)) == 2)
        for _ in range(2):
            question = await harness.question("activity")
            [activity] = harness.rows("SELECT * FROM activity_log WHERE seq = :seq", seq=question["activity_seq"])
            await answer_question(harness, "happened", reference=activity["idem_key"][-1])

        assert result(await harness.ended(task)) == {"a": "a", "b": "b"}
        assert provider.attempts == [1, 1]


# Policy `resend`


async def test_resend_policy_calls_again_in_the_next_attempt_with_the_same_key(tmp_path):
    app, provider = App(), Provider(LOST, TimeoutError("late"))
    turn = paying_turn(app, provider, **RESENDS)
    async with lab(app, tmp_path) as harness:
        row = await run(harness, turn)

        assert result(row) == "ref-3"
        assert provider.attempts == [1, 2, 3]
        assert harness.trigger(row["id"])["attempts"] == 3
        assert decisions(harness) == [("resend", "policy resend")] * 2
        assert questions(harness) == []


async def test_resend_policy_with_spent_attempts_asks_a_person(tmp_path):
    app, provider = App(), Provider(LOST, LOST, LOST)
    turn = paying_turn(app, provider, **RESENDS)
    async with lab(app, tmp_path) as harness:
        row = await run(harness, turn)

        assert failure(row)[0] == "ACTIVITY_UNKNOWN"
        assert harness.trigger(row["id"])["status"] == "DEAD"
        assert statuses(harness) == ["UNKNOWN"]
        assert questions(harness) == [("activity", "OPEN")]
        await app.retry_task(row["id"])  # no answer was given, so the policy sends the act again
        assert result(await wait_for_done(harness, row["id"])) == "ref-4"
        assert "OPEN" not in [status for _, status in questions(harness)]


async def test_resend_decided_after_the_task_failed_is_sent_once_on_task_retry(tmp_path):
    app, clock, provider = App(), VirtualClock(), Provider(LOST)
    turn = paying_turn(app, provider)
    async with lab(app, tmp_path, clock=clock) as harness:
        task = await begin(harness, turn, deadline=600)
        await harness.waiting(task)
        clock.advance(minutes=11)
        harness.engine.ring(schedules=False)
        assert failure(await harness.ended(task))[0] == "AGENT_TIMEOUT"
        await answer_question(harness, "resend")
        await harness.idle()
        assert provider.attempts == [1]

        await app.retry_task(task)
        assert result(await wait_for_done(harness, task)) == "ref-2"
        assert provider.attempts == [1, 2]
        with pytest.raises(StateRefused):
            await app.retry_task(task)


async def test_resend_policy_asks_a_person_after_the_idempotency_window(tmp_path):
    app, clock, provider = App(), VirtualClock(), Provider(LOST)
    turn = paying_turn(app, provider, **RESENDS, idempotency_window=3600, timeout=10)
    async with lab(app, tmp_path, clock=clock) as harness:
        task = await begin(harness, turn, retry=RetryPolicy(base=7200, cap=7200))
        await harness.until(lambda: harness.trigger(task)["status"] == "PENDING" and statuses(harness) == ["UNKNOWN"])
        clock.advance(hours=3)
        harness.engine.ring(schedules=False)
        await harness.waiting(task)

        assert (
            "the provider remembers a key for 3600 s" in harness.rows("SELECT question FROM questions")[0]["question"]
        )
        assert provider.attempts == [1]


async def test_act_stays_in_doubt_within_the_window_when_a_resend_had_no_effect(tmp_path):
    """The provider refuses connections for hours. A FAILED act would be called again without limit."""
    app, clock, provider = App(), VirtualClock(), Provider(LOST, NoEffect("connection refused"))
    turn = paying_turn(app, provider, **RESENDS, idempotency_window=3600, timeout=10)
    async with lab(app, tmp_path, clock=clock) as harness:
        task = await begin(harness, turn, retry=RetryPolicy(base=1200, cap=1200))
        for calls in (1, 2):
            await harness.until(lambda calls=calls: len(provider.calls) == calls)  # type: ignore[misc]
            await harness.until(lambda: harness.trigger(task)["status"] == "PENDING")
            [row] = ledger(harness)
            assert (row["status"], row["in_doubt"]) == ("UNKNOWN", 1)
            clock.advance(minutes=21 if calls == 1 else 60)
            harness.engine.ring(schedules=False)
        await harness.waiting(task)

        assert provider.attempts == [1, 2]
        assert questions(harness) == [("activity", "OPEN")]


async def test_idempotency_window_that_ends_during_the_intent_commit_stops_a_resend(tmp_path, monkeypatch):
    """The commit of the intent takes two hours, as on a suspended machine. The provider may have discarded the key by
    then."""
    app, clock, provider = App(), VirtualClock(), Provider(ConnectionResetError("reset"))
    pay = app.action("pay", **RESENDS, idempotency_window=3600, timeout=10)(provider)
    second, go = anyio.Event(), anyio.Event()

    async def turn(ctx: TaskContext) -> Any:
        if ctx.attempt == 2:
            second.set()
            await go.wait()
        return await ctx.act(pay)

    async with lab(app, tmp_path, clock=clock) as harness:
        task = await begin(harness, turn)
        await second.wait()
        held = HeldBatch(harness, monkeypatch, "begin_all", nth=2)  # the first call leaves the act in doubt
        go.set()
        await held.inside()
        clock.advance(hours=2)
        held.go_on()
        await harness.waiting(task)

        assert provider.attempts == [1]
        [row] = ledger(harness)
        assert (row["status"], row["in_doubt"]) == ("UNKNOWN", 1)
        assert "remembers a key for 3600 s" in (await harness.question("activity"))["question"]


async def test_act_stays_in_doubt_when_a_resend_is_withdrawn_before_the_call(tmp_path, monkeypatch):
    """The withdrawal of the second call proves nothing about the effect of the first call."""
    app, provider = App(), Provider(ConnectionResetError("reset"))
    pay = app.action("pay", **RESENDS)(provider)
    second, go = anyio.Event(), anyio.Event()

    async def turn(ctx: TaskContext) -> Any:
        if ctx.attempt == 2:
            second.set()
            await go.wait()
        return await ctx.act(pay)

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await second.wait()
        held = HeldBatch(harness, monkeypatch, "begin_all", nth=2)  # the first call leaves the act in doubt
        go.set()
        await held.inside()
        harness.engine.consumer.running[1].stop("cancelled")
        held.go_on()
        await harness.settled(task)

        assert provider.attempts == [1]
        assert statuses(harness) == ["UNKNOWN"]


async def test_retry_after_of_a_busy_provider_delays_the_resend_of_an_act_in_doubt(tmp_path):
    """The next attempt is due after retry_after, which is longer than the backoff."""
    app, clock = App(), VirtualClock()
    provider = Provider(ConnectionResetError("reset"), NoEffect("busy", retry_after=900))
    pay = app.action("pay", **RESENDS)(provider)

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(pay)

    async with lab(app, tmp_path, clock=clock) as harness:
        task = await begin(harness, turn)
        await harness.until(lambda: len(provider.calls) == 2 and harness.trigger(task)["status"] == "PENDING")
        assert harness.trigger(task)["not_before"] == clock.now() + 900


async def test_refusal_of_a_resend_leaves_the_act_in_doubt_and_asks_a_person(tmp_path):
    """A provider refuses every request with an expired key, and the first call may still have had its effect."""
    app, provider = App(), Provider(LOST, Fail("KEY_EXPIRED", "who are you"))
    turn = paying_turn(app, provider, **RESENDS)
    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await harness.waiting(task)
        [row] = ledger(harness)
        assert (row["status"], row["in_doubt"], provider.attempts) == ("UNKNOWN", 1, [1, 2])
        await answer_question(harness, "happened")
        assert result(await harness.ended(task)) is None


# Policy `reconcile`


def reconciling_turn(
    app: App, provider: Provider, *answers: Any, **terms: Any
) -> tuple[Any, list[tuple[str, int, Any]]]:
    """Return a turn that pays, and the list of reconcile calls as (key, attempt, to)."""
    pay = app.action("pay", **{**RECONCILES, **terms})(provider)
    asked: list[tuple[str, int, Any]] = []
    left = list(answers)

    @pay.reconcile
    async def find_payment(call: Call, *, to: Any = None) -> Any:
        asked.append((call.key, call.attempt, to))
        answer = left.pop(0)
        if isinstance(answer, BaseException) and not isinstance(answer, NoEffect):
            raise answer
        return await answer(call) if callable(answer) and answer is not NoEffect else answer

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(pay, to="ada")

    return turn, asked


@pytest.mark.parametrize("reference", ["pay-7", None])
async def test_reconcile_answer_done_completes_the_act_without_another_call(tmp_path, reference):
    app, provider = App(), Provider(LOST)
    turn, asked = reconciling_turn(app, provider, Done(reference))
    async with lab(app, tmp_path) as harness:
        row = await run(harness, turn)

        assert result(row) == reference
        assert asked == [(f"activity:{row['id']}:1.1", 1, "ada")]
        assert decisions(harness) == [("happened", "reconcile")]
        assert activity_events(harness, row["id"]) == ["INTENT", "UNKNOWN", "RESOLVED"]


@pytest.mark.parametrize("no", [NoEffect("no such payment"), NoEffect])
async def test_reconcile_answer_no_effect_calls_the_act_again(tmp_path, no):
    app, provider = App(), Provider(LOST)
    turn, asked = reconciling_turn(app, provider, no)
    async with lab(app, tmp_path) as harness:
        row = await run(harness, turn)

        assert result(row) == "ref-2"
        assert (len(asked), provider.attempts) == (1, [1, 2])
        assert decisions(harness) == [("resend", "reconcile")]


async def test_reconcile_answer_no_effect_after_every_call_is_limited_by_attempts(tmp_path):
    """The reconcile function reports no effect after each call, so only the retry policy limits the calls."""
    app = App()
    calls: list[int] = []

    @app.action("pay", irreversible=True, on_unknown=OnUnknown.RECONCILE, settle_after=0)
    async def pay(call: Call) -> None:
        calls.append(call.attempt)
        if len(calls) < 50:
            raise ConnectionResetError("reset")

    @pay.reconcile
    async def find_payment(call: Call) -> Any:
        return NoEffect

    async def turn(ctx: TaskContext) -> Any:
        await ctx.act(pay)

    async with lab(app, tmp_path) as harness:
        assert failure(await run(harness, turn))[0] == "AGENT_UNAVAILABLE"
        assert calls == [1, 2, 3]


async def test_act_in_doubt_after_a_second_call_is_reconciled_again(tmp_path):
    app, provider = App(), Provider(LOST, LOST)
    turn, asked = reconciling_turn(app, provider, NoEffect, Done("pay-7"))
    async with lab(app, tmp_path) as harness:
        assert result(await run(harness, turn)) == "pay-7"
        assert [attempt for _, attempt, _ in asked] == [1, 2]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(None, "the provider does not know"), ("yes", "reconcile returned 'yes'"), (Done(7), "a reference is text")],
    ids=["unknown", "no answer", "no reference"],
)
async def test_reconcile_without_a_valid_answer_asks_a_person(tmp_path, answer, reason):
    app, provider = App(), Provider(LOST)
    turn, _ = reconciling_turn(app, provider, answer, answer)
    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        assert reason in (await harness.question("activity"))["question"]
        await answer_question(harness, "resend")
        assert result(await harness.ended(task)) == "ref-2"


@pytest.mark.parametrize("error", [OSError("down"), NoEffect("no password"), Fail("NO", "no")], ids=repr)
async def test_reconcile_that_raises_is_tried_three_times_before_a_person_is_asked(tmp_path, monkeypatch, error):
    """A NoEffect that the reconcile function raises, for example without a password, proves nothing about the call."""
    monkeypatch.setattr("craftcore.engine.turn.provider_call.RECONCILE_WAIT_SECONDS", 0.0)
    app, provider = App(), Provider(LOST)

    async def fail_to_ask(call: Call) -> None:
        raise error

    turn, asked = reconciling_turn(app, provider, fail_to_ask, fail_to_ask, fail_to_ask)
    async with lab(app, tmp_path) as harness:
        await begin(harness, turn)
        assert "the provider could not be asked" in (await harness.question("activity"))["question"]
        assert (len(asked), provider.attempts) == (3, [1])


async def test_reconcile_that_never_returns_times_out_and_a_person_is_asked(tmp_path, monkeypatch):
    monkeypatch.setattr("craftcore.engine.turn.provider_call.RECONCILE_WAIT_SECONDS", 0.0)
    app, provider = App(), Provider(LOST)

    async def hang(call: Call) -> None:
        await anyio.sleep_forever()

    turn, asked = reconciling_turn(app, provider, hang, hang, hang, timeout=0.2)
    async with lab(app, tmp_path, clock=VirtualClock()) as harness:  # an intent takes no time of its call
        await begin(harness, turn)
        assert "TimeoutError" in (await harness.question("activity"))["question"]
        assert len(asked) == 3


async def test_reconcile_answer_no_effect_counts_only_after_settle_after(tmp_path):
    app, clock, provider = App(), VirtualClock(), Provider(LOST)
    turn, asked = reconciling_turn(app, provider, NoEffect, NoEffect, settle_after=30)
    async with lab(app, tmp_path, clock=clock) as harness:
        task = await begin(harness, turn)
        await harness.waiting(task)
        [wait] = harness.rows("SELECT * FROM waits")
        assert wait["due_at"] == ledger(harness)[0]["updated_at"] + 30
        assert provider.attempts == [1]
        clock.advance(31)
        harness.engine.ring(schedules=False)

        assert result(await harness.ended(task)) == "ref-2"
        assert len(asked) == 2


async def test_reconcile_answer_no_effect_after_ten_calls_asks_a_person(tmp_path):
    """Each wait for settle_after begins a trigger with a full set of attempts, so a separate limit bounds the calls."""
    app, clock = App(), VirtualClock()
    calls: list[int] = []

    @app.action("pay", irreversible=True, on_unknown=OnUnknown.RECONCILE, settle_after=30)
    async def pay(call: Call) -> None:
        calls.append(call.attempt)
        raise ConnectionResetError("reset")

    @pay.reconcile
    async def find_payment(call: Call) -> Any:
        return NoEffect

    async def turn(ctx: TaskContext) -> Any:
        await ctx.act(pay)

    async with lab(app, tmp_path, clock=clock) as harness:
        task = await begin(harness, turn)
        while not questions(harness):
            await harness.waiting(task)
            await harness.idle()
            assert len(calls) <= 10
            clock.advance(31)
            harness.engine.ring(schedules=False)
            await harness.idle_window()
        assert len(calls) == 10
        assert "it was called 10 times" in (await harness.question("activity"))["question"]


async def test_plain_function_as_reconcile_runs_in_a_thread(tmp_path):
    app, provider = App(), Provider(LOST)
    pay = app.action("pay", **RECONCILES)(provider)

    @pay.reconcile
    def find_payment(call: Call, *, to: Any = None) -> Any:
        return Done("pay-7")

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(pay)

    async with lab(app, tmp_path) as harness:
        assert result(await run(harness, turn)) == "pay-7"


async def test_decision_made_during_reconcile_overrides_the_reconcile_answer(tmp_path):
    app, provider, gate = App(), Provider(LOST), Gate(Done("pay-7"))
    turn, _ = reconciling_turn(app, provider, gate)
    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await gate.inside.wait()
        decide = harness.engine.client.services.activity_decisions.decide
        await harness.engine.writer.commit(decide, f"activity:{task}:1.1", Decision.GIVE_UP, decided_by="ada")
        gate.go.set()

        assert failure(await harness.ended(task))[0] == "ACTIVITY_UNKNOWN"
        assert decisions(harness) == [("give up", "ada")]


# Policy `assume_done`


async def test_assume_done_policy_never_calls_again_and_returns_none(tmp_path):
    app, provider = App(), Provider(LOST)
    turn = paying_turn(app, provider, on_unknown=OnUnknown.ASSUME_DONE)
    async with lab(app, tmp_path) as harness:
        row = await run(harness, turn)

        assert result(row) is None
        assert (provider.attempts, statuses(harness)) == ([1], ["DONE"])
        assert decisions(harness) == [("happened", "policy assume_done")]
        assert questions(harness) == []


# Decisions of an operator


async def test_decision_about_an_unknown_activity_is_refused(tmp_path):
    app = App()
    async with lab(app, tmp_path) as harness:
        decide = harness.engine.client.services.activity_decisions.decide
        with pytest.raises(NotFound, match="no activity"):
            await harness.engine.writer.commit(decide, "activity:x:1.1", Decision.HAPPENED, decided_by="ada")


async def test_refused_act_is_called_on_task_retry_only_after_a_resend_decision(tmp_path):
    app, provider = App(), Provider(Fail("CARD", "declined"))
    turn = paying_turn(app, provider)
    async with lab(app, tmp_path) as harness:
        row = await run(harness, turn)
        await app.retry_task(row["id"])
        await harness.until(lambda: harness.task(row["id"])["status"] == "FAILED")
        assert provider.attempts == [1]

        decide = harness.engine.client.services.activity_decisions.decide
        await harness.engine.writer.commit(decide, f"activity:{row['id']}:1.1", Decision.RESEND, decided_by="ada")
        await app.retry_task(row["id"])
        assert result(await wait_for_done(harness, row["id"])) == "ref-2"


async def test_workflow_that_loops_over_a_resent_act_adds_no_second_act(tmp_path):
    """A second ctx.act without a key is a new act with a new key, so the provider would perform the action twice."""
    app, provider = App(), Provider(ConnectionResetError("reset"))
    pay = app.action("pay", irreversible=True, on_unknown=OnUnknown.RESEND, idempotent_provider=True)(provider)
    unwound: list[str] = []

    async def turn(ctx: TaskContext) -> Any:
        for _ in range(3):
            try:
                return await ctx.act(pay)
            except Exception:
                unwound.append("an Exception")
            finally:
                unwound.append("finally")

    async with lab(app, tmp_path) as harness:
        assert result(await run(harness, turn)) == "ref-2"
        assert unwound == ["finally", "finally"]
        assert provider.attempts == [1, 2]
        assert len(ledger(harness)) == 1


async def test_workflow_that_catches_base_exception_cannot_skip_a_resent_act(tmp_path):
    app, provider = App(), Provider(ConnectionResetError("reset"))
    pay = app.action("pay", irreversible=True, on_unknown=OnUnknown.RESEND, idempotent_provider=True)(provider)

    async def turn(ctx: TaskContext) -> Any:
        for _ in range(3):
            try:
                return await ctx.act(pay)
            except BaseException:
                continue
        return "without"

    async with lab(app, tmp_path) as harness:
        assert result(await run(harness, turn)) == "ref-2"
        assert provider.attempts == [1, 2]
        assert len(ledger(harness)) == 1


async def test_concurrent_reconciles_of_the_same_key_share_the_first_outcome(tmp_path):
    """The first call had no effect. The second caller must receive the same outcome and not a permanent refusal."""
    app, gate = App(), Gate()
    provider = Provider(gate, NoEffect("busy"))
    outcomes: list[str] = []
    reconcile_calls, both_reconcile, first_has_ended = 0, anyio.Event(), anyio.Event()

    @app.action("pay", irreversible=True, on_unknown=OnUnknown.RECONCILE, settle_after=0)
    async def pay(call: Call) -> Any:
        return await provider(call)

    @pay.reconcile
    async def find(call: Call) -> NoEffect:
        nonlocal reconcile_calls
        reconcile_calls += 1
        if reconcile_calls == 1:
            await both_reconcile.wait()
        else:
            both_reconcile.set()
            await first_has_ended.wait()
        return NoEffect()

    @app.workflow("twice")
    async def twice(ctx: TaskContext) -> Any:
        async def one() -> None:
            try:
                outcomes.append(await ctx.act(pay, key="it"))
            except (Fail, NoEffect) as error:
                outcomes.append(f"{type(error).__name__}: {error}")
                first_has_ended.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one)
            tasks.start_soon(one)
        if ctx.attempt == 1:
            raise ValueError("once more")
        return outcomes

    async with lab(app, tmp_path, settings(shutdown_grace=0.0)) as harness:
        task = (await app.emit("twice")).id
        await gate.inside.wait()
    async with lab(app, tmp_path) as harness:
        assert result(await harness.ended(task)) == ["NoEffect: busy", "NoEffect: busy", "ref-3", "ref-3"]
        assert provider.attempts == [1, 2, 3]
