"""litequeue: a connection for each thread, and threads that pop, run and mark as done."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable

from litequeue import LiteQueue

from benchmarks.peers.programs.work import PAYLOAD, Drain, Work, emit_rate, latencies, serve

IDLE_SECONDS = 0.001
"""It has no way to wait for a message: a consumer has to ask again."""


def drain(work: Work) -> float:
    """Return the done messages per second of a full queue."""
    found, messages = Drain(work.count), open_file(work)
    for _ in range(work.count):
        messages.put(json.dumps(PAYLOAD))
    start(work, found.begin, found.settle)
    return found.rate()


def emit(work: Work) -> float:
    """Return the accepted messages per second of so many threads, each with its connection."""
    open_file(work)
    own = threading.local()

    def put() -> None:
        if not hasattr(own, "messages"):
            own.messages = open_file(work)
        own.messages.put(json.dumps(PAYLOAD))

    return emit_rate(work, put)


def latency(work: Work) -> list[float]:
    """Return the seconds from put to handler, with a consumer that asks every millisecond."""
    arrivals, messages = queue.SimpleQueue[float](), open_file(work)
    start(work, lambda: arrivals.put(time.perf_counter()), lambda: None)
    return latencies(work, arrivals, lambda: messages.put(json.dumps(PAYLOAD)))


def open_file(work: Work) -> LiteQueue:
    """Return a connection that flushes each commit. By itself it would flush at a checkpoint only."""
    messages = LiteQueue(str(work.folder / "bench.db"), timeout=60)
    messages.conn.execute("PRAGMA synchronous = FULL")
    return messages


def start(work: Work, handler: Callable[[], None], on_settled: Callable[[], None]) -> None:
    """Start the consumers."""

    def consume() -> None:
        messages = open_file(work)
        while True:
            message = messages.pop()
            if message is None:
                time.sleep(IDLE_SECONDS)
                continue
            handler()
            messages.done(message.message_id)
            on_settled()

    for _ in range(work.width):
        threading.Thread(target=consume, daemon=True).start()


if __name__ == "__main__":
    serve({"drain": drain, "emit": emit, "latency": latency})
