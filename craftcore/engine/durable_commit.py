"""Commits that must come about, because what they say has happened already; corrupt rows are set aside for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio

from craftcore.errors import RowInvalid, StorageFull
from craftcore.log import get_logger
from craftcore.schedules.quarantine_store import SCHEDULES
from craftcore.storage.transaction import Transaction
from craftcore.storage.writer import Writer
from craftcore.tasks.service import TaskService
from craftcore.triggers.claim_service import ClaimService

log = get_logger(__name__)


FULL_DISK_SECONDS = 1.0
"""How often a full disk is tried again."""


class DurableCommits:
    """Commits on one writer, on a full disk as often as it takes. A corrupt row in the way is set aside first."""

    def __init__(self, writer: Writer, corruption: Corruption) -> None:
        self.writer = writer
        self._set_aside = corruption.set_aside

    async def commit(
        self,
        work: Callable[..., Any],
        *args: Any,
        each: bool = False,
        in_any_case: bool = False,
        gives_up: Callable[[], bool] | None = None,
    ) -> Any:
        """Commit `work(tx, *args)`. `each`: with all that wait for the same work, and `in_any_case`: also when the
        caller is cancelled meanwhile.

        Raises what else went wrong, and RowInvalid when no row explains it; StorageFull once `gives_up` says so.
        """
        is_logged = False
        while True:
            try:
                if each:
                    return await self.writer.commit_batched(work, *args, in_any_case=in_any_case)
                return await self.writer.commit(work, *args)
            except StorageFull as error:
                if gives_up is not None and gives_up():
                    raise
                if not is_logged:
                    log.warning("commit.postponed", work=getattr(work, "__name__", ""), reason=error.message)
                is_logged = True
                await anyio.sleep(FULL_DISK_SECONDS)
            except (RowInvalid, ValueError, OverflowError):  # text that is not UTF-8 is a ValueError, too
                if work == self._set_aside or not (faults := await self.set_aside_corrupt()):
                    raise
                log.error("row.corrupt", wrong=faults)

    async def set_aside_corrupt(self) -> list[str]:
        """Set aside all corrupt rows; return what was wrong with each."""
        faults: list[str] = await self.commit(self._set_aside)
        return faults


class Corruption:
    """Looks for corrupt rows when something failed that should not."""

    def __init__(self, tasks: TaskService, claims: ClaimService) -> None:
        self._tasks = tasks
        self._claims = claims

    def set_aside(self, tx: Transaction) -> list[str]:
        """Take them out of the way; what was wrong with each. Tasks come first, because the end of a trigger reaches
        its task."""
        return [
            *self._tasks.set_aside_corrupt(tx),
            *self._claims.set_aside_corrupt(tx),
            *(one.message for one in SCHEDULES.repair_all(tx)),
        ]
