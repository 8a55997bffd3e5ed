"""What nobody knows goes by the policy that was declared, and by what a person says; nothing is sent twice unasked."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from craftcore import App, Call, Done, Fail, NoEffect, OnUnknown, RetryPolicy, TaskContext
from craftcore.activities.model import Decision
from craftcore.errors import ActivityUnknown, NotFound, StateRefused
from tests.support.acts import Gate, Held, Provider, acted, decisions, ledger, questions, statuses
from tests.support.engine_harness import Lab, lab, settings
from tests.support.fakes import VirtualClock
from tests.support.turns import begin, failure, result, run

pytestmark = pytest.mark.anyio

LOST = ConnectionResetError("reset")
RESENDS: dict[str, Any] = {"irreversible": True, "on_unknown": OnUnknown.RESEND, "idempotent_provider": True}
RECONCILES: dict[str, Any] = {"irreversible": True, "on_unknown": OnUnknown.RECONCILE, "settle_after": 0}


def paying(app: App, provider: Provider, **terms: Any) -> Any:
    """A turn that pays, and returns what came of it."""
    pay = app.action("pay", **{"irreversible": True, **terms})(provider)

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(pay, to="ada")

    return turn


async def answered(it: Lab, choice: str, **more: Any) -> None:
    await it.app.answer((await it.question("activity"))["id"], choice, answered_by="ada", **more)


async def done(it: Lab, task_id: str) -> dict[str, Any]:
    """The row of a task once it is DONE: it had FAILED before."""
    await it.until(lambda: it.task(task_id)["status"] == "DONE")
    return it.task(task_id)


# Ask


@pytest.mark.parametrize(
    ("choice", "reference", "comes_to"),
    [("happened", "pay-7", "pay-7"), ("happened", None, None), ("resend", None, "ref-2")],
)
async def test_a_person_says_that_it_happened_or_that_it_is_to_be_sent(tmp_path, choice, reference, comes_to):
    app, provider = App(), Provider(LOST)
    turn = paying(app, provider)
    async with lab(app, tmp_path) as it:
        task = await begin(it, turn)
        await answered(it, choice, reference=reference)

        assert result(await it.ended(task)) == comes_to
        assert provider.attempts == ([1, 2] if choice == "resend" else [1])
        assert statuses(it) == ["DONE"]
        assert decisions(it) == [(choice, "ada")]
        assert questions(it) == [("activity", "ANSWERED")]


async def test_what_is_given_up_fails_its_task_and_is_not_tried_again(tmp_path):
    app, provider = App(), Provider(LOST)
    turn = paying(app, provider)
    async with lab(app, tmp_path) as it:
        task = await begin(it, turn)
        await answered(it, "give up")

        code, message = failure(await it.ended(task))
        assert (code, "unknown whether pay happened" in message) == ("ACTIVITY_UNKNOWN", True)
        assert it.trigger(it.task(task)["trigger_id"])["attempts"] == 1
        assert (provider.attempts, statuses(it)) == ([1], ["UNKNOWN"])
        assert [row for row in questions(it) if row[1] == "OPEN"] == []


async def test_a_workflow_may_go_on_without_what_was_given_up(tmp_path):
    app = App()
    pay = app.action("pay", irreversible=True)(Provider(LOST))

    async def turn(ctx: TaskContext) -> Any:
        try:
            await ctx.act(pay)
        except ActivityUnknown as error:
            return error.details["key"]

    async with lab(app, tmp_path) as it:
        task = await begin(it, turn)
        await answered(it, "give up")
        assert result(await it.ended(task)) == ledger(it)[0]["idem_key"]


async def test_what_is_in_doubt_again_is_asked_about_again(tmp_path):
    app, provider = App(), Provider(LOST, LOST, LOST)
    turn = paying(app, provider)
    async with lab(app, tmp_path) as it:
        task = await begin(it, turn)
        for calls in (1, 2, 3):
            await it.until(lambda calls=calls: len(questions(it)) == calls)  # type: ignore[misc]
            await it.waiting(task)
            await answered(it, "resend")

        assert result(await it.ended(task)) == "ref-4"
        assert provider.attempts == [1, 2, 3, 4]
        assert len({key for key, _, _ in provider.calls}) == 1


async def test_a_question_is_answered_once(tmp_path):
    app = App()
    turn = paying(app, Provider(LOST))
    async with lab(app, tmp_path) as it:
        task = await begin(it, turn)
        question = await it.question("activity")
        await answered(it, "happened", reference="pay-7")
        with pytest.raises(StateRefused, match=r"too late.*was answered by ada"):
            await app.answer(question["id"], "resend", answered_by="bob")
        assert result(await it.ended(task)) == "pay-7"


async def test_a_person_who_decides_while_the_turn_is_on_its_way_to_ask_is_heard(tmp_path, monkeypatch):
    """Between the commit that says that nobody knows and the one that asks."""
    app, provider = App(), Provider(LOST)
    turn = paying(app, provider)
    async with lab(app, tmp_path) as it:
        held = Held(it, monkeypatch, "get")
        task = await begin(it, turn)
        await held.inside()
        async with anyio.create_task_group() as beside:
            decide = it.engine.requests._tasks._deciding.decide
            key = f"activity:{task}:1.1"
            beside.start_soon(lambda: it.engine.writer.commit(decide, key, Decision.RESEND, decided_by="ada"))
            await it.until(lambda: len(it.engine.writer.queue) > 0)
            held.go_on()

        assert result(await it.ended(task)) == "ref-2"
        assert decisions(it) == [("resend", "ada")]
        assert "OPEN" not in [status for _, status in questions(it)]


@pytest.mark.parametrize("decision", [Decision.HAPPENED, Decision.RESEND, Decision.GIVE_UP])
async def test_a_person_who_decides_before_the_wait_is_written_is_heard(tmp_path, monkeypatch, decision):
    """The turn is unwound already, and its question is not on disk."""
    app, provider = App(), Provider(LOST)
    turn = paying(app, provider)
    decided = False

    async with lab(app, tmp_path) as it:
        deciding = it.engine.requests._tasks._deciding
        attempts = it.engine.consumer._attempts
        work = attempts.settle_all

        def decide_first(tx: Any, runs: Any) -> Any:
            nonlocal decided
            if not decided:
                decided = True
                deciding.decide(tx, f"activity:{runs[0].claim.id}:1.1", decision, decided_by="ada")
            return work(tx, runs)

        monkeypatch.setattr(attempts, "settle_all", decide_first)
        task = await begin(it, turn)
        row = await it.ended(task)

        match decision:
            case Decision.HAPPENED:
                assert (result(row), provider.attempts) == (None, [1])
            case Decision.RESEND:
                assert (result(row), provider.attempts) == ("ref-2", [1, 2])
            case Decision.GIVE_UP:
                assert (failure(row)[0], provider.attempts) == ("ACTIVITY_UNKNOWN", [1])
        assert "OPEN" not in [status for _, status in questions(it)]


async def test_the_question_of_a_task_that_is_cancelled_stays_and_can_be_answered(tmp_path):
    app, provider = App(), Provider(LOST)
    turn = paying(app, provider)
    async with lab(app, tmp_path) as it:
        task = await begin(it, turn)
        await it.waiting(task)
        await app.cancel_task(task)
        assert (await it.ended(task))["status"] == "CANCELLED"

        assert questions(it) == [("activity", "OPEN")]
        await answered(it, "happened", reference="pay-7")
        assert [(row["status"], row["provider_ref"]) for row in ledger(it)] == [("DONE", "pay-7")]
        await it.idle()
        assert provider.attempts == [1]


async def test_a_deadline_ends_the_task_and_not_the_question(tmp_path):
    app, clock, provider = App(), VirtualClock(), Provider(LOST)
    turn = paying(app, provider)
    async with lab(app, tmp_path, clock=clock) as it:
        task = await begin(it, turn, deadline=600)
        await it.waiting(task)
        clock.advance(minutes=11)
        it.engine.ring(schedules=False)

        assert failure(await it.ended(task))[0] == "AGENT_TIMEOUT"
        assert questions(it) == [("activity", "OPEN")]
        assert statuses(it) == ["UNKNOWN"]


async def test_a_message_to_the_task_answers_nothing(tmp_path):
    """Somebody said "resend" in a chat."""
    app = App()
    pay = app.action("pay", irreversible=True)(Provider(LOST))

    @app.workflow("talk", sources=["MESSAGE"])
    async def talk(ctx: TaskContext) -> Any:
        return await ctx.act(pay)

    async with lab(app, tmp_path) as it:
        task = (await app.emit("talk", session_id="s")).id
        await it.waiting(task)
        message = await app.emit(None, {"text": "resend"}, source="MESSAGE", session_id="s")
        await it.settled(message.id)
        assert it.task(task)["status"] == "WAITING"
        assert questions(it) == [("activity", "OPEN")]


async def test_two_acts_in_doubt_at_once_are_asked_about_both(tmp_path):
    app, provider = App(), Provider(LOST, LOST)
    pay = app.action("pay", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> Any:
        got: dict[str, Any] = {}

        async def one(key: str) -> None:
            got[key] = await ctx.act(pay, key=key)

        async with anyio.create_task_group() as beside:
            beside.start_soon(one, "a")
            beside.start_soon(one, "b")
        return got

    async with lab(app, tmp_path) as it:
        task = await begin(it, turn)
        for asked in (1, 2):
            await it.until(lambda asked=asked: len(questions(it)) == asked)  # type: ignore[misc]
            question = await it.question("activity")
            [activity] = it.rows("SELECT * FROM activity_log WHERE seq = :seq", seq=question["activity_seq"])
            await answered(it, "happened", reference=activity["idem_key"][-1])

        assert result(await it.ended(task)) == {"a": "a", "b": "b"}
        assert provider.attempts == [1, 1]


# Resend


async def test_resend_calls_again_in_the_next_attempt_with_the_same_key(tmp_path):
    app, provider = App(), Provider(LOST, TimeoutError("late"))
    turn = paying(app, provider, **RESENDS)
    async with lab(app, tmp_path) as it:
        row = await run(it, turn)

        assert result(row) == "ref-3"
        assert provider.attempts == [1, 2, 3]
        assert it.trigger(row["id"])["attempts"] == 3
        assert decisions(it) == [("resend", "policy resend")] * 2
        assert questions(it) == []


async def test_resend_stops_when_the_attempts_are_spent_and_a_person_is_asked(tmp_path):
    app, provider = App(), Provider(LOST, LOST, LOST)
    turn = paying(app, provider, **RESENDS)
    async with lab(app, tmp_path) as it:
        row = await run(it, turn)

        assert failure(row)[0] == "ACTIVITY_UNKNOWN"
        assert it.trigger(row["id"])["status"] == "DEAD"
        assert statuses(it) == ["UNKNOWN"]
        assert questions(it) == [("activity", "OPEN")]
        await app.retry_task(row["id"])  # nobody has answered: its policy sends it once more
        assert result(await done(it, row["id"])) == "ref-4"
        assert "OPEN" not in [status for _, status in questions(it)]


async def test_what_may_be_sent_after_its_task_has_failed_is_sent_once_when_the_task_is_retried(tmp_path):
    app, clock, provider = App(), VirtualClock(), Provider(LOST)
    turn = paying(app, provider)
    async with lab(app, tmp_path, clock=clock) as it:
        task = await begin(it, turn, deadline=600)
        await it.waiting(task)
        clock.advance(minutes=11)
        it.engine.ring(schedules=False)
        assert failure(await it.ended(task))[0] == "AGENT_TIMEOUT"
        await answered(it, "resend")
        await it.idle()
        assert provider.attempts == [1]

        await app.retry_task(task)
        assert result(await done(it, task)) == "ref-2"
        assert provider.attempts == [1, 2]
        with pytest.raises(StateRefused):
            await app.retry_task(task)


async def test_a_window_that_has_passed_makes_a_question_of_resend(tmp_path):
    app, clock, provider = App(), VirtualClock(), Provider(LOST)
    turn = paying(app, provider, **RESENDS, idempotency_window=3600, timeout=10)
    async with lab(app, tmp_path, clock=clock) as it:
        task = await begin(it, turn, retry=RetryPolicy(base=7200, cap=7200))
        await it.until(lambda: it.trigger(task)["status"] == "PENDING" and statuses(it) == ["UNKNOWN"])
        clock.advance(hours=3)
        it.engine.ring(schedules=False)
        await it.waiting(task)

        assert "the provider remembers a key for 3600 s" in it.rows("SELECT question FROM questions")[0]["question"]
        assert provider.attempts == [1]


async def test_that_a_second_call_had_no_effect_leaves_the_doubt_of_the_first_until_its_window_is_over(tmp_path):
    """Refused connections for hours: as FAILED it would have been called for as long as it takes."""
    app, clock, provider = App(), VirtualClock(), Provider(LOST, NoEffect("connection refused"))
    turn = paying(app, provider, **RESENDS, idempotency_window=3600, timeout=10)
    async with lab(app, tmp_path, clock=clock) as it:
        task = await begin(it, turn, retry=RetryPolicy(base=1200, cap=1200))
        for calls in (1, 2):
            await it.until(lambda calls=calls: len(provider.calls) == calls)  # type: ignore[misc]
            await it.until(lambda: it.trigger(task)["status"] == "PENDING")
            [row] = ledger(it)
            assert (row["status"], row["in_doubt"]) == ("UNKNOWN", 1)
            clock.advance(minutes=21 if calls == 1 else 60)
            it.engine.ring(schedules=False)
        await it.waiting(task)

        assert provider.attempts == [1, 2]
        assert questions(it) == [("activity", "OPEN")]


async def test_a_refusal_while_it_is_in_doubt_is_put_to_a_person(tmp_path):
    """A key that has expired says no to everything; the first call may have been heard all the same."""
    app, provider = App(), Provider(LOST, Fail("KEY_EXPIRED", "who are you"))
    turn = paying(app, provider, **RESENDS)
    async with lab(app, tmp_path) as it:
        task = await begin(it, turn)
        await it.waiting(task)
        [row] = ledger(it)
        assert (row["status"], row["in_doubt"], provider.attempts) == ("UNKNOWN", 1, [1, 2])
        await answered(it, "happened")
        assert result(await it.ended(task)) is None


# Reconcile


def reconciling(app: App, provider: Provider, *answers: Any, **terms: Any) -> tuple[Any, list[tuple[str, int, Any]]]:
    """A turn that pays, and what the provider was asked: each as (key, attempt, to)."""
    pay = app.action("pay", **{**RECONCILES, **terms})(provider)
    asked: list[tuple[str, int, Any]] = []
    left = list(answers)

    @pay.reconcile
    async def look(call: Call, *, to: Any = None) -> Any:
        asked.append((call.key, call.attempt, to))
        answer = left.pop(0)
        if isinstance(answer, BaseException) and not isinstance(answer, NoEffect):
            raise answer
        return await answer(call) if callable(answer) and answer is not NoEffect else answer

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(pay, to="ada")

    return turn, asked


@pytest.mark.parametrize("reference", ["pay-7", None])
async def test_what_the_provider_says_happened_is_done(tmp_path, reference):
    app, provider = App(), Provider(LOST)
    turn, asked = reconciling(app, provider, Done(reference))
    async with lab(app, tmp_path) as it:
        row = await run(it, turn)

        assert result(row) == reference
        assert asked == [(f"activity:{row['id']}:1.1", 1, "ada")]
        assert decisions(it) == [("happened", "reconcile")]
        assert acted(it, row["id"]) == ["INTENT", "UNKNOWN", "RESOLVED"]


@pytest.mark.parametrize("no", [NoEffect("no such payment"), NoEffect])
async def test_what_the_provider_says_did_not_happen_is_called_again(tmp_path, no):
    app, provider = App(), Provider(LOST)
    turn, asked = reconciling(app, provider, no)
    async with lab(app, tmp_path) as it:
        row = await run(it, turn)

        assert result(row) == "ref-2"
        assert (len(asked), provider.attempts) == (1, [1, 2])
        assert decisions(it) == [("resend", "reconcile")]


async def test_a_call_that_is_in_doubt_again_is_reconciled_again(tmp_path):
    app, provider = App(), Provider(LOST, LOST)
    turn, asked = reconciling(app, provider, NoEffect, Done("pay-7"))
    async with lab(app, tmp_path) as it:
        assert result(await run(it, turn)) == "pay-7"
        assert [attempt for _, attempt, _ in asked] == [1, 2]


@pytest.mark.parametrize(
    ("answer", "why"),
    [(None, "the provider does not know"), ("yes", "reconcile returned 'yes'"), (Done(7), "a reference is text")],
    ids=["unknown", "no answer", "no reference"],
)
async def test_what_the_provider_does_not_know_is_put_to_a_person(tmp_path, answer, why):
    app, provider = App(), Provider(LOST)
    turn, _ = reconciling(app, provider, answer, answer)
    async with lab(app, tmp_path) as it:
        task = await begin(it, turn)
        assert why in (await it.question("activity"))["question"]
        await answered(it, "resend")
        assert result(await it.ended(task)) == "ref-2"


@pytest.mark.parametrize("error", [OSError("down"), NoEffect("no password"), Fail("NO", "no")], ids=repr)
async def test_a_provider_that_cannot_be_asked_is_asked_again_and_then_a_person_is(tmp_path, monkeypatch, error):
    """A NoEffect that is raised, as for want of a password, says nothing about the call."""
    monkeypatch.setattr("craftcore.engine.turn.provider_call.RECONCILE_WAIT_SECONDS", 0.0)
    app, provider = App(), Provider(LOST)

    async def cannot(call: Call) -> None:
        raise error

    turn, asked = reconciling(app, provider, cannot, cannot, cannot)
    async with lab(app, tmp_path) as it:
        await begin(it, turn)
        assert "the provider could not be asked" in (await it.question("activity"))["question"]
        assert (len(asked), provider.attempts) == (3, [1])


async def test_a_provider_that_never_answers_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("craftcore.engine.turn.provider_call.RECONCILE_WAIT_SECONDS", 0.0)
    app, provider = App(), Provider(LOST)

    async def never(call: Call) -> None:
        await anyio.sleep_forever()

    turn, asked = reconciling(app, provider, never, never, never, timeout=0.01)
    async with lab(app, tmp_path) as it:
        await begin(it, turn)
        assert "TimeoutError" in (await it.question("activity"))["question"]
        assert len(asked) == 3


async def test_a_no_is_believed_when_no_call_can_be_on_its_way_any_more(tmp_path):
    app, clock, provider = App(), VirtualClock(), Provider(LOST)
    turn, asked = reconciling(app, provider, NoEffect, NoEffect, settle_after=30)
    async with lab(app, tmp_path, clock=clock) as it:
        task = await begin(it, turn)
        await it.waiting(task)
        [wait] = it.rows("SELECT * FROM waits")
        assert wait["due_at"] == ledger(it)[0]["updated_at"] + 30
        assert provider.attempts == [1]
        clock.advance(31)
        it.engine.ring(schedules=False)

        assert result(await it.ended(task)) == "ref-2"
        assert len(asked) == 2


async def test_a_plain_reconcile_runs_in_a_thread(tmp_path):
    app, provider = App(), Provider(LOST)
    pay = app.action("pay", **RECONCILES)(provider)

    @pay.reconcile
    def look(call: Call, *, to: Any = None) -> Any:
        return Done("pay-7")

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(pay)

    async with lab(app, tmp_path) as it:
        assert result(await run(it, turn)) == "pay-7"


async def test_a_person_who_answers_while_the_provider_is_asked_is_not_overruled(tmp_path):
    app, provider, gate = App(), Provider(LOST), Gate(Done("pay-7"))
    turn, _ = reconciling(app, provider, gate)
    async with lab(app, tmp_path) as it:
        task = await begin(it, turn)
        await gate.inside.wait()
        decide = it.engine.requests._tasks._deciding.decide
        await it.engine.writer.commit(decide, f"activity:{task}:1.1", Decision.GIVE_UP, decided_by="ada")
        gate.go.set()

        assert failure(await it.ended(task))[0] == "ACTIVITY_UNKNOWN"
        assert decisions(it) == [("give up", "ada")]


# Assume


async def test_assume_done_never_calls_again_and_returns_nothing(tmp_path):
    app, provider = App(), Provider(LOST)
    turn = paying(app, provider, on_unknown=OnUnknown.ASSUME_DONE)
    async with lab(app, tmp_path) as it:
        row = await run(it, turn)

        assert result(row) is None
        assert (provider.attempts, statuses(it)) == ([1], ["DONE"])
        assert decisions(it) == [("happened", "policy assume_done")]
        assert questions(it) == []


# By hand


async def test_a_decision_about_nothing_is_refused(tmp_path):
    app = App()
    async with lab(app, tmp_path) as it:
        with pytest.raises(NotFound, match="no activity"):
            await it.engine.writer.commit(
                it.engine.requests._tasks._deciding.decide, "activity:x:1.1", Decision.HAPPENED, decided_by="ada"
            )


async def test_a_refusal_that_a_person_lets_be_sent_again_is_sent_when_the_task_is_retried(tmp_path):
    app, provider = App(), Provider(Fail("CARD", "declined"))
    turn = paying(app, provider)
    async with lab(app, tmp_path) as it:
        row = await run(it, turn)
        await app.retry_task(row["id"])
        await it.until(lambda: it.task(row["id"])["status"] == "FAILED")
        assert provider.attempts == [1]

        decide = it.engine.requests._tasks._deciding.decide
        await it.engine.writer.commit(decide, f"activity:{row['id']}:1.1", Decision.RESEND, decided_by="ada")
        await app.retry_task(row["id"])
        assert result(await done(it, row["id"])) == "ref-2"


async def test_code_that_would_try_again_by_itself_does_not_get_to(tmp_path):
    """A second ctx.act without a key is another act, with another key: the provider would do it twice."""
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

    async with lab(app, tmp_path) as it:
        assert result(await run(it, turn)) == "ref-2"
        assert unwound == ["finally", "finally"]
        assert provider.attempts == [1, 2]
        assert len(ledger(it)) == 1


async def test_code_that_catches_everything_cannot_go_on_without_what_is_called_again(tmp_path):
    app, provider = App(), Provider(ConnectionResetError("reset"))
    pay = app.action("pay", irreversible=True, on_unknown=OnUnknown.RESEND, idempotent_provider=True)(provider)

    async def turn(ctx: TaskContext) -> Any:
        for _ in range(3):
            try:
                return await ctx.act(pay)
            except BaseException:
                continue
        return "without"

    async with lab(app, tmp_path) as it:
        assert result(await run(it, turn)) == "ref-2"
        assert provider.attempts == [1, 2]
        assert len(ledger(it)) == 1


async def test_of_two_that_reconcile_one_key_the_second_hears_what_the_first_found(tmp_path):
    """The call of the first had no effect. The second was told that it had been refused for good."""
    app, gate = App(), Gate()
    provider = Provider(gate, NoEffect("busy"))
    told: list[str] = []
    asked, both_ask, first_is_over = 0, anyio.Event(), anyio.Event()

    @app.action("pay", irreversible=True, on_unknown=OnUnknown.RECONCILE, settle_after=0)
    async def pay(call: Call) -> Any:
        return await provider(call)

    @pay.reconcile
    async def find(call: Call) -> NoEffect:
        nonlocal asked
        asked += 1
        if asked == 1:
            await both_ask.wait()
        else:
            both_ask.set()
            await first_is_over.wait()
        return NoEffect()

    @app.workflow("twice")
    async def twice(ctx: TaskContext) -> Any:
        async def one() -> None:
            try:
                told.append(await ctx.act(pay, key="it"))
            except (Fail, NoEffect) as error:
                told.append(f"{type(error).__name__}: {error}")
                first_is_over.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one)
            tasks.start_soon(one)
        if ctx.attempt == 1:
            raise ValueError("once more")
        return told

    async with lab(app, tmp_path, settings(shutdown_grace=0.0)) as it:
        task = (await app.emit("twice")).id
        await gate.inside.wait()
    async with lab(app, tmp_path) as it:
        assert result(await it.ended(task)) == ["NoEffect: busy", "NoEffect: busy", "ref-3", "ref-3"]
        assert provider.attempts == [1, 2, 3]
