"""Start holds in a running engine: held work, unaffected work, and release."""

from __future__ import annotations

import anyio
import pytest

from craftcore import App, Continue, Done, NotFound, Producer, TaskContext, TriggerSpec
from craftcore.errors import InvalidInput
from craftcore.triggers.start_holds import StartHolds, hold_target
from tests.support.engine_harness import lab, settings
from tests.support.fakes import VirtualClock

pytestmark = pytest.mark.anyio


def build_app(gate: anyio.Event | None = None, concurrency: int | None = 1) -> App:
    app = App()

    @app.workflow("greet")
    async def greet() -> None: ...

    @app.workflow("remember", sources=["MEMORY"])
    async def remember() -> None: ...

    @app.workflow("gated", concurrency=concurrency)
    async def gated() -> None:
        assert gate is not None
        await gate.wait()

    @app.workflow("turns")
    async def turns(ctx: TaskContext[int]) -> Done[int] | Continue[int]:
        if gate is not None and ctx.turn == 2:
            await gate.wait()
        return Continue(ctx.turn) if ctx.turn < 4 else Done(ctx.turn)

    return app


async def test_held_workflow_waits_while_others_run(tmp_path):
    app = build_app()
    async with lab(app, tmp_path) as harness:
        assert await app.hold(workflow="greet", reason="wrong text") is True
        assert await app.hold(workflow="greet") is False
        held = await app.emit("greet")
        assert (await harness.settled((await app.emit("remember")).id))["status"] == "DONE"
        await harness.idle()
        assert harness.trigger(held.id)["status"] == "PENDING"

        assert await app.release(workflow="greet") is True
        assert (await harness.settled(held.id))["status"] == "DONE"
        assert await app.release(workflow="greet") is False


async def test_hold_of_a_workflow_covers_triggers_of_its_source(tmp_path):
    app = build_app()
    async with lab(app, tmp_path) as harness:
        await app.hold(workflow="remember")
        held = await app.emit(None, source="MEMORY")
        await harness.idle()
        assert harness.trigger(held.id)["status"] == "PENDING"
        await app.release()
        assert (await harness.settled(held.id))["status"] == "DONE"


async def test_hold_returns_claimed_triggers_that_have_not_started(tmp_path):
    gate = anyio.Event()
    app = build_app(gate)
    async with lab(app, tmp_path, settings(concurrency=1)) as harness:
        running = await app.emit("gated")
        await harness.until(lambda: harness.engine.running == 1)
        claimed = await app.emit("greet")
        await harness.until(lambda: harness.trigger(claimed.id)["status"] == "CLAIMED")

        await app.hold(workflow="greet")
        await harness.until(lambda: harness.trigger(claimed.id)["status"] == "PENDING")
        row = harness.trigger(claimed.id)
        assert (row["attempts"], row["crash_count"]) == (0, 0)
        gate.set()
        assert (await harness.settled(running.id))["status"] == "DONE"
        await harness.idle()
        assert harness.trigger(claimed.id)["status"] == "PENDING"
        await app.release()
        assert (await harness.settled(claimed.id))["status"] == "DONE"


async def test_lane_of_a_returned_trigger_is_free_at_once(tmp_path):
    gate = anyio.Event()
    app = build_app(gate, concurrency=None)
    async with lab(app, tmp_path, settings(concurrency=1)) as harness:
        work = await app.emit("turns")
        await harness.until(lambda: [row["turn"] for row in harness.rows("SELECT turn FROM tasks")] == [2])
        claimed = await app.emit("greet", session_id="s")
        behind = await app.emit("remember", session_id="s")
        await harness.until(lambda: harness.trigger(claimed.id)["status"] == "CLAIMED")
        await harness.idle_window()
        assert harness.trigger(behind.id)["status"] == "PENDING"

        await app.hold(workflow="greet")
        await harness.until(lambda: harness.trigger(behind.id)["status"] == "CLAIMED")
        gate.set()
        assert await work.result() == 4
        assert harness.trigger(claimed.id)["status"] == "PENDING"


async def test_task_of_a_held_workflow_ends_its_turn_and_waits(tmp_path):
    gate = anyio.Event()
    app = build_app(gate)
    async with lab(app, tmp_path) as harness:
        work = await app.emit("turns")
        await harness.until(lambda: [row["turn"] for row in harness.rows("SELECT turn FROM tasks")] == [2])
        await app.hold(workflow="turns")
        await harness.until(lambda: bool(harness.engine.feeder.holds))
        gate.set()
        await harness.until(lambda: harness.task(work.id)["turn"] == 3)
        await harness.idle()
        assert harness.task(work.id)["status"] == "RUNNING"

        await app.release()
        assert await work.result() == 4


async def test_hold_of_everything_stays_over_a_restart(tmp_path):
    async with lab(build_app(), tmp_path) as harness:
        await harness.app.hold()
    app = build_app()
    async with lab(app, tmp_path) as harness:
        held = await app.emit("greet")
        await harness.idle()
        assert harness.trigger(held.id)["status"] == "PENDING"
        await app.release()
        assert (await harness.settled(held.id))["status"] == "DONE"


async def test_held_schedule_fires_and_its_occurrence_waits(tmp_path):
    clock = VirtualClock()
    app = build_app()
    app.schedule("hourly", "every 1h", workflow="greet")
    async with lab(app, tmp_path, clock=clock) as harness:
        await app.hold(schedule="hourly")
        clock.advance(hours=1)
        harness.engine.ring(schedules=True)
        fired = "SELECT id, status FROM triggers WHERE schedule_id = 'hourly'"
        await harness.until(lambda: bool(harness.rows(fired)))
        await harness.idle()
        [row] = harness.rows(fired)
        assert row["status"] == "PENDING"
        await app.release(schedule="hourly")
        assert (await harness.settled(row["id"]))["status"] == "DONE"


async def test_producer_holds_and_releases_a_running_engine(tmp_path):
    app = build_app()
    async with lab(app, tmp_path) as harness:
        with Producer(harness.path) as producer:
            assert producer.hold(source="IMMEDIATE") is True
            await harness.until(lambda: bool(harness.engine.feeder.holds))
            held = await app.emit("greet")
            await harness.idle()
            assert harness.trigger(held.id)["status"] == "PENDING"
            assert producer.release(source="IMMEDIATE") is True
            assert (await harness.settled(held.id))["status"] == "DONE"
            assert producer.release() is False


async def test_invalid_hold_is_refused_by_the_app(tmp_path):
    app = build_app()
    async with lab(app, tmp_path):
        with pytest.raises(InvalidInput, match="did you mean greet"):
            await app.hold(workflow="great")
        with pytest.raises(NotFound, match="no schedule nightly"):
            await app.hold(schedule="nightly")


async def test_trigger_held_between_the_emit_and_the_window_is_released(tmp_path):
    app = build_app()
    async with lab(app, tmp_path) as harness:
        await harness.idle()
        feeder = harness.engine.feeder
        row = harness.engine.accept(TriggerSpec(workflow="greet"))
        assert feeder.may_claim_on_emit(row, 0)
        claim = await harness.engine.writer.commit_batched(harness.engine.consumer._emit_claimed, row)
        feeder.holds = StartHolds(targets={hold_target(workflow="greet"): "ada"})  # as during a poll

        feeder.push_claimed(claim)

        assert not list(harness.engine.held_claims)
        assert (await harness.settled(row.id))["status"] == "DONE", "the next poll finds no recorded hold"
        assert harness.trigger(row.id)["starts"] == 1
