"""The queue between the event loop and the thread that commits."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from craftcore.errors import StorageError
from craftcore.storage.batch import WorkItem, take_batch


class CommitQueue:
    """Items that wait for a commit, oldest first. Every method may be called from any thread.

    `failed`: the error that ended writing; from then on every item is refused with it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending: deque[WorkItem] = deque()
        self._changed = threading.Condition(threading.Lock())
        self.is_closing = False
        self.failed: StorageError | None = None

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[WorkItem]:
        return iter(list(self._pending))

    def put(self, item: WorkItem) -> None:
        """Append an item. Raises the error that ended writing, and StorageError once the queue is closed."""
        with self._changed:
            if self.failed or self.is_closing:
                raise self.failed or StorageError(f"{self._path}: the writer is closed; nothing was written")
            if not self._pending:  # otherwise the thread is awake, and takes this one, too
                self._changed.notify()
            self._pending.append(item)

    def withdraw(self, item: WorkItem) -> bool:
        """Take an item back. Return False when it was taken already."""
        with self._changed:
            if item not in self._pending:
                return False
            self._pending.remove(item)
            return True

    def take(self, seconds: float | None) -> list[WorkItem] | None:
        """Take the items of the next commit. Wait for the first at most `seconds`; None: for ever.

        Return an empty list when none came, and None when the queue is closed and empty.
        """
        with self._changed:
            if self._changed.wait_for(lambda: bool(self._pending) or self.is_closing, seconds):
                return take_batch(self._pending) or None
            return []

    def close(self) -> None:
        """Refuse new items. Those that wait are still taken."""
        with self._changed:
            self.is_closing = True
            self._changed.notify()

    def fail(self, error: StorageError) -> list[WorkItem]:
        """Refuse everything from now on with `error`. Return the items that waited, each with its error."""
        with self._changed:
            self.failed = error
            refused = list(self._pending)
            self._pending.clear()
        for item in refused:
            item.error = StorageError(f"nothing was written: {error}")
        return refused
