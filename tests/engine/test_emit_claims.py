"""Triggers that are claimed in the commit of their emit, and triggers that stay pending."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from craftcore import App
from craftcore.triggers.model import TriggerStatus
from tests.support.engine_harness import lab, look, settings
from tests.support.fakes import VirtualClock

pytestmark = pytest.mark.anyio


def app_with_gate() -> tuple[App, anyio.Event]:
    app, gate = App(), anyio.Event()

    @app.workflow("work", sources=["MESSAGE"])
    async def work() -> None:
        await gate.wait()

    return app, gate


async def test_trigger_emitted_to_an_idle_engine_is_claimed_in_the_emit_commit(tmp_path):
    app, gate = app_with_gate()
    async with lab(app, tmp_path) as harness:
        await harness.idle()
        looks = harness.engine.feeder.polls
        emitted = await app.emit("work", priority=7, description="now")
        assert (emitted.created, emitted.status) == (True, TriggerStatus.CLAIMED)
        await harness.until(lambda: harness.engine.running == 1)
        assert harness.engine.feeder.polls == looks
        gate.set()
        row = await harness.settled(emitted.id)
        assert (row["status"], row["attempts"], row["starts"], row["priority"]) == ("DONE", 1, 1, 7)


@pytest.mark.parametrize(
    "changes",
    [
        {"delay": 3600},
        {"session_id": "s"},
        {"dedup_key": "k"},
        {"session_id": "s", "supersedes": "session"},
    ],
    ids=str,
)
async def test_trigger_with_delay_session_or_dedup_key_stays_pending_at_emit(tmp_path, changes):
    app, gate = app_with_gate()
    gate.set()
    async with lab(app, tmp_path) as harness:
        await harness.idle()
        assert (await app.emit("work", **changes)).status is TriggerStatus.PENDING


async def test_trigger_emitted_to_a_full_or_paused_engine_stays_pending(tmp_path):
    app, gate = app_with_gate()
    async with lab(app, tmp_path, settings(concurrency=1, claim_batch=2)) as harness:
        await harness.idle()
        taken = [(await app.emit("work")).status for _ in range(6)]
        assert taken[0] is TriggerStatus.CLAIMED
        assert taken[-1] is TriggerStatus.PENDING
        gate.set()
        await harness.until(lambda: harness.engine.counts["DONE"] == 6)
        await harness.idle()
        harness.engine.feeder.paused = True
        assert (await app.emit("work")).status is TriggerStatus.PENDING


async def test_trigger_emitted_behind_due_triggers_starts_in_order_of_emit(tmp_path):
    """Due triggers remain from the last poll, so the new trigger must not overtake them."""
    app, gate = app_with_gate()
    async with lab(app, tmp_path, settings(concurrency=1, claim_batch=2)) as harness:
        await harness.idle()
        for _ in range(8):
            await app.emit("work")
        order = [row["id"] for row in harness.rows("SELECT id FROM triggers ORDER BY seq")]
        gate.set()
        await harness.until(lambda: harness.engine.counts["DONE"] == 8)
        started = [row["trigger_id"] for row in harness.rows("SELECT trigger_id FROM executions ORDER BY seq")]
        assert started == order


async def test_emit_cancelled_during_the_commit_loses_no_accepted_trigger(tmp_path):
    """The trigger may be on disk as claimed after its caller was cancelled. The next heartbeat releases the claim."""
    clock = VirtualClock()
    app, gate = app_with_gate()
    gate.set()
    async with lab(app, tmp_path, settings(lease_seconds=60.0), clock=clock) as harness:
        await harness.idle()
        for _ in range(20):
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(app.emit, "work")
                    await anyio.lowlevel.checkpoint()
                    scope.cancel()
        accepted = harness.rows("SELECT count(*) AS n FROM triggers")[0]["n"]
        clock.advance(seconds=30)
        harness.engine.feeder.ring()
        await harness.until(lambda: harness.engine.counts["DONE"] == accepted)
        await harness.idle()
        assert not harness.engine.feeder.starting
    left = look(harness.path, "SELECT count(*) AS n FROM triggers WHERE status <> 'DONE'")
    assert left == [{"n": 0}]
