"""Functions in worker processes: what a call costs, and how late the event loop is while processes go wrong."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio

from craftcore import App, TaskContext

CALLS = 200
ROUNDS = 10


def quick() -> int:
    """Return at once."""
    return 1


def die() -> None:
    """Be killed."""
    os.kill(os.getpid(), 9)


def hang() -> None:
    """Keep the interpreter for ever."""
    sum(range(10**15))


def make_lock() -> Any:
    """Return what is not JSON."""
    return threading.Lock()


def fail() -> None:
    """Raise what cannot be pickled."""
    error = ValueError("it holds a lock")
    error.lock = threading.Lock()  # type: ignore[attr-defined]
    raise error


CASES: dict[str, tuple[Callable[[], Any], float | None]] = {
    "killed": (die, None),
    "hangs, killed after 200 ms": (hang, 0.2),
    "result is not JSON": (make_lock, None),
    "exception is not picklable": (fail, None),
}


def main() -> None:
    """Measure both in one engine."""
    app = App("processes")

    @app.workflow("measure")
    async def measure(ctx: TaskContext) -> None:
        await ctx.step("import", quick, executor="process")
        began = time.perf_counter()
        for number in range(CALLS):
            await ctx.step("quick", quick, key=f"{number}", executor="process")
        each = (time.perf_counter() - began) / CALLS
        print(f"  a step in a process          {each * 1000:.2f} ms, commit included")
        for case, (fn, timeout) in CASES.items():
            latest = await longest_delay(lambda fn=fn, timeout=timeout: _go_wrong(ctx, fn, timeout))  # type: ignore[misc]
            print(f"  {case:28} the loop is at most {latest * 1000:.1f} ms late    (at most 100 ms)")

    async def run(folder: Path) -> None:
        async with app.running(folder / "bench.db"):
            await (await app.emit("measure")).result()

    with tempfile.TemporaryDirectory() as name:
        anyio.run(run, Path(name))


async def _go_wrong(ctx: TaskContext, fn: Callable[[], Any], timeout: float | None) -> None:
    for number in range(ROUNDS):
        with suppress(Exception):
            await ctx.step(fn.__name__, fn, key=f"{number}", executor="process", timeout=timeout)


async def longest_delay(work: Callable[[], Any]) -> float:
    """Return how late the loop was at most while the work was done, in seconds. The time in which the machine ran
    something else is left out."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            due, before = time.perf_counter() + 0.002, _seconds_ready()
            await anyio.sleep(0.002)
            longest = max(longest, time.perf_counter() - due - (_seconds_ready() - before))

    async with anyio.create_task_group() as beside:
        beside.start_soon(watch)
        await work()
        beside.cancel_scope.cancel()
    return longest


def _seconds_ready() -> float:
    """Return how long this thread has waited for a processor; 0 where the kernel does not say."""
    try:
        _, waited, _ = Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()
    except OSError:
        return 0.0
    return int(waited) / 1e9
