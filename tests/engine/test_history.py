"""The conversation of a session: what turns append is stored once, read in windows, and trimmed between units."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from craftcore import App, Ask, Continue, Fail, TaskContext
from craftcore.config import TaskSettings
from tests.support.engine_harness import Lab, lab, settings
from tests.support.turns import Counting, begin, failure, result, run

pytestmark = pytest.mark.anyio

MESSAGES = "SELECT session_id, number, begins, task_id, turn, message_json AS text FROM session_messages ORDER BY seq"


def texts(harness: Lab) -> list[str]:
    return [row["text"] for row in harness.rows(MESSAGES)]


async def test_messages_are_stored_with_the_turn_and_read_by_the_next_task_of_the_session(tmp_path):
    app = App()

    @app.workflow("chat")
    async def chat(ctx: TaskContext, text: str) -> Any:
        await ctx.history.append({"user": text})
        said = await ctx.history.last(50)
        await ctx.history.append({"model": len(said)}, {"tool": text})
        return said

    async with lab(app, tmp_path) as harness:
        first = await app.emit("chat", {"text": "a"}, session_id="s")
        assert await first.result() == [{"user": "a"}]
        assert await (await app.emit("chat", {"text": "b"}, session_id="other")).result() == [{"user": "b"}]

        second = await app.emit("chat", {"text": "c"}, session_id="s")

        assert await second.result() == [{"user": "a"}, {"model": 1}, {"tool": "a"}, {"user": "c"}]
        rows = [row for row in harness.rows(MESSAGES) if row["session_id"] == "s"]
        assert [(row["number"], row["begins"]) for row in rows] == [(1, 1), (2, 1), (3, 0), (4, 1), (5, 1), (6, 0)]
        assert [row["task_id"] for row in rows] == [first.id] * 3 + [second.id] * 3


async def test_task_without_a_session_has_a_conversation_of_its_own(tmp_path):
    async def turn(ctx: TaskContext) -> Any:
        said = await ctx.history.last()
        await ctx.history.append(ctx.turn)
        return Continue(None) if ctx.turn < 3 else said

    async with lab(App(), tmp_path) as harness:
        row = await run(harness, turn)
        assert result(row) == [1, 2]
        assert {one["session_id"] for one in harness.rows(MESSAGES)} == {row["id"]}
        assert [(one["turn"], one["text"]) for one in harness.rows(MESSAGES)] == [(1, "1"), (2, "2"), (3, "3")]


async def test_turn_that_waits_and_is_entered_again_appends_once_and_reads_the_same(tmp_path):
    model = Counting()
    app = App()

    @app.workflow("chat")
    async def chat(ctx: TaskContext, text: str) -> Any:
        said = await ctx.history.last(10)
        await ctx.history.append(text)
        await ctx.step("model", model, said)
        answer = await ctx.ask("Go on?", ["yes"]) if text == "ask" else "at once"
        await ctx.history.append(answer)
        return [*await ctx.history.last(10, key="again"), "of", *said]

    async with lab(app, tmp_path) as harness:
        await (await app.emit("chat", {"text": "a"}, session_id="s")).result()
        asking = await app.emit("chat", {"text": "ask"}, session_id="s")
        await harness.waiting(asking.id)
        assert texts(harness) == ['"a"', '"at once"']

        await (await app.emit("chat", {"text": "b"}, session_id="s")).result()
        [question] = await app.questions()
        await app.answer(question.id, "yes", answered_by="ada")

        # The second read is the first of its kind, so it has what came in the meantime.
        said = ["a", "at once", "b", "at once", "ask", "yes", "of", "a", "at once"]
        assert await asking.result() == said
        assert texts(harness) == ['"a"', '"at once"', '"b"', '"at once"', '"ask"', '"yes"']
        assert [call for (call,) in model.calls] == [[], ["a", "at once"], ["a", "at once"]]


async def test_failed_attempt_appends_nothing_and_the_next_attempt_appends_once(tmp_path):
    async def turn(ctx: TaskContext) -> Any:
        await ctx.history.append(f"attempt {ctx.attempt}")
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return await ctx.history.last()

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == ["attempt 3"]
        assert texts(harness) == ['"attempt 3"']


async def test_task_that_fails_or_is_stopped_appends_nothing(tmp_path):
    async def failing(ctx: TaskContext) -> Any:
        await ctx.history.append("lost")
        raise Fail("NO_MONEY", "no")

    async def waiting(ctx: TaskContext) -> Any:
        await ctx.history.append("lost, too")
        if ctx.turn == 1:
            return Continue(None)
        return await ctx.wait_any({"a": Ask("?")})

    async with lab(App(), tmp_path) as harness:
        assert failure(await run(harness, failing)) == ("NO_MONEY", "no")
        task_id = await begin(harness, waiting)
        await harness.waiting(task_id)
        await harness.app.cancel_task(task_id)
        assert texts(harness) == ['"lost, too"']


async def test_agent_after_a_fallback_appends_only_its_own_messages(tmp_path):
    app = App()

    @app.workflow("first", fallback=["second"])
    async def first(ctx: TaskContext) -> Any:
        await ctx.history.append("question", "first")
        raise ValueError("busy")

    @app.workflow("second")
    async def second(ctx: TaskContext) -> Any:
        await ctx.history.append("question", "second")
        return await ctx.history.last()

    async with lab(app, tmp_path) as harness:
        assert await (await app.emit("first", session_id="s")).result() == ["question", "second"]
        assert texts(harness) == ['"question"', '"second"']


@dataclass
class Said:
    role: str
    text: str


async def test_messages_come_back_as_their_type(tmp_path):
    async def turn(ctx: TaskContext) -> Any:
        await ctx.history.append(Said("user", "hi"), Said("model", "ho"))
        if ctx.turn == 1:
            return Continue(None)
        said = await ctx.history.last(3, type=Said)
        return [type(one).__name__ for one in said] + [said[-1].text]

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == ["Said", "Said", "ho"]


async def test_message_of_another_type_is_refused_with_its_place(tmp_path):
    async def turn(ctx: TaskContext) -> Any:
        await ctx.history.append({"role": "user"})
        await ctx.history.last(type=Said)

    async with lab(App(), tmp_path) as harness:
        code, message = failure(await run(harness, turn))
        assert (code, message) == ("VALIDATION_ERROR", "a message of ctx.history: Object missing required field `text`")


@pytest.mark.parametrize(
    ("limit", "seen"),
    [
        (8, ["a", "b1", "b2", "c", "d1", "d2", "d3", "e"]),
        (7, ["b1", "b2", "c", "d1", "d2", "d3", "e"]),
        (6, ["c", "d1", "d2", "d3", "e"]),  # not between b1 and b2
        (4, ["d1", "d2", "d3", "e"]),
        (3, ["e"]),
        (1, ["e"]),
    ],
)
async def test_window_is_cut_between_calls_only(tmp_path, limit, seen):
    async def turn(ctx: TaskContext) -> Any:
        if ctx.turn == 1:
            await ctx.history.append("a")
            await ctx.history.append("b1", "b2")
            await ctx.history.append("c")
            await ctx.history.append("d1", "d2", "d3")
            await ctx.history.append("e")
            return Continue(None)
        return await ctx.history.last(limit)

    async def same_turn(ctx: TaskContext) -> Any:
        await ctx.history.append("a")
        await ctx.history.append("b1", "b2")
        await ctx.history.append("c")
        await ctx.history.append("d1", "d2", "d3")
        await ctx.history.append("e")
        return await ctx.history.last(limit)

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == seen
        assert result(await run(harness, same_turn)) == seen


async def test_newest_unit_comes_whole_though_longer_than_the_window(tmp_path):
    async def turn(ctx: TaskContext) -> Any:
        if ctx.turn == 1:
            await ctx.history.append("a")
            await ctx.history.append("b1", "b2", "b3")
            return Continue(await ctx.history.last(2))
        return [ctx.state, await ctx.history.last(2)]

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == [["b1", "b2", "b3"], ["b1", "b2", "b3"]]


async def test_messages_of_a_group_stay_together_over_calls_and_turns(tmp_path):
    async def turn(ctx: TaskContext) -> Any:
        if ctx.turn == 1:
            await ctx.history.append("a")
            await ctx.history.append("call", group="call_1")
            return Continue(None)
        if ctx.turn == 2:
            await ctx.history.append("between")
            await ctx.history.append("result", group="call_1")
            await ctx.history.append("z")
            return Continue([await ctx.history.last(4), await ctx.history.last(3)])
        assert ctx.state is not None
        return [*ctx.state, await ctx.history.last(4), await ctx.history.last(3)]

    async with lab(App(), tmp_path) as harness:
        seen = [["call", "between", "result", "z"], ["z"]]
        assert result(await run(harness, turn)) == [*seen, *seen]
        assert [row["begins"] for row in harness.rows(MESSAGES)] == [1, 1, 0, 0, 1]


async def test_session_keeps_its_newest_messages_and_whole_units(tmp_path):
    async def turn(ctx: TaskContext) -> Any:
        await ctx.history.append(f"call {ctx.turn}", f"result {ctx.turn}", f"text {ctx.turn}")
        return Continue(None) if ctx.turn < 20 else None

    config = replace(settings(), tasks=TaskSettings(history_messages=10))
    async with lab(App(), tmp_path, config) as harness:
        await run(harness, turn)
        rows = harness.rows(MESSAGES)
        assert [row["number"] for row in rows] == list(range(49, 61))  # 12: the tenth from the end is inside of a unit
        assert rows[0]["text"] == '"call 17"'


async def refused(folder: Any, turn: Any) -> str:
    async with lab(App(), folder) as harness:
        row = await run(harness, turn, max_attempts=1)
        assert texts(harness) == []
        return str(row["error_message"])


async def test_append_inside_of_a_step_is_refused(tmp_path):
    async def turn(ctx: TaskContext) -> Any:
        async def step() -> None:
            await ctx.history.append("a")

        await ctx.step("say", step)

    assert "in the turn's own task, and outside of steps" in await refused(tmp_path, turn)


async def test_append_of_an_object_without_json_is_refused(tmp_path):
    async def turn(ctx: TaskContext) -> Any:
        await ctx.history.append({"a": object()})

    assert await refused(tmp_path, turn) == "message 1 of ctx.history.a: object is not JSON"


async def test_too_many_messages_of_a_turn_are_refused(tmp_path):
    async def turn(ctx: TaskContext) -> Any:
        await ctx.history.append(*list(range(1_000)))
        await ctx.history.append(1)

    assert "1,000 messages" in await refused(tmp_path, turn)


async def test_too_large_a_message_is_refused(tmp_path):
    async def turn(ctx: TaskContext) -> Any:
        await ctx.history.append("x" * (9 << 20))

    assert "tasks.result_max_bytes" in await refused(tmp_path, turn)


async def test_limit_of_a_window_is_checked(tmp_path):
    async def turn(ctx: TaskContext) -> Any:
        await ctx.history.last(0)

    assert "ctx.history.last: limit 0 must be" in await refused(tmp_path, turn)


async def test_call_that_is_not_awaited_fails_the_attempt(tmp_path):
    async def turn(ctx: TaskContext) -> Any:
        ctx.history.append("a")  # type: ignore[unused-coroutine]

    assert "ctx.history.append" in await refused(tmp_path, turn)
