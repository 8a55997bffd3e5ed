"""Signals: what a person or a service manager asks of the running daemon."""

from __future__ import annotations

from collections.abc import Callable
from signal import SIGHUP, SIGINT, SIGTERM

import anyio
import structlog
from anyio.abc import TaskStatus

log = structlog.get_logger()


async def watch_signals(
    on_stop: Callable[[str], None],
    on_stop_again: Callable[[str], None],
    on_reload: Callable[[], None],
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Turn signals into calls, for ever; the callbacks get the signal's name and must not block.

    SIGTERM, SIGINT   first: on_stop; every further one: on_stop_again
    SIGHUP            on_reload; its failure is logged, and the daemon goes on as it was

    `await tasks.start(watch_signals, …)` returns once no signal can be missed any more.
    """
    stopping = False
    with anyio.open_signal_receiver(SIGTERM, SIGINT, SIGHUP) as received:
        task_status.started()
        async for signal in received:
            if signal is SIGHUP:
                _reload(on_reload)
            elif stopping:
                on_stop_again(signal.name)
            else:
                stopping = True
                on_stop(signal.name)


def _reload(on_reload: Callable[[], None]) -> None:
    try:
        on_reload()
    except Exception:
        log.exception("reload.failed")
