"""The engine under measurement: a no-op workflow on a given file, with full records."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from craftcore import App, TriggerSpec
from craftcore.config import Config
from craftcore.engine.engine import Engine


def config(concurrency: int = 100) -> Config:
    """The defaults, with as many places as there are emitters."""
    return replace(Config(), daemon=replace(Config().daemon, concurrency=concurrency))


def anew(path: Path) -> Path:
    """The same path, and nothing in its directory."""
    shutil.rmtree(path.parent, ignore_errors=True)
    return path


@asynccontextmanager
async def noop_engine(path: Path, *, paused: bool = False, concurrency: int = 100) -> AsyncIterator[tuple[App, Engine]]:
    """An engine that does nothing, well."""
    app = App("bench")

    @app.workflow("noop")
    async def noop(n: int) -> None: ...

    async with app.running(path, config=config(concurrency)) as engine:
        engine.feeder.paused = paused
        yield app, engine


async def emit_rate(path: Path, count: int, emitters: int) -> float:
    """Accepted triggers per second, `emitters` at a time, into an engine that claims nothing."""
    async with noop_engine(path, paused=True) as (app, _):
        started = time.perf_counter()
        await _emit(app, count, emitters)
        return count / (time.perf_counter() - started)


async def emit_many_rate(path: Path, count: int, size: int = 1000) -> float:
    """Accepted triggers per second by `emit_many`."""
    batches = [[TriggerSpec(workflow="noop", payload={"n": n}) for n in range(size)] for _ in range(count // size)]
    async with noop_engine(path, paused=True) as (app, _):
        started = time.perf_counter()
        for batch in batches:
            await app.emit_many(batch)
        return count / (time.perf_counter() - started)


async def end_to_end_rate(path: Path, count: int, emitters: int) -> float:
    """Settled triggers per second, from emit to settle, with full records."""
    async with noop_engine(path) as (app, engine):
        started = time.perf_counter()
        await _emit(app, count, emitters)
        while engine.counts["DONE"] < count:
            await engine.wait_for_settle()
        return count / (time.perf_counter() - started)


async def _emit(app: App, count: int, emitters: int) -> None:
    async def emit(numbers: range) -> None:
        for number in numbers:
            await app.emit("noop", {"n": number})

    await asyncio.gather(*(emit(range(count // emitters)) for _ in range(emitters)))
