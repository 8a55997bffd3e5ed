"""The drain beside a hundred tasks that stream, as a share of the drain beside the same tasks without a write."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.engine import config
from craftcore import App, TaskContext, TriggerSpec
from craftcore.engine.engine import Engine

TASKS, CHUNKS_A_SECOND = 100, 20
DRAINED, ROUNDS = 2_000, 15
CHUNK = "a word or two "


def main() -> None:
    """A hundred tasks that receive chunks, and write them in every second drain."""
    with tempfile.TemporaryDirectory() as name:
        share = asyncio.run(share_left(Path(name) / "streams" / "bench.db", DRAINED, ROUNDS))
    print(f"  {TASKS} tasks, {CHUNKS_A_SECOND} chunks a second each: {share:.1%} of the drain is left")


async def share_left(path: Path, count: int, rounds: int) -> float:
    """Return the drain while the tasks write what they receive, as a share of the drain while they drop it. The median
    of some rounds, each measured between two without writes."""
    app = App("bench")
    writes = stops = False

    @app.workflow("noop")
    async def noop(n: int) -> None: ...

    @app.workflow("says", concurrency=TASKS)
    async def says(ctx: TaskContext, number: int) -> None:
        stream = ctx.stream("answer")
        while not stops:
            if writes:
                await stream.write(CHUNK)
            await asyncio.sleep(1 / CHUNKS_A_SECOND)

    async with app.running(path, config=config(2 * TASKS)) as engine:
        for number in range(TASKS):
            await app.emit("says", {"number": number})
        await drain(app, engine, count)
        shares, before = [], await drain(app, engine, count)
        for _ in range(rounds):
            writes = True
            beside = await drain(app, engine, count)
            writes = False
            after = await drain(app, engine, count)
            shares.append(2 * beside / (before + after))
            print(f"    {before:6,.0f} a second without writes, {beside:6,.0f} with, {after:6,.0f} without")
            before = after
        stops = True
    return median(shares)


async def drain(app: App, engine: Engine, count: int) -> float:
    """Return how many triggers of a backlog settle in a second."""
    engine.feeder.paused = True
    await app.emit_many([TriggerSpec(workflow="noop", payload={"n": number}) for number in range(count)])
    done = engine.counts["DONE"]
    began = time.perf_counter()
    engine.feeder.paused = False
    engine.feeder.ring()
    while engine.counts["DONE"] < done + count:
        await engine.wait_for_settle()
    return count / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
