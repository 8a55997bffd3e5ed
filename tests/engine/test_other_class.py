"""A value of a union that would come back as one of another class is refused wherever it is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

import pytest

from craftcore import App, Continue, Done, InvalidInput, TaskContext, WorkFailed
from tests.support.engine_harness import Lab, lab, settings
from tests.support.process_functions import Cat, Pets, choose_cats, choose_pets
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio

OTHER = "Dog comes back from its JSON as Cat"

app = App("pets")


@app.workflow("step", max_attempts=1)
async def step(ctx: TaskContext, executor: str, two: bool) -> int:
    function: Any = choose_pets if two else choose_cats
    chosen = await ctx.step("choose", function, executor=cast("Any", executor))
    assert chosen == Pets([Cat("Tom")])
    return len(chosen.all)


@app.workflow("chat", max_attempts=1)
async def chat(ctx: TaskContext[Pets], two: bool) -> int | Continue[Pets]:
    if ctx.state is not None:
        return len(ctx.state.all)
    return Continue(choose_pets() if two else choose_cats())


@app.workflow("result")
async def result(two: bool) -> Pets:
    return choose_pets() if two else choose_cats()


@app.workflow("done")
async def done(ctx: TaskContext, two: bool) -> Done[Pets]:
    return Done(choose_pets() if two else choose_cats())


@app.workflow("process", executor="process")
def process(two: bool) -> Pets:
    return choose_pets() if two else choose_cats()


@pytest.fixture
async def harness(tmp_path: Any) -> AsyncIterator[Lab]:
    config = settings()
    async with lab(app, tmp_path, replace(config, daemon=replace(config.daemon, worker_processes=1))) as harness:
        yield harness


@pytest.mark.parametrize("executor", ["thread", "inline", "process"])
async def test_result_of_a_step_is_refused(harness, executor):
    with pytest.raises(WorkFailed, match=OTHER):
        await (await app.emit("step", {"executor": executor, "two": True})).result(timeout=PATIENCE)

    assert await (await app.emit("step", {"executor": executor, "two": False})).result(timeout=PATIENCE) == 1


async def test_state_is_refused_at_the_end_of_its_turn(harness):
    refused = await app.emit("chat", {"two": True})
    with pytest.raises(WorkFailed, match=OTHER):
        await refused.result(timeout=PATIENCE)

    assert harness.task(refused.id)["turn"] == 1
    assert await (await app.emit("chat", {"two": False})).result(timeout=PATIENCE) == 1


@pytest.mark.parametrize("workflow", ["result", "done", "process"])
async def test_result_of_a_workflow_is_not_stored(harness, workflow):
    refused = await app.emit(workflow, {"two": True})
    with pytest.raises(InvalidInput, match=OTHER):
        await refused.result(timeout=PATIENCE)

    assert harness.trigger(refused.id)["attempts"] == 1
    assert await (await app.emit(workflow, {"two": False})).result(timeout=PATIENCE) == Pets([Cat("Tom")])


@pytest.mark.parametrize("value", [5, "text", {"name": 5}, None])
async def test_unfit_result_is_stored_and_refused_by_its_reader(tmp_path, value):
    loose = App("loose")

    @loose.workflow("result")
    async def result() -> Pets:
        return cast("Pets", value)

    async with lab(loose, tmp_path) as harness:
        work = await loose.emit("result")
        row = await harness.settled(work.id)
        assert row["status"] == "DONE"
        assert await work.result(object, timeout=PATIENCE) == value
