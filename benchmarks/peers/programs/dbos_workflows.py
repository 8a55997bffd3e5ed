"""DBOS on SQLite: workflows through a queue when many run at once, and called one after the other when one does.

On Python 3.12 and newer, the schema of DBOS needs SQLite 3.42: it calls unixepoch('subsec'). Debian 12 has 3.40. So the
environment of DBOS has pysqlite3-binary, a module that contains SQLite 3.51. It takes the place of `sqlite3` in
sys.modules before SQLAlchemy imports it.

With the setting "tuned", the file is in WAL mode before DBOS opens it, and the queue is polled every 50 ms. Otherwise
both are the defaults of DBOS: a rollback journal, and one second. Both flush each commit (synchronous=FULL).
"""

from __future__ import annotations

import os
import sys

import pysqlite3
import pysqlite3.dbapi2

sys.modules["sqlite3"] = pysqlite3
sys.modules["sqlite3.dbapi2"] = pysqlite3.dbapi2

import queue  # noqa: E402
import sqlite3  # noqa: E402
import time  # noqa: E402

from dbos import DBOS  # noqa: E402

from benchmarks.peers.programs.work import (  # noqa: E402
    PAYLOAD,
    TIMEOUT_SECONDS,
    Drain,
    Work,
    emit_rate,
    latencies,
    serve,
)

TUNED_POLL_SECONDS = 0.05
DEFAULT_POLL_SECONDS = 1.0
UNFINISHED = "SELECT count(*) FROM workflow_status WHERE status IN ('ENQUEUED', 'PENDING')"

steps = 0
found = Drain(0)
arrivals = queue.SimpleQueue[float]()


@DBOS.step()
def nothing() -> int:
    """Return at once."""
    return 1


@DBOS.workflow()
def workflow(text: str) -> None:
    """Run the durable steps of the work, and nothing else."""
    arrivals.put(time.perf_counter())
    found.begin()
    for _ in range(steps):
        nothing()


def drain(work: Work) -> float:
    """Return the finished workflows per second."""
    global found, steps
    found, steps = Drain(work.count), work.steps
    if work.width == 1:
        return one_by_one(work)
    launch(work, listening=False)
    for _ in range(work.count):
        DBOS.enqueue_workflow("peers", workflow, **PAYLOAD)
    DBOS.destroy()
    launch(work, listening=True)
    connection, until = sqlite3.connect(path(work)), time.monotonic() + TIMEOUT_SECONDS
    while connection.execute(UNFINISHED).fetchone()[0]:
        if time.monotonic() > until:
            raise TimeoutError(f"workflows were not finished after {TIMEOUT_SECONDS:.0f} s")
        time.sleep(0.01)
    found.end()
    return found.rate()


def one_by_one(work: Work) -> float:
    """Return the workflows per second of one caller. Through a queue of one place it is one workflow a poll."""
    launch(work, listening=False)
    for _ in range(work.count):
        workflow(**PAYLOAD)
    found.end()
    return found.rate()


def emit(work: Work) -> float:
    """Return the accepted workflows per second of so many threads."""
    launch(work, listening=False)
    return emit_rate(work, lambda: DBOS.enqueue_workflow("peers", workflow, **PAYLOAD))


def latency(work: Work) -> list[float]:
    """Return the seconds from enqueue to handler."""
    launch(work, listening=True)
    return latencies(work, arrivals, lambda: DBOS.enqueue_workflow("peers", workflow, **PAYLOAD))


def launch(work: Work, *, listening: bool) -> None:
    """Start DBOS on the database of the work; it takes nothing from the queue unless it is `listening`."""
    tuned = work.setting == "tuned"
    if tuned:
        with sqlite3.connect(path(work)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
    DBOS(
        config={
            "name": "peers",
            "system_database_url": f"sqlite:///{path(work)}",
            "run_admin_server": False,
            "log_level": "CRITICAL",
        }
    )
    DBOS.listen_queues(["peers"] if listening else [])
    DBOS.launch()
    poll_seconds = TUNED_POLL_SECONDS if tuned else DEFAULT_POLL_SECONDS
    DBOS.register_queue("peers", worker_concurrency=work.width, polling_interval_sec=poll_seconds)


def path(work: Work) -> str:
    """Return the file of the database."""
    return str(work.folder / "bench.db")


if __name__ == "__main__":
    serve({"drain": drain, "emit": emit, "latency": latency})
    os._exit(0)  # its threads would run on
