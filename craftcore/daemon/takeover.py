"""The engine of a file in one of several processes of a program: another one takes over when its process dies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread

from craftcore.config import Config
from craftcore.daemon.lifespan import running
from craftcore.daemon.lock import read_note
from craftcore.engine.failure import sole_exception
from craftcore.errors import DaemonRunning
from craftcore.log import get_logger
from craftcore.registry.registry import Registry
from craftcore.serialization.encode import describe_error

log = get_logger(__name__)

LOOK_SECONDS = 1.0
"""How often a client looks whether the file has no engine."""

BOOT_LOOK_SECONDS = 0.05
"""How often a process looks whether the engine of another one has booted. It emits no sooner, because it could not know
the workflows before."""

AFTER_FAILURE_SECONDS = 10.0
"""How long a process whose engine failed leaves the file to others."""


@asynccontextmanager
async def engine_or_client(
    app: Registry, path: Path, config: Config, open_client: Callable[[], object], close_client: Callable[[], object]
) -> AsyncIterator[None]:
    """Run the engine in this block, or be its client while another process runs it; take over when that one ends.

    `open_client` is called once, before this process is a client for the first time, and `close_client` at the end;
    both in a thread. Errors of the first start are raised as `running` raises them. A later failure of the engine is
    logged, and this process is a client then.
    """
    candidate = _Candidate(app, path, config, open_client)
    try:
        async with anyio.create_task_group() as tasks:
            try:
                await tasks.start(candidate.run)
                yield
            finally:
                candidate.leave.set()
    except BaseExceptionGroup as group:
        raise sole_exception(group) from None
    finally:
        if candidate.is_client:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(close_client)


class _Candidate:
    """One process that runs the engine whenever no other one does, until `leave` is set."""

    def __init__(self, app: Registry, path: Path, config: Config, open_client: Callable[[], object]) -> None:
        self._app = app
        self._path = path
        self._config = config
        self._open_client = open_client
        self.is_client = False
        self.leave = anyio.Event()

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Run the engine or a client, until `leave` is set. The status says that calls can be made."""
        has_started = False

        def note_start() -> None:
            nonlocal has_started
            if not has_started:
                has_started = True
                task_status.started()

        while not self.leave.is_set():
            pause = LOOK_SECONDS
            try:
                async with running(self._app, self._path, self._config):
                    note_start()
                    await self.leave.wait()
            except DaemonRunning:
                if not await self._follow(has_started=has_started):
                    pause = BOOT_LOOK_SECONDS
                else:
                    note_start()
            except Exception as error:
                if not has_started:
                    raise
                log.error("engine.left_to_others", reason=describe_error(error), seconds=AFTER_FAILURE_SECONDS)
                await self._follow(has_started=True)
                pause = AFTER_FAILURE_SECONDS
            await self._pause_while_held(pause, has_started=has_started)

    async def _follow(self, *, has_started: bool) -> bool:
        """Open a client, once the engine of the other process has booted. Return whether there is one."""
        if not self.is_client:
            note, held = await anyio.to_thread.run_sync(read_note, self._path)
            if not has_started and (not held or note is None or note.inodes is None):
                return False
            await anyio.to_thread.run_sync(self._open_client)
            self.is_client = True
            log.info("engine.elsewhere", pid=None if note is None else note.pid)
        return True

    async def _pause_while_held(self, seconds: float, *, has_started: bool) -> None:
        """Wait, and then until no process holds the file: a look is cheaper than a start that is refused."""
        while not self.leave.is_set():
            with anyio.move_on_after(seconds):
                await self.leave.wait()
            _, held = await anyio.to_thread.run_sync(read_note, self._path)
            if not held or not has_started:
                return
            seconds = LOOK_SECONDS
