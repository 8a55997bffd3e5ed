"""The settings of a connection to a Temporal cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporalSettings:
    """The address of the cluster and the times of a worker. Times in seconds.

    task_queue         None: the name of the app
    heartbeat_timeout  a worker that is silent for this long is dead
    sticky_timeout     how long a task that a dead worker had in memory waits for it
    task_timeout       how long the cluster waits for a worker that has taken an event of a task, and may be frozen
    shutdown_grace     how long running turns may go on when the worker stops
    """

    address: str = "127.0.0.1:7233"
    namespace: str = "default"
    task_queue: str | None = None
    heartbeat_timeout: float = 10.0
    sticky_timeout: float = 2.0
    task_timeout: float = 10.0
    shutdown_grace: float = 30.0
