"""The feeder: its wake-ups, heartbeats, leases and claim window."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from craftcore import App, TriggerSpec
from craftcore.producer import Producer
from craftcore.services import Services
from craftcore.triggers.start_holds import release
from tests.support.engine_harness import lab, settings
from tests.support.fakes import VirtualClock
from tests.support.loops import ON_ASYNCIO
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio


def build_app() -> App:
    app = App()

    @app.workflow("greet")
    async def greet() -> None: ...

    return app


async def test_feeder_wakes_at_once_on_the_bell_of_another_process(tmp_path):
    """The poll interval is minutes long, so only the bell can wake the feeder."""
    async with lab(build_app(), tmp_path) as harness:
        await harness.idle()
        with Producer(harness.path) as producer:
            emitted = producer.emit("greet")
        assert (await harness.settled(emitted.id))["status"] == "DONE"


async def test_trigger_emitted_without_a_bell_is_found_by_the_poll(tmp_path):
    async with lab(build_app(), tmp_path, settings(poll_seconds=0.1)) as harness:
        await harness.idle()
        silent = Services(harness.path, settings())
        with silent.transaction() as tx:  # a producer that is killed between its commit and its ring
            emitted = silent.triggers.emit(tx, _spec())
        silent.close()
        assert (await harness.settled(emitted.id))["status"] == "DONE"


async def test_trigger_runs_when_due_and_not_before(tmp_path):
    clock = VirtualClock()
    async with lab(build_app(), tmp_path, clock=clock) as harness:
        emitted = await harness.app.emit("greet", delay=60)
        await harness.idle()
        clock.advance(seconds=59.9)
        harness.engine.feeder.ring()
        await harness.idle()
        assert harness.trigger(emitted.id)["status"] == "PENDING"
        clock.advance(seconds=0.1)
        harness.engine.feeder.ring()
        row = await harness.settled(emitted.id)
        assert row["started_at"] >= row["due_at"]


async def test_feeder_wakes_without_a_bell_when_the_next_trigger_is_due(tmp_path):
    async with lab(build_app(), tmp_path) as harness:
        emitted = await harness.app.emit("greet", delay=0.05)
        assert (await harness.settled(emitted.id))["status"] == "DONE"


async def test_feeder_wakes_for_a_due_time_reported_during_a_running_poll(tmp_path):
    """trio wakes the tasks of a commit in any order, so the due time found by the previous poll may have passed."""
    app = App()

    @app.workflow("quick")
    async def quick() -> None: ...

    async with lab(app, tmp_path) as harness:
        feeder = harness.engine.feeder
        await harness.idle_window()
        await anyio.sleep(0.05)
        feeder._next_due = feeder._clock.now() + 0.01  # as found by the previous poll
        inside, proceed = threading.Event(), threading.Event()

        def hold(_tx: Any) -> None:
            inside.set()
            proceed.wait(PATIENCE)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(harness.engine.writer.commit, hold)
            await anyio.to_thread.run_sync(inside.wait)
            feeder.ring()  # starts a poll
            await anyio.sleep(0.05)
            feeder.notify_due(feeder._clock.now() + 0.2)  # as the emitter does before the feeder receives its answer
            assert feeder._rung.is_set()
            proceed.set()


async def test_held_engine_claims_nothing_until_released(tmp_path):
    app = build_app()
    core = Services(tmp_path / "agent.db", settings())
    core.prepare()
    with core.transaction() as tx:
        tx.run("INSERT INTO facts (name, value) VALUES ('held', 'restored')")
    async with lab(app, tmp_path) as harness:
        emitted = await app.emit("greet")
        await harness.idle()
        assert harness.trigger(emitted.id)["status"] == "PENDING"
        assert harness.engine.feeder.holds.everything == "restored"

        with core.transaction() as tx:
            assert release(tx) == {"held": "restored"}
        harness.engine.feeder.ring()
        assert (await harness.settled(emitted.id))["status"] == "DONE"
        held: str | None = harness.engine.feeder.holds.everything
        assert held is None
    with core.transaction() as tx:
        assert release(tx) == {}
    core.close()


async def test_leases_are_extended_while_a_workflow_runs(tmp_path):
    clock = VirtualClock()
    app = App()
    gate = anyio.Event()

    @app.workflow("long")
    async def long() -> None:
        await gate.wait()

    async with lab(app, tmp_path, settings(lease_seconds=60.0), clock=clock) as harness:
        emitted = await app.emit("long")
        await harness.until(lambda: harness.engine.running == 1)
        before = harness.trigger(emitted.id)["lease_until"]
        clock.advance(seconds=30)
        harness.engine.feeder.ring()
        await harness.until(lambda: harness.trigger(emitted.id)["lease_until"] == before + 30)
        gate.set()
        await harness.settled(emitted.id)


@ON_ASYNCIO
async def test_expired_lease_of_a_running_trigger_is_not_reclaimed_by_the_same_engine(tmp_path):
    """The machine was suspended for a week: every lease has expired, and the handlers still run."""
    clock = VirtualClock()
    app = App()
    gate = anyio.Event()
    calls: list[int] = []

    @app.workflow("long")
    async def long() -> None:
        calls.append(1)
        await gate.wait()

    async with lab(app, tmp_path, settings(lease_seconds=60.0), clock=clock) as harness:
        emitted = await app.emit("long")
        await harness.until(lambda: harness.engine.running == 1)
        clock.advance(hours=24 * 7)
        harness.engine.feeder.ring()
        await harness.idle_window()
        gate.set()
        assert (await harness.settled(emitted.id))["attempts"] == 1
        assert calls == [1]


@ON_ASYNCIO
async def test_lost_claim_is_released_and_the_trigger_runs_once(tmp_path):
    """The response to the claim was lost between the commit and the claim window."""
    clock = VirtualClock()
    async with lab(build_app(), tmp_path, settings(lease_seconds=60.0), clock=clock) as harness:
        await harness.idle()
        harness.engine.feeder.paused = True
        emitted = await harness.app.emit("greet")
        window = await harness.engine.writer.commit(
            harness.engine.feeder._claims.claim, epoch=harness.engine.epoch, limit=1
        )
        assert [claim.id for claim in window.claims] == [emitted.id]

        harness.engine.feeder.paused = False
        clock.advance(seconds=30)
        harness.engine.feeder.ring()
        assert (await harness.settled(emitted.id))["attempts"] == 1


@ON_ASYNCIO
async def test_trigger_replaced_in_the_claim_window_starts_once(tmp_path):
    """The window holds the old claim and the new claim, and both are started in the same commit."""
    app = App()
    gate = anyio.Event()
    seen: list[int] = []

    @app.workflow("wait")
    async def wait() -> None:
        await gate.wait()

    @app.workflow("note")
    async def note(n: int) -> None:
        seen.append(n)

    async with lab(app, tmp_path, settings(concurrency=2)) as harness:
        await app.emit_many([TriggerSpec(workflow="wait"), TriggerSpec(workflow="wait")])
        await harness.until(lambda: harness.engine.running == 2)
        first = await app.emit("note", {"n": 1}, dedup_key="k")
        await harness.until(lambda: len(harness.engine._window) == 1)
        again = await app.emit("note", {"n": 2}, dedup_key="k", on_duplicate="replace")
        assert again.id == first.id
        await harness.until(lambda: len(harness.engine._window) == 2)
        gate.set()
        await harness.settled(first.id)
        await harness.idle()
        assert seen == [2]
        assert harness.engine.consumer.slots.taken == 0
        assert harness.rows("SELECT count(*) AS n FROM executions WHERE trigger_id = :id", id=first.id) == [{"n": 1}]


@ON_ASYNCIO
async def test_idle_engine_writes_nothing_to_the_database(tmp_path):
    """A poll is a transaction without a write, so it needs no flush."""
    async with lab(build_app(), tmp_path, settings(poll_seconds=0.1)) as harness:
        await harness.idle()
        before = harness.rows("PRAGMA data_version"), (harness.path.parent / "agent.db-wal").stat().st_size
        looks = harness.engine.writer.group_commit.commits
        await harness.until(lambda: harness.engine.writer.group_commit.commits > looks + 2)
        assert (harness.rows("PRAGMA data_version"), (harness.path.parent / "agent.db-wal").stat().st_size) == before


@ON_ASYNCIO
async def test_claim_window_is_refilled_until_nothing_is_due(tmp_path):
    app = build_app()
    async with lab(app, tmp_path, settings(claim_batch=4, concurrency=2)) as harness:
        await app.emit_many([_spec() for _ in range(50)])
        await harness.until(lambda: harness.engine.counts["DONE"] == 50)


@ON_ASYNCIO
async def test_claim_window_emptied_during_a_poll_is_filled_again(tmp_path):
    """A poll with a full window claims only urgent triggers. On trio the start in the same commit may empty the window
    first. No further start would wake the feeder, so the feeder polls again."""
    app = App()
    gates: list[anyio.Event] = []

    @app.workflow("wait")
    async def wait(n: int) -> None:
        await gates[n].wait()

    @app.workflow("quick")
    async def quick() -> None: ...

    async with lab(app, tmp_path, settings(concurrency=1 + 1, claim_batch=1)) as harness:
        core = Services(harness.path, settings())
        engine = harness.engine
        done = 0
        for _ in range(12):
            gates.extend([anyio.Event(), anyio.Event()])
            for n in (len(gates) - 2, len(gates) - 1):
                await app.emit("wait", {"n": n})
            await harness.until(lambda: engine.running == 2)
            await app.emit("quick")
            await harness.until(lambda: len(engine._window) == 1)
            await harness.idle_window()
            await anyio.sleep(0.01)
            with core.transaction() as tx:
                core.triggers.emit(tx, TriggerSpec(workflow="quick"))  # as another process does, which then rings:
            inside, proceed = threading.Event(), threading.Event()

            def hold(_tx: Any, inside: threading.Event = inside, proceed: threading.Event = proceed) -> None:
                inside.set()
                proceed.wait(PATIENCE)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(engine.writer.commit, hold)
                await anyio.to_thread.run_sync(inside.wait)
                engine.feeder.ring()
                await anyio.sleep(0.005)  # the poll waits for the writer
                gates[-1].set()
                await harness.until(lambda: len(engine.consumer._starting) == 1)  # the start waits behind the poll
                proceed.set()
            with anyio.fail_after(PATIENCE):
                while engine.counts["DONE"] < done + 3:  # noqa: ASYNC110
                    await anyio.sleep(0.002)
            gates[-2].set()
            done += 4
            await harness.until(lambda done=done: engine.counts["DONE"] == done)  # type: ignore[misc]
        core.close()


@ON_ASYNCIO
@pytest.mark.parametrize(
    "seed", [0, 1, 5, *(pytest.param(seed, marks=pytest.mark.campaign) for seed in (2, 3, 4, 6, 7))]
)
async def test_engine_with_small_claim_windows_never_stalls(tmp_path, seed):
    app = App()

    @app.workflow("quick")
    async def quick() -> None: ...

    async with lab(app, tmp_path, settings(concurrency=1 + seed % 3, claim_batch=1 + seed % 2)) as harness:
        total = 0
        for n in range(60):
            await app.emit("quick")
            total += 1
            if n % 7 == seed % 7:
                with anyio.fail_after(PATIENCE):
                    while harness.engine.counts["DONE"] < total:  # noqa: ASYNC110
                        await anyio.sleep(0.001)
        with anyio.fail_after(PATIENCE):
            while harness.engine.counts["DONE"] < total:  # noqa: ASYNC110
                await anyio.sleep(0.001)


def _spec() -> TriggerSpec:
    return TriggerSpec(workflow="greet")
