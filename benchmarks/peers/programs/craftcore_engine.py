"""craftcore: an engine in this process, with the default settings and as many places as the work is wide."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

from benchmarks.engine import config
from benchmarks.peers.programs.work import PAYLOAD, Drain, Work, async_emit_rate, async_latencies, serve
from benchmarks.records import unrecorded
from craftcore import App, TaskContext, TriggerSpec
from craftcore.engine.engine import Engine

SPEC = TriggerSpec(workflow="plain", payload=PAYLOAD)


def drain(work: Work) -> float:
    """Return the settled items per second of a full queue."""
    return asyncio.run(_drain(work))


async def _drain(work: Work) -> float:
    app, found = App("peers"), Drain(work.count)

    @app.workflow("plain")
    async def plain(text: str) -> None:
        found.begin()

    @app.workflow("steps")
    async def steps(ctx: TaskContext, text: str) -> None:
        found.begin()
        for number in range(work.steps):
            await ctx.step("nothing", _nothing, key=str(number))

    spec = TriggerSpec(workflow="steps" if work.steps else "plain", payload=PAYLOAD)
    async with _paused(app, work, width=work.width) as engine:
        for first in range(0, work.count, 1000):
            await app.emit_many([spec] * min(1000, work.count - first))
        engine.feeder.paused = False
        engine.feeder.ring()
        while engine.counts["DONE"] < work.count:
            await engine.wait_for_settle()
        found.end()
    return found.rate()


async def _nothing() -> int:
    return 1


def emit(work: Work) -> float:
    """Return the accepted items per second of so many tasks, while nothing is claimed."""
    return asyncio.run(_emit(work))


async def _emit(work: Work) -> float:
    app = _app()
    async with _paused(app, work):
        return await async_emit_rate(work, lambda: app.emit("plain", PAYLOAD))


def bulk(work: Work) -> float:
    """Return the accepted items per second of `emit_many` with `width` items a commit."""
    return asyncio.run(_bulk(work))


async def _bulk(work: Work) -> float:
    app = _app()
    async with _paused(app, work):
        began = time.perf_counter()
        for _ in range(work.count // work.width):
            await app.emit_many([SPEC] * work.width)
        return work.count / (time.perf_counter() - began)


def pipeline(work: Work, *, records: bool = True) -> float:
    """Return the settled items per second from emit to settlement, with `width` tasks that emit."""
    with nullcontext() if records else unrecorded():
        return asyncio.run(_pipeline(work))


async def _pipeline(work: Work) -> float:
    app = _app()
    async with app.running(work.folder / "bench.db", config=config()) as engine:
        began = time.perf_counter()
        await async_emit_rate(work, lambda: app.emit("plain", PAYLOAD))
        while engine.counts["DONE"] < work.count:
            await engine.wait_for_settle()
        return work.count / (time.perf_counter() - began)


def latency(work: Work) -> list[float]:
    """Return the seconds from emit to handler in an idle engine."""
    return asyncio.run(_latency(work))


async def _latency(work: Work) -> list[float]:
    app, arrivals = App("peers"), asyncio.Queue[float]()

    @app.workflow("plain")
    async def plain(text: str) -> None:
        arrivals.put_nowait(time.perf_counter())

    async with app.running(work.folder / "bench.db", config=config()):
        return await async_latencies(work, arrivals, lambda: app.emit("plain", PAYLOAD))


def _app() -> App:
    app = App("peers")

    @app.workflow("plain")
    async def plain(text: str) -> None: ...

    return app


@asynccontextmanager
async def _paused(app: App, work: Work, *, width: int = 100) -> AsyncIterator[Engine]:
    async with app.running(work.folder / "bench.db", config=config(width)) as engine:
        engine.feeder.paused = True
        yield engine


if __name__ == "__main__":
    serve(
        {
            "drain": drain,
            "emit": emit,
            "bulk": bulk,
            "pipeline": pipeline,
            "unrecorded": lambda work: pipeline(work, records=False),
            "latency": latency,
        }
    )
