"""persist-queue: SQLiteAckQueue, and threads that get, run and acknowledge."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from persistqueue import SQLiteAckQueue

from benchmarks.peers.programs.work import PAYLOAD, Drain, Work, emit_rate, latencies, serve


def drain(work: Work) -> float:
    """Return the acknowledged items per second of a full queue."""
    found, items = Drain(work.count), _open(work)
    for _ in range(work.count):
        items.put(PAYLOAD)
    _start(items, work.width, found.begin, found.settle)
    return found.rate()


def emit(work: Work) -> float:
    """Return the accepted items per second of so many threads."""
    items = _open(work)
    return emit_rate(work, lambda: items.put(PAYLOAD))


def latency(work: Work) -> list[float]:
    """Return the seconds from put to handler."""
    arrivals, items = queue.SimpleQueue[float](), _open(work)
    _start(items, 1, lambda: arrivals.put(time.perf_counter()), lambda: None)
    return latencies(work, arrivals, lambda: items.put(PAYLOAD))


def _open(work: Work) -> SQLiteAckQueue:
    return SQLiteAckQueue(str(work.folder), multithreading=True, timeout=60.0)  # WAL, and synchronous is FULL


def _start(items: SQLiteAckQueue, width: int, handler: Callable[[], None], on_settled: Callable[[], None]) -> None:
    def consume() -> None:
        while True:
            item = items.get(raw=True)
            handler()
            items.ack(id=item["pqid"])
            on_settled()

    for _ in range(width):
        threading.Thread(target=consume, daemon=True).start()


if __name__ == "__main__":
    serve({"drain": drain, "emit": emit, "latency": latency})
