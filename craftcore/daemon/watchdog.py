"""The watchdog: systemd hears from us only while the engine makes progress.

A ping on a timer of its own proves that a timer lives. Ours follows a round trip through what has to work. A round
trip that waits for the write lock of another process is not a reason for a restart. A restart would end running work
and wait for the same lock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import anyio

from craftcore.daemon.sd_notify import Notifier
from craftcore.log import get_logger

log = get_logger(__name__)


async def watchdog(
    notifier: Notifier, round_trip: Callable[[], Awaitable[None]], waits_for_others: Callable[[], bool]
) -> None:
    """Send a ping twice per interval, each time after a round trip. Returns at once when systemd does not watch.

    A round trip that hangs, or that raises, is not followed by a ping: when that goes on, systemd restarts the daemon.
    A round trip that hangs while `waits_for_others()` is true is followed by a ping nevertheless.
    """
    interval = notifier.watchdog_seconds
    if interval is None:
        return
    while True:
        began = anyio.current_time()
        if await _round_trip_succeeds(
            round_trip, interval, partial(_watch_slow_round_trip, notifier, interval / 2, waits_for_others)
        ):
            notifier.notify_watchdog()
        await anyio.sleep_until(began + interval / 2)


async def _round_trip_succeeds(
    round_trip: Callable[[], Awaitable[None]], interval: float, beside_it: Callable[[], Coroutine[Any, Any, None]]
) -> bool:
    began = anyio.current_time()
    error: Exception | None = None
    async with anyio.create_task_group() as beside:
        beside.start_soon(beside_it)
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


async def _watch_slow_round_trip(notifier: Notifier, every: float, waits_for_others: Callable[[], bool]) -> None:
    """Log that a round trip hangs while it hangs: the process may be killed before it ends."""
    logged: str | None = None
    began = anyio.current_time()
    while True:
        await anyio.sleep(every)
        seconds = round(anyio.current_time() - began, 3)
        if waits_for_others():
            notifier.notify_watchdog()
            if logged != "watchdog.waiting":
                log.warning("watchdog.waiting", seconds=seconds, why="another process holds the write lock")
            logged = "watchdog.waiting"
        elif logged != "watchdog.stuck":
            log.error("watchdog.stuck", seconds=seconds)
            logged = "watchdog.stuck"
