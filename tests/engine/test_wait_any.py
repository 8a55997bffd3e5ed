"""Waits for the first of several events, answers, child ends or times."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from craftcore import App, Ask, ChildFailed, Event, Fail, First, TaskContext, Timer
from tests.support.engine_harness import Lab, lab
from tests.support.turns import begin, failure, result, run

pytestmark = pytest.mark.anyio

WAITS = "SELECT name, status, resolved_by FROM waits ORDER BY seq"
QUESTIONS = "SELECT question, status FROM questions ORDER BY seq"


def build_app() -> App:
    app = App()

    @app.workflow("part")
    async def part(ctx: TaskContext, fails: bool = False) -> str:
        await ctx.wait_for("end")
        if fails:
            raise Fail("VALIDATION_ERROR", "no")
        return "the part"

    return app


async def wait_for_first(ctx: TaskContext) -> First:
    child = await ctx.start_child("part", key="child")
    return await ctx.wait_any(
        {"paid": Event("paid"), "answer": Ask("Go on?", ["yes", "no"]), "child": child, "late": Timer("1h")}
    )


async def child_id(harness: Lab) -> str:
    await harness.until(
        lambda: len(harness.rows("SELECT 1 FROM waits WHERE event = 'end' AND status = 'WAITING'")) == 1
    )
    [row] = harness.rows("SELECT id FROM tasks WHERE workflow = 'part'")
    return str(row["id"])


async def signal(harness: Lab, task_id: str) -> None:
    await harness.app.signal(task_id, "paid", {"amount": 3})


async def answer(harness: Lab, task_id: str) -> None:
    [question] = await harness.app.questions()
    await harness.app.answer(question.id, "no", answered_by="ada")


async def end_child(harness: Lab, task_id: str) -> None:
    await harness.app.signal(await child_id(harness), "end")


async def test_second_wait_any_of_a_turn_has_its_own_alternatives(tmp_path):
    async def turn(ctx: TaskContext) -> list[str]:
        first = await ctx.wait_any({"a": Event("a"), "b": Event("b")})
        second = await ctx.wait_any({"b": Event("c"), "d": Event("d")})
        return [first.name, second.name]

    async with lab(build_app(), tmp_path) as harness:
        task_id = await begin(harness, turn)
        await harness.waiting(task_id)
        for event, status in (("b", "WAITING"), ("d", "DONE")):
            await harness.app.signal(task_id, event)
            await harness.idle_window()
            await harness.idle()
            assert harness.task(task_id)["status"] == status

        assert result(harness.task(task_id)) == ["b", "d"]


@pytest.mark.parametrize(
    ("end_wait", "name", "value"),
    [
        (signal, "paid", {"amount": 3}),
        (answer, "answer", "no"),
        (end_child, "child", "the part"),
    ],
)
async def test_first_alternative_to_occur_ends_the_others(tmp_path, end_wait, name, value):
    async with lab(build_app(), tmp_path) as harness:
        task_id = await begin(harness, wait_for_first)
        await harness.waiting(task_id)
        await child_id(harness)

        await end_wait(harness, task_id)

        await harness.until(lambda: harness.task(task_id)["status"] == "DONE")
        assert result(harness.task(task_id)) == [name, value]
        ends = {row["name"].removeprefix("wait_any#1/"): row["resolved_by"] for row in harness.rows(WAITS)}
        assert {each for each, by in ends.items() if by == "end"} == {"paid", "answer", "child", "late"} - {name}
        assert harness.rows(QUESTIONS) == [
            {"question": "Go on?", "status": "ANSWERED" if name == "answer" else "WITHDRAWN"}
        ]


async def test_timer_ends_the_wait_when_no_other_alternative_occurs(tmp_path):
    async def turn(ctx: TaskContext) -> First:
        return await ctx.wait_any({"paid": Event("paid"), "long": Timer(3600), "short": Timer(0.05)})

    async with lab(build_app(), tmp_path) as harness:
        assert result(await run(harness, turn)) == ["short", None]
        assert {row["resolved_by"] for row in harness.rows(WAITS)} == {"timer", "end"}
        assert harness.rows("SELECT status FROM triggers WHERE status IN ('PENDING', 'CLAIMED')") == []


async def test_first_named_of_two_events_ends_the_wait_and_the_other_event_is_kept(tmp_path):
    async def turn(ctx: TaskContext) -> list[Any]:
        await ctx.sleep(0.2)
        first = await ctx.wait_any({"b": Event("b"), "a": Event("a")})
        return [*first, await ctx.wait_for("a")]

    async with lab(build_app(), tmp_path) as harness:
        task_id = await begin(harness, turn)
        await harness.waiting(task_id)
        await harness.app.signal(task_id, "a", 1)
        await harness.app.signal(task_id, "b", 2)

        await harness.until(lambda: harness.task(task_id)["status"] == "DONE")
        assert result(harness.task(task_id)) == ["b", 2, 1]


async def test_wait_any_in_a_loop_waits_again(tmp_path):
    async def turn(ctx: TaskContext) -> list[Any]:
        return [(await ctx.wait_any({"item": Event("item"), "late": Timer("1h")})).value for _ in range(3)]

    async with lab(build_app(), tmp_path) as harness:
        task_id = await begin(harness, turn)
        for number in range(3):
            await harness.app.signal(task_id, "item", number)

        await harness.until(lambda: harness.task(task_id)["status"] == "DONE")
        assert result(harness.task(task_id)) == [0, 1, 2]


async def test_child_that_fails_first_raises(tmp_path):
    async def turn(ctx: TaskContext) -> str:
        child = await ctx.start_child("part", {"fails": True})
        try:
            await ctx.wait_any({"child": child, "late": Timer("1h")})
        except ChildFailed as failed:
            return f"{failed.details['status']} {failed.details['code']}"
        return "no"

    async with lab(build_app(), tmp_path) as harness:
        task_id = await begin(harness, turn)
        await harness.app.signal(await child_id(harness), "end")

        await harness.until(lambda: harness.task(task_id)["status"] == "DONE")
        assert result(harness.task(task_id)) == "FAILED VALIDATION_ERROR"


async def test_cancelled_task_ends_every_alternative(tmp_path):
    async with lab(build_app(), tmp_path) as harness:
        task_id = await begin(harness, wait_for_first)
        await harness.waiting(task_id)
        await child_id(harness)
        await harness.app.cancel_task(task_id)

        assert harness.task(task_id)["status"] == "CANCELLED"
        assert [row["resolved_by"] for row in harness.rows(f"SELECT * FROM ({WAITS}) WHERE name LIKE 'wait_any%'")] == [
            "end"
        ] * 4
        assert harness.rows(QUESTIONS) == [{"question": "Go on?", "status": "WITHDRAWN"}]


REFUSED: list[tuple[Any, str]] = [
    ({}, "takes 1 to 100 alternatives by name"),
    ([Event("paid")], "takes 1 to 100 alternatives by name"),
    ({f"n{number}": Event("paid") for number in range(101)}, "takes 1 to 100 alternatives by name"),
    ({"two words": Event("paid")}, "ctx.wait_any: alternative 'two words' must be 1 to 200 characters"),
    ({"paid": Event("two words")}, "event 'two words' must be 1 to 200 characters"),
    ({"paid": "paid"}, "alternative paid is 'paid'; it must be an Event, an Ask, a Timer, or the Child"),
    ({"late": Timer(-1)}, "Timer: after -1 must be"),
    ({"answer": Ask("")}, "a question, its options and default are text"),
]


async def test_alternatives_that_cannot_be_waited_for_are_refused(tmp_path):
    async def turn_of(ctx: TaskContext, alternatives: Any) -> None:
        await ctx.wait_any(alternatives)

    async with lab(build_app(), tmp_path) as harness:
        for alternatives, reason in REFUSED:
            code, message = failure(await run(harness, partial(turn_of, alternatives=alternatives)))
            assert code == "VALIDATION_ERROR", reason
            assert reason in message
            assert harness.rows(WAITS) == [], reason


async def test_alternative_that_came_first_must_still_be_named(tmp_path):
    names = iter([("paid", "late"), ("other", "late")])

    async def turn(ctx: TaskContext) -> None:
        event, time = next(names)
        await ctx.wait_any({event: Event("paid"), time: Timer("1h")})

    async with lab(build_app(), tmp_path) as harness:
        task_id = await begin(harness, turn)
        await harness.waiting(task_id)
        await harness.app.signal(task_id, "paid")

        await harness.until(lambda: harness.task(task_id)["status"] == "FAILED")
        assert failure(harness.task(task_id))[0] == "STEP_CONFLICT"
