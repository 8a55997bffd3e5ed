"""The one way from a command to a cluster. Each failure on the way is an error of craftcore, with its exit code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from craftcore.cli.session import Session
from craftcore.cli.temporal.cluster_options import read_cluster_settings
from craftcore.errors import ConfigInvalid

if TYPE_CHECKING:
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

    async def run() -> T:
        with translating(settings):
            return await call(TemporalClient(await connect(settings), None, settings))

    return asyncio.run(run())


def require_extra() -> None:
    """Raise ConfigInvalid where the library of Temporal is not installed."""
    try:
        import temporalio as temporalio
    except ImportError as error:
        raise ConfigInvalid("craftcore temporal needs temporalio: pip install 'craftcore[temporal]'") from error
