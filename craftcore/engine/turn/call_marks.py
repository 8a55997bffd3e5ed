"""Call marks beside the file: on disk before the irreversible calls that they stand for, one write for many calls.

The writer's thread writes the mark of a commit once that is on disk and before its callers have their answers. So the
calls of one commit share one flush, and wait for nothing else. A mark that could not be written then is tried again by
the calls that need it, which hear why it fails.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.to_thread

from craftcore.activities.model import Activity, StartedCall
from craftcore.log import get_logger
from craftcore.serialization.untrusted import safe_repr
from craftcore.storage.transaction import Transaction
from craftcore.tasks.activity_events import ActivityEvents, NewAct

log = get_logger(__name__)


class CallMarks:
    """Begins acts, and writes their call marks, one at a time. `write(mark)` is a blocking function that returns once
    the mark is on disk; it may be called from two threads."""

    def __init__(self, acts: ActivityEvents, write: Callable[[int], None]) -> None:
        self._acts = acts
        self._write = write
        self._thread = anyio.CapacityLimiter(1)
        self._wanted = 0
        self._written = 0
        self._writing: anyio.Event | None = None

    def begin_all(self, tx: Transaction, acts: list[NewAct]) -> list[StartedCall | Activity | Exception]:
        """Write intents, as `Acts.begin_all`; the mark of this commit follows it."""
        answers = self._acts.begin_all(tx, acts)
        if mark := max((answer.mark for answer in answers if isinstance(answer, StartedCall)), default=0):
            tx.before_answers(self._write_first, mark)
        return answers

    def has_reached(self, mark: int) -> bool:
        """Return whether this mark, or a later one, is on disk."""
        return self._written >= mark

    async def wait_for(self, mark: int) -> None:
        """Wait until this mark, or a later one, is on disk.

        A caller that finds no write under way writes the newest mark that is waited for. Raises what `write` raises;
        the others that waited for that write try it themselves.
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
                self._written = max(self._written, newest)
            finally:
                self._writing = None
                over.set()

    def _write_first(self, mark: int) -> None:
        """Run the tick on the thread of the writer. A failure is left to the calls of the commit, and ends no
        commit."""
        try:
            self._write(mark)
        except Exception as error:
            log.debug("call_mark.not_written", mark=mark, why=safe_repr(error))
        else:
            self._written = max(self._written, mark)
