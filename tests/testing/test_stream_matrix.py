"""A turn that streams, killed at each commit and step: its text is that of its result."""

from __future__ import annotations

import os
from typing import Any

import anyio
import pytest

from craftcore import App, TaskContext
from craftcore.config import Config
from craftcore.services import Services
from craftcore.tasks.stream_store import StreamStore
from craftcore.testing import Lab, ScenarioEnd
from craftcore.testing.matrix import Choose
from tests.support.some_crashes import choose_some, crash_some

app = App("streams")


@app.workflow("says")
async def says(ctx: TaskContext) -> str:
    stream = ctx.stream("answer")

    async def model() -> str:
        texts = [f"{os.urandom(4).hex()} " for _ in range(3)]
        for text in texts:
            await stream.write(text)
            await anyio.lowlevel.checkpoint()
        return "".join(texts)

    await stream.write("A: ")
    first = await ctx.step("model", model, key="1")
    await ctx.sleep(60)
    await stream.write("B: ")
    second = await ctx.step("model", model, key="2")
    return f"A: {first}B: {second}"


async def ask(lab: Lab) -> Any:
    return await lab.result(await lab.emit("says"))


def is_streamed_as_returned(ending: ScenarioEnd) -> None:
    [task] = ending.rows("SELECT id FROM tasks")
    with Services(ending.database, Config(), read_only=True).reading() as reader:
        chunks, _ = StreamStore().list_after(reader, task["id"], "answer", 0)
    assert "".join(chunk.text for chunk in chunks) == ending.returned


@pytest.mark.parametrize(("choose", "least"), [(choose_some, 8), pytest.param(list, 20, marks=pytest.mark.acceptance)])
def test_stream_is_the_result_after_a_crash_at_each_point(choose: Choose, least: int):
    report = crash_some(app, ask, [is_streamed_as_returned], choose=choose)

    assert len(report.rows()) >= least
