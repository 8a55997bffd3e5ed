"""Irreversible acts per second, two flushed commits each, against raw apsw's single commits in the same run."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks import raw
from benchmarks.engine import anew, config
from craftcore import App, Call, TaskContext

ROUNDS = 5
TASKS = 100
ACTS = 50


def main() -> None:
    """Each round measures the ground and what stands on it, one after the other; medians of the rounds' ratios."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        for number in range(ROUNDS):
            path = Path(name) / f"round-{number}" / "bench.db"
            single = raw.single_commits(raw.fresh(anew(path)), 2_000)
            alone, commits = asyncio.run(rate(anew(path), tasks=1, each=500))
            hundred, shared = asyncio.run(rate(anew(path), tasks=TASKS, each=ACTS))
            for key, value in (
                ("raw single commits /s", single),
                ("acts /s, 1 task", alone),
                ("acts /s, 100 tasks", hundred),
                ("commits per act, 1 task", commits),
                ("commits per act, 100 tasks", shared),
                ("acts at 1 task / raw single commits", alone / single),
                ("acts at 100 tasks / raw single commits", hundred / single),
            ):
                found.setdefault(key, []).append(value)
    wanted = {"acts at 100 tasks / raw single commits": "at least 1, aim 2; "}
    for key, values in found.items():
        print(f"  {key:42} {median(values):12,.2f}    ({wanted.get(key, '')}{min(values):,.2f} to {max(values):,.2f})")


async def rate(path: Path, *, tasks: int, each: int) -> tuple[float, float]:
    """Acts per second over so many tasks at once, and commits per act."""
    app = an_app()
    async with app.running(path, config=config(concurrency=TASKS)) as engine:
        began, before = time.perf_counter(), engine.writer.group_commit.commits
        for _ in range(tasks):
            await app.emit("acts", {"count": each})
        while engine.counts["DONE"] < tasks:
            await engine.wait_for_settle()
        done = tasks * each
        return done / (time.perf_counter() - began), (engine.writer.group_commit.commits - before) / done


def an_app() -> App:
    """A workflow that does nothing to the world, many times, each of them once."""
    app = App("bench")

    @app.action("nothing", irreversible=True)
    async def nothing(call: Call, *, number: int) -> str:
        return call.key

    @app.workflow("acts")
    async def acts(ctx: TaskContext, count: int) -> int:
        for number in range(count):
            await ctx.act(nothing, number=number)
        return count

    return app


if __name__ == "__main__":
    main()
