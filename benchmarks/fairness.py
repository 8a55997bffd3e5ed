"""A bulk producer process and a saturated daemon on one file at once: neither starves, nobody sees BUSY."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.engine import noop_engine
from craftcore.errors import StorageError

SECONDS = 10.0

PRODUCER = """
import sys, time
from craftcore import Producer, TriggerSpec
worst, commits = 0.0, 0
with Producer(sys.argv[1]) as producer:
    until = time.monotonic() + float(sys.argv[2])
    batch = [TriggerSpec(workflow="noop", payload={"n": n}) for n in range(int(sys.argv[3]))]
    while (began := time.monotonic()) < until:
        producer.emit_many(batch)
        worst = max(worst, time.monotonic() - began)
        commits += 1
print(commits * len(batch), commits, worst)
"""


def main() -> None:
    """Once with a producer of batches, once with one of single triggers."""
    with tempfile.TemporaryDirectory() as name:
        for size in (1000, 1):
            asyncio.run(side_by_side(Path(name) / f"fair-{size}" / "bench.db", size))


async def side_by_side(path: Path, size: int) -> None:
    """Print what each side got done and how long its worst call took."""
    async with noop_engine(path) as (app, engine):
        producer = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PRODUCER, str(path), str(SECONDS), str(size), stdout=subprocess.PIPE
        )
        worst, emitted, refused = 0.0, 0, 0
        until = time.monotonic() + SECONDS

        async def emit() -> None:
            nonlocal worst, emitted, refused
            while (began := time.monotonic()) < until:
                try:
                    await app.emit("noop", {"n": 1})
                    emitted += 1
                except StorageError:
                    refused += 1
                worst = max(worst, time.monotonic() - began)

        commits = engine.writer.group_commit.commits
        await asyncio.gather(*(emit() for _ in range(100)))
        commits = engine.writer.group_commit.commits - commits
        settled = engine.counts["DONE"]
        out, _ = await producer.communicate()
        bulk, bulk_commits, bulk_worst = out.split()
        print(
            f"  producer of {size:>4} a commit: {int(bulk):>9,} triggers in {int(bulk_commits):>6,} commits, "
            f"worst wait {float(bulk_worst) * 1000:6.0f} ms, exit {producer.returncode}"
        )
        print(
            f"  daemon beside it:        {emitted:>9,} triggers in {commits:>6,} commits, "
            f"worst wait {worst * 1000:6.0f} ms, {settled:,} settled, {refused} refused"
        )
        engine.stop_now()


if __name__ == "__main__":
    main()
