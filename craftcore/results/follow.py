"""Following emitted work: a loop that looks after each change, and yields what is new."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator

import anyio
import anyio.to_thread

from craftcore.results.database_watch import LOOK_SECONDS
from craftcore.results.engine_waits import SPACING_SECONDS, ResultWaits
from craftcore.services import Services
from craftcore.storage.change_counter import ChangeCounter
from craftcore.tasks.work_store import WorkUpdate


async def follow_in_engine(services: Services, results: ResultWaits, id: str) -> AsyncIterator[WorkUpdate]:
    """Yield the work as it is, then after each change, until its end. Nothing is read while nothing changes.

    Raises NotFound when no row of it is left, StillWaiting when the engine ends first.
    """
    seen = None
    while True:
        change = results.next_change()
        update = await anyio.to_thread.run_sync(services.update_of_work, id)
        if update != seen:
            yield (seen := update)
        if update.is_over:
            return
        await change()
        await anyio.sleep(SPACING_SECONDS)


async def follow_from_outside(services: Services, id: str) -> AsyncIterator[WorkUpdate]:
    """Yield the same in another process than the engine's, on an event loop."""
    view = _OutsideView(services, id)
    try:
        while True:
            if (update := await anyio.to_thread.run_sync(view.look)) is not None:
                yield update
                if update.is_over:
                    return
            await anyio.sleep(LOOK_SECONDS)
    finally:
        view.close()


def follow_blocking(services: Services, id: str) -> Iterator[WorkUpdate]:
    """Yield the same, blocking the thread between two updates."""
    view = _OutsideView(services, id)
    try:
        while True:
            if (update := view.look()) is not None:
                yield update
                if update.is_over:
                    return
            time.sleep(LOOK_SECONDS)
    finally:
        view.close()


class _OutsideView:
    """The work as another process sees it: read after a change of the database only."""

    def __init__(self, services: Services, id: str) -> None:
        self._services = services
        self._id = id
        self._counter = ChangeCounter(services.database)
        self._seen: WorkUpdate | None = None

    def look(self) -> WorkUpdate | None:
        """Return the work as it is now; None when nothing of it is new since the last look."""
        if not self._counter.has_changed():
            return None
        before, self._seen = self._seen, self._services.update_of_work(self._id)
        return None if self._seen == before else self._seen

    def close(self) -> None:
        """Close the change counter."""
        self._counter.close()
