"""Emit and end to end as ratios to raw apsw in the same run: the machine's mood is in both sides of each."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks import engine, history, raw

ROUNDS = 5
MILLION = 1_000_000


def main() -> None:
    """Print one line per promise: the ratio, what it must be, what is aimed at."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ratios(folder)
        with_history(folder)


def ratios(folder: Path) -> None:
    """Each round measures the ground and what stands on it, one after the other; medians of the rounds' ratios."""
    found: dict[str, list[float]] = {}
    rates: dict[str, list[float]] = {}
    for number in range(ROUNDS):
        path = folder / f"round-{number}" / "bench.db"

        def fresh(measure: Callable[[Path], float], path: Path = path) -> float:
            shutil.rmtree(path.parent, ignore_errors=True)
            return measure(path)

        single = fresh(lambda path: raw.single_commits(raw.fresh(path), 2_000))
        batch = fresh(lambda path: raw.batches(raw.fresh(path), 50_000))
        bare = fresh(lambda path: asyncio.run(raw.bare_pipeline(raw.fresh(path), 20_000, 100)))
        many = fresh(lambda path: asyncio.run(engine.emit_many_rate(path, 50_000)))
        hundred = fresh(lambda path: asyncio.run(engine.emit_rate(path, 30_000, 100)))
        one = fresh(lambda path: asyncio.run(engine.emit_rate(path, 2_000, 1)))
        whole = fresh(lambda path: asyncio.run(engine.end_to_end_rate(path, 20_000, 100)))
        for key, value in (
            ("raw single commits", single),
            ("raw batches of 1,000", batch),
            ("bare pipeline", bare),
            ("100 emitters", hundred),
            ("1 emitter", one),
            ("emit_many(1000)", many),
            ("end to end, 100 at once", whole),
        ):
            rates.setdefault(key, []).append(value)
        for key, value in (
            ("100 emitters / raw single commits", hundred / single),
            ("1 emitter / raw single commits", one / single),
            ("emit_many(1000) / raw batch of 1,000", many / batch),
            ("end to end with records / bare pipeline", whole / bare),
        ):
            found.setdefault(key, []).append(value)
    wanted = {
        "100 emitters / raw single commits": "at least 6, aim 10",
        "1 emitter / raw single commits": "at least 0.40, aim 0.60",
        "emit_many(1000) / raw batch of 1,000": "at least 0.40",
        "end to end with records / bare pipeline": "at least 0.20, aim 0.40",
    }
    for key, values in rates.items():
        print(f"  {key:42} {median(values):10,.0f} /s")
    for key, values in found.items():
        print(f"  {key:42} {median(values):10.2f}    ({wanted[key]}; {min(values):.2f} to {max(values):.2f})")


def with_history(folder: Path) -> None:
    """End to end on a file with a thousand settled triggers against one with a million, by turns."""
    small, large = folder / "small" / "bench.db", folder / "large" / "bench.db"
    history.make(small, settled=1_000)
    history.make(large, settled=MILLION)
    found = []
    for _ in range(ROUNDS):
        few = asyncio.run(engine.end_to_end_rate(small, 20_000, 100))
        many = asyncio.run(engine.end_to_end_rate(large, 20_000, 100))
        found.append(many / few)
    key = "1,000,000 settled rows / 1,000"
    print(f"  {key:42} {median(found):10.2f}    (at least 0.85; {min(found):.2f} to {max(found):.2f})")


if __name__ == "__main__":
    main()
