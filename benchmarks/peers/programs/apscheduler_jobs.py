"""APScheduler 3: jobs that are due, in a SQLAlchemy job store on SQLite, run by a thread pool.

It deletes a job from the store when it hands it to the pool, and does not wait for its end.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable
from typing import Any

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from sqlalchemy import create_engine, event

from benchmarks.peers.programs.work import PAYLOAD, Drain, Work, emit_rate, latencies, serve

logging.getLogger("apscheduler").setLevel(logging.CRITICAL)

found = Drain(0)
arrivals = queue.SimpleQueue[float]()


def job(text: str) -> None:
    """Count itself; a job is found by its name, so its state is in this module."""
    arrivals.put(time.perf_counter())
    found.begin()
    found.settle()


def drain(work: Work) -> float:
    """Return the finished jobs per second of a full store."""
    global found
    found = Drain(work.count)
    scheduler, add = start(work, paused=True)
    for _ in range(work.count):
        add()
    scheduler.resume()
    return found.rate()


def emit(work: Work) -> float:
    """Return the accepted jobs per second of so many threads."""
    _, add = start(work, paused=True)
    return emit_rate(work, add)


def latency(work: Work) -> list[float]:
    """Return the seconds from the call that adds a job to its start."""
    _, add = start(work, paused=False)
    return latencies(work, arrivals, add)


def start(work: Work, *, paused: bool) -> tuple[BackgroundScheduler, Callable[[], object]]:
    """Return a scheduler, and the function that adds a job which is due at once."""
    engine = create_engine(f"sqlite:///{work.folder / 'bench.db'}", connect_args={"timeout": 60})
    event.listens_for(engine, "connect")(flush_each_commit)
    scheduler = BackgroundScheduler(
        timezone="UTC",
        jobstores={"default": SQLAlchemyJobStore(engine=engine)},
        executors={"default": ThreadPoolExecutor(work.width)},
        job_defaults={"misfire_grace_time": None, "max_instances": 1_000_000},
    )
    scheduler.start(paused=paused)
    return scheduler, lambda: scheduler.add_job(job, kwargs=PAYLOAD)


def flush_each_commit(connection: Any, _record: object) -> None:
    """Set the pragmas that craftcore has."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


if __name__ == "__main__":
    serve({"drain": drain, "emit": emit, "latency": latency})
