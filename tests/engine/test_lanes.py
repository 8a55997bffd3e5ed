"""Lanes of sessions: order within a lane, concurrency across lanes, and the concurrency limit of the engine."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import anyio
import pytest

from craftcore import App, TriggerSpec
from craftcore.producer import Producer
from craftcore.services import Services
from tests.support.engine_harness import lab, settings

pytestmark = pytest.mark.anyio


async def test_session_triggers_run_singly_in_order_while_other_sessions_run(tmp_path):
    app = App()
    order: dict[str, list[int]] = defaultdict(list)
    inside: dict[str, int] = defaultdict(int)
    most_at_once = 0
    both_inside = anyio.Event()  # each waits until two are inside

    @app.workflow("chat")
    async def chat(session: str, n: int) -> None:
        nonlocal most_at_once
        inside[session] += 1
        assert inside[session] == 1, f"two of {session} at once"
        most_at_once = max(most_at_once, sum(inside.values()))
        if most_at_once > 1:
            both_inside.set()
        await both_inside.wait()
        order[session].append(n)
        inside[session] -= 1

    specs = [
        TriggerSpec(workflow="chat", payload={"session": session, "n": n}, session_id=session)
        for n in range(15)
        for session in ("a", "b", "c")
    ]
    async with lab(app, tmp_path, settings(concurrency=8)) as harness:
        await app.emit_many(specs)
        await harness.until(lambda: harness.engine.counts["DONE"] == len(specs))

    assert order == {"a": list(range(15)), "b": list(range(15)), "c": list(range(15))}
    assert most_at_once > 1


async def test_busy_session_does_not_fill_the_claim_window(tmp_path):
    """A hundred messages wait for a busy session. A trigger behind all of them runs at once."""
    app = App()
    gate = anyio.Event()

    @app.workflow("slow")
    async def slow() -> None:
        await gate.wait()

    @app.workflow("quick")
    async def quick() -> None: ...

    async with lab(app, tmp_path, settings(concurrency=4, claim_batch=4)) as harness:
        await app.emit_many([TriggerSpec(workflow="slow", session_id="busy", priority=0) for _ in range(100)])
        emitted = await app.emit("quick", priority=99)
        assert (await harness.settled(emitted.id))["status"] == "DONE"
        assert harness.rows("SELECT count(*) AS n FROM triggers WHERE status = 'CLAIMED'") == [{"n": 1}]
        await app.cancel(harness.rows("SELECT id FROM triggers WHERE status = 'CLAIMED'")[0]["id"])
        gate.set()


async def test_running_triggers_never_exceed_the_engine_concurrency(tmp_path):
    app = App()
    inside = 0
    most = 0
    full = anyio.Event()  # each waits until all slots are taken

    @app.workflow("work")
    async def work() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        if inside == 3:
            full.set()
        await full.wait()
        await anyio.sleep(0.001)
        inside -= 1

    async with lab(app, tmp_path, settings(concurrency=3)) as harness:
        await app.emit_many([TriggerSpec(workflow="work") for _ in range(30)])
        await harness.until(lambda: harness.engine.counts["DONE"] == 30)
    assert most == 3


async def test_engine_with_a_single_place_settles_each_trigger_before_the_next_start(tmp_path):
    app = App()
    unsettled: list[int] = []

    @app.workflow("strict")
    async def strict() -> None:
        with Services(tmp_path / "agent.db", settings()).reading() as reader:
            unsettled.append(
                reader.fetch_value("SELECT count(*) FROM triggers WHERE started_at > 0 AND settled_at IS NULL")
            )

    async with lab(app, tmp_path, settings(concurrency=1)) as harness:
        await app.emit_many([TriggerSpec(workflow="strict") for _ in range(10)])
        await harness.until(lambda: harness.engine.counts["DONE"] == 10)
    assert unsettled == [1] * 10


async def test_urgent_trigger_is_claimed_past_a_full_window_and_starts_next(tmp_path):
    """All slots and the whole claim window are taken, and the urgent trigger still starts next."""
    app = App()
    gate = anyio.Event()
    order: list[str] = []

    @app.workflow("work")
    async def work(name: str) -> None:
        await gate.wait()
        order.append(name)

    async with lab(app, tmp_path, settings(concurrency=1, claim_batch=3)) as harness:
        await app.emit_many([TriggerSpec(workflow="work", payload={"name": str(n)}, priority=50) for n in range(8)])
        await harness.until(lambda: harness.engine.running == 1)
        urgent = await app.emit("work", {"name": "urgent"}, priority=0)
        await harness.until(lambda: harness.trigger(urgent.id)["status"] == "CLAIMED")
        gate.set()
        await harness.until(lambda: len(order) == 9)
    assert order[:2] == ["0", "urgent"]


async def test_trigger_with_two_crashes_runs_alone(tmp_path):
    app = App()
    running: set[str] = set()
    concurrent: dict[str, set[str]] = {}

    @app.workflow("work")
    async def work(name: str) -> None:
        for other in running:
            concurrent[other].add(name)
        concurrent[name] = set(running)
        running.add(name)
        await anyio.sleep(0.002)
        running.discard(name)

    with Producer(tmp_path / "agent.db") as producer:
        for n in range(6):
            producer.emit("work", {"name": f"ordinary {n}"})
        suspect = producer.emit("work", {"name": "suspect"})
        for n in range(6, 12):
            producer.emit("work", {"name": f"ordinary {n}"})
    core = Services(tmp_path / "agent.db", settings())
    with core.transaction() as tx:
        tx.run("UPDATE triggers SET crash_count = 2 WHERE id = :id", id=suspect.id)
    core.close()

    async with lab(app, tmp_path, settings(concurrency=4)) as harness:
        await harness.until(lambda: harness.engine.counts["DONE"] == 13)
        assert harness.trigger(suspect.id)["started_alone"] == 1
    assert concurrent["suspect"] == set()
    assert any(concurrent[f"ordinary {n}"] for n in range(12))


async def test_retry_in_backoff_does_not_hold_the_lane(tmp_path):
    app = App()
    seen: list[Any] = []

    @app.workflow("chat", max_attempts=2)
    async def chat(text: str) -> None:
        seen.append(text)
        if text == "bad":
            raise ValueError(text)

    config = settings()
    from dataclasses import replace

    config = replace(config, retry=replace(config.retry, base_seconds=3600.0, cap_seconds=3600.0))
    async with lab(app, tmp_path, config) as harness:
        bad = await app.emit("chat", {"text": "bad"}, session_id="s")
        good = await app.emit("chat", {"text": "good"}, session_id="s")
        await harness.settled(good.id)
        assert seen == ["bad", "good"]
        assert harness.trigger(bad.id)["status"] == "PENDING"
