"""The metrics of a running engine, at the address of `[metrics] listen`."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread

from craftcore.config import MetricsSettings
from craftcore.config.references import endpoint
from craftcore.daemon.metrics.http_server import MetricsServer
from craftcore.engine.events import Observer, Unobserved
from craftcore.engine.failure import sole_exception
from craftcore.errors import ConfigInvalid
from craftcore.log import get_logger
from craftcore.registry.registry import Registry
from craftcore.services import Services

log = get_logger(__name__)

LAG_SECONDS = 1.0
"""Interval at which the lag of the event loop is measured."""


@asynccontextmanager
async def observing(app: Registry, core: Services, settings: MetricsSettings) -> AsyncIterator[Observer]:
    """Yield the observer of the engine, and answer scrapes while the block runs.

    Raises ConfigInvalid when prometheus-client is missing, CannotCreate when the address cannot be used.
    """
    where = endpoint(settings.listen)
    if where is None:
        yield Unobserved()
        return
    require_client()
    from prometheus_client import CONTENT_TYPE_LATEST

    from craftcore.daemon.metrics.counters import Counters
    from craftcore.daemon.metrics.prometheus import render

    counters = Counters(app.workflows, core.clock)
    server = MetricsServer(where, core.database.path, lambda: (CONTENT_TYPE_LATEST, render(core, counters)))
    threading.Thread(target=server.run, name="craftcore-metrics", daemon=True).start()
    log.info("metrics.listening", where=server.where)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch_loop, counters.on_lagged)
            yield counters
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise sole_exception(group) from None
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(server.stop)


def require_client() -> None:
    """Raise ConfigInvalid when prometheus-client is not installed."""
    try:
        import prometheus_client  # noqa: F401
    except ImportError as error:
        raise ConfigInvalid("metrics.listen needs prometheus-client: pip install 'craftcore[metrics]'") from error


async def _watch_loop(on_lagged: Callable[[float], None]) -> None:
    while True:
        wanted = anyio.current_time() + LAG_SECONDS
        await anyio.sleep_until(wanted)
        on_lagged(anyio.current_time() - wanted)
