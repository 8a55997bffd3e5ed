"""Metrics: what an engine counts, where `[metrics] listen` says.

A scrape is one request of HTTP and one answer. Whoever hangs, never reads or sends what is no request loses their
place after some seconds, and costs the engine nothing else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import anyio
import anyio.to_thread
import structlog

from craftcore.app import App
from craftcore.config import MetricsSettings
from craftcore.config.references import endpoint
from craftcore.daemon.groups import only
from craftcore.daemon.metrics.counters import Tally
from craftcore.daemon.metrics.http_server import Answer, Listener, serve
from craftcore.daemon.metrics.prometheus import content_type, render, require_client
from craftcore.engine.observer import Observer, Unobserved
from craftcore.services import Core

log = structlog.get_logger(__name__)

LAG_SECONDS = 1.0
"""How often it is measured how late the loop is."""


@asynccontextmanager
async def observing(app: App, core: Core, settings: MetricsSettings) -> AsyncIterator[Observer]:
    """Who is to be told of what the engine does; it can be scraped while the block runs.

    Raises ConfigInvalid when prometheus-client is missing, CannotCreate when nothing can listen there.
    """
    where = endpoint(settings.listen)
    if where is None:
        yield Unobserved()
        return
    require_client()
    tally = Tally(app.workflows, core.clock)
    listener = Listener.open(where, core.database.path)
    log.info("metrics.listening", where=listener.where)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_unharmed, partial(serve, listener, _answer(core, tally)))
            tasks.start_soon(_unharmed, partial(_watch_loop, tally))
            yield tally
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise only(group) from None
    finally:
        listener.close()


def _answer(core: Core, tally: Tally) -> Answer:
    one_at_a_time = anyio.CapacityLimiter(1)  # who scrapes more often waits; the threads of others are not theirs

    async def answer() -> tuple[str, bytes]:
        return content_type(), await anyio.to_thread.run_sync(render, core, tally.counted(), limiter=one_at_a_time)

    return answer


async def _watch_loop(tally: Tally) -> None:
    while True:
        wanted = anyio.current_time() + LAG_SECONDS
        await anyio.sleep_until(wanted)
        tally.lagged(anyio.current_time() - wanted)


async def _unharmed(work: Callable[[], Awaitable[None]]) -> None:
    """An engine goes on when nobody counts any more, and says so."""
    try:
        await work()
    except Exception:
        log.exception("metrics.stopped")
