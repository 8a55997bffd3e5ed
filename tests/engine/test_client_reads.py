"""Reads of task progress and open questions by the program that runs the engine."""

from __future__ import annotations

import pytest

from craftcore import App, TaskContext
from tests.support.engine_harness import lab

pytestmark = pytest.mark.anyio


async def test_open_questions_are_listed_and_answered_without_a_known_id(tmp_path):
    app = App()

    @app.workflow("ask")
    async def ask(ctx: TaskContext, question: str) -> str | None:
        return await ctx.ask(question, ["yes", "no"])

    async with lab(app, tmp_path) as harness:
        first = await app.emit("ask", {"question": "Now?"})
        await harness.until(lambda: len(harness.rows("SELECT 1 FROM questions")) == 1)
        second = await app.emit("ask", {"question": "Later?"})
        await harness.until(lambda: len(harness.rows("SELECT 1 FROM questions")) == 2)

        asked = await app.questions()
        assert [(one.task_id, one.question, one.options) for one in asked] == [
            (first.id, "Now?", ("yes", "no")),
            (second.id, "Later?", ("yes", "no")),
        ]
        assert await app.questions(limit=1) == asked[:1]
        await app.answer(asked[0].id, "yes", answered_by="ada")

        assert [one.task_id for one in await app.questions()] == [second.id]
        await harness.until(lambda: bool(harness.rows("SELECT 1 FROM tasks WHERE ended_at IS NOT NULL")))
        task = await app.task(first.id)
        assert task is not None
        assert (task.status, task.result_json) == ("DONE", '"yes"')


async def test_task_lookup_returns_none_before_the_first_turn(tmp_path):
    app = App()

    @app.workflow("later")
    async def later(ctx: TaskContext) -> None: ...

    async with lab(app, tmp_path):
        emitted = await app.emit("later", delay=3600)

        assert await app.task(emitted.id) is None
