"""The work that every program is asked for, and how it is timed. Imports the standard library only."""

from __future__ import annotations

import argparse
import asyncio
import json
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

PAYLOAD = {"text": "x" * 189}
"""Serialized without spaces, this is 200 bytes of JSON."""
ITEMS_MAX = 100
LATENCY_SECONDS_MAX = 4.0
PAUSE_SECONDS = 0.02
TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One measurement. `width`: how many run or emit at once, or how many share a commit. `steps`: for each item.
    `setting`: what only this system knows, as the address of its server."""

    folder: Path
    count: int
    width: int = 1
    steps: int = 0
    setting: str = ""


Program = Callable[[Work], "float | list[float]"]
"""Returns items per second, or the seconds from each enqueue to its handler."""


def serve(programs: Mapping[str, Program]) -> None:
    """Read the work from the arguments, do it, and print its result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=programs)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=ITEMS_MAX)
    parser.add_argument("--width", type=int, default=1)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--setting", default="")
    given = vars(parser.parse_args())
    found = programs[given.pop("kind")](Work(**given))
    print(json.dumps(found), flush=True)


class Drain:
    """The time from the start of the first handler to the settlement of the last item."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._began = self._ended = 0.0
        self._settled = 0
        self.over = threading.Event()

    def begin(self) -> None:
        """Note that a handler starts; the first one counts."""
        self._began = self._began or time.perf_counter()

    def settle(self) -> None:
        """Note that an item is settled."""
        with self._lock:
            self._settled += 1
            if self._settled == self._count:
                self.end()

    def end(self) -> None:
        """Note that all items are settled."""
        self._ended = time.perf_counter()
        self.over.set()

    def rate(self) -> float:
        """Return the items settled per second. Waits for the last one."""
        if not self.over.wait(TIMEOUT_SECONDS):
            raise TimeoutError(f"{self._settled} of {self._count} were settled after {TIMEOUT_SECONDS:.0f} s")
        return self._count / (self._ended - self._began)


def emit_rate(work: Work, emit: Callable[[], object]) -> float:
    """Return the accepted items per second of `width` threads."""
    with ThreadPoolExecutor(work.width) as threads:
        began = time.perf_counter()
        ends = [threads.submit(repeat, emit, work.count // work.width) for _ in range(work.width)]
        for end in ends:
            end.result()
        return work.count / (time.perf_counter() - began)


async def async_emit_rate(work: Work, emit: Callable[[], Awaitable[object]]) -> float:
    """Return the accepted items per second of `width` tasks."""

    async def emit_share() -> None:
        for _ in range(work.count // work.width):
            await emit()

    began = time.perf_counter()
    await asyncio.gather(*(emit_share() for _ in range(work.width)))
    return work.count / (time.perf_counter() - began)


def repeat(emit: Callable[[], object], count: int) -> None:
    """Call a function so often."""
    for _ in range(count):
        emit()


def latencies(work: Work, arrivals: queue.SimpleQueue[float], emit: Callable[[], object]) -> list[float]:
    """Return the seconds from each call of `emit` to its handler, which puts the moment of its start in `arrivals`."""
    found: list[float] = []
    until = time.perf_counter() + LATENCY_SECONDS_MAX
    while len(found) < work.count + 1 and time.perf_counter() < until:
        time.sleep(PAUSE_SECONDS)
        began = time.perf_counter()
        emit()
        found.append(arrivals.get(timeout=TIMEOUT_SECONDS) - began)
    return found[1:]


async def async_latencies(
    work: Work, arrivals: asyncio.Queue[float], emit: Callable[[], Awaitable[object]]
) -> list[float]:
    """Return the same of a system that runs on an event loop."""
    found: list[float] = []
    until = time.perf_counter() + LATENCY_SECONDS_MAX
    while len(found) < work.count + 1 and time.perf_counter() < until:
        await asyncio.sleep(PAUSE_SECONDS)
        began = time.perf_counter()
        await emit()
        found.append(await asyncio.wait_for(arrivals.get(), TIMEOUT_SECONDS) - began)
    return found[1:]
