"""Waits in tasks beside the turn's own: collected, begun together, and resolved one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import pytest

from craftcore import App, Ask, Continue, Event, TaskContext, Timer
from craftcore.errors import KeyRequired
from tests.support.acts import Gate, HeldBatch, Provider, ledger, questions, statuses
from tests.support.engine_harness import Lab, lab
from tests.support.fakes import VirtualClock
from tests.support.loops import ON_ASYNCIO
from tests.support.turns import Counting, begin, failure, result, run

pytestmark = pytest.mark.anyio

LOST = ConnectionResetError("reset")
OPEN = "SELECT id, question FROM questions WHERE status = 'OPEN' ORDER BY seq"
SUSPENDED = "SELECT 1 FROM events WHERE type = 'SUSPENDED'"


async def gather(*calls: Callable[[], Awaitable[Any]]) -> list[Any]:
    """Return what each call returns, of tasks beside each other."""
    results: dict[int, Any] = {}

    async def one(number: int, call: Callable[[], Awaitable[Any]]) -> None:
        results[number] = await call()

    async with anyio.create_task_group() as group:
        for number, call in enumerate(calls):
            group.start_soon(one, number, call)
    return [results[number] for number in range(len(calls))]


async def open_questions(it: Lab, count: int) -> dict[str, str]:
    """Wait until the task waits and that many questions are open; return their ids by the first word of each."""
    await it.until(lambda: len(it.rows(OPEN)) == count and not it.rows("SELECT 1 FROM tasks WHERE status = 'RUNNING'"))
    return {row["question"].split()[0]: row["id"] for row in it.rows(OPEN)}


def waits(it: Lab) -> list[tuple[str, str]]:
    """Return name and end of each wait, in the order in which they began."""
    rows = it.rows("SELECT name, coalesce(resolved_by, 'open') AS ending FROM waits ORDER BY seq")
    return [(row["name"], row["ending"]) for row in rows]


# Collected, and begun together


async def test_two_asks_a_doubtful_act_and_two_steps_suspend_the_turn_once(tmp_path):
    app, step = App(), Counting()
    provider = Provider(LOST)
    pay = app.action("pay", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> Any:
        return await gather(
            lambda: ctx.ask("a?", key="a"),
            lambda: ctx.step("one", step, 1),
            lambda: ctx.act(pay, key="pay"),
            lambda: ctx.ask("b?", key="b"),
            lambda: ctx.step("two", step, 2),
        )

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        asked = await open_questions(harness, 3)
        assert len(harness.rows("SELECT 1 FROM executions")) == 1
        assert harness.task(task)["reason"] == "waits for any of 3"

        for choice, word in (("B", "b?"), ("happened", "Did"), ("A", "a?")):
            await app.answer(asked.pop(word), choice, answered_by="ada")
            if asked:
                assert await open_questions(harness, len(asked)) == asked

        assert result(await harness.ended(task)) == ["A", 1, None, "B", 2]
        assert sorted(step.calls) == [(1,), (2,)]
        assert provider.attempts == [1]
        assert len(harness.rows("SELECT 1 FROM executions")) == 4


async def test_step_in_flight_ends_before_the_turn_is_suspended(tmp_path):
    """A step that waits for its next attempt is in flight, too; one in the turn's own task as well."""
    began, go = anyio.Event(), anyio.Event()
    calls: list[str] = []

    async def slow(name: str) -> str:
        calls.append(name)
        began.set()
        await go.wait()
        return name

    async def turn(ctx: TaskContext) -> Any:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: ctx.ask("a?", key="a"))
            group.start_soon(ctx.step, "beside", slow, "beside")
            await ctx.step("own", slow, "own")

    async with lab(App(), tmp_path) as harness:
        task = await begin(harness, turn)
        await began.wait()
        await anyio.wait_all_tasks_blocked()
        assert harness.rows("SELECT * FROM waits") == []
        go.set()

        await app_answer(harness, "A")
        await harness.ended(task)
        assert sorted(calls) == ["beside", "own"]


async def app_answer(it: Lab, choice: str) -> None:
    await it.app.answer((await it.question())["id"], choice, answered_by="ada")


async def test_step_whose_own_tasks_all_wait_does_not_hold_the_turn(tmp_path):
    """The step is the run of an agent whose tools ask. It runs again for each answer."""
    runs: list[int] = []

    async def turn(ctx: TaskContext) -> Any:
        async def agent() -> list[Any]:
            runs.append(1)
            return await gather(lambda: ctx.ask("a?", key="a"), lambda: ctx.ask("b?", key="b"))

        [got] = await gather(lambda: ctx.step("agent", agent))
        return got

    async with lab(App(), tmp_path) as harness:
        task = await begin(harness, turn)
        asked = await open_questions(harness, 2)
        await harness.app.answer(asked["a?"], "A", answered_by="ada")
        assert await open_questions(harness, 1) == {"b?": asked["b?"]}
        await harness.app.answer(asked["b?"], "B", answered_by="ada")

        assert (result(await harness.ended(task)), len(runs)) == (["A", "B"], 3)


async def test_tasks_that_outlive_their_step_do_not_hold_the_turn(tmp_path):
    async def turn(ctx: TaskContext) -> Any:
        async with anyio.create_task_group() as group:

            async def leave_a_task() -> None:
                group.start_soon(lambda: ctx.ask("a?", key="a"))

            await ctx.step("leaves", leave_a_task)

    async with lab(App(), tmp_path) as harness:
        task = await begin(harness, turn)
        await app_answer(harness, "A")
        assert (await harness.ended(task))["status"] == "DONE"


async def test_single_wait_in_a_task_is_as_in_the_turns_own(tmp_path):
    async def turn(ctx: TaskContext) -> Any:
        return await gather(lambda: ctx.ask("a?", key="a"))

    async with lab(App(), tmp_path) as harness:
        task = await begin(harness, turn)
        await app_answer(harness, "A")
        assert result(await harness.ended(task)) == ["A"]
        assert harness.rows("SELECT any_of FROM waits") == [{"any_of": None}]


async def test_waits_of_each_kind_are_resolved_separately(tmp_path):
    app = App()

    @app.workflow("other")
    async def other(ctx: TaskContext) -> int:
        return int(await ctx.wait_for("number"))

    async def turn(ctx: TaskContext) -> Any:
        child = await ctx.start_child("other", key="child")
        first, *rest = await gather(
            lambda: ctx.wait_any({"paid": Event("paid"), "asked": Ask("x?"), "late": Timer("1h")}, key="any"),
            lambda: ctx.wait_for("word", key="word"),
            lambda: ctx.sleep(60, key="nap"),
            lambda: ctx.wait_for("never", timeout=60, default="late", key="never"),
            lambda: child.result(int),
            lambda: ctx.ask("a?", timeout=60, default="nobody", key="a"),
        )
        return [first.name, first.value, *rest]

    clock = VirtualClock()
    async with lab(app, tmp_path, clock=clock) as harness:
        task = await begin(harness, turn)
        await open_questions(harness, 2)
        assert harness.task(task)["reason"] == "waits for any of 6"
        await app.signal(task, "word", "hello")
        await open_questions(harness, 2)
        await app.signal(task, "paid", 7)
        await open_questions(harness, 1)
        [child] = harness.rows("SELECT id FROM tasks WHERE workflow = 'other'")
        await app.signal(child["id"], "number", 5)
        await harness.until(lambda: ("child/" + child["id"], "child") in waits(harness))
        await open_questions(harness, 1)
        runs = len(harness.rows("SELECT 1 FROM executions WHERE task_id = :id", id=task))
        clock.advance(61)
        harness.engine.feeder.ring()

        assert result(await harness.ended(task)) == ["paid", 7, "hello", None, "late", 5, "nobody"]
        assert len(harness.rows("SELECT 1 FROM executions WHERE task_id = :id", id=task)) == runs + 1
        assert dict(waits(harness)) == {
            "wait_for#1": "signal",  # of the child
            "wait_any:any/paid": "signal",
            "wait_any:any/asked": "end",
            "wait_any:any/late": "end",
            "wait_for:word": "signal",
            "sleep:nap": "timer",
            "wait_for:never": "timer",
            f"child/{child['id']}": "child",
            "ask:a": "timer",
        }


@pytest.mark.parametrize("name", ["sleep", "wait_for", "ask", "wait_any"])
async def test_first_error_of_a_wait_without_a_key_says_the_whole_rule(tmp_path, name):
    calls: dict[str, Callable[[TaskContext], Awaitable[Any]]] = {
        "sleep": lambda ctx: ctx.sleep(0),
        "wait_for": lambda ctx: ctx.wait_for("word"),
        "ask": lambda ctx: ctx.ask("a?"),
        "wait_any": lambda ctx: ctx.wait_any({"late": Timer(0)}),
    }
    refused: list[str] = []

    async def turn(ctx: TaskContext) -> None:
        async def one() -> None:
            with pytest.raises(KeyRequired) as error:
                await calls[name](ctx)
            refused.append(str(error.value))

        await gather(one)

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) is None
        assert refused == [
            f"ctx.{name} in a task beside the turn's own needs key=…: without one it is known by its order, and tasks "
            "have none. With a key it waits beside the others. Steps and acts that run end first. Then the turn is "
            "suspended for all waits of its tasks, and goes on at each answer"
        ]


async def test_wait_of_the_turns_own_task_suspends_at_once_with_the_parked_ones(tmp_path):
    began = anyio.Event()
    runs: list[str] = []

    async def turn(ctx: TaskContext) -> Any:
        async def never() -> None:
            runs.append("never")
            began.set()
            if ctx.resume == "FIRST":
                await anyio.sleep_forever()

        async with anyio.create_task_group() as group:
            group.start_soon(lambda: ctx.ask("a?", key="a"))
            group.start_soon(ctx.step, "never", never)
            await began.wait()
            return await ctx.ask("own?")

    async with lab(App(), tmp_path) as harness:
        task = await begin(harness, turn)
        asked = await open_questions(harness, 2)
        await harness.app.answer(asked["own?"], "O", answered_by="ada")
        assert await open_questions(harness, 1) == {"a?": asked["a?"]}
        await harness.app.answer(asked["a?"], "A", answered_by="ada")
        assert (result(await harness.ended(task)), runs) == ("O", ["never", "never"])


# Answers while the turn runs


@pytest.mark.parametrize("parks_again", [False, True])
async def test_answer_while_the_turn_runs_resolves_its_row_and_does_not_lose_the_turn(tmp_path, parks_again):
    """The turn is held in a step. It was entered before the answer to b came, so it parks for b once more."""
    inside, go = anyio.Event(), anyio.Event()

    async def hold() -> None:
        inside.set()
        await go.wait()

    async def turn(ctx: TaskContext) -> Any:
        async def a() -> Any:
            answer = await ctx.ask("a?", key="a")
            await ctx.step("hold", hold)
            return answer

        more = [lambda: ctx.ask("c?", key="c")] if parks_again else []
        return await gather(a, lambda: ctx.ask("b?", key="b"), *more)

    async with lab(App(), tmp_path) as harness:
        task = await begin(harness, turn)
        asked = await open_questions(harness, 3 if parks_again else 2)
        await harness.app.answer(asked["a?"], "A", answered_by="ada")
        await inside.wait()
        before = harness.rows("SELECT id, status FROM triggers ORDER BY seq")
        await harness.app.answer(asked["b?"], "B", answered_by="ada")
        assert harness.rows("SELECT id, status FROM triggers ORDER BY seq") == before
        assert harness.task(task)["status"] == "RUNNING"
        go.set()

        if parks_again:
            assert await open_questions(harness, 1) == {"c?": asked["c?"]}
            await harness.app.answer(asked["c?"], "C", answered_by="ada")
        assert result(await harness.ended(task)) == ["A", "B", *(["C"] if parks_again else [])]


async def test_answer_to_a_wait_that_this_entry_has_not_come_to_wakes_the_turn(tmp_path):
    """The second entry waits in its own task, and has not made the task that asks b again."""
    inside, go = anyio.Event(), anyio.Event()
    entries: list[str] = []

    async def hold() -> None:
        inside.set()
        await go.wait()

    async def turn(ctx: TaskContext) -> Any:
        entries.append(ctx.resume)
        if len(entries) == 3:
            return await gather(lambda: ctx.ask("b?", key="b"))
        if len(entries) == 2:
            await ctx.step("hold", hold)
            await ctx.wait_for("never")
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: ctx.ask("b?", key="b"))
            group.start_soon(lambda: ctx.ask("c?", key="c"))
            await anyio.wait_all_tasks_blocked()
            await ctx.wait_for("never")

    async with lab(App(), tmp_path) as harness:
        task = await begin(harness, turn)
        asked = await open_questions(harness, 2)
        await harness.app.answer(asked["c?"], "C", answered_by="ada")
        await inside.wait()
        await harness.app.answer(asked["b?"], "B", answered_by="ada")
        go.set()
        assert (result(await harness.ended(task)), entries) == (["B"], ["FIRST", "ANSWER", "ANSWER"])


# Waits that are left


@pytest.mark.parametrize("how", ["returns", "continues"])
async def test_wait_that_the_turn_leaves_ends_with_the_turn(tmp_path, how):
    async def turn(ctx: TaskContext[int]) -> Any:
        if ctx.turn == 2:
            return "second"

        async def left() -> None:
            if ctx.resume == "FIRST":
                await ctx.ask("left?", key="left")

        await gather(lambda: ctx.ask("a?", key="a"), left)
        return Continue(2) if how == "continues" else "first"

    async with lab(App(), tmp_path) as harness:
        task = await begin(harness, turn)
        asked = await open_questions(harness, 2)
        await harness.app.answer(asked["a?"], "A", answered_by="ada")
        assert result(await harness.ended(task)) == ("second" if how == "continues" else "first")
        assert waits(harness) == [("ask:a", "answer"), ("ask:left", "end")]
        assert questions(harness) == [("ask", "ANSWERED"), ("ask", "WITHDRAWN")]


async def test_wait_in_a_scope_that_ends_is_not_waited_for(tmp_path):
    async def turn(ctx: TaskContext) -> Any:
        async def hasty() -> str:
            with anyio.move_on_after(0):
                await ctx.ask("hasty?", key="hasty")
            return "moved on"

        return await gather(hasty, lambda: ctx.ask("a?", key="a"))

    async with lab(App(), tmp_path) as harness:
        task = await begin(harness, turn)
        asked = await open_questions(harness, 1)
        await harness.app.answer(asked["a?"], "A", answered_by="ada")
        assert result(await harness.ended(task)) == ["moved on", "A"]


async def two_asks(ctx: TaskContext) -> Any:
    return await gather(lambda: ctx.ask("a?", key="a"), lambda: ctx.ask("b?", key="b"))


@pytest.mark.parametrize("answered", [False, True])
async def test_cancelled_task_withdraws_all_questions(tmp_path, answered):
    async with lab(App(), tmp_path) as harness:
        task = await begin(harness, two_asks)
        asked = await open_questions(harness, 2)
        if answered:
            await harness.app.answer(asked["a?"], "A", answered_by="ada")
            await open_questions(harness, 1)
        await harness.app.cancel_task(task)
        assert (await harness.ended(task))["status"] == "CANCELLED"
        assert [status for _, status in questions(harness)] == ["ANSWERED" if answered else "WITHDRAWN", "WITHDRAWN"]
        assert harness.rows("SELECT 1 FROM waits WHERE status = 'WAITING'") == []


async def test_retried_task_asks_the_open_questions_again(tmp_path):
    fails = [True]

    async def turn(ctx: TaskContext) -> Any:
        async def a() -> Any:
            answer = await ctx.ask("a?", key="a")
            if fails:
                raise ValueError(fails.pop())
            return answer

        return await gather(a, lambda: ctx.ask("b?", key="b"))

    async with lab(App(), tmp_path) as harness:
        task = await begin(harness, turn, max_attempts=1)
        asked = await open_questions(harness, 2)
        await harness.app.answer(asked["a?"], "A", answered_by="ada")
        failure(await harness.ended(task))
        assert questions(harness) == [("ask", "ANSWERED"), ("ask", "WITHDRAWN")]

        await harness.app.retry_task(task)
        again = await open_questions(harness, 1)
        await harness.app.answer(again["b?"], "B", answered_by="ada")
        assert result(await harness.ended(task)) == ["A", "B"]


async def test_question_stays_open_while_a_failed_attempt_is_tried_again(tmp_path):
    fails = [True]

    async def turn(ctx: TaskContext) -> Any:
        async def a() -> Any:
            answer = await ctx.ask("a?", key="a")
            if fails:
                raise ValueError(fails.pop())
            return answer

        return await gather(a, lambda: ctx.ask("b?", key="b"))

    async with lab(App(), tmp_path) as harness:
        task = await begin(harness, turn)
        asked = await open_questions(harness, 2)
        await harness.app.answer(asked["a?"], "A", answered_by="ada")
        assert await open_questions(harness, 1) == {"b?": asked["b?"]}
        await harness.app.answer(asked["b?"], "B", answered_by="ada")
        assert result(await harness.ended(task)) == ["A", "B"]


async def test_deadline_ends_the_task_and_closes_all_questions(tmp_path):
    clock = VirtualClock()
    async with lab(App(), tmp_path, clock=clock) as harness:
        task = await begin(harness, two_asks, deadline=3600)
        await open_questions(harness, 2)
        clock.advance(3601)
        harness.engine.feeder.ring()
        assert failure(await harness.ended(task))[0] == "AGENT_TIMEOUT"
        assert questions(harness) == [("ask", "EXPIRED"), ("ask", "WITHDRAWN")]
        assert harness.rows("SELECT 1 FROM waits WHERE status = 'WAITING'") == []


async def test_stopped_turn_withdraws_all_questions_and_waits_for_the_next(tmp_path):
    async def turn(ctx: TaskContext[int]) -> Any:
        if ctx.turn == 1:
            return Continue(1, on="go")
        return await two_asks(ctx) if ctx.turn == 2 else ctx.turn

    async with lab(App(), tmp_path) as harness:
        task = await begin(harness, turn)
        await harness.waiting(task)
        await harness.app.signal(task, "go")
        asked = await open_questions(harness, 2)
        await harness.app.answer(asked["a?"], "A", answered_by="ada")
        await open_questions(harness, 1)
        await harness.app.stop_turn(task)
        await harness.waiting(task, 3)
        assert questions(harness) == [("ask", "ANSWERED"), ("ask", "WITHDRAWN")]
        await harness.app.signal(task, "go")
        assert result(await harness.ended(task)) == 3


# Acts


async def test_act_in_doubt_beside_a_question_is_not_asked_about_again(tmp_path):
    """Its provider is asked once: a person has the question now."""
    app, asked_provider = App(), []
    pay = app.action("pay", irreversible=True, on_unknown="reconcile", settle_after=0)(Provider(LOST))

    @pay.reconcile
    async def find(call: Any, **_: Any) -> None:
        asked_provider.append(call.attempt)

    async def turn(ctx: TaskContext) -> Any:
        return await gather(lambda: ctx.act(pay, key="pay"), lambda: ctx.ask("a?", key="a"))

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        asked = await open_questions(harness, 2)
        await app.answer(asked["a?"], "A", answered_by="ada")
        assert await open_questions(harness, 1) == {"Did": asked["Did"]}
        assert asked_provider == [1]
        await app.answer(asked["Did"], "happened", reference="pay-1", answered_by="ada")
        assert result(await harness.ended(task)) == ["pay-1", "A"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
@pytest.mark.parametrize("how", ["native cancel", "sibling raises", "scope ends", "twice"])
async def test_act_is_done_after_each_cancel_of_its_task(tmp_path, how):
    app, gate = App(), Gate("sent")
    provider = Provider(gate)
    send = app.action("send", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> Any:
        async def act() -> Any:
            return await ctx.act(send, key="send")

        async def raise_once() -> None:
            await gate.inside.wait()
            raise ValueError("the sibling")

        if how == "sibling raises":
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(act())
                    group.create_task(raise_once())
            except ExceptionGroup:
                return await act()
        elif how == "scope ends":
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(act)
                    await gate.inside.wait()
                    scope.cancel()
            return await act()
        task = asyncio.create_task(act())
        await gate.inside.wait()
        for _ in range(2 if how == "twice" else 1):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        return await act()

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await gate.inside.wait()
        await anyio.wait_all_tasks_blocked()
        assert statuses(harness) == ["INTENT"]
        gate.go.set()
        assert result(await harness.ended(task)) == "sent"
        assert (provider.attempts, statuses(harness)) == ([1], ["DONE"])


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_act_of_a_task_that_is_cancelled_before_the_call_is_not_called(tmp_path, monkeypatch):
    app, provider = App(), Provider()
    send = app.action("send", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> Any:
        task = asyncio.create_task(ctx.act(send, key="send"))
        await held.inside()
        task.cancel()
        held.go_on()
        with pytest.raises(asyncio.CancelledError):
            await task

    async with lab(app, tmp_path) as harness:
        held = HeldBatch(harness, monkeypatch, "begin_all")
        assert result(await run(harness, turn)) is None
        assert (statuses(harness), provider.calls) == (["FAILED"], [])


@pytest.mark.parametrize("how", ["cancelled", "shutdown"])
async def test_act_in_a_task_is_in_doubt_after_an_interruption_by_a_person_or_a_shutdown(tmp_path, how):
    app, gate = App(), Gate()
    send = app.action("send", irreversible=True)(Provider(gate))

    async def turn(ctx: TaskContext) -> Any:
        return await gather(lambda: ctx.act(send, key="send"))

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await gate.inside.wait()
        if how == "cancelled":
            await app.cancel_task(task)
            await harness.ended(task)
        else:
            [run] = harness.engine.consumer.running.values()
            run.stop("shutdown")
            await harness.until(lambda: statuses(harness) != ["INTENT"])
        [row] = ledger(harness)
        assert (row["status"], row["reason"]) == ("UNKNOWN", "it was cancelled while it was called")


async def test_stopped_turn_leaves_an_act_in_a_task_in_doubt(tmp_path):
    app, gate = App(), Gate()
    send = app.action("send", irreversible=True)(Provider(gate))

    async def turn(ctx: TaskContext[int]) -> Any:
        if ctx.turn == 1:
            return Continue(1, on="go")
        return await gather(lambda: ctx.act(send, key="send"))

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await harness.waiting(task)
        await app.signal(task, "go")
        await gate.inside.wait()
        await app.stop_turn(task)
        await harness.waiting(task, 3)
        assert (statuses(harness), questions(harness)) == (["UNKNOWN"], [("activity", "OPEN")])


@ON_ASYNCIO
async def test_tasks_with_the_same_act_in_doubt_share_a_question(tmp_path):
    app = App()
    pay = app.action("pay", irreversible=True)(Provider(LOST))

    async def turn(ctx: TaskContext) -> Any:
        return await gather(*[partial(ctx.act, pay, key="pay")] * 3)

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await harness.app.answer((await harness.question("activity"))["id"], "happened", answered_by="ada")
        assert result(await harness.ended(task)) == [None] * 3
        assert questions(harness) == [("activity", "ANSWERED")]
