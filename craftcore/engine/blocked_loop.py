"""A warning in the log, with the place in the code, while something blocks the event loop.

While the loop is blocked nothing on it can say so: no other workflow runs, nothing is settled, and no timeout fires.
So a thread asks the loop again and again, and looks at its stack when it does not answer.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from traceback import walk_stack

import structlog

from craftcore.engine.isolation import in_own_context
from craftcore.engine.run import Run
from craftcore.engine.where import places
from craftcore.storage.waiters import Loop

log = structlog.get_logger(__name__)

BLOCKED_SECONDS = 2.0
"""A loop that does not answer for so long is blocked."""

ASK_SECONDS = 1.0
"""How long after an answer the loop is asked again. A block of both together is always noticed."""

LOOKS = 8
"""The loop is waited for in so many parts: a process that was stopped for a while has most of them left to answer."""

JOIN_SECONDS = 1.0


@asynccontextmanager
async def blocked_loop_warning(loop: Loop) -> AsyncIterator[None]:
    """Log `loop.blocked` once for each time that the loop of this thread is blocked, while the context lasts."""
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
        self.thread = threading.Thread(target=self._watch, name="craftcore-loop-watch", daemon=True)

    def stop(self) -> None:
        self._stopped.set()
        self._answered.set()
        self.thread.join(JOIN_SECONDS)

    def _watch(self) -> None:
        while not self._stopped.wait(ASK_SECONDS):
            self._answered.clear()
            asked_at = time.monotonic()
            self._loop.call_soon(self._answered.set)
            if any(self._answered.wait(BLOCKED_SECONDS / LOOKS) for _ in range(LOOKS)) or self._stopped.is_set():
                continue
            self._warn(asked_at)
            self._answered.wait()
            if not self._stopped.is_set():
                log.info("loop.answers", blocked_seconds=round(time.monotonic() - asked_at, 1))

    def _warn(self, asked_at: float) -> None:
        frame = sys._current_frames().get(self._loop_thread)
        if frame is None:  # its thread has ended, and its loop with it
            return
        stack = list(walk_stack(frame))
        runs = (found.f_locals.get("run") for found, _ in stack if found.f_code is in_own_context.__code__)
        run = next((one for one in runs if isinstance(one, Run)), None)
        log.warning(
            "loop.blocked",
            seconds=round(time.monotonic() - asked_at, 1),
            workflow=None if run is None else run.workflow,
            trigger=None if run is None else run.claim.id,
            where=places(reversed(stack)),
            hint="nothing else runs meanwhile: await, or do it in a plain function, which runs in a thread",
        )
