"""Call marks beside the file: on disk before the irreversible calls that they stand for, one write for many calls."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.to_thread


class CallMarks:
    """Writes call marks, one at a time. `write(mark)` is a blocking function that returns once the mark is on disk."""

    def __init__(self, write: Callable[[int], None]) -> None:
        self._write = write
        self._thread = anyio.CapacityLimiter(1)
        self._wanted = 0
        self._written = 0
        self._writing: anyio.Event | None = None

    async def reached(self, mark: int) -> None:
        """Wait until this mark, or a later one, is on disk.

        Whoever finds no write under way writes the newest mark that anybody waits for. Raises what `write` raises; the
        others that waited for that write try it themselves.
        """
        self._wanted = max(self._wanted, mark)
        while self._written < mark:
            if self._writing is not None:
                await self._writing.wait()
                continue
            over = self._writing = anyio.Event()
            newest = self._wanted
            try:
                await anyio.to_thread.run_sync(self._write, newest, limiter=self._thread)
                self._written = newest
            finally:
                self._writing = None
                over.set()
