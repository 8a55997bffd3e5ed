"""A warning in the log, with the place in the code, while something blocks the event loop.

While the loop is blocked nothing on it can say so: no other workflow runs, nothing is settled, and no timeout fires.
So a thread asks the loop again and again, and looks at its stack when it does not answer.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from contextvars import Context
from traceback import walk_stack
from types import FrameType

from craftcore.engine.attempt import CURRENT, Attempt
from craftcore.engine.failure import format_places
from craftcore.engine.user_code import run_in_own_context
from craftcore.log import get_logger
from craftcore.storage.event_loop import Loop

log = get_logger(__name__)

BLOCKED_SECONDS = 1.0
"""Seconds without an answer after which a loop is blocked."""

ASK_SECONDS = 0.5
"""How long after an answer the loop is asked again. A block of both together is always noticed."""

REPORT_SECONDS = 60.0
"""Least time between two reports: code that blocks again and again would fill the log."""

LOOKS = 8
"""Parts in which the loop is waited for: a process that was stopped for a while has most of them left to answer."""

JOIN_SECONDS = 1.0

_STEPS_OF_LOOPS = {"_run": "self", "unrolled_run": "task"}
"""The function of asyncio (`Handle._run`) and of trio that runs a step of a task, and its name there for what has the
context of the task. Nothing is documented for that, so each part may be missing."""


@asynccontextmanager
async def blocked_loop_warning(loop: Loop) -> AsyncIterator[None]:
    """Log `loop.blocked` while the loop of this thread is blocked, at most once a minute, while the context lasts."""
    watch = _Watch(loop)
    watch.thread.start()
    try:
        yield
    finally:
        watch.stop()


class _Watch:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._loop_thread = threading.get_ident()
        self._stopped = threading.Event()
        self._answered = threading.Event()
        self._blocker: Attempt | None = None
        self._reported_at = -math.inf
        self._unreported = 0
        self.thread = threading.Thread(target=self._watch, name="craftcore-loop-watch", daemon=True)

    def stop(self) -> None:
        self._stopped.set()
        self._answered.set()
        self.thread.join(JOIN_SECONDS)

    def _watch(self) -> None:
        while not self._stopped.wait(ASK_SECONDS):
            self._answered.clear()
            asked_at = time.monotonic()
            self._loop.call_soon(self._answer)
            if any(self._answered.wait(BLOCKED_SECONDS / LOOKS) for _ in range(LOOKS)) or self._stopped.is_set():
                continue
            is_reported = self._note_block(asked_at)
            self._answered.wait()
            if is_reported and not self._stopped.is_set():
                log.info("loop.answers", blocked_seconds=round(time.monotonic() - asked_at, 1))

    def _answer(self) -> None:
        """Run on the event loop, as soon as it continues."""
        blocker, self._blocker = self._blocker, None
        if blocker is not None:
            blocker.judge_block(self._loop.time())
        self._answered.set()

    def _note_block(self, asked_at: float) -> bool:
        """Note the attempt whose code blocks the loop, and log it unless a report is too recent. Return whether it was
        logged."""
        frame = sys._current_frames().get(self._loop_thread)
        if frame is None:  # its thread has ended, and its loop with it
            return False
        stack = list(walk_stack(frame))
        attempt = _run_in(stack)
        if attempt is not None and not attempt.cancels_ignored:
            attempt.holds_loop = True
            self._blocker = attempt
        now = time.monotonic()
        if now - self._reported_at < REPORT_SECONDS:
            self._unreported += 1
            return False
        log.warning(
            "loop.blocked",
            seconds=round(now - asked_at, 1),
            unreported=self._unreported,
            workflow=None if attempt is None else attempt.workflow,
            trigger=None if attempt is None else attempt.claim.id,
            where=format_places(reversed(stack)),
            hint='nothing else runs meanwhile: await, or use a plain function, with executor="process" if it computes',
        )
        self._reported_at, self._unreported = now, 0
        return True


def _run_in(stack: Iterable[tuple[FrameType, int]]) -> Attempt | None:
    """Return the attempt whose code is on this stack, innermost first: that of a workflow, or of a task that it has
    started. None when it belongs to no attempt, or the event loop does not show the context of the running task."""
    for frame, _ in stack:
        if frame.f_code is run_in_own_context.__code__:
            attempt: object = frame.f_locals.get("attempt")
        elif frame.f_code.co_name in _STEPS_OF_LOOPS:
            attempt = _attempt_in(frame)
        else:
            continue
        if isinstance(attempt, Attempt):
            return attempt
    return None


def _attempt_in(frame: FrameType) -> Attempt | None:
    """Return the attempt in the context of the task that a frame of the event loop is running."""
    task = frame.f_locals.get(_STEPS_OF_LOOPS[frame.f_code.co_name])
    contexts = (getattr(task, name, None) for name in ("_context", "context"))
    context = next((one for one in contexts if isinstance(one, Context)), None)
    return None if context is None else context.get(CURRENT)
