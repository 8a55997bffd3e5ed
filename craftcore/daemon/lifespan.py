"""One engine's life: lock, boot, consume, drain. The daemon and an embedded engine share it."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import anyio

from craftcore.clock import Clock
from craftcore.config import Config
from craftcore.daemon import logging
from craftcore.daemon.builtin_actions import with_ready_made
from craftcore.daemon.config_reload import default_retry
from craftcore.daemon.declared_schedules import MARK_IT, declarations, say_declared
from craftcore.daemon.doorbell import Doorbell
from craftcore.daemon.lock import DaemonLock
from craftcore.daemon.metrics.endpoint import observing
from craftcore.daemon.notification_loop import NotificationLoop
from craftcore.daemon.notify_targets import notify_rules
from craftcore.daemon.retention_loop import RetentionLoop
from craftcore.daemon.safe_mode import note_begin, watch_safe_mode
from craftcore.engine import boot as booting
from craftcore.engine.boot import notify
from craftcore.engine.durable_commit import Corruption
from craftcore.engine.engine import Engine
from craftcore.engine.engine_facts import write_engine_facts
from craftcore.engine.failure import sole_exception
from craftcore.engine.held_tasks import HeldTasks
from craftcore.engine.limits.restart import put_back_undeclared, restore_rate_history
from craftcore.engine.scheduler import log_ticked
from craftcore.errors import CraftcoreError, DaemonRunning, RowInvalid, StorageError, StorageFull
from craftcore.failpoints import Failpoint, hit
from craftcore.log import get_logger
from craftcore.notifications.model import NotifyRule
from craftcore.notifications.service import NotificationService
from craftcore.registry.executor import require_importable
from craftcore.registry.registry import Registry
from craftcore.schedules.declaration import DeclareResult
from craftcore.schedules.model import Origin, ScheduleSpec
from craftcore.serialization.untrusted import message_of, type_name
from craftcore.services import Services
from craftcore.storage import migrate
from craftcore.storage.backup.staging_file import remove_stale
from craftcore.storage.group_commit import UNDER_ENGINE
from craftcore.storage.writer import Writer
from craftcore.version import installed_version

LOOKS_AT_FILES_SECONDS = 1.0
"""How long a lock file can be missing, and a deleted or replaced database go unnoticed while nothing is written."""


log = get_logger(__name__)


@asynccontextmanager
async def running(
    app: Registry,
    path: Path,
    config: Config,
    clock: Clock | None = None,
    *,
    paused: bool = False,
    held_back: bool = False,
    owns_loop: bool = False,
) -> AsyncIterator[Engine]:
    """Boot and run the engine; drain it when the block is left.

    Lock -> listen for scrapes -> open and migrate -> epoch and reclaim -> doorbell -> consume. Raises DaemonRunning
    when another process runs this database, another StorageError when it cannot be opened, or the one that ended it.
    Raises EngineCrashed when the engine ended without being asked to. `held_back`: nothing is started before
    `engine.begin()`. `owns_loop`: nothing but the engine runs on this event loop, so leaving the block by an error
    counts as a crash.
    """
    logging.embed(config.log.level, config.log.format)
    core = Services(path, config, clock)
    async with AsyncExitStack() as life:
        life.enter_context(with_ready_made(app, config, os.environ))
        app.default_retry = default_retry(config)
        declared = declarations(app, config, core.schedules)
        rules = notify_rules(app, config)
        app.check_fallbacks()
        require_importable(app.workflows.values())
        for name in app.check_actions():
            log.warning("action.not_irreversible", action=name, advice=MARK_IT)
        process = booting.Process(
            boot_id=core.clock.new_id(),
            machine_boot_id=_machine_boot_id(),
            pid=os.getpid(),
            host=socket.gethostname(),
            version=installed_version(),
        )
        life.callback(core.close)
        core.database.create()
        lock = DaemonLock.acquire(core.database.path, pid=process.pid, host=process.host, now=core.clock.now())
        life.callback(lock.release)
        _sweep_drafts(core.database.path)
        observer = await life.enter_async_context(observing(app, core, config.metrics))
        held_tasks = HeldTasks(app, core.holds)
        places = config.daemon.concurrency
        boot = _boot(core, app, process, lock, declared, held_tasks, rules, paused=paused, places=places)
        observer.on_booted()

        def on_flushed(items: int, seconds: float) -> None:
            observer.on_flushed(items, seconds)
            engine.results.note_change()

        try:
            bell = Doorbell.open(core.database.path)
            life.callback(bell.close)
            writer = await life.enter_async_context(
                Writer(core.database, on_fatal=lambda error: engine.fail(error), on_flushed=on_flushed)
            )
            lock.note_files(writer.group_commit.files)
        except StorageFull as full:
            _note_end(lock, core, full)  # nothing was begun: a start that is tried again is no crash
            raise
        life.callback(_clear_files, lock)
        engine = Engine(
            app,
            core,
            writer,
            held_tasks,
            epoch=boot.epoch,
            write_mark=lock.mark,
            observer=observer,
            owns_loop=owns_loop,
        )
        with core.reading() as reader:
            restore_rate_history(reader, engine.limits, core.clock)
        if paused:
            engine.pause()
        if held_back:
            engine.hold_starts()
        app.attach(engine)
        life.callback(app.attach, None)
        life.push_async_callback(_end_epoch, core, engine, lock)
        notices = NotificationService(core.triggers, rules)
        loops = (
            RetentionLoop(core, engine, functions=app.retention_functions).run,
            NotificationLoop(core, engine, rules).run,
            partial(watch_safe_mode, engine, notices),
        )
        async with _consuming(engine, bell, loops, lock, owns_loop=owns_loop):
            yield engine


def _boot(
    core: Services,
    app: Registry,
    process: booting.Process,
    lock: DaemonLock,
    declared: Mapping[Origin, Sequence[ScheduleSpec]],
    held_tasks: HeldTasks,
    rules: Sequence[NotifyRule],
    *,
    paused: bool,
    places: int,
) -> booting.Boot:
    """Migrate; in one commit take the next epoch, reclaim, hold the tasks that the app does not fit, take over the
    declared schedules and fire those of a start.

    A corrupt row is set aside first, where one is in the way.
    """
    migrate.migrate(core.database, core.clock)

    puts: list[DeclareResult] = []
    everywhere = {spec.id for specs in declared.values() for spec in specs}

    def take_over() -> booting.Boot:
        with core.transaction() as tx:
            NotificationService(core.triggers, rules).declare(tx)
            boot = booting.boot(
                tx,
                core.claims,
                core.acts,
                core.resume_contract,
                process,
                sorted(app.workflows),
                new_database_id=core.clock.new_id(),
                last_seen=lock.previous.last_seen if lock.previous is not None else None,
            )
            if boot.begins_safe_mode and boot.safe_mode is not None:
                note_begin(tx, NotificationService(core.triggers, rules), boot.safe_mode)
            core.restored.look(tx)
            held_tasks.judge(tx)
            write_engine_facts(tx, boot.epoch, app.workflows, app.by_source, paused=paused, places=places)
            put_back_undeclared(tx, app.workflows.values())
            puts[:] = [
                put
                for origin, specs in declared.items()
                for put in core.schedules.declare(tx, origin, specs, elsewhere=everywhere)
            ]
            tx.after_commit(log_ticked, core.ticks.fire_startup(tx, held=boot.held or boot.safe_mode))
            if (wrong := notify(tx, app, core.triggers, boot)) is not None:
                tx.after_commit(log.error, "restart_notice.refused", reason=wrong)
            return boot

    try:
        boot = take_over()
    except (RowInvalid, ValueError, OverflowError):  # text that is not UTF-8 is a ValueError, too
        with core.transaction() as tx:
            if not (found := Corruption(core.tasks, core.claims).set_aside(tx)):
                raise
        log.error("row.corrupt", wrong=found)
        boot = take_over()
    core.close()
    hit(Failpoint.RECLAIM_COMMITTED)
    lock.write(database_id=boot.database_id, epoch=boot.epoch, call_mark=boot.call_mark)
    say_declared(puts)
    held_tasks.say()
    log.info(
        "engine.booted",
        epoch=boot.epoch,
        clean=boot.clean,
        reclaimed=boot.reclaimed.crashed + boot.reclaimed.unstarted,
        interrupted=boot.reclaimed.crashed,
        poisoned=boot.reclaimed.poisoned,
        resumed=len(boot.resumed.resumed) + len(boot.resumed.reclaimed),
        stale=list(boot.resumed.stale),
        in_doubt=boot.in_doubt,
        held=boot.held,
        safe_mode=boot.safe_mode,
    )
    return boot


@asynccontextmanager
async def _consuming(
    engine: Engine, bell: Doorbell, loops: Sequence[Callable[[], Awaitable[None]]], lock: DaemonLock, *, owns_loop: bool
) -> AsyncIterator[None]:
    """Run the engine while the block runs, and drain it afterwards. An engine that fails cancels the block."""
    try:
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                try:
                    await engine.run()
                finally:
                    tasks.cancel_scope.cancel()

            async def listen() -> None:
                while True:
                    engine.ring(schedules=await bell.wait())

            async def keep() -> None:
                reason = ""
                while True:
                    await anyio.sleep(LOOKS_AT_FILES_SECONDS)
                    try:
                        engine.writer.group_commit.files.refuse_replaced(UNDER_ENGINE)
                    except StorageError as error:
                        engine.fail(error)
                        return
                    try:
                        if lock.keep():
                            log.warning("lock.put_back", lock=lock.path, why="its file was removed")
                    except DaemonRunning as error:
                        engine.fail(error)
                        return
                    except CraftcoreError as error:  # a full disk, say: the next look tries again
                        if reason != (reason := str(error)):
                            log.warning("lock.missing", lock=lock.path, why=reason)

            tasks.start_soon(run)
            for task in (listen, keep, *loops):
                tasks.start_soon(engine.guard, task)
            try:
                yield
            except Exception as error:
                if owns_loop:
                    engine.crash(f"an error of craftcore, {type_name(error)}: {message_of(error)}", error)
                raise
            finally:
                engine.stop()
    except BaseException as error:
        end = sole_exception(error) if isinstance(error, BaseExceptionGroup) else error
        if engine.failure is not None and isinstance(end, anyio.get_cancelled_exc_class()):
            end = engine.failure  # whoever ended the engine cancelled this as well
        raise end from end.__cause__


def _clear_files(lock: DaemonLock) -> None:
    """Forget the files before they are closed: the WAL is removed with its last connection, and that is in order."""
    try:
        lock.note_files(None)
    except StorageError as error:
        log.warning("lock.not_cleared", lock=lock.path, why=str(error))


async def _end_epoch(core: Services, engine: Engine, lock: DaemonLock) -> None:
    """Release the claims and note that the epoch ended in order. A failed database is left alone, and so is one whose
    engine ended by itself: the next boot counts that as a crash.

    On a full disk the lock file records the orderly end, and the next boot releases the claims.
    """
    if engine.failure is None:
        with anyio.CancelScope(shield=True):
            try:
                await engine.writer.commit(booting.end, core.claims, core.acts, engine.epoch)
            except StorageFull as full:
                if not _note_end(lock, core, full):
                    raise


def _note_end(lock: DaemonLock, core: Services, full: StorageFull) -> bool:
    """Return whether the lock file says now that the epoch ended in order."""
    try:
        lock.note_end(core.clock.now())
    except StorageError as error:
        log.error("engine.end_not_noted", lock=lock.path, why=str(error), advice="the next start counts a crash")
        return False
    log.warning("engine.end_noted", lock=lock.path, why=full.message, hands_back="the next start")
    return True


def _sweep_drafts(path: Path) -> None:
    """Remove the drafts of killed restores, which are as large as the database. A restore that still runs holds a lock
    on its draft."""
    with suppress(OSError):  # who may not remove it can start all the same
        if swept := remove_stale(Path(os.path.realpath(path)).parent):
            log.info("drafts.swept", names=swept)


def _machine_boot_id() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return None
