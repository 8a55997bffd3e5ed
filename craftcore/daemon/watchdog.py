"""The watchdog: systemd hears from us only while the engine makes progress.

A ping on a timer of its own proves that a timer lives. Ours follows a round trip through what has to work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import structlog

from craftcore.daemon.systemd import Notifier

log = structlog.get_logger()


async def watchdog(notifier: Notifier, round_trip: Callable[[], Awaitable[None]]) -> None:
    """Ping twice per interval, each time after a round trip. Returns at once when systemd does not watch.

    A round trip that hangs, or that raises, is not followed by a ping: when that goes on, systemd restarts the daemon.
    """
    interval = notifier.watchdog_seconds
    if interval is None:
        return
    while True:
        began = anyio.current_time()
        if await _succeeds(round_trip, interval):
            notifier.watchdog()
        await anyio.sleep_until(began + interval / 2)


async def _succeeds(round_trip: Callable[[], Awaitable[None]], interval: float) -> bool:
    began = anyio.current_time()
    error: Exception | None = None
    async with anyio.create_task_group() as beside:
        beside.start_soon(_complain, interval / 2)
        try:
            await round_trip()
        except Exception as failure:
            error = failure
        beside.cancel_scope.cancel()

    seconds = anyio.current_time() - began
    if error is not None:
        log.error("watchdog.failed", seconds=round(seconds, 3), exc_info=error)
    elif seconds > interval / 4:
        log.warning("watchdog.slow", seconds=round(seconds, 3), interval_seconds=interval)
    return error is None


async def _complain(after: float) -> None:
    """Say that a round trip hangs while it hangs: afterwards there may be nobody to say it."""
    await anyio.sleep(after)
    log.error("watchdog.stuck", seconds=round(after, 3))
