"""Signals: what a person or a service manager asks of the running daemon."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from signal import (
    SIG_DFL,
    SIG_IGN,
    SIGHUP,
    SIGINT,
    SIGTERM,
    Signals,
    default_int_handler,
    getsignal,
    set_wakeup_fd,
    signal,
)
from types import FrameType

import anyio
from anyio.abc import TaskStatus

from craftcore.forks import run_in_forked_children
from craftcore.log import get_logger
from craftcore.storage.event_loop import get_current_loop

log = get_logger(__name__)

Handler = Callable[[int, FrameType | None], None]

CAUGHT = (SIGTERM, SIGINT, SIGHUP)

QUEUE_MAX = 100
"""Signals that wait for a blocked event loop; more of them say nothing new."""


async def watch_signals(
    on_stop: Callable[[str], None],
    on_stop_again: Callable[[str], None],
    on_reload: Callable[[], None],
    *,
    at_end: Handler | None = None,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Turn signals into calls, for ever; the callbacks get the signal's name and must not block.

    SIGTERM, SIGINT   first: on_stop; every further one: on_stop_again
    SIGHUP            on_reload; its failure is logged, and changes nothing

    `at_end` handles these signals once this is cancelled; None: what handled them before. There is no moment between at
    which Python's default would end the process.
    `await tasks.start(watch_signals, …)` returns once no signal can be missed any more.
    """
    stopping = False
    loop = get_current_loop()
    came, received = anyio.create_memory_object_stream[Signals](QUEUE_MAX)

    def put(number: Signals) -> None:
        with suppress(anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
            came.send_nowait(number)

    def hear(number: int, _frame: FrameType | None) -> None:
        loop.call_soon(partial(put, Signals(number)))

    forget_forks = run_in_forked_children(_catch_no_more)
    before = {number: signal(number, hear) for number in CAUGHT}
    try:
        with came, received:
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
        for number, handler in before.items():
            signal(number, at_end or handler)
        forget_forks()


def end_at_the_second(number: int, _frame: FrameType | None) -> None:
    """Ignore the first signal in a process that is about to end, so that its exit code stays. The second one ends the
    process."""
    signal(number, SIG_DFL)


def ignore_at_exit() -> None:
    """Ignore a signal after the last exit handler. Python restores the default actions while it ends, and a signal
    would change the exit code then."""
    atexit.register(_ignore_if_ending)


def _ignore_if_ending() -> None:
    for number in CAUGHT:
        if getsignal(number) is end_at_the_second:
            signal(number, SIG_IGN)


def _catch_no_more() -> None:
    """Stop catching signals in a forked child: they would reach its parent's event loop through the shared socket."""
    set_wakeup_fd(-1)
    signal(SIGTERM, SIG_DFL)
    signal(SIGHUP, SIG_DFL)
    signal(SIGINT, default_int_handler)


def _reload(on_reload: Callable[[], None]) -> None:
    try:
        on_reload()
    except Exception:
        log.exception("reload.failed")
