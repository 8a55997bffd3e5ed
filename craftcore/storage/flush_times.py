"""How long the flushes of a writer take."""

from __future__ import annotations

import time

SLOW_SECONDS = 1.0
"""A flush that takes longer is worth a word; a disk takes milliseconds."""

RECENT_SECONDS = 60.0


class FlushTimes:
    """Measures flushes on the writer's thread; `longest` is read on any."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._longest = 0.0
        self._longest_at = 0.0

    def begin(self) -> None:
        """Note that a flush begins."""
        self._began = time.monotonic()

    def end(self) -> float:
        """Note the end of a flush, successful or not. Return how many seconds it took."""
        assert self._began is not None, "no flush has begun"
        now = time.monotonic()
        seconds, self._began = now - self._began, None
        if seconds >= self.longest:
            self._longest, self._longest_at = seconds, now
        return seconds

    @property
    def longest(self) -> float:
        """Seconds of the longest flush of the last minute, the one on its way included."""
        now, began = time.monotonic(), self._began
        recent = self._longest if now - self._longest_at < RECENT_SECONDS else 0.0
        return recent if began is None else max(recent, now - began)

    @property
    def is_slow(self) -> bool:
        """True when a flush takes longer than it should."""
        return self.longest > SLOW_SECONDS
