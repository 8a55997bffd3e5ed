"""A task that has not ended at its deadline fails then, whatever it does: run, wait, or wait to be tried again."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import anyio
import pytest

from craftcore import App, Continue, RetryPolicy, Snooze, TaskContext
from tests.engine.lab import Lab, lab
from tests.virtual import NEW_YEAR, VirtualClock

pytestmark = pytest.mark.anyio

HOUR = 3600.0


async def fails_at_its_deadline(it: Lab, clock: VirtualClock, task_id: str) -> None:
    """An hour later it has failed, and was not run again."""
    clock.advance(hours=1)
    it.engine.ring(schedules=False)
    row = await it.ended(task_id)
    assert (row["status"], row["error_code"]) == ("FAILED", "AGENT_TIMEOUT")
    assert row["error_message"].endswith("the task did not end before its deadline")
    assert not it.rows("SELECT 1 FROM triggers WHERE status IN ('PENDING', 'CLAIMED')")


WAITS: list[Callable[[TaskContext], Awaitable[object]]] = [
    lambda ctx: ctx.sleep(86_400),
    lambda ctx: ctx.wait_for("never"),
    lambda ctx: ctx.wait_for("never", timeout=86_400),
    lambda ctx: ctx.ask("Send it?"),
]


@pytest.mark.parametrize("wait", WAITS, ids=["a sleep", "an event", "an event with a timeout", "a question"])
async def test_a_task_that_waits_is_not_waited_for_beyond_its_deadline(tmp_path, wait):
    app, clock, entered = App(), VirtualClock(), list[str]()

    @app.workflow("waits", deadline=HOUR)
    async def waits(ctx: TaskContext) -> None:
        entered.append(ctx.resume)
        assert ctx.deadline == datetime.fromtimestamp(NEW_YEAR + HOUR, UTC)
        await wait(ctx)

    async with lab(app, tmp_path, clock=clock) as it:
        emitted = await app.emit("waits")
        await it.waiting(emitted.id)
        await fails_at_its_deadline(it, clock, emitted.id)
        assert entered == ["FIRST"]
        assert not it.rows("SELECT 1 FROM questions WHERE status = 'OPEN'")


async def test_a_task_that_waits_for_its_next_turn_or_its_child_fails_at_its_deadline(tmp_path):
    app, clock = App(), VirtualClock()

    @app.workflow("child")
    async def child(ctx: TaskContext) -> None:
        await ctx.wait_for("never")

    @app.workflow("waits", deadline=HOUR)
    async def waits(ctx: TaskContext, what: str) -> object:
        if what == "child":
            return await (await ctx.start_child("child")).result()
        return Continue(None, after=86_400) if what == "after" else Continue(None, on="message")

    async with lab(app, tmp_path, clock=clock) as it:
        ids = [(await app.emit("waits", {"what": what})).id for what in ("child", "after", "on")]
        for task_id in ids:
            await it.waiting(task_id)
        clock.advance(hours=1)
        it.engine.ring(schedules=False)
        for task_id in ids:
            assert (await it.ended(task_id))["error_code"] == "AGENT_TIMEOUT"
        [row] = it.rows("SELECT status FROM tasks WHERE workflow = 'child'")
        assert row["status"] == "WAITING", "a child goes on by itself"


@pytest.mark.parametrize("how", ["backoff", "snooze"])
async def test_a_task_that_is_to_be_tried_again_later_than_its_deadline_fails_at_its_deadline(tmp_path, how):
    app, clock, entered = App(), VirtualClock(), list[str]()

    @app.workflow("later", deadline=HOUR, retry=RetryPolicy(base=86_400, cap=86_400))
    async def later(ctx: TaskContext) -> None:
        entered.append(ctx.resume)
        raise Snooze(until=NEW_YEAR + 86_400) if how == "snooze" else ValueError("not yet")

    async with lab(app, tmp_path, clock=clock) as it:
        emitted = await app.emit("later")
        await it.until(lambda: it.trigger(emitted.id)["not_before"] == NEW_YEAR + HOUR)
        await fails_at_its_deadline(it, clock, emitted.id)
        assert entered == ["FIRST"]


async def test_a_turn_that_runs_is_cancelled_at_the_deadline_of_its_task_and_not_tried_again(tmp_path):
    """The clock stands still, so that it has its time however long its start took."""
    app, unwound = App(), list[int]()

    @app.workflow("runs", deadline=0.05)
    async def runs(ctx: TaskContext) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            unwound.append(ctx.attempt)

    async with lab(app, tmp_path, clock=VirtualClock()) as it:
        emitted = await app.emit("runs")
        row = await it.ended(emitted.id)
        assert (row["status"], row["error_code"], unwound) == ("FAILED", "AGENT_TIMEOUT", [1])


async def test_a_task_without_a_deadline_has_none(tmp_path):
    app = App()

    @app.workflow("free")
    async def free(ctx: TaskContext) -> bool:
        return ctx.deadline is None

    @app.workflow("timed", timeout=3600)
    async def timed(ctx: TaskContext) -> bool:
        return ctx.deadline is not None and abs(ctx.deadline.timestamp() - time.time() - 3600) < 600

    async with lab(app, tmp_path) as it:
        for name in ("free", "timed"):
            assert (await it.ended((await app.emit(name)).id))["result_json"] == "true"
