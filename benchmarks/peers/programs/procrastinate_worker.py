"""Procrastinate on PostgreSQL: an asynchronous worker in this process, woken by LISTEN/NOTIFY."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from procrastinate import App, PsycopgConnector

from benchmarks.peers.programs.work import PAYLOAD, Drain, Work, async_emit_rate, async_latencies, serve

logging.getLogger("procrastinate").setLevel(logging.CRITICAL)
CONNECTIONS_MAX = 20
Measured = TypeVar("Measured")


def drain(work: Work) -> float:
    """Return the finished jobs per second of a full table."""
    found = Drain(work.count)

    async def measure(app: App, task: Any) -> float:
        await task.batch_defer_async(*[PAYLOAD] * work.count)
        await app.run_worker_async(concurrency=work.width, wait=False, install_signal_handlers=False)
        found.end()
        return found.rate()

    return asyncio.run(opened(work, found.begin, measure))


def emit(work: Work) -> float:
    """Return the accepted jobs per second of so many tasks."""

    async def measure(_app: App, task: Any) -> float:
        return await async_emit_rate(work, lambda: task.defer_async(**PAYLOAD))

    return asyncio.run(opened(work, lambda: None, measure))


def bulk(work: Work) -> float:
    """Return the accepted jobs per second with `width` jobs a commit."""

    async def measure(_app: App, task: Any) -> float:
        began = time.perf_counter()
        for _ in range(work.count // work.width):
            await task.batch_defer_async(*[PAYLOAD] * work.width)
        return work.count / (time.perf_counter() - began)

    return asyncio.run(opened(work, lambda: None, measure))


def latency(work: Work) -> list[float]:
    """Return the seconds from defer to handler with a worker that waits."""
    arrivals = asyncio.Queue[float]()

    async def measure(app: App, task: Any) -> list[float]:
        worker = asyncio.create_task(app.run_worker_async(install_signal_handlers=False))
        await asyncio.sleep(0.5)
        found = await async_latencies(work, arrivals, lambda: task.defer_async(**PAYLOAD))
        worker.cancel()
        return found

    return asyncio.run(opened(work, lambda: arrivals.put_nowait(time.perf_counter()), measure))


async def opened(
    work: Work, handler: Callable[[], object], measure: Callable[[App, Any], Awaitable[Measured]]
) -> Measured:
    """Run a measurement with an app on an empty schema."""
    app = App(connector=PsycopgConnector(conninfo=work.setting, max_size=CONNECTIONS_MAX))

    @app.task(name="plain")
    async def plain(text: str) -> None:
        handler()

    async with app.open_async():
        await app.connector.execute_query_async("DROP SCHEMA public CASCADE")
        await app.connector.execute_query_async("CREATE SCHEMA public")
        await app.schema_manager.apply_schema_async()
        return await measure(app, plain)


if __name__ == "__main__":
    serve({"drain": drain, "emit": emit, "bulk": bulk, "latency": latency})
