"""The order of events by sequence number under a changed clock, and the search for a request by its hash."""

from __future__ import annotations

from itertools import pairwise

import pytest

from craftcore import App, Retry, TaskContext
from craftcore.executions.record import ExecutionRecord, faults
from craftcore.executions.record_store import RecordStore
from tests.support.engine_harness import Lab, lab
from tests.support.fakes import VirtualClock, VirtualCore

pytestmark = pytest.mark.anyio


def records(host: Lab, clock: VirtualClock, trigger_id: str) -> list[ExecutionRecord]:
    """Return the records of a trigger, in the order in which they were opened."""
    core = VirtualCore(host.path, clock)
    with core.reading() as reader:
        ids = reader.fetch_tuples("SELECT id FROM executions WHERE trigger_id = ?1 ORDER BY seq", (trigger_id,))
        found = [RecordStore().get(reader, id) for (id,) in ids]
    core.close()
    return [record for record in found if record is not None]


async def test_events_stay_in_order_while_the_clock_is_set_back(tmp_path):
    app, clock = App(), VirtualClock()

    async def fetch(n: int) -> int:
        clock.set_back(600)
        return n

    @app.workflow("brief", fallback=["simple_brief"])
    async def brief(ctx: TaskContext) -> None:
        for n in range(3):
            await ctx.step("fetch", fetch, n, key=str(n))
        raise Retry("use the fallback")

    @app.workflow("simple_brief")
    async def simple_brief(ctx: TaskContext) -> str:
        await ctx.step("fetch", fetch, 3)
        return "done"

    async with lab(app, tmp_path, clock=clock) as host:
        id = (await app.emit("brief")).id
        await host.ended(id)
        [record] = records(host, clock, id)

    assert [event.seq for event in record.events] == list(range(1, 13))
    assert [event.type for event in record.events] == [
        "INTENT_RECEIVED",
        "AGENT_ATTEMPT_START",
        *["STEP_COMPLETED"] * 3,
        "AGENT_ATTEMPT_END",
        "FALLBACK_TRIGGERED",
        "AGENT_ATTEMPT_START",
        "STEP_COMPLETED",
        "AGENT_ATTEMPT_END",
        "ROUTER_DECISION",
        "FINAL_RESPONSE",
    ]
    times = [event.at for event in record.events]
    assert times == sorted(times, reverse=True)
    assert times[-1] == times[0] - 4 * 600
    assert record.latency_ms == 0.0, "a time that cannot be measured is 0, not negative"
    assert faults(record) == []


async def test_records_stay_in_order_when_each_start_finds_the_clock_set_further_back(tmp_path):
    app, clock = App(), VirtualClock()

    @app.workflow("brief")
    async def brief() -> None:
        clock.set_back(600)

    found: list[ExecutionRecord] = []
    for _ in range(3):
        async with lab(app, tmp_path, clock=clock) as host:
            id = (await app.emit("brief")).id
            await host.settled(id)
            found += records(host, clock, id)
        clock.set_back(3600)

    assert [(record.seq, record.chain_seq, record.epoch) for record in found] == [(1, 1, 1), (2, 2, 2), (3, 3, 3)]
    assert found[0].created_at > found[1].created_at > found[2].created_at
    for before, after in pairwise(found):
        assert after.prev_hash == before.record_hash
    for record in found:
        assert [event.seq for event in record.events] == [1, 2, 3, 4, 5]
        assert faults(record) == []


async def test_envelope_hash_finds_the_attempts_of_a_request_and_no_others(tmp_path):
    app = App()

    @app.workflow("brief", max_attempts=3)
    async def brief(city: str) -> None:
        raise Retry("no answer")

    async with lab(app, tmp_path) as host:
        rome = (await app.emit("brief", {"city": "Rome"})).id
        again = (await app.emit("brief", {"city": "Rome"})).id
        for id in (rome, again):
            await host.settled(id)
        [[hash]] = [
            {row["envelope_hash"] for row in host.rows("SELECT * FROM executions WHERE trigger_id = :id", id=rome)}
        ]
        found = host.rows("SELECT id FROM executions WHERE envelope_hash = :hash ORDER BY seq", hash=hash)

    assert [row["id"] for row in found] == [f"exec-{rome}.{n}" for n in (1, 2, 3)]
