"""The queue between the event loop and the thread that commits."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from craftcore.errors import StorageError, WriterDied
from craftcore.storage.batch import WorkItem, take_batch


class CommitQueue:
    """Items that wait for a commit, oldest first. Every method may be called from any thread.

    `failed`: the error that ended writing; from then on every item is refused with it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending: deque[WorkItem] = deque()
        self._lock = threading.Lock()
        self._bell = threading.Lock()
        """Free from a ring until the waiting thread takes it. A Condition would make a lock for each wait."""
        self._bell.acquire()
        self._is_waiting = False
        self.is_closing = False
        self.failed: StorageError | None = None

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[WorkItem]:
        return iter(list(self._pending))

    def put(self, item: WorkItem) -> None:
        """Append an item. Raises the error that ended writing, and StorageError once the queue is closed."""
        with self._lock:
            if self.failed or self.is_closing:
                raise self.failed or StorageError(f"{self._path}: the writer is closed; nothing was written")
            self._pending.append(item)
            self._ring()

    def withdraw(self, item: WorkItem) -> bool:
        """Take an item back. Return False when it was taken already."""
        with self._lock:
            if item not in self._pending:
                return False
            self._pending.remove(item)
            return True

    def take(self, seconds: float | None) -> list[WorkItem] | None:
        """Take the items of the next commit. Wait for the first at most `seconds`; None: for ever.

        Return an empty list when none came, and None when the queue is closed and empty.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            with self._lock:
                if self._pending:
                    return take_batch(self._pending)
                if self.is_closing:
                    return None
                self._is_waiting = True
            if not self._wait_for_ring(deadline):
                return []

    def _wait_for_ring(self, deadline: float | None) -> bool:
        """Return False when none came in time. The item that rang may have been withdrawn since."""
        if self._bell.acquire(timeout=-1 if deadline is None else max(0.0, deadline - time.monotonic())):
            return True
        with self._lock:
            if self._is_waiting:
                self._is_waiting = False
                return False
        return self._bell.acquire()  # the ring came with the end of the wait

    def _ring(self) -> None:
        """Wake the thread if it waits. Call it with the lock."""
        if self._is_waiting:
            self._is_waiting = False
            self._bell.release()

    def close(self) -> None:
        """Refuse new items. Those that wait are still taken."""
        with self._lock:
            self.is_closing = True
            self._ring()

    def fail(self, error: StorageError) -> list[WorkItem]:
        """Refuse everything from now on with `error`. Return the items that waited, each with its error."""
        with self._lock:
            self.failed = error
            refused = list(self._pending)
            self._pending.clear()
        kind = WriterDied if isinstance(error, WriterDied) else StorageError  # a daemon exits by its kind
        for item in refused:
            item.error = kind(f"nothing was written: {error}")
        return refused
