"""Signals: what a person or a service manager asks of the running daemon."""

from __future__ import annotations

from collections.abc import Callable
from signal import SIG_DFL, SIGHUP, SIGINT, SIGTERM, default_int_handler, set_wakeup_fd, signal

import anyio
import structlog
from anyio.abc import TaskStatus

from craftcore.forks import in_forked_children

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
    forget_forks = in_forked_children(_catch_no_more)
    try:
        with anyio.open_signal_receiver(SIGTERM, SIGINT, SIGHUP) as received:
            task_status.started()
            async for number in received:
                if number is SIGHUP:
                    _reload(on_reload)
                elif stopping:
                    on_stop_again(number.name)
                else:
                    stopping = True
                    on_stop(number.name)
    finally:
        forget_forks()


def _catch_no_more() -> None:
    """In a forked child: what it caught would go to its parent's event loop, by the socket that they share."""
    set_wakeup_fd(-1)
    signal(SIGTERM, SIG_DFL)
    signal(SIGHUP, SIG_DFL)
    signal(SIGINT, default_int_handler)


def _reload(on_reload: Callable[[], None]) -> None:
    try:
        on_reload()
    except Exception:
        log.exception("reload.failed")
