"""Notifications of a running engine: a slow loop that turns notices into triggers, and notes when it is not well."""

from __future__ import annotations

import re
from collections.abc import Sequence

import anyio

from craftcore.daemon.status_line import condition_of, list_troubles
from craftcore.engine.engine import Engine
from craftcore.errors import RowInvalid, StorageFull
from craftcore.log import get_logger
from craftcore.notifications.model import NotifyRule
from craftcore.notifications.service import UNHEALTHY, NotificationService
from craftcore.services import Services
from craftcore.storage.facts import get_fact
from craftcore.storage.transaction import Transaction

log = get_logger(__name__)

LOOK_SECONDS = 2.0
REST_SECONDS = 10.0
"""The least time between two commits of notifications: the notices of that time are handled together."""

HEALTH_SECONDS = 30.0
"""How often it looks whether the engine is well. A trouble is notified when two looks find it."""


class NotificationLoop:
    """The loop of one engine. Without rules it does nothing."""

    def __init__(self, core: Services, engine: Engine, rules: Sequence[NotifyRule]) -> None:
        self._path = core.database.path
        self._engine = engine
        self._service = NotificationService(core.triggers, rules, core.config.web.link_question, core.restored)
        self._seen = ""

    async def run(self) -> None:
        """Look and notify, until cancelled or the engine stops. On a full disk it notifies later."""
        health_at = anyio.current_time() + HEALTH_SECONDS
        while self._service.kinds and not self._engine.is_stopping:
            await anyio.sleep(LOOK_SECONDS)
            try:
                if UNHEALTHY in self._service.kinds and anyio.current_time() >= health_at:
                    health_at = anyio.current_time() + HEALTH_SECONDS
                    await self._look_at_health()
                if notified := await self._engine.writer.commit(self._service.notify):
                    log.info("notifications.sent", count=notified)
                    self._engine.ring(schedules=False)
                    await anyio.sleep(REST_SECONDS)
            except StorageFull as error:
                log.warning("notifications.postponed", reason=error.message)
            except (RowInvalid, ValueError) as error:  # text that is not UTF-8 is a ValueError, too
                log.error("notifications.skipped", reason=f"a damaged row: {error!s:.200}")
                await self._engine.writer.commit(self._service.skip_damaged)

    async def _look_at_health(self) -> None:
        """Note a trouble that the last look has found, too, and its end."""
        trouble = "; ".join(list_troubles(condition_of(self._engine, self._path)))
        before, self._seen = self._seen, trouble
        if _kind_of(before) == _kind_of(trouble):
            await self._engine.writer.commit(self._note, trouble)

    def _note(self, tx: Transaction, trouble: str) -> None:
        notified = get_fact(tx, UNHEALTHY) or ""
        if _kind_of(notified) == _kind_of(trouble):
            return
        text = f"craftcore is not well: {trouble}" if trouble else "craftcore is well again"
        self._service.note_trouble(tx, trouble, text)


def _kind_of(trouble: str) -> str:
    """Return a text without its numbers and ids: those change while the trouble stays."""
    return re.sub(r"[0-9a-f-]*[0-9][0-9a-f.-]*", "", trouble)
