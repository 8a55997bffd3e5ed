"""Streams age as bodies do: those of ended turns go, and the numbers of a live task go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from craftcore import App, Continue, TaskContext
from tests.support.engine_harness import Lab, lab
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.retention_harness import DAY, only, sweep

pytestmark = pytest.mark.anyio

NAMES = "SELECT name, turn FROM turn_streams ORDER BY seq"


def build_app() -> App:
    app = App("streams")

    @app.workflow("chat")
    async def chat(ctx: TaskContext) -> Any:
        await ctx.stream("answer").write(f"turn {ctx.turn}")
        if ctx.turn == 1:
            await ctx.stream("thoughts").write("hm")
        return Continue(None, on="message") if ctx.turn < 4 else None

    @app.workflow("fails", max_attempts=1)
    async def fails(ctx: TaskContext) -> None:
        await ctx.stream("answer").write("kept for a retry")
        raise RuntimeError

    return app


async def say(harness: Lab, task: str) -> None:
    turn = harness.task(task)["turn"]
    await harness.app.signal(task, "message", {})
    await harness.until(lambda: harness.task(task)["turn"] > turn or harness.task(task)["ended_at"] is not None)


def sweep_at(folder: Path, clock: VirtualClock, **ages: float) -> list[tuple[str, int]]:
    """Sweep an idle file. Return the streams that stay, by name and turn."""
    core = VirtualCore(folder / "agent.db", clock)
    sweep(core, only(**ages))
    left = [(row["name"], row["turn"]) for row in core.rows(NAMES)]
    core.close()
    return left


async def test_streams_of_ended_turns_go_and_the_numbers_go_on(tmp_path, clock: VirtualClock):
    async with lab(build_app(), tmp_path, clock=clock) as harness:
        task = (await harness.app.emit("chat")).id
        await harness.waiting(task, 2)
        await say(harness, task)
        await harness.waiting(task, 3)
        await say(harness, task)

    clock.advance(hours=48)
    left = sweep_at(tmp_path, clock, bodies=DAY)

    async with lab(build_app(), tmp_path, clock=clock) as harness:
        await harness.waiting(task, 4)
        await say(harness, task)
        await harness.ended(task)
        chunks = [chunk async for chunk in harness.app.handle(task).stream()]

    assert left == [("thoughts", 1), ("answer", 3)]
    assert [(chunk.number, chunk.text) for chunk in chunks] == [(3, "turn 3"), (4, "turn 4")]


@pytest.mark.parametrize("ages", [{"bodies": DAY}, {"history": DAY}])
async def test_streams_go_with_the_bodies_or_with_their_task(tmp_path, clock: VirtualClock, ages):
    async with lab(build_app(), tmp_path, clock=clock) as harness:
        task = (await harness.app.emit("fails")).id
        await harness.ended(task)

    clock.advance(hours=23)
    young = sweep_at(tmp_path, clock, **ages)
    clock.advance(hours=2)
    kept_for_a_retry = sweep_at(tmp_path, clock, **ages)
    clock.advance(hours=24)
    old = sweep_at(tmp_path, clock, **ages, dead=2 * DAY)

    assert young == kept_for_a_retry == [("answer", 1)]
    assert old == []
