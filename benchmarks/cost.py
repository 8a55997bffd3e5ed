"""The counts of statements, row writes, commits and thread hops for one trigger, and for the heartbeat of one lease.

They are the same on every machine.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import apsw

from benchmarks.engine import config, noop_engine
from craftcore import App, TriggerSpec
from craftcore.engine.engine import Engine

LEASE_SECONDS = 5.0


@dataclass
class Cost:
    """Counted over a whole measurement."""

    statements: float = 0
    rows: float = 0
    """Rows that are inserted, updated or deleted, also by triggers of the schema."""
    commits: float = 0
    hops: float = 0

    def per(self, triggers: float) -> Cost:
        """The same for each trigger."""
        return Cost(self.statements / triggers, self.rows / triggers, self.commits / triggers, self.hops / triggers)


@contextmanager
def counted(engine: Engine) -> Iterator[Cost]:
    """Count what the writer executes and how often it calls back into the loop."""
    cost = Cost()
    writer = engine.writer
    connection, loop = writer.group_commit.connection, writer._loop
    before, rows = writer.group_commit.commits, connection.total_changes()
    original = loop.call_soon

    def statement(event: dict[str, Any]) -> None:
        cost.statements += not event["trigger"]  # a trigger of the schema is part of its statement

    def call_soon(fn: object) -> None:
        cost.hops += 1
        original(fn)  # type: ignore[arg-type]

    connection.trace_v2(apsw.SQLITE_TRACE_STMT, statement)
    loop.call_soon = call_soon  # type: ignore[method-assign]
    try:
        yield cost
    finally:
        connection.trace_v2(0, None)
        loop.call_soon = original  # type: ignore[method-assign]
        cost.commits = writer.group_commit.commits - before
        cost.rows = connection.total_changes() - rows


async def one_by_one(path: Path, count: int) -> Cost:
    """Each trigger is emitted when the one before is settled: nothing to share a commit with."""
    async with noop_engine(path) as (app, engine):
        await app.emit("noop", {"n": 0})
        await settled(engine, 1)
        with counted(engine) as cost:
            for n in range(count):
                await app.emit("noop", {"n": n})
                await settled(engine, n + 2)
        return cost.per(count)


async def together(path: Path, count: int, concurrency: int = 100) -> Cost:
    """All are emitted in one commit, and run a hundred at a time, or fewer."""
    async with noop_engine(path, concurrency=concurrency) as (app, engine):
        with counted(engine) as cost:
            await app.emit_many([TriggerSpec(workflow="noop", payload={"n": n}) for n in range(count)])
            await settled(engine, count)
        return cost.per(count)


async def accepted(path: Path, count: int, size: int = 1, emitters: int = 1) -> Cost:
    """Emits into an engine that claims nothing: one after the other, by several tasks, or `size` in a commit."""
    async with noop_engine(path, paused=True) as (app, engine):
        await engine.feeder.wait_for_first_poll()
        await app.emit("noop", {"n": 0})
        specs = [TriggerSpec(workflow="noop", payload={"n": n}) for n in range(size)]

        async def emit() -> None:
            for n in range(count // size // emitters):
                await (app.emit("noop", {"n": n}) if size == 1 else app.emit_many(specs))

        with counted(engine) as cost:
            await asyncio.gather(*(emit() for _ in range(emitters)))
        return cost.per(count)


async def held(path: Path, count: int, seconds: float = 10.0) -> Cost:
    """So many are at work and nothing ends: what their heartbeats cost, for each lease, of the shortest there is."""
    app = App("held")

    @app.workflow("long")
    async def long() -> None:
        await asyncio.sleep(3600)

    settings = config(concurrency=count)
    settings = replace(settings, triggers=replace(settings.triggers, lease_seconds=LEASE_SECONDS))
    async with app.running(path, config=settings) as engine:
        await app.emit_many([TriggerSpec(workflow="long") for _ in range(count)])
        while engine.running < count:  # noqa: ASYNC110 - every turn of the loop counts
            await asyncio.sleep(0.01)
        with counted(engine) as cost:
            await asyncio.sleep(seconds)
        engine.stop_now()
    return cost.per(seconds / LEASE_SECONDS)


async def settled(engine: Engine, count: int) -> None:
    """Wait until that many are done and the feeder has seen that nothing is left."""
    while engine.counts["DONE"] < count or not engine.is_idle:  # noqa: ASYNC110 - every turn of the loop counts
        await asyncio.sleep(0)


def main() -> None:
    """Print each."""
    with tempfile.TemporaryDirectory() as name:
        for what, per, measured in (
            ("one by one", "trigger", asyncio.run(one_by_one(Path(name) / "one.db", 200))),
            ("emit", "trigger", asyncio.run(accepted(Path(name) / "emit.db", 200))),
            ("emit, 100 tasks", "trigger", asyncio.run(accepted(Path(name) / "emits.db", 2000, emitters=100))),
            ("emit_many(1000)", "trigger", asyncio.run(accepted(Path(name) / "bulk.db", 5000, 1000))),
            ("1,000 together", "trigger", asyncio.run(together(Path(name) / "many.db", 1000))),
            ("1,000, one at a time", "trigger", asyncio.run(together(Path(name) / "turns.db", 1000, 1))),
            ("1 at work", "lease", asyncio.run(held(Path(name) / "held-1.db", 1))),
            ("100 at work", "lease", asyncio.run(held(Path(name) / "held-100.db", 100))),
        ):
            print(
                f"  {what:20} {measured.statements:6.2f} statements  {measured.rows:6.2f} rows  "
                f"{measured.commits:6.3f} commits  {measured.hops:6.3f} loop hops  a {per}"
            )


if __name__ == "__main__":
    main()
