"""From another process's emit to the handler of an idle daemon, and what that daemon burns while it waits."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles

from craftcore.producer import Producer

APP = """
import os, sys, time
from craftcore import App
app = App("latency")
seen = os.open(os.environ["SEEN"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@app.workflow("mark")
async def mark(sent: float) -> None:
    os.write(seen, f"{time.monotonic() - sent}\\n".encode())
"""
EMITS = 300
IDLE_SECONDS = 10.0


def main() -> None:
    """Start a real daemon, emit from this process, measure both."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "latency_app.py").write_text(APP)
        seen, database = folder / "seen", folder / "bench.db"
        daemon = subprocess.Popen(
            [sys.executable, "-m", "craftcore", "--db", str(database), "run", "latency_app:app"],
            cwd=folder,
            env={**os.environ, "SEEN": str(seen)},
            stderr=subprocess.DEVNULL,
        )
        try:
            with Producer(database) as producer:
                _emit_and_wait(producer, seen, 1)  # warm
                for number in range(EMITS):
                    _emit_and_wait(producer, seen, number + 2)
            times = sorted(float(line) * 1000 for line in seen.read_text().split()[1:])
            deciles = quantiles(times, n=100)
            print(
                f"  emit to handler  p50 {deciles[49]:.2f} ms  p95 {deciles[94]:.2f} ms  max {times[-1]:.2f} ms"
                f"    (p50 at most 10 ms; {EMITS} emits)"
            )
            before = _cpu_seconds(daemon.pid)
            time.sleep(IDLE_SECONDS)
            share = (_cpu_seconds(daemon.pid) - before) / IDLE_SECONDS
            print(f"  idle daemon      {share:.2%} of a CPU over {IDLE_SECONDS:.0f} s    (below 0.50%)")
        finally:
            daemon.terminate()
            daemon.wait(30)


def _emit_and_wait(producer: Producer, seen: Path, lines: int) -> None:
    producer.emit("mark", {"sent": time.monotonic()})
    deadline = time.monotonic() + 30
    while not seen.exists() or seen.read_bytes().count(b"\n") < lines:
        if time.monotonic() > deadline:
            raise TimeoutError("the daemon did not run the trigger")
        time.sleep(0.0005)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
