"""Commits that must come about, because what they say has happened already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import structlog

from craftcore.errors import RowInvalid, StorageFull
from craftcore.storage.writer import Writer
from craftcore.triggers.claims import ClaimService

log = structlog.get_logger(__name__)

FULL_DISK_SECONDS = 1.0
"""How often a full disk is tried again."""


async def insist(writer: Writer, claims: ClaimService, work: Callable[..., Any], *args: Any) -> Any:
    """Commit `work(tx, *args)`, on a full disk as often as it takes.

    A corrupt row in the way is set aside first. Raises what else went wrong, and RowInvalid when no row explains it.
    """
    said = False
    while True:
        try:
            return await writer.commit(work, *args)
        except StorageFull:
            if not said:
                log.warning("commit.postponed", work=getattr(work, "__name__", ""), reason="the disk is full")
            said = True
            await anyio.sleep(FULL_DISK_SECONDS)
        except (RowInvalid, UnicodeDecodeError):
            if work == claims.set_aside_corrupt:
                raise
            if not (found := await insist(writer, claims, claims.set_aside_corrupt)):
                raise
            log.error("trigger.corrupt", wrong=found)
