"""Retention in a running engine: a slow loop beside it, in batches so small that no commit waits for one.

It looks by a reader of its own and hands each batch to the writer, where it rides with whatever else waits. It pauses
while the engine is held or paused, and while a reader keeps the WAL long, because its writes would make that longer.
It continues on a full disk, because it frees space.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread

from craftcore.engine.engine import Engine
from craftcore.errors import DatabaseInvalid, NotFound, RowInvalid, StorageError, StorageFull
from craftcore.log import get_logger
from craftcore.retention.failed_functions import RETENTION_FAILED, RetentionFailure
from craftcore.retention.model import Found, Taken
from craftcore.retention.service import STEPS, Retention, Step
from craftcore.services import Services
from craftcore.storage.facts import delete_fact, get_fact, set_fact
from craftcore.storage.files.file_size import WAL_LONG, give_back, wal_in_use
from craftcore.storage.transaction import Transaction
from craftcore.storage.user_sql.user_transaction import UserSqlFailed, UserTransaction, refuse_coroutine

log = get_logger(__name__)

FIRST_AFTER = 60.0
"""Seconds from the boot to the first pass: what was missed meanwhile goes first."""

EVERY = 3600.0
REST = 0.05
"""Seconds between two batches."""

LOOK_AGAIN = 10.0
"""Seconds until it looks again whether it may go on."""

AHEAD_MAX = 86_400.0
"""Seconds that the wall clock may be ahead of the time that passed since the start: a clock that is set forward by
a year makes nothing a year older."""

WITH_IDS = frozenset({"triggers", "tasks"})
"""The steps whose ids functions of the user receive."""

ERROR_MAX = 500
"""Characters of an error that are kept."""

T = TypeVar("T")


class UserFunctions:
    """The functions of `app.on_retention`. `failed`: one has failed in this pass."""

    def __init__(self, functions: Sequence[Callable[..., object]]) -> None:
        self._functions = functions
        self._running = ""
        self.failed = False

    def __bool__(self) -> bool:
        return bool(self._functions)

    def call(self, tx: UserTransaction, taken: Taken) -> None:
        """Call each with what was removed. Nothing removed at all is the end of a pass."""
        for function in self._functions:
            self._running = getattr(function, "__qualname__", type(function).__name__)
            refuse_coroutine(function(tx, taken.ids))

    def note_failure(self, tx: Transaction, why: str, take: Callable[[Transaction], Taken] | None = None) -> Taken:
        """Remove without the functions, and note which one failed. Return what was removed."""
        self.failed = True
        failure = RetentionFailure(function=self._running, error=why[:ERROR_MAX], at=tx.now)
        set_fact(tx, RETENTION_FAILED, json.dumps(asdict(failure)))
        tx.after_commit(log.error, "retention.function_failed", function=failure.function, error=failure.error)
        return Taken() if take is None else take(tx)

    def forget_failure(self, tx: Transaction) -> Taken:
        """Forget the failure of an earlier pass, unless this one had another."""
        if not self.failed and get_fact(tx, RETENTION_FAILED) is not None:
            delete_fact(tx, RETENTION_FAILED)
        return Taken()


class RetentionLoop:
    """The loop of one engine. `passes`: how many are over; `pinned`: the WAL was too long at the last look."""

    def __init__(
        self,
        core: Services,
        engine: Engine,
        *,
        functions: Sequence[Callable[..., object]] = (),
        first_after: float = FIRST_AFTER,
        every: float = EVERY,
    ) -> None:
        self._core = core
        self._engine = engine
        self._rules = Retention(core.config.retention)
        self._retention = self._rules
        self._first_after = first_after
        self._every = every
        self._functions = UserFunctions(functions)
        self._ahead = core.clock.now() - core.clock.boot_time()
        self.passes = 0
        self.pinned = False

    async def run(self) -> None:
        """Pass after pass, until cancelled or the engine stops. While the file cannot be read, it waits; whether the
        engine may go on is for its writer to say."""
        await anyio.sleep(self._first_after)
        while not self._engine.is_stopping:
            try:
                await self._pass()
            except DatabaseInvalid:
                raise
            except (StorageError, NotFound) as error:
                if self._engine.writer.failed is not None:
                    raise
                log.warning("retention.postponed", reason=error.message, seconds=LOOK_AGAIN)
                await anyio.sleep(LOOK_AGAIN)
                continue
            self.passes += 1
            await anyio.sleep(self._every)

    async def _pass(self) -> None:
        taken = Taken()
        if not await self._wait_until_allowed():
            return
        self._functions.failed = False
        self._retention = await anyio.to_thread.run_sync(self._tighten)
        for step in STEPS:
            try:
                await self._step(step, taken)
            except (RowInvalid, ValueError) as error:  # text that is not UTF-8 is a ValueError, too
                log.error("retention.stopped", at=step.name, error=str(error), advice="craftcore db check")
        await self._retry_on_full_disk(self._end_functions)
        await self._give_back()
        if taken.rows:
            log.info("retention.done", removed=dict(+taken.removed), stripped=dict(+taken.stripped))
        await anyio.to_thread.run_sync(self._warn_of_size)

    async def _give_back(self) -> None:
        more = True
        while more and await self._wait_until_allowed():
            left = await self._retry_on_full_disk(lambda: self._engine.writer.commit(give_back))
            more = left > 0
            await anyio.sleep(REST)

    async def _step(self, step: Step, taken: Taken) -> None:
        after: int | None = 0
        while after is not None and await self._wait_until_allowed():
            found = await anyio.to_thread.run_sync(self._find, step, after)
            batch = Taken()
            if found.seqs:
                batch = await self._retry_on_full_disk(lambda found=found: self._take(step, found))  # type: ignore[misc]
                taken.add(batch)
            if not batch.goes_on:
                after = found.after
            await anyio.sleep(REST)

    def _tighten(self) -> Retention:
        with self._core.reading() as reader:
            return self._rules.tighten(reader, self._read_clock())

    def _warn_of_size(self) -> None:
        with self._core.reading() as reader:
            size = self._rules.size(reader, self._read_clock())
        if 0 < size.max_bytes < size.used_bytes:
            log.warning("retention.over_limit", used_bytes=size.used_bytes, max_bytes=size.max_bytes)

    def _find(self, step: Step, after: int) -> Found:
        with self._core.reading() as reader:
            return self._retention.find(reader, step, self._read_clock(), after)

    async def _take(self, step: Step, found: Found) -> Taken:
        take = partial(self._retention.take, step=step, seqs=found.seqs, now=self._read_clock())
        if step.name not in WITH_IDS or not self._functions:
            return await self._engine.writer.commit(take)
        try:
            return await self._engine.writer.commit_before_user_sql(take, self._functions.call)
        except UserSqlFailed as error:
            return await self._engine.writer.commit(self._functions.note_failure, str(error), take)

    async def _end_functions(self) -> None:
        """Call the functions of the user with nothing removed. Forget an earlier failure when none failed."""
        writer, functions = self._engine.writer, self._functions
        if not functions:
            if await anyio.to_thread.run_sync(self._core.read, get_fact, RETENTION_FAILED):
                await writer.commit(functions.forget_failure)
            return
        try:
            await writer.commit_before_user_sql(functions.forget_failure, functions.call)
        except UserSqlFailed as error:
            await writer.commit(functions.note_failure, str(error))

    def _read_clock(self) -> float:
        clock = self._core.clock
        return min(clock.now(), clock.boot_time() + self._ahead + AHEAD_MAX)

    async def _retry_on_full_disk(self, work: Callable[[], Awaitable[T]]) -> T:
        """Commit again on a full disk: it may have room for a smaller commit, or for this one later."""
        while True:
            try:
                return await work()
            except StorageFull:
                await anyio.sleep(LOOK_AGAIN)

    async def _wait_until_allowed(self) -> bool:
        """Wait until nothing is in the way; False when the engine stops."""
        while not self._engine.is_stopping:
            self._see_wal()
            if not self.pinned and not self._engine.is_held:
                return True
            await anyio.sleep(LOOK_AGAIN)
        return False

    def _see_wal(self) -> None:
        size = wal_in_use(self._core.database.path)
        if self.pinned is not (size > WAL_LONG):
            self.pinned = not self.pinned
            if self.pinned:
                log.warning("wal.pinned", bytes=size, why="a reader keeps an old snapshot open", waits="retention")
            else:
                log.info("wal.free", bytes=size)
