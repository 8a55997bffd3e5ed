"""From process start to the first handler: an empty database against one with a long history."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks import history
from craftcore.producer import Producer

APP = """
import os, time
from craftcore import App
app = App("boot")

@app.workflow("noop")
async def noop(n: int = 0) -> None: ...

@app.workflow("first")
async def first() -> None:
    print(time.monotonic(), flush=True)
    os._exit(0)
"""
ROUNDS = 7


def main() -> None:
    """Time both by turns."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "boot_app.py").write_text(APP)
        history.make(folder / "empty" / "bench.db", settled=0)
        history.make(folder / "full" / "bench.db", settled=1_000_000, pending=100_000)
        empty, full = [], []
        for _ in range(ROUNDS):
            empty.append(first_handler(folder, folder / "empty" / "bench.db"))
            full.append(first_handler(folder, folder / "full" / "bench.db"))
        print(f"  empty database                               {median(empty) * 1000:7.0f} ms")
        print(f"  1,000,000 settled and 100,000 pending rows   {median(full) * 1000:7.0f} ms")
        print(f"  ratio                                        {median(full) / median(empty):7.2f}    (at most 1.3)")


def first_handler(folder: Path, database: Path) -> float:
    """Seconds from the start of the process to the first line of the first handler. Each ends there, by a crash."""
    with Producer(database) as producer:
        producer.emit("first", priority=0, on_duplicate="keep")
    started = time.monotonic()
    daemon = subprocess.run(
        [sys.executable, "-m", "craftcore", "--db", str(database), "run", "boot_app:app"],
        cwd=folder,
        env=os.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=60,
        check=True,
    )
    with Producer(database) as producer:
        with producer.backend.services.transaction() as tx:
            tx.run(
                "UPDATE triggers SET status = 'DONE', reason = 'measured', settled_at = :now, lease_token = NULL, "
                "claimed_epoch = NULL WHERE status = 'CLAIMED'",
                now=tx.now,
            )
    return float(daemon.stdout.split()[0]) - started


if __name__ == "__main__":
    main()
