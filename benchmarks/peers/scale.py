"""craftcore alone: what a long history and a long queue cost. Reuses the other measurements of this folder."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from benchmarks import asleep, engine, history
from benchmarks.peers.report import Results

SYSTEM = "craftcore"
SIZES = (1_000, 100_000, 1_000_000)
FULL_SIZE = 10_000_000
COUNT = 10_000
PENDING = 1_000_000
BOOTS = 5


def measure_history(folder: Path, rounds: int, results: Results, *, full: bool) -> None:
    """Add the rate from emit to settlement by the number of settled rows, in interleaved rounds."""
    sizes = (*SIZES, FULL_SIZE) if full else SIZES
    paths = {size: folder / f"settled-{size}" / "bench.db" for size in sizes}
    for size, path in paths.items():
        history.make(path, settled=size)
    for _ in range(rounds):
        for size, path in paths.items():
            results.add(SYSTEM, f"history-{size}", asyncio.run(engine.end_to_end_rate(path, COUNT, 100)))
    for path in paths.values():
        shutil.rmtree(path.parent)


def measure_boot(folder: Path, results: Results) -> None:
    """Add the seconds from process start to the first handler, and the resident memory then in MB, without and with a
    million pending rows. They are due tomorrow."""
    (folder / "asleep_app.py").write_text(asleep.APP)
    paths = {"none": folder / "none" / "bench.db", "pending": folder / "pending" / "bench.db"}
    history.make(paths["none"], settled=0)
    history.make(paths["pending"], settled=0, pending=PENDING)
    for _ in range(BOOTS):
        for case, path in paths.items():
            seconds, kib = asleep.first_handler(folder, path)
            results.add(SYSTEM, f"boot-{case}", seconds)
            results.add(SYSTEM, f"memory-{case}", kib * 1024 / 1e6)
    for path in paths.values():
        shutil.rmtree(path.parent)
