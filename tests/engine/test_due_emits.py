"""Due triggers that start in the commit of their emit: failures and cancellation lose no trigger and no slot."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import anyio
import anyio.lowlevel
import apsw
import pytest

from craftcore import App
from craftcore.engine.attempt_commits import AttemptCommits
from craftcore.engine.consumer import Consumer
from craftcore.errors import EngineCrashed, OutcomeUnknown, StorageFull
from craftcore.executions.recorder import Recorder
from craftcore.testing.faulty_disk import FaultyDisk
from craftcore.triggers.claim_service import ClaimService
from craftcore.triggers.model import TriggerStatus
from craftcore.triggers.service import TriggerService
from tests.support.engine_harness import Lab, lab, look, settings
from tests.support.fakes import VirtualClock
from tests.support.faults import Fault
from tests.support.loops import ON_ASYNCIO
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    with FaultyDisk() as disk:
        yield disk


@contextmanager
def write_lock(path: Path) -> Iterator[None]:
    """Hold the write lock as a transaction of another process does."""
    connection = apsw.Connection(str(path))
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


class Gates:
    """Runs of the workflow `work`, each waiting for the gate of its name if there is one."""

    def __init__(self, *names: str) -> None:
        self.gates = {name: anyio.Event() for name in names}
        self.begun_names: list[str] = []

    def app(self) -> App:
        app = App()

        @app.workflow("work")
        async def work(name: str = "") -> None:
            self.begun_names.append(name)
            if name in self.gates:
                await self.gates[name].wait()

        return app


async def wait_for_lock(harness: Lab) -> None:
    """Wait until the writer waits for the write lock in a commit."""
    await harness.until(lambda: harness.engine.writer.lock_wait.since is not None)


def assert_at_rest(harness: Lab) -> None:
    """Assert that no slot or lane is reserved."""
    assert (harness.engine.consumer.slots.taken, harness.engine.feeder.starting) == (0, set())


@ON_ASYNCIO
async def test_trigger_emitted_to_an_idle_engine_is_started_in_the_emit_commit(tmp_path):
    app, seen = App(), []

    @app.workflow("work")
    async def work() -> None:
        seen.extend(look(harness.path, "SELECT status, attempts, starts FROM triggers"))
        seen.extend(look(harness.path, "SELECT status FROM executions"))

    async with lab(app, tmp_path) as harness:
        await harness.idle()
        commits = harness.engine.writer.group_commit.commits
        emitted = await app.emit("work")
        assert (emitted.created, emitted.status) == (True, TriggerStatus.CLAIMED)
        await harness.settled(emitted.id)
        await harness.idle()
        assert harness.engine.writer.group_commit.commits == commits + 2, "emit with start, and settle"
        assert_at_rest(harness)
    assert seen == [{"status": "CLAIMED", "attempts": 1, "starts": 1}, {"status": "incomplete"}]


@ON_ASYNCIO
async def test_trigger_emitted_while_every_slot_is_taken_is_not_started(tmp_path):
    gates = Gates("first")
    app = gates.app()
    async with lab(app, tmp_path, settings(concurrency=1)) as harness:
        await harness.idle()
        await app.emit("work", {"name": "first"})
        await harness.until(lambda: gates.begun_names == ["first"])
        second = await app.emit("work", {"name": "second"})
        assert (second.status, harness.trigger(second.id)["starts"]) == (TriggerStatus.CLAIMED, 0)
        gates.gates["first"].set()
        await harness.settled(second.id)
        await harness.idle()
        assert_at_rest(harness)


async def hold_starts(harness: Lab) -> None:
    harness.engine.hold_starts()


async def begin_stop(harness: Lab) -> None:
    harness.engine.consumer.stopping = True


async def run_a_suspect(harness: Lab) -> None:
    [claim] = harness.engine.held_claims
    harness.engine.consumer.exclusive.begin(claim, 1)


async def outlive_a_suspect(harness: Lab) -> None:
    await run_a_suspect(harness)
    exclusive = harness.engine.consumer.exclusive
    exclusive._alone, exclusive.outlived = None, exclusive._alone


async def begin_look(harness: Lab) -> None:
    harness.engine.feeder.is_polling = True


async def postpone_heartbeat(harness: Lab) -> None:
    harness.engine.feeder.is_heartbeat_postponed = True


@ON_ASYNCIO
@pytest.mark.parametrize(
    "condition",
    [hold_starts, begin_stop, run_a_suspect, outlive_a_suspect, begin_look, postpone_heartbeat],
)
async def test_trigger_emitted_while_starts_are_barred_takes_no_slot(tmp_path, condition):
    gates = Gates("first")
    app = gates.app()
    async with lab(app, tmp_path) as harness:
        await harness.idle()
        await app.emit("work", {"name": "first"})
        await harness.until(lambda: gates.begun_names == ["first"])
        await condition(harness)
        taken = harness.engine.consumer.slots.taken
        assert not harness.engine.consumer._reserve_for_emit()
        assert harness.engine.consumer.slots.taken == taken
        harness.engine.consumer.stopping, harness.engine.consumer.held_back = False, False
        gates.gates["first"].set()


async def test_trigger_emitted_behind_a_claim_in_a_running_commit_starts_after_that_claim(tmp_path):
    """A slot becomes free while the first trigger is still being written."""
    gates = Gates("running")
    app = gates.app()
    async with lab(app, tmp_path, settings(concurrency=2)) as harness:
        await harness.idle()
        await app.emit("work", {"name": "running"})
        await harness.until(lambda: gates.begun_names == ["running"])
        harness.engine.consumer.slots.taken += 1  # as if another trigger ran
        async with anyio.create_task_group() as tasks:
            with write_lock(harness.path):
                tasks.start_soon(app.emit, "work", {"name": "first"})
                await wait_for_lock(harness)
                harness.engine.consumer.release_slot()
                tasks.start_soon(app.emit, "work", {"name": "second"})
                await harness.until(lambda: len(harness.engine.writer.queue) == 1)
                assert harness.engine.feeder.starting == set()
        await harness.until(lambda: len(gates.begun_names) == 3)
        started = harness.rows("SELECT trigger_id FROM executions ORDER BY seq")
        order = harness.rows("SELECT id AS trigger_id FROM triggers ORDER BY seq")
        assert started == order
        gates.gates["running"].set()


async def test_emitter_cancelled_during_the_joint_commit_loses_no_started_trigger(tmp_path):
    """No heartbeat is needed, because the engine owns the attempt once it is on disk."""
    gates = Gates()
    app = gates.app()
    async with lab(app, tmp_path) as harness:
        await harness.idle()
        polls = harness.engine.feeder.polls
        async with anyio.create_task_group() as tasks:
            with write_lock(harness.path):
                tasks.start_soon(app.emit, "work", {"name": "cut off"})
                await wait_for_lock(harness)
                tasks.cancel_scope.cancel()
        await harness.until(lambda: harness.engine.counts["DONE"] == 1)
        assert (gates.begun_names, harness.engine.feeder.polls) == (["cut off"], polls)
        await harness.idle()
        assert_at_rest(harness)


async def test_emitter_cancelled_before_the_joint_commit_writes_nothing(tmp_path):
    gates = Gates()
    app = gates.app()
    async with lab(app, tmp_path) as harness:
        await harness.idle()
        async with anyio.create_task_group() as tasks:
            with write_lock(harness.path):
                tasks.start_soon(harness.engine.round_trip)
                await wait_for_lock(harness)
                with anyio.CancelScope() as scope:
                    async with anyio.create_task_group() as emitters:
                        emitters.start_soon(app.emit, "work")
                        await harness.until(lambda: len(harness.engine.feeder.starting) == 1)
                        scope.cancel()
                assert_at_rest(harness)
        assert harness.rows("SELECT id FROM triggers") == []
        await app.emit("work", {"name": "next"})
        await harness.until(lambda: gates.begun_names == ["next"])


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_emit_closed_by_its_caller_gives_no_slot_back_twice(tmp_path, anyio_backend):
    """A closed coroutine receives no answer, and its trigger may still start."""
    gates = Gates("closed")
    app = gates.app()
    async with lab(app, tmp_path) as harness:
        await harness.idle()
        with write_lock(harness.path):
            emit = app.emit("work", {"name": "closed"})
            emit.send(None)
            await wait_for_lock(harness)
            emit.close()
            assert_at_rest(harness)
        await harness.until(lambda: gates.begun_names == ["closed"])
        assert harness.engine.consumer.slots.taken == 1
        gates.gates["closed"].set()
        await harness.until(lambda: harness.engine.counts["DONE"] == 1)
        await harness.idle()
        assert_at_rest(harness)


@ON_ASYNCIO
async def test_emit_on_a_full_disk_is_refused_and_gives_its_slot_back(tmp_path, disk):
    gates = Gates()
    app = gates.app()
    async with lab(app, tmp_path) as harness:
        await harness.idle()
        disk.fill()
        for _ in range(20):  # more emits than slots
            with pytest.raises(StorageFull):
                await app.emit("work")
        assert_at_rest(harness)
        disk.free()
        emitted = await app.emit("work", {"name": "after"})
        await harness.settled(emitted.id)
    assert (gates.begun_names, look(harness.path, "SELECT count(*) AS n FROM triggers")) == (["after"], [{"n": 1}])


async def test_emit_whose_flush_fails_is_of_unknown_outcome_and_runs_nothing(tmp_path, disk):
    gates = Gates()
    app = gates.app()
    with anyio.fail_after(PATIENCE), pytest.raises(OutcomeUnknown):
        async with lab(app, tmp_path) as harness:
            await harness.idle()
            disk.fail_syncs()
            with pytest.raises(OutcomeUnknown) as unknown:
                await app.emit("work")
            assert_at_rest(harness)
            assert unknown.value.spec.id is not None
            await anyio.sleep_forever()
    disk.free()
    assert gates.begun_names == []


async def test_engine_stopped_during_the_joint_commit_runs_the_accepted_trigger(tmp_path):
    gates = Gates()
    app = gates.app()
    async with anyio.create_task_group() as tasks:
        async with lab(app, tmp_path) as harness:
            await harness.idle()
            with write_lock(harness.path):
                tasks.start_soon(app.emit, "work", {"name": "last"})
                await wait_for_lock(harness)
                harness.engine.stop()
                assert not harness.engine.consumer.is_idle, "the drain waits for the emit"
    assert gates.begun_names == ["last"]
    assert look(harness.path, "SELECT status, attempts FROM triggers") == [{"status": "DONE", "attempts": 1}]


async def test_engine_left_during_the_joint_commit_releases_the_trigger(tmp_path):
    """The grace ends before the commit: no code runs and no attempt is lost."""
    gates = Gates()
    app = gates.app()
    async with anyio.create_task_group() as tasks:
        async with lab(app, tmp_path) as harness:
            await harness.idle()
            with write_lock(harness.path):
                tasks.start_soon(app.emit, "work")
                await wait_for_lock(harness)
                harness.engine.stop()
                harness.engine.consumer.leave()
    assert gates.begun_names == []
    assert look(harness.path, "SELECT status, attempts FROM triggers") == [{"status": "PENDING", "attempts": 0}]


async def test_refused_emit_lets_the_drain_end(tmp_path, disk):
    app = Gates().app()
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            async with lab(app, tmp_path, settings(shutdown_grace=100 * PATIENCE)) as harness:
                await harness.idle()
                with write_lock(harness.path):
                    tasks.start_soon(assert_emit_refused, app)
                    await wait_for_lock(harness)
                    harness.engine.stop()
                    await anyio.lowlevel.checkpoint()
                    disk.fill()
                await harness.until(lambda: harness.engine.consumer.is_idle)
                disk.free()
    assert look(harness.path, "SELECT id FROM triggers") == []


async def assert_emit_refused(app: App) -> None:
    with pytest.raises(StorageFull):
        await app.emit("work")


async def test_heartbeat_during_the_joint_commit_leaves_the_trigger_to_its_attempt(tmp_path):
    """A heartbeat would find a claim that the engine does not know yet, and release it for a second attempt."""
    clock = VirtualClock()
    gates = Gates("long")
    app = gates.app()
    async with lab(app, tmp_path, settings(lease_seconds=60.0), clock=clock) as harness:
        await harness.idle()
        beats = next_heartbeat_limit(harness)
        async with anyio.create_task_group() as tasks:
            with write_lock(harness.path):
                tasks.start_soon(app.emit, "work", {"name": "long"})
                await wait_for_lock(harness)
                clock.advance(seconds=30)
                harness.engine.feeder.ring()
                await harness.until(lambda: harness.engine.feeder.is_polling)
                assert harness.engine.feeder.is_heartbeat_postponed
        await harness.until(lambda: next_heartbeat_limit(harness) > beats)
        await harness.idle_window()
        assert harness.rows("SELECT status, attempts, starts FROM triggers") == [
            {"status": "CLAIMED", "attempts": 1, "starts": 1}
        ]
        gates.gates["long"].set()
    assert gates.begun_names == ["long"]


def next_heartbeat_limit(harness: Lab) -> float:
    """Return the time before which no further heartbeat is due."""
    return harness.engine.feeder._heartbeat_at


@ON_ASYNCIO
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "step", [TriggerService.emit_claimed, ClaimService.start_all, Recorder.open_all, AttemptCommits.start_all]
)
async def test_engine_fault_in_the_joint_commit_loses_no_accepted_trigger(tmp_path, step, when):
    """The fault occurs once, in the shared commit. The failing trigger is accepted by itself and starts later."""
    gates = Gates()
    app = gates.app()
    with Fault(cast(FunctionType, step), "bad", 2, when).installed() as injected:  # in the shared commit, then alone
        async with lab(app, tmp_path) as harness:
            await harness.idle()
            injected.armed = True
            await emit_together(harness, "bad", "good")
            await harness.until(lambda: harness.engine.counts["DONE"] == 2)
            await harness.idle()
            assert_at_rest(harness)
            rows = harness.rows("SELECT description, status, attempts FROM triggers ORDER BY description")
    assert injected.raised == 2
    assert rows == [{"description": name, "status": "DONE", "attempts": 1} for name in ("bad", "good")]


async def test_engine_fault_at_every_start_fails_only_that_trigger(tmp_path):
    gates = Gates()
    app = gates.app()
    with Fault(cast(FunctionType, Recorder.open_all), "bad", math.inf).installed() as injected:
        async with lab(app, tmp_path) as harness:
            await harness.idle()
            injected.armed = True
            await emit_together(harness, "bad", "good")
            await harness.until(lambda: harness.engine.counts["DONE"] + harness.engine.counts["FAILED"] == 2)
            await harness.idle()
            assert_at_rest(harness)
            rows = harness.rows("SELECT description, status, error_code FROM triggers ORDER BY description")
    assert rows == [
        {"description": "bad", "status": "FAILED", "error_code": "INTERNAL_AGENT_ERROR"},
        {"description": "good", "status": "DONE", "error_code": None},
    ]


async def emit_together(harness: Lab, *names: str) -> None:
    """Emit into one commit."""
    async with anyio.create_task_group() as tasks:
        with write_lock(harness.path):
            tasks.start_soon(harness.engine.round_trip)
            await wait_for_lock(harness)
            for name in names:
                emit: Callable[[], Any] = emitter_of(harness.app, name)
                tasks.start_soon(emit)
            await harness.until(lambda: len(harness.engine.writer.queue) == len(names))


def emitter_of(app: App, name: str) -> Callable[[], Any]:
    async def emit() -> None:
        await app.emit("work", {"name": name}, description=name)

    return emit


async def test_engine_fault_at_the_handover_ends_the_engine_and_loses_no_trigger(tmp_path):
    """No engine owns the started attempt on disk, so the next start counts a crash, as after every crash."""
    gates = Gates()
    app = gates.app()
    with Fault(cast(FunctionType, Consumer.take_started), "bad", 1).installed() as injected:
        with anyio.fail_after(PATIENCE), pytest.raises(EngineCrashed):
            async with lab(app, tmp_path) as harness:
                await harness.idle()
                injected.armed = True
                await app.emit("work", {"name": "bad"}, description="bad")
                await anyio.sleep_forever()
    async with lab(gates.app(), tmp_path) as harness:
        await harness.idle()
        [row] = harness.rows("SELECT status, attempts, crash_count FROM triggers")
    assert (row["status"], row["crash_count"], gates.begun_names) == ("DONE", 1, ["bad"])


@ON_ASYNCIO
async def test_expired_trigger_settles_as_stale_in_the_emit_commit(tmp_path):
    clock = VirtualClock()
    gates = Gates()
    app = gates.app()
    async with lab(app, tmp_path, clock=clock) as harness:
        await harness.idle()
        async with anyio.create_task_group() as tasks:
            with write_lock(harness.path):
                tasks.start_soon(emit_expiring, app, clock.now() + 5)
                await wait_for_lock(harness)
                clock.advance(seconds=10)
        await harness.until(lambda: harness.rows("SELECT reason FROM triggers") == [{"reason": "stale"}])
        await harness.idle()
        assert_at_rest(harness)
    assert gates.begun_names == []


async def emit_expiring(app: App, at: float) -> None:
    await app.emit("work", expires_at=at)
