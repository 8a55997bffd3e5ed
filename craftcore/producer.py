"""Emitting, and speaking to tasks, from any other process, synchronously: a script, a web handler, a cron job."""

from __future__ import annotations

from pathlib import Path

from craftcore.blocking_calls import run_here
from craftcore.client.blocking_work_calls import BlockingWorkCalls
from craftcore.client.producer_backend import ProducerBackend
from craftcore.config import Config, config_of


class Producer(BlockingWorkCalls):
    """Writes into a database that a daemon runs, now or later. May be shared by threads.

    Its calls are those of an App, blocking. `schedules` has the calls on schedules.

        with Producer("agent.db") as producer:
            greeting = producer.emit("greet", {"name": "Ada"})
            print(greeting.result(timeout=60))
            producer.signal(task_id, "approved", {"by": "Ada"})

    The file is made when it is missing. Raises a StorageError when it cannot be opened. A workflow that the last daemon
    on this database did not declare is refused with UnknownWorkflow.
    """

    def __init__(self, path: str | Path, *, config: Config | str | Path | None = None) -> None:
        self.backend = ProducerBackend(Path(path), config_of(config))
        super().__init__(self.backend, run_here)

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self.backend.close()
