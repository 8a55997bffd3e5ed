"""Safe mode: it begins at a start after several crashes, and ends when the daemon has lived long enough."""

from __future__ import annotations

import anyio

from craftcore.engine.boot import UNCLEAN_STARTS_SECONDS
from craftcore.engine.engine import Engine
from craftcore.errors import StorageFull
from craftcore.log import get_logger
from craftcore.notifications.service import NotificationService
from craftcore.serialization.time_text import format_span
from craftcore.storage.facts import delete_fact
from craftcore.storage.transaction import Transaction

log = get_logger(__name__)

HEALTHY_SECONDS = UNCLEAN_STARTS_SECONDS
"""Seconds without a crash after which safe mode ends: those within which the crashes began it."""

AGAIN_SECONDS = 10.0


def note_begin(tx: Transaction, notices: NotificationService, reason: str) -> None:
    """Note that a start began safe mode. People hear of it at once: the next crash may come before a look at
    the health."""
    notices.note_trouble(
        tx,
        f"safe mode, scheduled work waits: {reason}",
        f"craftcore is in safe mode: {reason}. Scheduled and resumed work waits. It ends after "
        f"{format_span(HEALTHY_SECONDS)} without a crash, or by craftcore release",
    )


def end_safe_mode(tx: Transaction, notices: NotificationService) -> bool:
    """End safe mode; False when it has ended already. The crashes before do not count towards another one."""
    if delete_fact(tx, "safe_mode") is None:
        return False
    notices.note_trouble(tx, None, "craftcore has left safe mode: scheduled and resumed work starts again")
    return True


async def watch_safe_mode(engine: Engine, notices: NotificationService) -> None:
    """End safe mode after HEALTHY_SECONDS of this engine, if it is on then."""
    await anyio.sleep(HEALTHY_SECONDS)
    while not engine.is_stopping:
        try:
            if await engine.writer.commit(end_safe_mode, notices):
                log.warning("safe_mode.ended", after_seconds=HEALTHY_SECONDS)
                engine.on_changed()
            return
        except StorageFull:
            await anyio.sleep(AGAIN_SECONDS)
