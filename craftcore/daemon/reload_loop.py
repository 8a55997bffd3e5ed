"""The reload of the settings beside the engine, each time SIGHUP asks for one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import anyio

from craftcore.config import Config
from craftcore.daemon import logging
from craftcore.daemon.config_reload import AT_ONCE, answer, apply_reload, default_retry, list_changed_keys
from craftcore.daemon.declared_schedules import declarations, say_declared
from craftcore.daemon.sd_notify import Notifier
from craftcore.engine.engine import Engine
from craftcore.errors import ConfigInvalid, StorageFull
from craftcore.log import get_logger
from craftcore.registry.registry import Registry
from craftcore.schedules.model import Origin
from craftcore.services import Services

log = get_logger(__name__)


class ReloadLoop:
    """The settings of a running daemon, and their next reload."""

    def __init__(
        self, app: Registry, config: Config, load_config: Callable[[], Config], core: Services, notifier: Notifier
    ) -> None:
        self._app = app
        self._config = config
        self._load_config = load_config
        self._core = core
        self._notifier = notifier
        self._asked = anyio.Event()

    def ask(self) -> None:
        """Reload as soon as `run` can."""
        self._notifier.notify_reloading()
        self._asked.set()

    async def run(self, engine: Engine) -> None:
        """Reload whenever asked, until cancelled. A reload that fails leaves the settings as they were."""
        while True:
            await self._asked.wait()
            self._asked = anyio.Event()
            began = self._core.clock.boot_time()
            logging.set_level("info")  # the answer is logged, however quiet the daemon is otherwise
            applied: list[str] = []
            at_next_start: list[str] = []
            refused: list[str] = []
            try:
                applied, at_next_start = await self._take_over(engine, self._load_config())
            except ConfigInvalid as error:
                log.error("config.refused", reason=error.message, kept="the settings as they were")
                refused = error.message.splitlines()
            except StorageFull as error:
                log.error("reload.failed", reason=error.message, kept="the settings as they were")
                refused = [error.message]
            finally:
                logging.set_level(self._config.log.level)
            work = partial(answer, began=began, applied=applied, at_next_start=at_next_start, refused=refused)
            try:
                await engine.writer.commit(work, engine.epoch)
            except StorageFull as error:
                log.error("reload.unanswered", reason=error.message)
            self._notifier.notify_ready("reloaded")

    async def _take_over(self, engine: Engine, fresh: Config) -> tuple[list[str], list[str]]:
        """Return the changed keys that count now, and those that wait for the next start. Raises ConfigInvalid."""
        changed = list_changed_keys(self._config, fresh)
        if not changed:
            log.info("config.unchanged")
            return [], []
        if "schedule" in changed:
            specs = declarations(self._app, fresh, self._core.schedules)[Origin.FILE]
            say_declared(await engine.writer.commit(self._core.schedules.declare, Origin.FILE, specs))
            engine.scheduler.ring()
        applied = [key for key in changed if key in AT_ONCE]
        at_next_start = [key for key in changed if key not in AT_ONCE]
        log.info("config.changed", applied=applied, at_next_start=at_next_start)
        self._config = apply_reload(self._config, fresh)
        self._app.default_retry = default_retry(self._config)
        return applied, at_next_start
