"""The named points at which a crash is survivable, all of them: where tests and `craftcore demo` kill the process.

A point is reached between two steps of the main path. A failpoint does nothing unless this process armed it:
`arm(Failpoint.CLAIM_COMMITTED, kill_process)`. Unarmed, it costs one function call.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from enum import StrEnum


class Failpoint(StrEnum):
    """In the order in which one trigger passes them."""

    EMIT_COMMITTED = "emit.committed"
    CLAIM_COMMITTED = "claim.committed"
    START_COMMITTED = "start.committed"
    ROUTE_DECIDED = "route.decided"
    TURN_ENTERED = "turn.entered"  # its start is on disk, no user code of it has run
    STEP_ENTERED = "step.entered"  # its function is about to be called, for the first time or again
    STEP_RAN = "step.ran"  # its function has returned, nothing of it is on disk
    STEP_COMMITTED = "step.committed"  # its result is on disk, the workflow does not have it
    STREAM_COMMITTED = "stream.committed"  # chunks are on disk, the turn goes on
    INTENT_COMMITTED = "intent.committed"  # the intent of an irreversible action is on disk, and only there
    CALL_MARKED = "call.marked"  # the lock file, too, shows that it may have been called
    PROVIDER_ANSWERED = "provider.answered"  # it was called, nothing of what came of it is on disk
    ACTIVITY_SETTLED = "activity.settled"  # what came of it is on disk, the workflow does not know
    TURN_SUSPENDED = "turn.suspended"  # user code is unwound, the wait is not on disk
    HANDLER_RETURNED = "handler.returned"
    FELL_BACK = "fell.back"  # an agent failed, and that the next one is tried is on disk
    SETTLE_BEGUN = "settle.begun"
    SETTLE_COMMITTED = "settle.committed"
    WRITER_FLUSHING = "writer.flushing"  # every piece of a batch has run, nothing is on disk
    WRITER_FLUSHED = "writer.flushed"  # everything is on disk, nobody knows yet
    ANSWER_COMMITTED = "answer.committed"  # a signal or answer is on disk, no daemon knows
    RECLAIM_COMMITTED = "reclaim.committed"
    TICK_WRITTEN = "tick.written"  # a scheduler's look is done, nothing is on disk
    TICK_COMMITTED = "tick.committed"  # it is on disk, the feeder knows of no trigger


Observer = Callable[[Failpoint, str], None]
"""(point, name): called at each pass of each point. The name is that of a step or action; "" for other points."""

_armed: dict[Failpoint, Callable[[], None]] = {}
_observers: list[Observer] = []


def hit(point: Failpoint, name: str = "") -> None:
    """Say that this point is reached. `name`: that of the step or action, where it has one."""
    for observer in _observers:
        observer(point, name)
    if _armed and (action := _armed.get(point)) is not None:
        action()


def observe(observer: Observer) -> None:
    """Call `observer` at each pass of each point, in the thread that reaches it, until this process ends."""
    _observers.append(observer)


def arm(point: Failpoint, action: Callable[[], None], *, at_pass: int = 1) -> None:
    """Do `action` when the point is reached for the `at_pass`-th time."""
    left = at_pass

    def countdown() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            action()

    _armed[point] = countdown


def kill_process() -> None:
    """Send SIGKILL: no handler runs and nothing is flushed, as with the machine's out-of-memory killer."""
    os.kill(os.getpid(), signal.SIGKILL)
