"""How the writers of several processes take turns at SQLite's one write lock."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

SATURATED_SECONDS = 0.05
GAP_SECONDS = 0.0015
"""SQLite's write lock is not fair: a process that polls loses to one that never pauses. After 50 ms of back-to-back
transactions a writer leaves a gap longer than the longest poll, so every other writer gets its turn."""

POLL_SECONDS = 0.001

TRIED_LATELY = 5.0
"""Seconds since the last try for the write lock after which its thread hangs: there is a try every millisecond."""


class WritePacer:
    """Leaves the gap between back-to-back transactions of one writer."""

    def __init__(self) -> None:
        self._busy_since = time.monotonic()
        self._ended = 0.0

    def before_begin(self) -> None:
        """Call before BEGIN; sleeps only when this writer has been saturated for a while."""
        now = time.monotonic()
        if now - self._ended > GAP_SECONDS:
            self._busy_since = now
        elif now - self._busy_since > SATURATED_SECONDS:
            time.sleep(GAP_SECONDS)
            self._busy_since = time.monotonic()

    def after_commit(self) -> None:
        """Call after COMMIT or ROLLBACK."""
        self._ended = time.monotonic()


class LockWait:
    """The wait of the daemon's writer for the write lock: it never gives up, and shows since when it waits.

    `since`: monotonic time since when another process has held the lock; None when the writer does not wait.
    """

    def __init__(self) -> None:
        self._tried_at = 0.0
        self.since: float | None = None

    @property
    def is_trying(self) -> bool:
        """True while the writer waits and its thread is alive: a thread that hangs does not try any more."""
        return self.since is not None and time.monotonic() - self._tried_at < TRIED_LATELY

    def wait(self) -> None:
        self._tried_at = time.monotonic()
        if self.since is None:
            self.since = self._tried_at
        backoff_sleep()


def busy_timeout_handler(seconds: float) -> Callable[[int], bool]:
    """Return a busy handler that polls, jittered, and gives up after `seconds`."""
    started = 0.0

    def wait(tries: int) -> bool:
        nonlocal started
        if tries == 0:
            started = time.monotonic()
        if time.monotonic() - started > seconds:
            return False
        backoff_sleep()
        return True

    return wait


def backoff_sleep() -> None:
    """Sleep for one jittered poll interval, shorter than the gap that saturated writers leave."""
    time.sleep(POLL_SECONDS * random.uniform(0.2, 1.0))
