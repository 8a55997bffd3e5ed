"""A plain trigger that is due comes into an idle engine's window at its birth; anything else goes through the table."""

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


async def test_it_is_claimed_by_the_commit_that_accepts_it_and_runs_without_a_look(tmp_path):
    app, gate = app_with_gate()
    async with lab(app, tmp_path) as it:
        await it.idle()
        looks = it.engine.feeder.polls
        emitted = await app.emit("work", priority=7, description="now")
        assert (emitted.created, emitted.status) == (True, TriggerStatus.CLAIMED)
        await it.until(lambda: it.engine.running == 1)
        assert it.engine.feeder.polls == looks
        gate.set()
        row = await it.settled(emitted.id)
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
async def test_what_is_not_plain_or_not_due_goes_through_the_table(tmp_path, changes):
    app, gate = app_with_gate()
    gate.set()
    async with lab(app, tmp_path) as it:
        await it.idle()
        assert (await app.emit("work", **changes)).status is TriggerStatus.PENDING


async def test_a_full_window_or_an_engine_that_is_paused_takes_nothing_at_birth(tmp_path):
    app, gate = app_with_gate()
    async with lab(app, tmp_path, settings(concurrency=1, claim_batch=2)) as it:
        await it.idle()
        taken = [(await app.emit("work")).status for _ in range(6)]
        assert taken[0] is TriggerStatus.CLAIMED
        assert taken[-1] is TriggerStatus.PENDING
        gate.set()
        await it.until(lambda: it.engine.counts["DONE"] == 6)
        await it.idle()
        it.engine.feeder.paused = True
        assert (await app.emit("work")).status is TriggerStatus.PENDING


async def test_it_waits_behind_what_is_due_in_the_table_and_not_yet_in_the_window(tmp_path):
    """The last look left something behind, so the new one must not overtake it."""
    app, gate = app_with_gate()
    async with lab(app, tmp_path, settings(concurrency=1, claim_batch=2)) as it:
        await it.idle()
        for _ in range(8):
            await app.emit("work")
        order = [row["id"] for row in it.rows("SELECT id FROM triggers ORDER BY seq")]
        gate.set()
        await it.until(lambda: it.engine.counts["DONE"] == 8)
        started = [row["trigger_id"] for row in it.rows("SELECT trigger_id FROM executions ORDER BY seq")]
        assert started == order


async def test_an_emit_that_is_cancelled_while_it_commits_is_not_lost(tmp_path):
    """It may be on disk as claimed, and its caller is gone: the next heartbeat hands it back."""
    clock = VirtualClock()
    app, gate = app_with_gate()
    gate.set()
    async with lab(app, tmp_path, settings(lease_seconds=60.0), clock=clock) as it:
        await it.idle()
        for _ in range(20):
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(app.emit, "work")
                    await anyio.lowlevel.checkpoint()
                    scope.cancel()
        accepted = it.rows("SELECT count(*) AS n FROM triggers")[0]["n"]
        clock.advance(seconds=30)
        it.engine.feeder.ring()
        await it.until(lambda: it.engine.counts["DONE"] == accepted)
        await it.idle()
        assert it.engine.feeder._reserved == 0
    left = look(it.path, "SELECT count(*) AS n FROM triggers WHERE status <> 'DONE'")
    assert left == [{"n": 0}]
