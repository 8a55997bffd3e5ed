"""Seeded stress on a real file: the counts of triggers and records balance after each run.

A run emits in every way, with lanes, priorities, dedup and replace, supersede, delays and expiry, and cancels at
random. Its workflows succeed, fail, snooze, hang until cancelled, time out or run in threads. A router moves triggers
between sessions. The poll interval is many minutes, so a lost wake-up is a stall, which a watchdog reports.
"""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from craftcore import App, Emitted, Fail, Retry, Route, RoutedTrigger, RoutingContext, Snooze, TriggerSpec
from craftcore.engine.engine import Engine
from craftcore.errors import StateRefused
from craftcore.producer import Producer
from tests.support.engine_harness import Lab, lab, settings
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio

ROUNDS = 4

STALL_SECONDS = PATIENCE
"""The time without a settled trigger, while a trigger is due, after which a run has stalled."""

WORKFLOWS = ("quick", "slow", "flaky", "refuses", "snoozes", "hangs", "plain", "yields")


class RandomRouter:
    """A router that selects sessions at random from a seed."""

    def __init__(self, seed: int, sessions: list[str]) -> None:
        self._random = random.Random(seed)
        self._sessions = sessions

    async def route(self, trigger: RoutedTrigger, context: RoutingContext) -> Route:
        if self._random.random() < 0.3:
            await anyio.sleep(self._random.random() * 0.003)
        if self._random.random() < 0.05:
            raise RuntimeError("the router stumbled")
        session = self._random.choice([None, *self._sessions])
        return Route(workflow=self._random.choice(WORKFLOWS), session_id=session)


class Chaos:
    """The app under stress and its counters."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.sessions = [f"s{n}" for n in range(self.random.choice([1, 2, 6]))]
        self.app = App(router=RandomRouter(seed, self.sessions))
        self.overlaps: list[str] = []
        self.accepted: set[str] = set()
        self.inside: Counter[str] = Counter()
        self.engine: Engine
        self._declare()

    def _declare(self) -> None:
        app, rng = self.app, random.Random(self.random.random())
        chaos = self

        class Inside:
            def __init__(self, ctx: Any) -> None:
                self.id = ctx.trigger.id

            def __enter__(self) -> None:
                chaos.inside[self.id] += 1
                if chaos.inside[self.id] > 1:
                    chaos.overlaps.append(f"{self.id} runs twice at once")
                chaos._enter_lane(self.id)

            def __exit__(self, *_: object) -> None:
                chaos.inside[self.id] -= 1

        @app.workflow("quick")
        async def quick(ctx: Any, n: int = 0) -> int:
            with Inside(ctx):
                return n

        @app.workflow("slow")
        async def slow(ctx: Any, n: int = 0) -> None:
            with Inside(ctx):
                await anyio.sleep(rng.random() * 0.004)

        @app.workflow("yields")
        async def yields(ctx: Any, n: int = 0) -> None:
            with Inside(ctx):
                for _ in range(rng.randrange(4)):
                    await anyio.lowlevel.checkpoint()

        @app.workflow("flaky")
        async def flaky(ctx: Any, n: int = 0) -> None:
            with Inside(ctx):
                if rng.random() < 0.6:
                    raise rng.choice([ValueError("x"), Retry("again"), Retry("soon", after=0.004), TimeoutError()])

        @app.workflow("refuses")
        async def refuses(ctx: Any, n: int = 0) -> None:
            with Inside(ctx):
                raise Fail("NO", "no")

        @app.workflow("snoozes")
        async def snoozes(ctx: Any, n: int = 0) -> None:
            with Inside(ctx):
                if rng.random() < 0.5:
                    raise Snooze(until=time.time() + rng.random() * 0.01)

        @app.workflow("hangs", timeout=0.02)
        async def hangs(ctx: Any, n: int = 0) -> None:
            with Inside(ctx):
                await anyio.sleep(rng.choice([0.001, 0.03, 30]))

        @app.workflow("plain", timeout=0.01)
        def plain(n: int = 0) -> None:
            time.sleep(rng.choice([0, 0, 0.003, 0.015]))

    def _lane(self, trigger_id: str) -> str | None:
        run = next((run for run in self.engine.consumer.running.values() if run.claim.id == trigger_id), None)
        return run.lane if run else None

    def _enter_lane(self, trigger_id: str) -> None:
        lane = self._lane(trigger_id)
        in_lane = [
            run.claim.id
            for run in self.engine.consumer.running.values()
            if lane is not None and run.lane == lane and run.claim.id != trigger_id and self.inside[run.claim.id]
        ]
        if in_lane:
            self.overlaps.append(f"{trigger_id} and {in_lane} in {lane}")

    def spec(self) -> TriggerSpec:
        rng = self.random
        spec: dict[str, Any] = {"payload": {"n": rng.randrange(9)}, "priority": rng.choice([0, 5, 10, 50, 99, None])}
        spec["session_id"] = rng.choice([None, None, *self.sessions])
        spec["workflow"] = rng.choice([*WORKFLOWS, None])
        spec["source"] = "MESSAGE" if spec["workflow"] is None else rng.choice(["MESSAGE", "IMMEDIATE"])
        named = spec["workflow"] or "routed"  # a key belongs to one workflow
        kind = rng.random()
        if kind < 0.3:
            spec |= {"dedup_key": f"{named}:{rng.randrange(12)}", "dedup_scope": "active", "on_duplicate": "replace"}
        elif kind < 0.4:
            spec |= {"dedup_key": f"{named}:{rng.randrange(40)}"}
        if spec["session_id"] and rng.random() < 0.1:
            spec["supersedes"] = "session"
        timing = rng.random()
        if timing < 0.15:
            spec["delay"] = rng.random() * 0.02
        elif timing < 0.25:
            spec["at"] = time.time() - rng.random() * 100_000
        if rng.random() < 0.08:
            spec["expires_at"] = time.time() + rng.random() * 0.01
        return TriggerSpec(**spec)

    async def emit_some(self, harness: Lab, producer: Producer, count: int) -> None:
        rng = self.random
        while count > 0:
            choice = rng.random()
            emitted: Sequence[Emitted]
            if choice < 0.4:
                emitted = [await harness.engine.client.emit(self.spec())]
            elif choice < 0.5:  # repeated replacements
                key = {"dedup_key": f"r{rng.randrange(3)}", "dedup_scope": "active", "on_duplicate": "replace"}
                again = TriggerSpec(workflow="yields", **key)  # type: ignore[arg-type]
                emitted = [await harness.engine.client.emit(again) for _ in range(4)]
            elif choice < 0.75:
                emitted = await harness.engine.client.emit_many([self.spec() for _ in range(rng.randrange(1, 20))])
            else:
                specs = [self.spec() for _ in range(rng.randrange(1, 6))]
                emitted = await anyio.to_thread.run_sync(producer.emit_many, specs)
            count -= len(emitted)
            self.accepted.update(answer.id for answer in emitted)
            if rng.random() < 0.25:
                await self.cancel_one(harness)
            if rng.random() < 0.3:
                await anyio.sleep(rng.random() * 0.004)

    async def cancel_one(self, harness: Lab) -> None:
        try:
            await harness.engine.client.cancel(self.random.choice(sorted(self.accepted)[-40:]))
        except StateRefused:
            pass


async def stress(folder: Path, seed: int, triggers: int, declare: Callable[[App], None] = lambda _: None) -> None:
    chaos = Chaos(seed)
    declare(chaos.app)
    rng = random.Random(-seed - 1)
    config = settings(concurrency=rng.choice([1, 2, 3, 16]), claim_batch=rng.choice([1, 2, 3, 7, 64]))
    async with lab(chaos.app, folder, config) as harness:
        chaos.engine = harness.engine
        with Producer(harness.path) as producer:
            async with anyio.create_task_group() as group:
                group.start_soon(interfere, harness, rng)
                for _ in range(ROUNDS):  # a pause between rounds, since the next emit would hide a lost wake-up
                    async with anyio.create_task_group() as emitters:
                        for _ in range(3):
                            emitters.start_soon(chaos.emit_some, harness, producer, triggers // (3 * ROUNDS))
                    await wait_until_quiet(harness)
                group.cancel_scope.cancel()
        assert_counts_balance(harness, chaos)


async def interfere(harness: Lab, rng: random.Random) -> None:
    """Block the writer and the loop at random, so that the answers of several batches arrive together."""
    for _ in itertools.count():
        await anyio.sleep(rng.random() * 0.02)
        if rng.random() < 0.5:
            await harness.engine.writer.commit(lambda _tx: time.sleep(0.003))
        else:
            time.sleep(0.004)


async def wait_until_quiet(harness: Lab) -> None:
    """Wait until all accepted triggers are settled. Fail when nothing is settled although a trigger is due."""
    last, since = (-1, -1), anyio.current_time()
    while True:
        [row] = harness.rows(
            "SELECT count(*) AS live, coalesce(sum(starts), 0) AS starts, coalesce(sum(due_at <= :now), 0) AS due "
            "FROM triggers WHERE status IN ('PENDING', 'CLAIMED')",
            now=time.time(),
        )
        if not row["live"] and harness.engine.consumer.is_idle:
            return
        now = (row["live"], harness.engine.counts.total())
        if now != last:
            last, since = now, anyio.current_time()
        elif anyio.current_time() - since > STALL_SECONDS:
            live = harness.rows(
                "SELECT id, status, lane, due_at - :now AS due_in, lease_token, started_at FROM triggers "
                "WHERE status IN ('PENDING', 'CLAIMED') LIMIT 5",
                now=time.time(),
            )
            consumer = harness.engine.consumer
            raise AssertionError(
                f"stalled with {row}: queue {len(harness.engine._window)}, lanes {harness.engine._window.busy_lanes}, "
                f"taken {consumer.slots.taken}, running {len(consumer.running)}, "
                f"alone {consumer.exclusive.is_on}, live {live}"
            )
        await anyio.sleep(0.01)


def assert_counts_balance(harness: Lab, chaos: Chaos) -> None:
    consumer, queue = harness.engine.consumer, harness.engine._window
    assert not chaos.overlaps
    assert (consumer.slots.taken, len(consumer.running), len(queue), consumer.exclusive.is_on) == (0, 0, 0, False)
    assert (len(consumer._idle), queue.busy_lanes) == (consumer._concurrency, frozenset())
    assert consumer.is_idle
    assert not consumer._ready

    rows = {row["id"]: row for row in harness.rows("SELECT * FROM triggers")}
    [emitted_again] = harness.rows("SELECT count(*) AS n FROM mailbox WHERE status = 'EMITTED'")
    assert chaos.accepted <= rows.keys(), "every accepted trigger exists"
    assert len(rows) == len(chaos.accepted) + emitted_again["n"], (
        "the others are unread messages of tasks, emitted again"
    )
    assert not harness.rows("SELECT * FROM mailbox WHERE status <> 'EMITTED'"), "no task waits for a message"
    assert not [row for row in rows.values() if row["settled_at"] is None]

    ends: dict[str, list[str]] = {}
    records: Counter[str] = Counter()
    for record in harness.rows("SELECT * FROM executions ORDER BY seq"):
        records[record["trigger_id"]] += 1
        assert record["ended_at"] is not None, "a record is closed with its attempt"
        assert record["id"] == f"exec-{record['trigger_id']}.{records[record['trigger_id']]}"
        ends.setdefault(record["trigger_id"], []).append(record["status"])
    for row in rows.values():
        assert records[row["id"]] == row["starts"], "one record per start"
        assert 0 <= row["attempts"] <= min(row["starts"], 3)
        assert row["crash_count"] == 0
        seen = ends.get(row["id"], [])
        assert "success" not in seen[:-1], "no run follows a success"
        assert (row["reason"] in ("succeeded", "delivered")) == (seen[-1:] == ["success"])
        released = sum(status in ("incomplete", "suspended") for status in seen)
        assert row["attempts"] == row["starts"] - released or row["reason"] == "cancelled"
    finals = harness.rows(
        "SELECT execution_seq, sum(type IN ('FINAL_RESPONSE', 'ATTEMPT_RELEASED')) AS n, "
        "max(seq) - count(*) AS gap FROM events GROUP BY 1 HAVING n <> 1 OR gap <> 0"
    )
    assert not finals, "each record ends once, and its events have no gap"


@pytest.mark.parametrize(
    ("seed", "triggers"),
    [(1, 120), *(pytest.param(seed, 240, marks=pytest.mark.campaign) for seed in range(4))],
)
async def test_trigger_and_record_counts_balance_after_stress(tmp_path, seed, triggers):
    await stress(tmp_path, seed, triggers)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(100, 220))
async def test_trigger_and_record_counts_balance_after_heavy_stress(tmp_path, seed):
    await stress(tmp_path, seed, 1200)
