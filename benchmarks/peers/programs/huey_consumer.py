"""Huey: SqliteHuey with fsync, and its consumer with threads. It deletes a task before it runs it."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable

from huey import SqliteHuey

from benchmarks.peers.programs.work import PAYLOAD, Drain, Work, emit_rate, latencies, serve

logging.getLogger("huey").setLevel(logging.CRITICAL)


def drain(work: Work) -> float:
    """Return the finished tasks per second of a full queue."""
    found = Drain(work.count)

    def plain(text: str) -> None:
        found.begin()

    huey, task = _declare(work, plain)
    huey.signal("complete")(lambda signal, task: found.settle())
    for _ in range(work.count):
        task(**PAYLOAD)
    consumer = huey.create_consumer(workers=work.width, periodic=False, check_worker_health=False)
    consumer.start()
    rate = found.rate()
    consumer.stop(graceful=True)
    return rate


def emit(work: Work) -> float:
    """Return the accepted tasks per second of so many threads."""
    _, task = _declare(work, lambda text: None)
    return emit_rate(work, lambda: task(**PAYLOAD))


def latency(work: Work) -> list[float]:
    """Return the seconds from enqueue to handler with the consumer's own polling interval."""
    arrivals = queue.SimpleQueue[float]()
    huey, task = _declare(work, lambda text: arrivals.put(time.perf_counter()))
    consumer = huey.create_consumer(workers=1, periodic=False, check_worker_health=False)
    consumer.start()
    found = latencies(work, arrivals, lambda: task(**PAYLOAD))
    consumer.stop(graceful=True)
    return found


def _declare(work: Work, handler: Callable[[str], None]) -> tuple[SqliteHuey, Callable[..., object]]:
    huey = SqliteHuey("peers", filename=str(work.folder / "bench.db"), fsync=True, timeout=60)
    return huey, huey.task(name="plain")(handler)


if __name__ == "__main__":
    serve({"drain": drain, "emit": emit, "latency": latency})
