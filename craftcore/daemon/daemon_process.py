"""The process of `craftcore run`: boot, notify READY, run until a signal or until idle, drain, and end with an exit
code.

first SIGTERM or SIGINT    claim nothing more, let running work finish within `daemon.shutdown_grace`
a second one               cancel running work now, and release its attempts
after the drain            the first one does not change the exit code, a second one ends the process
SIGHUP                     read the configuration again: schedules, log level and retry defaults apply at once,
                           other settings at the next start
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from craftcore.clock import utc_iso
from craftcore.config import Config
from craftcore.daemon import logging
from craftcore.daemon.lifespan import running
from craftcore.daemon.reload_loop import ReloadLoop
from craftcore.daemon.sd_notify import Notifier
from craftcore.daemon.signals import end_at_the_second, watch_signals
from craftcore.daemon.status_line import Condition, condition_of, status_text
from craftcore.daemon.undumpable import close_to_programs
from craftcore.daemon.watchdog import watchdog
from craftcore.engine.engine import Engine
from craftcore.engine.failure import sole_exception
from craftcore.errors import CraftcoreError, DatabaseInvalid, NotFound, StorageError, StorageFull
from craftcore.log import get_logger
from craftcore.registry.registry import Registry
from craftcore.services import Services
from craftcore.storage import migrate
from craftcore.storage.damaged_rows import require_readable
from craftcore.storage.migrations import list_migrations
from craftcore.triggers.listing_store import Backoffs, TriggerLists
from craftcore.triggers.model import TriggerStatus

log = get_logger(__name__)

STATUS_SECONDS = 3.0
FIRST_LOOK_SECONDS = 20.0
"""How long READY waits for the feeder's first look: on a full disk it may not come."""

FULL_DISK_SECONDS = 5.0
"""How often a start is tried on a full disk."""

STARTS_WITHIN_SECONDS = 900.0
"""Seconds that the service manager is asked to allow after each try: as much as the unit allows at first."""

IDLE_POLL_SECONDS = 0.05
WORK_FAILED = 4


def run(
    app: Registry, path: Path, load_config: Callable[[], Config], *, paused: bool = False, until_idle: bool = False
) -> int:
    """Run the app on the database at `path`; the exit code.

    Raises the CraftcoreError that kept it from starting or ended it. Any other exception is a bug of craftcore; its
    traceback is in the log.
    """
    config = load_config()
    journal = logging.is_journal_stream(sys.stderr, os.environ)
    logging.configure(config.log.level, config.log.format, stream=sys.stderr, under_systemd=journal)
    close_to_programs()
    notifier = Notifier.from_environment(os.environ)
    daemon = Daemon(app, path, config, load_config, notifier)
    try:
        return anyio.run(daemon.serve, paused, until_idle)
    except BaseException as error:
        failure = sole_exception(error) if isinstance(error, BaseExceptionGroup) else error
        if daemon.failure is not None and not isinstance(failure, CraftcoreError):
            log.critical("daemon.ended", exc_info=failure)  # by code of a workflow: where, only this traceback says
            failure = daemon.failure
        if not isinstance(failure, CraftcoreError | KeyboardInterrupt):
            log.critical("daemon.crashed", exc_info=failure)
        raise failure from None


def refuse_foreign(path: Path, config: Config) -> None:
    """Raise DatabaseInvalid for a file that is not ours, before anything beside it is made."""
    core = Services(path, config)
    try:
        with core.database.reading() as reader:
            migrate.list_pending(reader, list_migrations(), core.database.path)
    except NotFound:
        pass  # it will be made


class Daemon:
    """One run of the daemon: the engine between the service manager, the signals and the clock on the wall."""

    def __init__(
        self, app: Registry, path: Path, config: Config, load_config: Callable[[], Config], notifier: Notifier
    ) -> None:
        self._app = app
        self._path = path
        self._config = config
        self._notifier = notifier
        self._core = Services(path, config)
        self._triggers = TriggerLists()
        self._engine: Engine | None = None
        self._scope: anyio.CancelScope | None = None
        self._stopping = False
        self._waited_for = ""
        self._unreadable: str | None = None
        self._reload = ReloadLoop(app, config, load_config, self._core, notifier)

    @property
    def failure(self) -> CraftcoreError | None:
        """The error that ended its engine; None when it ended in order."""
        return None if self._engine is None else self._engine.failure

    async def serve(self, paused: bool, until_idle: bool) -> int:
        """Boot, run, drain. The exit code: 0, or 4 when it ran until idle and something failed for good.

        On a disk that is too full to boot it waits for room, or for a signal.
        """
        began = self._core.clock.now()
        async with anyio.create_task_group() as tasks:
            self._scope = tasks.cancel_scope
            watch = partial(watch_signals, at_end=end_at_the_second)
            await tasks.start(watch, self._handle_stop, self._handle_second_stop, self._reload.ask)
            while (full := await self._try(paused, until_idle)) is not None:
                await self._wait_for_space(full)
            tasks.cancel_scope.cancel()
        if self._engine is None:
            return 0
        log.info("daemon.stopped", attempts=dict(self._engine.counts))
        return WORK_FAILED if until_idle and self._has_failed(self._engine, began) else 0

    async def _try(self, paused: bool, until_idle: bool) -> StorageFull | None:
        """Boot, run, drain. The reason when there was no room to boot: nothing is open then, and the lock is free."""
        try:
            refuse_foreign(self._path, self._config)
            async with running(
                self._app, self._path, self._config, paused=paused, held_back=True, owns_loop=True
            ) as engine:
                self._engine = engine
                await self._serve_signals(engine, until_idle)
            self._say_stopping(engine)
        except StorageFull as full:
            if self._engine is not None:
                raise
            return full
        return None

    async def _wait_for_space(self, full: StorageFull) -> None:
        """Wait before the next try. Other processes may take the lock meanwhile: `db gc` makes room."""
        if self._waited_for != full.message:
            log.warning("daemon.waiting", reason=full.message, seconds=FULL_DISK_SECONDS)
        self._waited_for = full.message
        self._notifier.extend_start(f"disk full, cannot start: {full.message}", STARTS_WITHIN_SECONDS)
        await anyio.sleep(FULL_DISK_SECONDS)

    async def _serve_signals(self, engine: Engine, until_idle: bool) -> None:
        """Serve signals until the engine has drained, which cancels this task."""
        await engine.round_trip()  # READY means that it moves, not that it was started
        with anyio.move_on_after(FIRST_LOOK_SECONDS):
            await engine.feeder.wait_for_first_poll()  # and what it says of itself, that it has looked
        status = status_text(await self._condition(engine))
        self._notifier.notify_ready(status)
        engine.begin()  # not before: a handler that holds the loop would hold up READY, and with it the watchdog
        log.info("daemon.ready", database=str(self._path), workflows=len(self._app.workflows), status=status)
        async with anyio.create_task_group() as beside:
            beside.start_soon(watchdog, self._notifier, engine.round_trip, lambda: engine.writer.lock_wait.is_trying)
            beside.start_soon(self._report, engine, status)
            beside.start_soon(self._reload.run, engine)
            if until_idle:
                beside.start_soon(self._leave_when_idle, engine)
            await anyio.sleep_forever()

    async def _report(self, engine: Engine, reported: str) -> None:
        while self._notifier.is_supervised:
            await anyio.sleep(STATUS_SECONDS)
            status = status_text(await self._condition(engine))
            if status != reported and not self._stopping and self._notifier.notify_status(status):
                reported = status

    async def _leave_when_idle(self, engine: Engine) -> None:
        while not (engine.is_idle and await self._has_nothing_due(engine)):  # noqa: ASYNC110 - others emit unheard
            await anyio.sleep(IDLE_POLL_SECONDS)
        if held := engine.feeder.holds:
            log.warning("daemon.idle", held="; ".join(held.reasons))
        if (backoffs := await anyio.to_thread.run_sync(self._find_backoffs)).count:
            log.warning("daemon.idle", backoffs=backoffs.count, next_at=utc_iso(backoffs.next_at))
        engine.stop()

    async def _has_nothing_due(self, engine: Engine) -> bool:
        if engine.feeder.paused or engine.feeder.holds:
            return True
        return await self._count_due() == 0 and engine.is_idle

    async def _condition(self, engine: Engine) -> Condition:
        """Return how the engine is. Due triggers are counted only where a service manager reads the status, and not
        while nothing runs."""
        listening = self._notifier.is_supervised and not engine.is_idle
        waiting = engine.writer.lock_wait.since
        due = await self._count_due() if listening or self._unreadable is not None else None
        return replace(
            condition_of(engine, self._path),
            due=due,
            holds=sorted(map(str, engine.feeder.holds.targets)),
            paused=engine.feeder.paused and not self._stopping,
            unreadable=self._unreadable,
            lock_wait=None if waiting is None else time.monotonic() - waiting,
        )

    async def _count_due(self) -> int | None:
        """Return None while the file cannot be opened once more, as in a directory that cannot be entered for now: the
        engine has it open, and goes on."""
        try:
            due = await anyio.to_thread.run_sync(self._due_count)
        except DatabaseInvalid:
            raise
        except (StorageError, NotFound) as error:  # a name that is gone is for the engine to notice, within a second
            if self._unreadable is None:
                log.warning("daemon.degraded", reason=error.message)
            self._unreadable = error.message
            return None
        if self._unreadable is not None:
            log.info("daemon.recovered")
            self._unreadable = None
        return due

    def _due_count(self) -> int:
        with self._core.reading() as reader:
            counts = self._triggers.live_counts(reader, self._core.clock.now())
        return counts["due"] + counts["limited"]

    def _find_backoffs(self) -> Backoffs:
        with self._core.reading() as reader:
            return self._triggers.find_backoffs(reader)

    def _has_failed(self, engine: Engine, began: float) -> bool:
        """Return whether an attempt has failed. A trigger that the boot made a dead letter counts, although no attempt
        of this engine settled it."""
        if engine.counts[TriggerStatus.FAILED] or engine.counts[TriggerStatus.DEAD]:
            return True
        with self._core.reading() as reader:
            return any(
                (letter.settled_at or 0.0) >= began
                for letter in require_readable(self._triggers.list_dead(reader, limit=1))
            )

    def _handle_stop(self, signal: str) -> None:
        log.info("daemon.stopping", signal=signal, running=self._engine.running if self._engine else 0)
        if self._engine is None:
            if self._scope is not None:
                self._scope.cancel()
            return
        self._say_stopping(self._engine)
        self._engine.stop()

    def _handle_second_stop(self, signal: str) -> None:
        log.warning("daemon.hurrying", signal=signal)
        if self._engine is not None:
            self._engine.stop_now()

    def _say_stopping(self, engine: Engine) -> None:
        if not self._stopping:
            self._stopping = True
            self._notifier.notify_stopping(f"stopping; {engine.running} still running")
