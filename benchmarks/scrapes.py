"""What one scrape of the metrics costs, by how much history there is, and what it does to the engine beside it."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

from benchmarks import history
from craftcore.app import App
from craftcore.config import Config, MetricsSettings
from craftcore.daemon.lifespan import running

SCRAPES = 100
EMITS = 100
SECONDS = 5.0
TICK = 0.001
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"


def main() -> None:
    """With little, much and very much that is settled, and with a hundred thousand that wait."""
    with tempfile.TemporaryDirectory() as name:
        for settled, pending in ((1_000, 0), (100_000, 0), (1_000_000, 0), (1_000, 100_000)):
            path = Path(name) / f"{settled}-{pending}" / "bench.db"
            history.make(path, settled=settled, pending=pending)
            print(f"  {settled:,} settled, {pending:,} pending")
            asyncio.run(scraped(path))


async def scraped(path: Path) -> None:
    """Print what a scrape takes, and how the engine does without any and under one after the other."""
    app = App("scraped")

    @app.workflow("noop")
    async def noop(n: int = 0) -> None: ...

    async with running(app, path, Config(metrics=MetricsSettings(listen="unix:metrics.sock"))):
        where = str(path.parent / "metrics.sock")
        times = sorted([await scrape(where) for _ in range(SCRAPES)])
        print(f"    a scrape           p50 {median(times) * 1e3:.2f} ms, max {times[-1] * 1e3:.2f} ms")
        await disturbed(app, "nobody scrapes")
        async with repeated(lambda: scrape(where)):
            await disturbed(app, "scraped on and on")


async def disturbed(app: App, title: str) -> None:
    """Print how late the loop is meanwhile, and what an emit takes."""
    late, emits = await lateness(SECONDS), sorted([await emitted(app) for _ in range(EMITS)])
    rarely = late[-1 - len(late) // 1000]
    print(
        f"    {title:18} loop late: p99.9 {rarely * 1e3:5.2f} ms, max {late[-1] * 1e3:5.2f} ms"
        f"    emit: p50 {median(emits) * 1e3:5.2f} ms, max {emits[-1] * 1e3:5.2f} ms"
    )


async def scrape(where: str) -> float:
    """Ask once; the seconds until the whole answer was there."""
    began = time.perf_counter()
    reader, writer = await asyncio.open_unix_connection(where)
    writer.write(REQUEST)
    answer = await reader.read()
    writer.close()
    assert b"craftcore_database_read 1.0" in answer, answer[:200]
    return time.perf_counter() - began


@asynccontextmanager
async def repeated(work: Callable[[], Awaitable[float]]) -> AsyncIterator[None]:
    """Do it again and again, without a pause, while the block runs."""

    async def on_and_on() -> None:
        while True:
            await work()

    task = asyncio.create_task(on_and_on())
    try:
        yield
        assert not task.done(), task.exception()
    finally:
        task.cancel()


async def lateness(seconds: float) -> list[float]:
    """How much later than asked the loop woke, sorted."""
    late, until = [], time.perf_counter() + seconds
    while (wanted := time.perf_counter() + TICK) < until:
        await asyncio.sleep(TICK)
        late.append(time.perf_counter() - wanted)
    return sorted(late)


async def emitted(app: App) -> float:
    """The seconds of one emit, on disk."""
    began = time.perf_counter()
    await app.emit("noop", {"n": 1})
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
