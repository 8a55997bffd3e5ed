"""Following emitted work: a loop that looks after each change, and yields what is new."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator

import anyio
import anyio.to_thread

from craftcore.results.engine_waits import SPACING_SECONDS, ResultWaits
from craftcore.services import Services
from craftcore.storage.change_counter import ChangeCounter
from craftcore.tasks.work_store import WorkUpdate

LOOK_SECONDS = 0.1
"""How long another process waits between two looks at the change counter of the database."""


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
    counter, seen = ChangeCounter(services.database), None
    try:
        while True:
            if await anyio.to_thread.run_sync(counter.has_changed):
                update = await anyio.to_thread.run_sync(services.update_of_work, id)
                if update != seen:
                    yield (seen := update)
                if update.is_over:
                    return
            await anyio.sleep(LOOK_SECONDS)
    finally:
        counter.close()


def follow_blocking(services: Services, id: str) -> Iterator[WorkUpdate]:
    """Yield the same, blocking the thread between two updates."""
    counter, seen = ChangeCounter(services.database), None
    try:
        while True:
            if counter.has_changed():
                update = services.update_of_work(id)
                if update != seen:
                    yield (seen := update)
                if update.is_over:
                    return
            time.sleep(LOOK_SECONDS)
    finally:
        counter.close()
