"""Ten thousand tasks asleep against none: the daemon's resident memory, and the time of its boot."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.engine import config
from craftcore import App, Producer, TaskContext

ASLEEP = 10_000
ROUNDS = 7

APP = """
import os, time
from craftcore import App
app = App("asleep")

@app.workflow("sleeper")
async def sleeper(ctx) -> None: ...

@app.workflow("first")
async def first() -> None:
    kib = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS"))
    print(time.monotonic(), kib, flush=True)
    os._exit(0)
"""


def main() -> None:
    """Time and weigh both by turns; each boot ends at its first handler, by a crash."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "asleep_app.py").write_text(APP)
        empty, full = folder / "none" / "bench.db", folder / "asleep" / "bench.db"
        asyncio.run(fill(empty, 0))
        asyncio.run(fill(full, ASLEEP))
        times: dict[Path, list[float]] = {empty: [], full: []}
        sizes: dict[Path, list[float]] = {empty: [], full: []}
        for _ in range(ROUNDS):
            for database in (empty, full):
                seconds, kib = first_handler(folder, database)
                times[database].append(seconds)
                sizes[database].append(kib)
        more = (median(sizes[full]) - median(sizes[empty])) / ASLEEP * 1024
        print(f"  boot to the first handler, none asleep       {median(times[empty]) * 1000:8.0f} ms")
        print(f"  boot to the first handler, {ASLEEP:,} asleep     {median(times[full]) * 1000:8.0f} ms")
        print(f"  resident memory, none asleep                 {median(sizes[empty]):8,.0f} KiB")
        print(f"  resident memory, {ASLEEP:,} asleep               {median(sizes[full]):8,.0f} KiB")
        print(f"  bytes for each that sleeps                   {more:8.0f}    (less than 1,024)")


async def fill(database: Path, count: int) -> None:
    """A file with so many tasks that sleep for a year."""
    app = App("fill")

    @app.workflow("sleeper")
    async def sleeper(ctx: TaskContext) -> None:
        await ctx.sleep(365 * 86_400)

    async with app.running(database, config=config()) as engine:
        for _ in range(count):
            await app.emit("sleeper")
        while engine.counts["DONE"] < count:
            await engine.wait_for_settle()


def first_handler(folder: Path, database: Path) -> tuple[float, float]:
    """Seconds from the start of the process to its first handler, and its resident memory then in KiB."""
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    program = [sys.executable, "-m", "craftcore", "--db", str(database)]
    with Producer(database) as producer:
        with producer.backend.services.transaction() as tx:
            tx.run("DELETE FROM workflows")
            tx.run("UPDATE epochs SET ended_at = started_at")
        emitted = producer.emit("first", priority=0)
    started = time.monotonic()
    daemon = subprocess.run(
        [*program, "run", "asleep_app:app"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=120,
        check=True,
    )
    with Producer(database) as producer:
        with producer.backend.services.transaction() as tx:
            tx.run(
                "UPDATE triggers SET status = 'DONE', reason = 'measured', settled_at = :now, lease_token = NULL, "
                "claimed_epoch = NULL WHERE id = :id",
                now=tx.now,
                id=emitted.id,
            )
    first, kib = daemon.stdout.split()
    return float(first) - started, float(kib)


if __name__ == "__main__":
    main()
