"""The one way from a command to a cluster. Each failure on the way is an error of craftcore, with its exit code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from craftcore.cli.session import Session
from craftcore.cli.temporal.cluster_options import FLAGS, read_cluster_settings
from craftcore.errors import ConfigInvalid

if TYPE_CHECKING:
    from craftcore.temporal.records.recorded_task import RecordedTask
    from craftcore.temporal.task_operations import TaskOperations
    from craftcore.temporal.temporal_client import TemporalClient

T = TypeVar("T")


def call_cluster(session: Session, call: Callable[[TemporalClient], Awaitable[T]]) -> T:
    """Connect as the options and settings say, and return what `call` returns.

    `TemporalClient.connection` is the client of the library, for lists. Raises ClusterUnavailable, ConfigInvalid,
    PermissionRefused, NotFound for a namespace that there is not, and what `call` raises.
    """
    require_extra()
    from craftcore.temporal.cluster_connection import connect, translating
    from craftcore.temporal.temporal_client import TemporalClient

    settings = read_cluster_settings(session)
    session.cluster = _list_cluster_options()

    async def run() -> T:
        with translating(settings):
            return await call(TemporalClient(await connect(settings), None, settings))

    return asyncio.run(run())


def call_operations(session: Session, call: Callable[[TaskOperations], Awaitable[T]]) -> T:
    """Connect, and return what `call` returns of the operations of a person. Raises as `call_cluster`."""

    async def run(client: TemporalClient) -> T:
        from craftcore.temporal.task_operations import TaskOperations

        return await call(TaskOperations(client.connection))

    return call_cluster(session, run)


def read_task(session: Session, given: str) -> RecordedTask:
    """Return a task from its history. Raises NotFound, and as `call_cluster`."""
    return call_operations(session, lambda operations: operations.find(given))


def make_suggest(session: Session) -> Callable[..., None]:
    """Return a function that prints a command to paste, for the same cluster."""
    named = _list_cluster_options()

    def suggest(*words: str) -> None:
        noun, verb, *rest = words
        session.out.command("craftcore", "temporal", noun, verb, *named, *rest)

    return suggest


def _list_cluster_options() -> list[str]:
    flags = click.get_current_context().meta.get(FLAGS, {})
    return [word for name in ("address", "namespace") if name in flags for word in (f"--{name}", flags[name])]


def require_extra() -> None:
    """Raise ConfigInvalid where the library of Temporal is not installed."""
    try:
        import temporalio as temporalio
    except ImportError as error:
        raise ConfigInvalid("craftcore temporal needs temporalio: pip install 'craftcore[temporal]'") from error
