"""Commits that must come about, because what they say has happened already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import structlog

from craftcore.errors import RowInvalid, StorageFull
from craftcore.storage.transaction import Transaction
from craftcore.storage.writer import Writer

log = structlog.get_logger(__name__)

FULL_DISK_SECONDS = 1.0
"""How often a full disk is tried again."""


SetAside = Callable[[Transaction], list[str]]
"""Takes corrupt rows out of the way, and says what was wrong with each."""


async def insist(
    writer: Writer,
    set_aside: SetAside,
    work: Callable[..., Any],
    *args: Any,
    each: bool = False,
    in_any_case: bool = False,
    gives_up: Callable[[], bool] | None = None,
) -> Any:
    """Commit `work(tx, *args)`, on a full disk as often as it takes. `each`: with all that wait for the same work, and
    `in_any_case`: also when the caller is cancelled meanwhile.

    A corrupt row in the way is set aside first. Raises what else went wrong, and RowInvalid when no row explains it;
    StorageFull once `gives_up` says so.
    """
    said = False
    while True:
        try:
            if each:
                return await writer.commit_each(work, *args, in_any_case=in_any_case)
            return await writer.commit(work, *args)
        except StorageFull as error:
            if gives_up is not None and gives_up():
                raise
            if not said:
                log.warning("commit.postponed", work=getattr(work, "__name__", ""), reason=error.message)
            said = True
            await anyio.sleep(FULL_DISK_SECONDS)
        except (RowInvalid, ValueError, OverflowError):  # text that is not UTF-8 is a ValueError, too
            if work == set_aside or not (found := await insist(writer, set_aside, set_aside)):
                raise
            log.error("row.corrupt", wrong=found)
