"""The attachment of an app to a cluster: its calls go there, in a worker and in a program without one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from temporalio.client import Client

from craftcore.errors import ConfigInvalid
from craftcore.registry.registry import Registry
from craftcore.temporal.cluster_connection import connect
from craftcore.temporal.cluster_requests import ClusterRequests
from craftcore.temporal.settings import TemporalSettings


@asynccontextmanager
async def connected(app: Registry, settings: TemporalSettings) -> AsyncIterator[ClusterRequests]:
    """Let the calls of an app go to the cluster while the block lasts. Raises ConfigInvalid for a running app."""
    requests = ClusterRequests(await connect(settings), app, settings)
    app.attach(requests)
    try:
        yield requests
    finally:
        app.attach(None)


@contextmanager
def attached(app: Registry, client: Client, settings: TemporalSettings) -> Iterator[None]:
    """Let the calls of an app go to the cluster of its worker, unless something takes them already."""
    try:
        app.attach(ClusterRequests(client, app, settings))
    except ConfigInvalid:
        yield
        return
    try:
        yield
    finally:
        app.attach(None)
