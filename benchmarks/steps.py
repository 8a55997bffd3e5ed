"""Steps per second against raw apsw's single commits in the same run, alone and at a hundred tasks; turns as well."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks import raw
from benchmarks.engine import anew, config
from craftcore import App, Continue, TaskContext
from craftcore.engine.engine import Engine

ROUNDS = 5
STEPS = 50
TURNS = 50


def main() -> None:
    """Each round measures the ground and what stands on it, one after the other; medians of the rounds' ratios."""
    rates: dict[str, list[float]] = {}
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        for number in range(ROUNDS):
            path = Path(name) / f"round-{number}" / "bench.db"
            single = raw.single_commits(raw.fresh(anew(path)), 2_000)
            alone, commits = asyncio.run(rate(anew(path), "steps", tasks=1, each=1_000))
            hundred, shared = asyncio.run(rate(anew(path), "steps", tasks=100, each=STEPS))
            turns, turn_commits = asyncio.run(rate(anew(path), "turns", tasks=1, each=500))
            many_turns, _ = asyncio.run(rate(anew(path), "turns", tasks=100, each=TURNS))
            for key, value in (
                ("raw single commits /s", single),
                ("steps /s, 1 task", alone),
                ("steps /s, 100 tasks", hundred),
                ("turns /s, 1 task", turns),
                ("turns /s, 100 tasks", many_turns),
                ("commits per step, 1 task", commits),
                ("commits per step, 100 tasks", shared),
                ("commits per turn, 1 task", turn_commits),
            ):
                rates.setdefault(key, []).append(value)
            found.setdefault("steps at 1 task / raw single commits", []).append(alone / single)
            found.setdefault("steps at 100 tasks / raw single commits", []).append(hundred / single)
    wanted = {
        "steps at 1 task / raw single commits": "at least 0.30",
        "steps at 100 tasks / raw single commits": "at least 1.5, aim 3",
    }
    for key, values in rates.items():
        print(f"  {key:42} {median(values):12,.2f}")
    for key, values in found.items():
        print(f"  {key:42} {median(values):12.2f}    ({wanted[key]}; {min(values):.2f} to {max(values):.2f})")


async def rate(path: Path, workflow: str, *, tasks: int, each: int) -> tuple[float, float]:
    """Steps or turns per second over so many tasks, and commits per one of them."""
    app = an_app()
    async with app.running(path, config=config(concurrency=100)) as engine:
        began, before = time.perf_counter(), engine.writer.group_commit.commits
        for _ in range(tasks):
            await app.emit(workflow, {"count": each})
        await _all_done(engine, tasks if workflow == "steps" else tasks * each)
        done = tasks * each
        return done / (time.perf_counter() - began), (engine.writer.group_commit.commits - before) / done


def an_app() -> App:
    """Workflows that do nothing, in many steps or many turns."""
    app = App("bench")

    async def nothing() -> int:
        return 1

    @app.workflow("steps")
    async def steps(ctx: TaskContext, count: int) -> int:
        total = 0
        for number in range(count):
            total += await ctx.step("nothing", nothing, key=str(number))
        return total

    @app.workflow("turns")
    async def turns(ctx: TaskContext[int], count: int) -> Continue[int] | int:
        turn = (ctx.state or 0) + 1
        return Continue(turn) if turn < count else turn

    return app


async def _all_done(engine: Engine, triggers: int) -> None:
    while engine.counts["DONE"] < triggers:
        await engine.wait_for_settle()


if __name__ == "__main__":
    main()
