"""The lab: an app under virtual time, with crashes and faults of providers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import anyio
import pytest

from craftcore import App, Call, Continue, Done, Event, Retry, RetryPolicy, StateRefused, TaskContext, Timer, WorkFailed
from craftcore.errors import InvalidInput, NotFound
from craftcore.testing import Effect, Lab
from craftcore.testing import life as lab_life
from craftcore.testing.virtual_clock import NEW_YEAR

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

HOUR = 3600.0


def a_shop(log: list[str] | None = None) -> App:
    """Return an app that charges, waits for a day, writes a mail and asks a person."""
    app = App("shop")
    steps = [] if log is None else log

    @app.action("bank.charge", irreversible=True)
    async def charge(call: Call, *, cents: int) -> str:
        raise AssertionError("the bank of a test takes the call")

    @app.workflow("order")
    async def order(ctx: TaskContext, id: int) -> str:
        await ctx.step("reserve", steps.append, f"reserve {id}")
        receipt = await ctx.act(charge, cents=100)
        await ctx.sleep("1d")
        await ctx.act("email.send", to="ada@example.org", subject=f"Order {id}", body="It is on its way")
        answer = await ctx.ask("Was it delivered?", ["yes", "no"])
        return f"{receipt}: {answer}"

    return app


async def test_order_of_a_day_runs_in_virtual_time():
    async with Lab(a_shop()) as lab:
        lab.provider("bank.charge", returns="r-1")
        order = await lab.emit("order", {"id": 7})
        await lab.run_until_idle()
        with pytest.raises(StateRefused, match=r"has not ended: .* sleeps until 2026-01-02 00:00:00Z, in 24 h"):
            await lab.result(order)
        assert lab.effects("email.send") == []

        await lab.advance(hours=23)
        assert lab.effects("email.send") == []
        await lab.advance(hours=2)
        [mail] = lab.effects("email.send")
        assert (mail.at, mail.arguments["subject"], mail.life) == (NEW_YEAR + 24 * HOUR, "Order 7", 1)

        await lab.answer("yes", question="delivered")
        assert await lab.result(order) == "r-1: yes"
        assert [effect.action for effect in lab.effects()] == ["bank.charge", "email.send"]


async def test_crash_leaves_committed_work_and_repeats_no_effect():
    steps: list[str] = []
    async with Lab(a_shop(steps)) as lab:
        lab.provider("bank.charge", returns="r-1")
        order = await lab.emit("order", {"id": 7})
        await lab.run_until_idle()
        for _ in range(3):
            await lab.crash()
            with pytest.raises(StateRefused, match=r"await lab\.restart"):
                await lab.emit("order", {"id": 8})
            await lab.restart()
        await lab.advance(hours=25)
        await lab.crash()
        await lab.restart()
        await lab.answer("yes")

        assert await lab.result(order) == "r-1: yes"
        assert steps == ["reserve 7"]
        assert [(effect.action, effect.life) for effect in lab.effects()] == [("bank.charge", 1), ("email.send", 4)]


async def test_call_in_flight_has_no_effect_after_a_crash_and_opens_a_question():
    async with Lab(a_shop()) as lab:
        lab.provider("bank.charge", returns="r-1", delay=30)
        await lab.emit("order", {"id": 7})
        await lab.run_until_idle()
        await lab.crash()
        await lab.restart()

        await lab.advance(60)
        assert lab.effects() == []
        await lab.answer("resend", question="bank.charge")
        await lab.advance(60)
        assert [effect.life for effect in lab.effects("bank.charge")] == [2]


@pytest.mark.parametrize(
    ("options", "answer", "effects"),
    [
        ({"fails_before": 1}, None, 1),
        ({"resets_before": 1}, "resend", 1),
        ({"resets_after": 1}, "happened", 1),
        ({"resets_after": 1}, "resend", 2),
        ({"resets_after": 1, "dedupes": True}, "resend", 1),
        ({"resets_before": 1, "acts_late": 600}, "resend", 2),
        ({"resets_before": 1, "acts_late": 600, "dedupes": True}, "resend", 1),
    ],
)
async def test_provider_has_the_faults_of_its_options(options, answer, effects):
    async with Lab(a_shop()) as lab:
        bank = lab.provider("bank.charge", returns=lambda cents: f"{cents} cents", **options)
        await lab.emit("order", {"id": 7})
        await lab.run_until_idle()
        if answer is not None:
            await lab.answer(answer, question="bank.charge")
        await lab.advance(hours=1)

        assert len(lab.effects("bank.charge")) == len(bank.effects) == effects
        assert bank.calls == (1 if answer == "happened" else 2)


@pytest.mark.parametrize("options", [{}, {"returns": "r-1"}], ids=["made up", "given"])
@pytest.mark.parametrize("answers", [True, False], ids=["by choice", "by itself"])
async def test_doubt_is_answered_with_the_result_of_the_provider(options, answers):
    async with Lab(a_shop()) as lab:
        lab.provider("bank.charge", resets_after=1, **options)
        order = await lab.emit("order", {"id": 7})
        await lab.run_until_idle()
        await (lab.answer("happened", question="bank.charge") if answers else lab.answer_doubts())
        await lab.advance(hours=25)
        await lab.answer("yes")

        assert await lab.result(order) == f"{options.get('returns', 'bank.charge-ref')}: yes"


@dataclass
class Receipt:
    id: str
    cents: int


@pytest.mark.parametrize("policy", ["ask", "reconcile", "assume_done"])
async def test_structured_result_of_an_act_that_happened_is_returned_under_each_policy(policy):
    app = App("shop")
    charged: list[Receipt] = []

    @app.action("charge", irreversible=True, on_unknown=policy)
    async def charge(call: Call, *, cents: int) -> Receipt:
        charged.append(Receipt(id=f"r-{len(charged) + 1}", cents=cents))
        raise ConnectionResetError("lost")

    if policy == "reconcile":

        @charge.reconcile
        async def find(call: Call, *, cents: int) -> Done[Receipt]:
            return Done(charged[0])

    @app.workflow("order")
    async def order(ctx: TaskContext) -> int:
        return (await ctx.act(charge, cents=5)).cents

    async with Lab(app) as lab:
        work = await lab.emit("order")
        await lab.run_until_idle()
        if policy != "reconcile":
            [asked] = await lab.questions()
            assert "as the reference (JSON: an object with id (text), cents (a whole number))." in asked.question
            with pytest.raises(InvalidInput, match="none was given"):
                await lab.app.answer(asked.id, "happened", answered_by="ada")
            await lab.app.answer(asked.id, "happened", reference='{"id": "r-1", "cents": 5}', answered_by="ada")

        assert (await lab.result(work), len(charged)) == (5, 1)


async def test_reconcile_without_the_required_result_asks_a_person():
    app = App("shop")

    @app.action("charge", irreversible=True, on_unknown="reconcile")
    async def charge(call: Call) -> Receipt:
        raise ConnectionResetError("lost")

    @charge.reconcile
    async def find(call: Call) -> Done[str]:
        return Done("r-1")

    @app.workflow("order")
    async def order(ctx: TaskContext) -> int:
        return (await ctx.act(charge)).cents

    async with Lab(app) as lab:
        await lab.emit("order")
        await lab.advance(minutes=2)
        [asked] = await lab.questions()
        assert "it happened ('r-1'), and not the result that its task needs" in asked.question


@pytest.mark.parametrize("days", [100, pytest.param(365, marks=pytest.mark.campaign)])
async def test_months_of_a_daily_schedule_take_seconds(days: int):
    app = App("calendar")
    moments: list[float] = []
    lab = Lab(app, start=datetime(2026, 1, 1, tzinfo=UTC), zone="Europe/Berlin")

    @app.workflow("brief")
    def brief() -> None:
        moments.append(lab.clock.now())

    app.schedule("daily", "every day at 7am", workflow="brief", timezone="Europe/Berlin")

    async with lab:
        await lab.advance(days=days)

    hours = {datetime.fromtimestamp(moment, UTC).hour for moment in moments}
    assert (len(moments), hours) == (days, {5, 6}), "summer time and winter time"


async def test_retries_and_timeouts_take_virtual_time():
    app = App("patient")
    tries: list[float] = []

    async with Lab(app) as lab:

        async def fetch() -> str:
            tries.append(lab.clock.now() - NEW_YEAR)
            if len(tries) < 3:
                raise ConnectionError("not yet")
            return "fetched"

        @app.workflow("fetches")
        async def fetches(ctx: TaskContext) -> str:
            return await ctx.step("fetch", fetch, retry=RetryPolicy(max_attempts=5, base=HOUR, cap=HOUR))

        @app.workflow("waits")
        async def waits(ctx: TaskContext) -> str:
            return (await ctx.wait_any({"paid": Event("paid"), "late": Timer("2h")})).name

        @app.workflow("again", retry=RetryPolicy(max_attempts=3, base=60, cap=60))
        async def again() -> None:
            raise Retry("later", after=HOUR)

        fetched, waited, retried = [await lab.emit(name) for name in ("fetches", "waits", "again")]
        await lab.advance("3h")
        assert await lab.result(fetched) == "fetched"
        assert (len(tries), tries[0]) == (3, 0)
        assert all(HOUR / 2 <= late - early <= HOUR for early, late in pairwise(tries))
        assert await lab.result(waited) == "late"
        with pytest.raises(WorkFailed):
            await lab.result(retried)


async def test_function_of_a_custom_action_is_called_recorded_and_restored():
    app = App("own")
    sent: list[str] = []

    @app.action("chat.post", irreversible=True)
    def post(call: Call, *, text: str) -> str:
        sent.append(text)
        return text.upper()

    @app.workflow("say")
    async def say(ctx: TaskContext) -> str:
        return await ctx.act(post, text="hello")

    declared = post.fn
    async with Lab(app) as lab:
        trigger = await lab.emit("say")
        assert await lab.result(trigger) == "HELLO"
        [effect] = lab.effects()
        assert isinstance(effect, Effect)
        assert (effect.action, effect.arguments, effect.at) == ("chat.post", {"text": "hello"}, NEW_YEAR)
    assert sent == ["hello"]
    assert post.fn is declared


async def test_signal_and_restart_continue_a_task_turn_by_turn():
    app = App("chat")

    @app.workflow("chat")
    async def chat(ctx: TaskContext[list[str]]) -> Any:
        texts = [*(ctx.state or []), *([ctx.received] if ctx.turn > 1 else [])]
        return texts if "end" in texts else Continue(texts, on="message")

    async with Lab(app) as lab:
        talk = await lab.emit("chat")
        assert await lab.signal(talk, "message", "hello") is False, "the first turn has not ended"
        await lab.restart()
        assert await lab.signal(talk.id, "message", "end") is True
        assert await lab.result(talk) == ["hello", "end"]
        assert await lab.why(talk) == [f"task {talk.id} is DONE since 2026-01-01 00:00:00Z"]
        assert lab.rows("SELECT count(*) AS lives FROM epochs") == [{"lives": 2}]


async def test_chat_runs_until_the_wait_for_a_message():
    app = App("chat")

    @app.workflow("chat")
    async def chat(ctx: TaskContext[int]) -> Any:
        if ctx.turn == 1:
            await ctx.sleep("1h")
        return ctx.turn if ctx.received == "end" else Continue(ctx.turn, on="message")

    async with Lab(app) as lab:
        talk = await lab.emit("chat")
        with pytest.raises(StateRefused, match="does not wait for an event, a message or an answer"):
            await lab.run_until_waiting(talk)
        await lab.advance(hours=1)
        assert "message" in await lab.run_until_waiting(talk)
        await lab.signal(talk, "message", "end")
        with pytest.raises(StateRefused, match="is DONE"):
            await lab.run_until_waiting(talk)


async def test_lab_refuses_ambiguous_calls_and_a_busy_engine(monkeypatch):
    app = a_shop()

    @app.workflow("hangs")
    async def hangs() -> None:
        await anyio.sleep_forever()

    async with Lab(app) as lab:
        lab.provider("bank.charge", returns="r-1")
        with pytest.raises(NotFound, match="no open question contains 'delivered'"):
            await lab.answer("yes", question="delivered")
        for id in (1, 2):
            await lab.emit("order", {"id": id})
        await lab.advance(days=1)
        with pytest.raises(InvalidInput, match="2 open questions contain 'delivered'"):
            await lab.answer("yes", question="delivered")
        with pytest.raises(InvalidInput, match="advance: duration -1 must be"):
            await lab.advance(-1)
        await lab.emit("hangs")
        monkeypatch.setattr(lab_life, "BUSY_SECONDS", 0.2)
        with pytest.raises(TimeoutError, match=r"still busy after 0.2 s of real time; it runs hangs"):
            await lab.run_until_idle()


# A time without an engine


def build_watch() -> tuple[App, list[str]]:
    """Return an app with schedules of each kind of catch-up, a task that waits, and the list of what has run."""
    app = App("watch")
    runs: list[str] = []

    @app.workflow("note")
    async def note(name: str) -> None:
        runs.append(name)

    @app.workflow("sleeper")
    async def sleeper(ctx: TaskContext) -> str:
        await ctx.sleep("8h")
        return "awake"

    @app.workflow("asker")
    async def asker(ctx: TaskContext) -> Any:
        return await ctx.ask("Still there?", ["yes"], timeout="10h", default="yes")

    late: Any = {"catch_up_window": "2d", "catch_up_max": 100}
    for catch_up in ("all", "latest", "none"):
        app.schedule(catch_up, "every 1h", workflow="note", payload={"name": catch_up}, catch_up=catch_up, **late)
    return app, runs


@pytest.mark.parametrize("killed", [False, True])
async def test_missed_night_is_caught_up_by_the_policies(killed):
    app, runs = build_watch()
    async with Lab(app) as lab:
        sleeping, asking = await lab.emit("sleeper"), await lab.emit("asker")
        await lab.advance(hours=2)
        before = {name: runs.count(name) for name in ("all", "latest", "none")}
        began = lab.clock.now()

        await lab.down(hours=34, killed=killed)

        assert lab.clock.now() == began + 34 * 3600
        missed = {name: runs.count(name) - count for name, count in before.items()}
        assert missed["all"] == 34
        assert missed["latest"] == 1
        assert missed["none"] <= 1
        assert await lab.result(sleeping) == "awake"
        assert await lab.result(asking) == "yes"
        assert lab.rows("SELECT count(*) AS lives FROM epochs") == [{"lives": 2}]


async def test_attempt_that_runs_when_the_engine_dies_is_taken_back_after_the_night():
    app = App("slow")
    attempts: list[int] = []

    @app.workflow("slow")
    async def slow(ctx: TaskContext) -> str:
        attempts.append(ctx.attempt)
        return await ctx.act(charge)

    @app.action("bank.charge", irreversible=True)
    async def charge(call: Call) -> str:
        raise AssertionError("the bank of a test takes the call")

    async with Lab(app) as lab:
        lab.provider("bank.charge", returns="r-1", delay=3600)
        work = await lab.emit("slow")
        await lab.run_until_idle()

        await lab.down(hours=34, killed=True)

        assert [asked.kind for asked in await lab.questions()] == ["activity"]
        await lab.answer("resend")
        await lab.advance(hours=2)
        assert await lab.result(work) == "r-1"
        assert len(lab.effects()) == 1


async def test_call_acts_late_while_the_engine_is_down():
    async with Lab(a_shop()) as lab:
        lab.provider("bank.charge", returns="r-1", resets_before=1, acts_late=600)
        await lab.emit("order", {"id": 7})
        await lab.run_until_idle()
        began = lab.clock.now()

        await lab.down(hours=9)

        assert [(effect.action, effect.at) for effect in lab.effects()] == [("bank.charge", began + 600)]


async def test_engine_that_crashed_before_stays_down():
    app, _ = build_watch()
    async with Lab(app) as lab:
        sleeping = await lab.emit("sleeper")
        await lab.run_until_idle()
        await lab.crash()
        await lab.down(hours=34)
        assert await lab.result(sleeping) == "awake"
        with pytest.raises(InvalidInput):
            await lab.down(-1)
