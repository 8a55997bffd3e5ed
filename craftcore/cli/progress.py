"""A sign of life for who waits at a terminal: what is being done, and for how long."""

from __future__ import annotations

import sys
import time

EVERY_SECONDS = 1.0


class Progress:
    """Call it as often as you like; it says something at most once a second, on standard error, to a person only."""

    def __init__(self, doing: str, *, quiet: bool) -> None:
        self._doing = doing
        self._quiet = quiet or not sys.stderr.isatty()
        self._began = self._said = time.monotonic()

    def __call__(self, detail: str = "") -> None:
        now = time.monotonic()
        if not self._quiet and now - self._said >= EVERY_SECONDS:
            self._said = now
            doing = f"{self._doing} {detail}".rstrip()
            print(f"\r{doing}, {now - self._began:.0f} s", end="", file=sys.stderr, flush=True)

    def finish(self) -> None:
        """Leave the line as it was found."""
        if self._said != self._began:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
