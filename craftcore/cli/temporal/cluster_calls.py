"""The one way from a command to a cluster. Each failure on the way is an error of craftcore, with its exit code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from craftcore.cli.session import Session
from craftcore.cli.temporal.cluster_options import read_cluster_settings, require_extra

if TYPE_CHECKING:
    from craftcore.temporal.cluster_connection import Client
    from craftcore.temporal.records.recorded_task import RecordedTask
    from craftcore.temporal.task_operations import TaskOperations

T = TypeVar("T")


def call_cluster(session: Session, call: Callable[[Client], Awaitable[T]]) -> T:
    """Connect as the options and settings say, and return what `call` returns.

    Raises ClusterUnavailable, ConfigInvalid, PermissionRefused, NotFound for a namespace that there is not, and what
    `call` raises.
    """
    require_extra()
    from craftcore.temporal.cluster_connection import connect, translating

    settings = read_cluster_settings(session)

    async def run() -> T:
        with translating(settings):
            return await call(await connect(settings))

    return asyncio.run(run())


def call_operations(session: Session, call: Callable[[TaskOperations], Awaitable[T]]) -> T:
    """Connect, and return what `call` returns of the operations of a person. Raises as `call_cluster`."""
    require_extra()
    from craftcore.temporal.task_operations import TaskOperations

    return call_cluster(session, lambda client: call(TaskOperations(client)))


def read_task(session: Session, given: str) -> RecordedTask:
    """Return a task from its history. Raises NotFound, and as `call_cluster`."""
    return call_operations(session, lambda operations: operations.find(given))
