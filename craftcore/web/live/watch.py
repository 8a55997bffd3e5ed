"""The check whether a page may have changed: a commit, another file under the same name, or ten seconds that passed."""

from __future__ import annotations

import time
from collections.abc import Callable

from craftcore.errors import CraftcoreError
from craftcore.storage.change_counter import ChangeCounter
from craftcore.storage.database import Database

LOOKS_SECONDS = 0.25
"""Between two looks at the file."""

AGAIN_SECONDS = 10.0
"""Seconds after which there is news without a commit: time alone changes a verdict."""


class FileWatch:
    """Watches one database file. One thread at a time may use it; nothing is open before the first look.

    A look costs a few microseconds and reads no table. A file that is missing, or cannot be read, is news once; the
    watch goes on, and finds the file that takes its place.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._counter = ChangeCounter(database)
        self._clock = clock
        self._again_at = 0.0
        self._problem: str | None = None

    def has_news(self) -> bool:
        """Return whether something may have changed since the last call; True the first time."""
        now = self._clock()
        changed = self._has_changed()
        if not changed and now < self._again_at:
            return False
        self._again_at = now + AGAIN_SECONDS
        return True

    def close(self) -> None:
        """Close the file. The next look opens it again, and finds news."""
        self._counter.close()
        self._problem = None

    def _has_changed(self) -> bool:
        before = self._problem
        try:
            changed = self._counter.has_changed()
        except CraftcoreError as error:
            self._counter.close()
            self._problem = error.code
            return before != self._problem
        self._problem = None
        return changed or before is not None
