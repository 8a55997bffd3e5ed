"""Suspects of a crash run alone, and the wait of other triggers for them is limited."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from craftcore import App, Producer
from craftcore.engine import exclusive_run
from craftcore.engine import live_state as telling
from craftcore.engine.live_state import LiveState, live_state
from craftcore.services import Services
from tests.support.engine_harness import Lab, lab, settings
from tests.support.loops import ON_ASYNCIO

pytestmark = pytest.mark.anyio


def build_app(running: set[str], gates: dict[str, anyio.Event]) -> App:
    """Build an app whose workflow runs until the gate of its name opens, or ends at once without a gate."""
    app = App()

    @app.workflow("work")
    async def work(name: str) -> None:
        running.add(name)
        if name in gates:
            await gates[name].wait()
        running.discard(name)

    return app


def emit(path: Path, *names: str, suspects: tuple[str, ...] = (), crashes: int = 2) -> dict[str, str]:
    """Emit before the engine starts and return the ids by name. The given crash count is set for suspects."""
    with Producer(path) as producer:
        ids = {name: producer.emit("work", {"name": name}).id for name in names}
    core = Services(path, settings())
    with core.transaction() as tx:
        for name in suspects:
            tx.run("UPDATE triggers SET crash_count = :n WHERE id = :id", id=ids[name], n=crashes)
    core.close()
    return ids


def read_live_state(harness: Lab) -> LiveState:
    core = Services(harness.path, settings())
    with core.reading() as reader:
        return live_state(reader)


@ON_ASYNCIO
async def test_suspect_starts_first_and_alone_when_nothing_runs(tmp_path):
    running: set[str] = set()
    gates = {name: anyio.Event() for name in ("one", "two", "suspect")}
    ids = emit(tmp_path / "agent.db", "one", "two", "suspect", suspects=("suspect",))

    async with lab(build_app(running, gates), tmp_path, settings(concurrency=4)) as harness:
        await harness.until(lambda: bool(running))
        await anyio.sleep(0.05)
        first = set(running)
        gates["suspect"].set()
        await harness.until(lambda: running == {"one", "two"})
        gates["one"].set()
        gates["two"].set()
        await harness.until(lambda: harness.engine.counts["DONE"] == 3)

        assert first == {"suspect"}
        assert harness.trigger(ids["suspect"])["started_alone"] == 1


async def test_suspect_past_the_time_alone_is_joined_by_others_and_marked_not_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(exclusive_run, "ALONE_SECONDS", 0.05)
    running: set[str] = set()
    gates = {"suspect": anyio.Event()}
    ids = emit(tmp_path / "agent.db", "suspect", "other", suspects=("suspect",))

    async with lab(build_app(running, gates), tmp_path, settings(concurrency=4)) as harness:
        await harness.until(lambda: harness.trigger(ids["other"])["status"] == "DONE")
        suspect = harness.trigger(ids["suspect"])
        gates["suspect"].set()
        await harness.until(lambda: harness.engine.counts["DONE"] == 2)

    assert (suspect["status"], suspect["started_alone"]) == ("CLAIMED", 0)


@ON_ASYNCIO
async def test_suspect_past_the_time_alone_stays_marked_alone_without_company(tmp_path, monkeypatch):
    monkeypatch.setattr(exclusive_run, "ALONE_SECONDS", 0.01)
    gates = {"suspect": anyio.Event()}
    ids = emit(tmp_path / "agent.db", "suspect", suspects=("suspect",))

    async with lab(build_app(set(), gates), tmp_path, settings(concurrency=4)) as harness:
        await harness.until(lambda: harness.engine.consumer.exclusive.outlived is not None)
        row = harness.trigger(ids["suspect"])
        gates["suspect"].set()
        await harness.until(lambda: harness.engine.counts["DONE"] == 1)

        assert row["started_alone"] == 1
        assert harness.engine.consumer.exclusive.outlived is None


@ON_ASYNCIO
@pytest.mark.parametrize(("crashes", "seconds"), [(2, 30.0), (3, 60.0), (5, 240.0)])
async def test_suspect_time_alone_doubles_with_each_crash_and_is_in_live_state(tmp_path, monkeypatch, crashes, seconds):
    monkeypatch.setattr(telling, "LOOK_SECONDS", 0.01)
    gates = {"suspect": anyio.Event()}
    ids = emit(tmp_path / "agent.db", "suspect", suspects=("suspect",), crashes=crashes)

    async with lab(build_app(set(), gates), tmp_path, settings(concurrency=4)) as harness:
        await harness.until(lambda: read_live_state(harness).alone is not None)
        live = read_live_state(harness)
        started_at = harness.trigger(ids["suspect"])["started_at"]
        gates["suspect"].set()
        await harness.until(lambda: read_live_state(harness).alone is None)

    assert live.alone == ids["suspect"]
    assert live.alone_since is not None
    assert live.alone_since == pytest.approx(started_at, abs=10)
    assert live.alone_until is not None
    assert live.alone_until - started_at == pytest.approx(seconds, abs=10)


@ON_ASYNCIO
async def test_suspect_starts_marked_not_alone_after_waiting_for_long_work(tmp_path, monkeypatch):
    """Other triggers must not wait for a suspect while the suspect waits for long work."""
    monkeypatch.setattr(exclusive_run, "WAIT_SECONDS", 0.1)
    running: set[str] = set()
    gates = {"long": anyio.Event(), "suspect": anyio.Event()}
    emit(tmp_path / "agent.db", "long")

    async with lab(build_app(running, gates), tmp_path, settings(concurrency=4)) as harness:
        await harness.until(lambda: running == {"long"})
        ids = emit(tmp_path / "agent.db", "suspect", "other", suspects=("suspect",))
        harness.engine.ring(schedules=False)
        await harness.until(lambda: "suspect" in running and harness.trigger(ids["other"])["status"] == "DONE")
        row = harness.trigger(ids["suspect"])
        for gate in gates.values():
            gate.set()
        await harness.until(lambda: harness.engine.counts["DONE"] == 3)

    assert row["started_alone"] == 0


async def test_suspect_starts_alone_after_the_running_work_has_ended(tmp_path):
    running: set[str] = set()
    gates = {"long": anyio.Event(), "suspect": anyio.Event()}
    emit(tmp_path / "agent.db", "long")

    async with lab(build_app(running, gates), tmp_path, settings(concurrency=4)) as harness:
        await harness.until(lambda: running == {"long"})
        ids = emit(tmp_path / "agent.db", "suspect", "other", suspects=("suspect",))
        harness.engine.ring(schedules=False)
        await harness.until(lambda: harness.engine.consumer.exclusive._waiting is not None)
        gates["long"].set()
        await harness.until(lambda: running == {"suspect"})
        row = harness.trigger(ids["suspect"])
        gates["suspect"].set()
        await harness.until(lambda: harness.engine.counts["DONE"] == 3)

    assert row["started_alone"] == 1


async def test_suspect_cancelled_while_waiting_does_not_delay_other_triggers(tmp_path):
    running: set[str] = set()
    gates = {"long": anyio.Event()}
    emit(tmp_path / "agent.db", "long")

    async with lab(build_app(running, gates), tmp_path, settings(concurrency=4)) as harness:
        await harness.until(lambda: running == {"long"})
        ids = emit(tmp_path / "agent.db", "suspect", "other", suspects=("suspect",))
        harness.engine.ring(schedules=False)
        await harness.until(lambda: harness.engine.consumer.exclusive._waiting is not None)
        core = Services(harness.path, settings())
        with core.transaction() as tx:
            core.triggers.cancel(tx, ids["suspect"])
        core.close()
        gates["long"].set()
        await harness.until(lambda: harness.trigger(ids["other"])["status"] == "DONE")

        await harness.until(lambda: harness.engine.consumer.exclusive._waiting is None)


async def test_all_suspects_together_keep_other_work_waiting_only_once(tmp_path, monkeypatch):
    """After two crashes with many running triggers, all of them are suspects with a time alone each."""
    monkeypatch.setattr(exclusive_run, "ALONE_SECONDS", 0.2)
    monkeypatch.setattr(exclusive_run, "WAIT_SECONDS", 0.2)
    monkeypatch.setattr(exclusive_run, "SLICE_SECONDS", 0.02)
    running: set[str] = set()
    suspects = tuple(f"suspect{number}" for number in range(8))
    gates = {name: anyio.Event() for name in suspects}
    ids = emit(tmp_path / "agent.db", *suspects, "other", suspects=suspects)
    granted: list[float] = []
    count_down = exclusive_run.ExclusiveRun._count_down

    def note(self: exclusive_run.ExclusiveRun, seconds: float) -> None:
        granted.append(seconds)
        count_down(self, seconds)

    monkeypatch.setattr(exclusive_run.ExclusiveRun, "_count_down", note)

    async with lab(build_app(running, gates), tmp_path, settings(concurrency=16)) as harness:
        await harness.until(lambda: harness.trigger(ids["other"])["status"] == "DONE")
        await harness.until(lambda: running == set(suspects))
        for gate in gates.values():
            gate.set()
        await harness.until(lambda: harness.engine.counts["DONE"] == 9)

    assert 0 < sum(granted) < 1.0, granted  # the times alone of eight suspects add up to 1.6 seconds


@ON_ASYNCIO
async def test_time_alone_is_divided_among_all_suspects(tmp_path, monkeypatch):
    monkeypatch.setattr(telling, "LOOK_SECONDS", 0.01)
    gates = {name: anyio.Event() for name in ("one", "two", "three")}
    emit(tmp_path / "agent.db", *gates, suspects=tuple(gates))

    async with lab(build_app(set(), gates), tmp_path, settings(concurrency=4)) as harness:
        await harness.until(lambda: read_live_state(harness).alone is not None)
        live = read_live_state(harness)
        for gate in gates.values():
            gate.set()
        await harness.until(lambda: harness.engine.counts["DONE"] == 3)

    assert live.alone_since is not None
    assert live.alone_until is not None
    assert live.alone_until - live.alone_since == pytest.approx(exclusive_run.ALONE_SECONDS / 3)


async def test_work_that_was_in_no_crash_starts_while_a_suspect_waits(tmp_path):
    running: set[str] = set()
    gates = {"long": anyio.Event(), "suspect": anyio.Event(), "crashed once": anyio.Event()}
    emit(tmp_path / "agent.db", "long")

    async with lab(build_app(running, gates), tmp_path, settings(concurrency=4)) as harness:
        await harness.until(lambda: running == {"long"})
        ids = emit(tmp_path / "agent.db", "suspect", "crashed once", "other", suspects=("suspect",))
        core = Services(harness.path, settings())
        with core.transaction() as tx:
            tx.run("UPDATE triggers SET crash_count = 1 WHERE id = :id", id=ids["crashed once"])
        core.close()
        harness.engine.ring(schedules=False)
        await harness.until(lambda: harness.trigger(ids["other"])["status"] == "DONE")

        assert running == {"long"}
        gates["long"].set()
        await harness.until(lambda: running == {"suspect"})
        for gate in gates.values():
            gate.set()
        await harness.until(lambda: harness.engine.counts["DONE"] == 4)
