"""Group commit: asynchronous transactions, and the one thread that runs them.

Work that waits runs in one `BEGIN IMMEDIATE … COMMIT`, each item under a savepoint. One disk flush answers every caller
of the batch.

    commit(work, *args)           one item: work(tx, *args)
    commit_batched(work, item)    items of the same work run as one group: work(tx, items) -> one answer per item
    commit_user_sql(user, …)      SQL of user code, under a guard and in a transaction of its own

Groups exist because a savepoint costs as much as half an INSERT, and one prepared statement can write many rows. An
answer that is an exception is raised to the caller of that item, which then wrote nothing. SQL of user code may end the
transaction or take long, so it shares none.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

import anyio
import apsw
import structlog

from craftcore.errors import StorageError, StorageFull, WriterDied
from craftcore.failpoints import Failpoint, hit
from craftcore.serialization.untrusted import safe_repr
from craftcore.storage.batch import After, Before, WorkItem, group_items, run_groups, take_batch
from craftcore.storage.checkpoints import Checkpoints
from craftcore.storage.commit import begin, close, commit, require_same, roll_back
from craftcore.storage.connection import CHECKPOINT_PAGES
from craftcore.storage.database import Database
from craftcore.storage.event_loop import Loop, get_current_loop
from craftcore.storage.file_size import wal_bytes
from craftcore.storage.flush_times import FlushTimes
from craftcore.storage.open_files import OpenFiles
from craftcore.storage.sqlite_errors import translate
from craftcore.storage.transaction import Transaction
from craftcore.storage.user_sql.user_transaction import UserConnection, require_plain
from craftcore.storage.write_pacer import WritePacer, backoff_sleep

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
Item = TypeVar("Item")

log = structlog.get_logger(__name__)

IDLE_SECONDS = 1.0
"""After this long without work, what the WAL holds is moved into the file."""

TRUNCATE_SECONDS = 10.0
"""And after this long a WAL that is longer than WAL_KEPT is cut off; while a reader keeps it, tried as often."""

WAL_KEPT = 1 << 20

UNDER_ENGINE = "under the running engine, which ends. Nothing was written. Find out which program did that"

TRIED_LATELY = 5.0
"""Seconds since the last try for the write lock, of which there is one a millisecond: a thread that hangs tries no
more."""


class Writer:
    """The thread that owns the daemon's write connection. Open it with `async with`.

    `on_fatal(error)` is called on the loop's thread when the file can no longer be trusted or written;
    from then on every commit is refused with that error. `on_flushed(pieces, seconds)` is called there, too, after each
    commit: of how many pieces it was, and how long the flush took.
    """

    def __init__(
        self,
        database: Database,
        *,
        on_fatal: Callable[[StorageError], None] | None = None,
        on_flushed: Callable[[int, float], None] = lambda _pieces, _seconds: None,
    ) -> None:
        self._database = database
        self._on_fatal = on_fatal
        self._on_flushed = on_flushed
        self._pending: deque[WorkItem] = deque()
        self._batch: list[WorkItem] = []
        """The items that are being written, until their answers are on their way."""
        self._batch_is_over = False
        """It was committed, or failed: its pieces have their answers."""
        self._bell = threading.Condition(threading.Lock())
        self._closing = False
        self._wal_holds_work = False
        self._wal_is_long = False
        self._quiet_since = 0.0
        self._loop: Loop
        self._connection: apsw.Connection
        self.files: OpenFiles
        self._checkpoints: Checkpoints
        self._wal_pages = 0
        self._apart = UserConnection(database, self._wait_for_lock, self._see_wal)
        self.flushes = FlushTimes()
        self._thread: threading.Thread
        self.failed: StorageError | None = None
        self.full = False
        """The last commit found the disk full."""
        self.waiting_since: float | None = None
        """Monotonic time since when another process has held the write lock against us, None when it does not."""
        self._tried_at = 0.0
        self.commits = 0
        self.pieces = 0

    @property
    def checkpoint_failed(self) -> str | None:
        """Why the database file could not be written at the last checkpoint; None when it could."""
        return self._checkpoints.failed

    @property
    def waits_for_others(self) -> bool:
        """It lives, and asks again and again for the write lock that another process does not give back."""
        return self.waiting_since is not None and time.monotonic() - self._tried_at < TRIED_LATELY

    async def __aenter__(self) -> Writer:
        self._loop = get_current_loop()
        self._connection, self.files = self._database.connect_and_watch(
            on_busy=self._wait_for_lock, on_wal=self._see_wal
        )
        self._checkpoints = Checkpoints(self._connection, self._database.path)
        self._thread = threading.Thread(target=self._write, name="craftcore-writer", daemon=True)
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        with self._bell:
            self._closing = True
            self._bell.notify()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._thread.join)
        # A stop does not wait for what the next start does, and a full disk has no room for it.
        as_it_is = self.failed is not None or self.flushes.is_slow
        as_it_is = as_it_is or self.full or self.files.find_replaced() is not None
        self._apart.close(as_it_is=as_it_is)
        close(self._connection, as_it_is=as_it_is)

    async def commit(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(tx, *args, **kwargs)` and return its answer once it is on disk.

        An exception of `work` is raised here, and none of its writes stay. Also raises StorageFull (nothing written),
        OutcomeUnknown (the flush failed). Cancelling a caller withdraws a piece that has not begun; one that began is
        heard to its end first.
        """
        work = partial(work, **kwargs) if kwargs else work
        result: T = await self._submit(WorkItem(work, args, self._loop.create_waiter()))
        return result

    async def commit_batched(
        self, work: Callable[[Transaction, list[Item]], list[T | Exception]], item: Item, *, in_any_case: bool = False
    ) -> T:
        """Run `work(tx, items)` on this item together with all that wait for the same work; this item's answer.

        `in_any_case`: cancelling the caller withdraws nothing. The returned outcome has happened.
        """
        piece = WorkItem(work, (item,), self._loop.create_waiter(), each=True)
        result: T = await self._submit(piece, in_any_case=in_any_case)
        return result

    async def commit_user_sql(
        self, user: Callable[..., T], args: tuple[Any, ...], record: Callable[[Transaction, T], R]
    ) -> R:
        """Run `user(tx, *args)`, which writes the user's tables, and `record(tx, its result)`, which writes ours, in a
        commit that is theirs alone; the answer of `record`.

        An exception of either is raised here and nothing was written, as with `commit`. SQL that `user` may not run is
        InvalidInput, a constraint it breaks RowInvalid. After APART_SECONDS it is TransactionTimeout: SQL is
        interrupted then, Python cannot be, and holds up every other commit until it returns.
        """
        require_plain(user)
        result: R = await self._submit(
            WorkItem(self._apart.run, (user, args, record), self._loop.create_waiter(), apart=True)
        )
        return result

    async def _submit(self, piece: WorkItem, *, in_any_case: bool = False) -> Any:
        with self._bell:
            if self.failed or self._closing:
                raise self.failed or StorageError(f"{self._database.path}: the writer is closed; nothing was written")
            if not self._pending:  # else the writer is awake, and takes this one, too
                self._bell.notify()
            self._pending.append(piece)
        try:
            await self._loop.wait(piece.waiter)
        except anyio.get_cancelled_exc_class():
            await self._withdraw_or_hear(piece, in_any_case)
            raise
        if piece.error is not None:
            raise piece.error
        return piece.result

    async def _withdraw_or_hear(self, piece: WorkItem, in_any_case: bool) -> None:
        with self._bell:
            if piece in self._pending and not in_any_case:
                self._pending.remove(piece)
                return
        while not piece.done:
            piece.waiter = self._loop.create_waiter()
            with anyio.CancelScope(shield=True):
                await self._loop.wait(piece.waiter)

    # On the writer's thread from here on.

    def _write(self) -> None:
        try:
            self._serve()
        except BaseException as error:  # outside of a commit: an error of ours, or no memory
            self._die(error)

    def _serve(self) -> None:
        pace = WritePacer()
        while (batch := self._take()) is not None:
            self._batch = batch
            pace.before_begin()
            after: list[After] = []
            fatal: StorageError | None = None
            try:
                after = self._commit_batch(batch)
            except BaseException as error:
                fatal = self._fail(batch, error)
            self._batch_is_over = True
            pace.after_commit()
            self._loop.call_soon(partial(self._answer, batch, after))
            self._batch, self._batch_is_over = [], False
            if fatal is not None and self._on_fatal is not None:  # after the answers: it may cancel who waits for one
                self._loop.call_soon(partial(self._on_fatal, fatal))
            if self._wal_pages >= CHECKPOINT_PAGES:
                self._checkpoint()
        if not self.flushes.is_slow:
            self._checkpoint()

    def _die(self, error: BaseException) -> None:
        """Whatever ends this thread: who waits hears why, and the daemon ends. The commit stays."""
        log.critical("writer.died", exc_info=error)
        why = WriterDied(f"{self._database.path}: the thread that writes was ended by {safe_repr(error)}")
        batch = self._batch
        if not self._batch_is_over:
            for piece in batch:
                piece.error = why if piece.error is None else piece.error
        fatal = self._fail_rest(batch, self.failed or why)
        self._loop.call_soon(partial(self._answer, batch, []))
        if self._on_fatal is not None:
            self._loop.call_soon(partial(self._on_fatal, fatal))

    def _take(self) -> list[WorkItem] | None:
        """Return everything that waits, at most a batch; None when the writer closes and nothing waits any more."""
        while True:
            patience = IDLE_SECONDS if self._wal_holds_work else self._seconds_until_cut()
            with self._bell:
                if self._bell.wait_for(self._is_called, patience):
                    return take_batch(self._pending) or None
            # without the lock: the loop must not wait for the disk to hand in its work
            if self._wal_holds_work:
                self._checkpoint()
            else:
                self._truncate()
            self._wal_is_long = wal_bytes(self._database.path) > WAL_KEPT

    def _seconds_until_cut(self) -> float | None:
        """Return seconds until the WAL is to be cut off; None: it is short. A look that writes nothing does not put it
        off."""
        return max(0.0, self._quiet_since + TRUNCATE_SECONDS - time.monotonic()) if self._wal_is_long else None

    def _is_called(self) -> bool:
        return bool(self._pending) or self._closing

    def _commit_batch(self, batch: list[WorkItem]) -> list[After]:
        """Run and flush; what to call after the commit. Raises when nothing was committed, or nobody can know."""
        try:
            connection = self._apart.connection() if batch[0].apart else self._connection
        except StorageError as error:  # no second connection can be had: the first still serves the others
            batch[0].error = error
            return []
        try:
            return self._commit_on(connection, batch)
        except BaseException:
            roll_back(connection)
            raise

    def _commit_on(self, connection: apsw.Connection, batch: list[WorkItem]) -> list[After]:
        rides = group_items(batch)
        while True:  # a pass that fails leaves out the item at fault, or splits its group
            self.files.refuse_replaced(UNDER_ENGINE)
            begin(connection, self._database.clock, self._database.path)
            self.waiting_since = None
            changes = connection.total_changes()
            after: list[After] = []
            before: Before = {}
            again = run_groups(connection, self._database, rides, before, after)
            if batch[0].apart and batch[0].error is not None:
                roll_back(connection)  # what was undone under a savepoint would be flushed, for nobody
            if connection.in_transaction:
                hit(Failpoint.WRITER_FLUSHING)
                self.flushes.begin()
                try:
                    commit(connection, self._database.path)
                finally:
                    seconds = self.flushes.end()
                require_same(self.files)
                after.append(partial(self._on_flushed, len(batch), seconds))
                hit(Failpoint.WRITER_FLUSHED)
                self.commits += 1
                self.pieces += len(batch)
                self.full = False
                self._wal_holds_work = True
                if connection.total_changes() != changes:
                    self._quiet_since = time.monotonic()
                _call_each(before)
                return after
            if not again:
                return []
            rides = again

    def _fail(self, batch: list[WorkItem], error: BaseException) -> StorageError | None:
        """Answer every caller with the error of a batch that was not committed, or may not be: each learns why, and
        all but a full disk is fatal."""
        if isinstance(error, apsw.Error):
            error = translate(error, self._database.path, self._connection)
        for piece in batch:
            piece.error = error if piece.error is None else piece.error
        if isinstance(error, StorageFull):
            self.full = True
            return None
        fatal = error if isinstance(error, StorageError) else StorageError(f"{self._database.path}: {safe_repr(error)}")
        return self._fail_rest(batch, fatal)

    def _fail_rest(self, batch: list[WorkItem], fatal: StorageError) -> StorageError:
        """Nothing is written from now on: those who still wait are answered with the batch."""
        self._wal_holds_work = False  # and nobody moves it: what a failed flush left need not be what it seems
        with self._bell:
            self.failed = fatal
            batch.extend(self._pending)
            for piece in self._pending:
                piece.error = StorageError(f"nothing was written: {fatal}")
            self._pending.clear()
        return fatal

    def _wait_for_lock(self, tries: int) -> bool:
        """Wait for the write lock. The busy handler of the daemon's writer never gives up; it logs since when it
        waits."""
        if self.waiting_since is None:
            self.waiting_since = time.monotonic()
        self._tried_at = time.monotonic()
        backoff_sleep()
        return not self._closing or random.random() > 0.001

    def _see_wal(self, pages: int) -> None:
        """After each commit: how long the WAL is."""
        self._wal_pages = pages

    def _checkpoint(self, mode: int = apsw.SQLITE_CHECKPOINT_PASSIVE) -> None:
        """Move what the WAL holds into the file, as far as readers allow, without waiting for anybody."""
        if self.failed is not None:
            return
        try:
            self._wal_pages = 0
            self.files.refuse_replaced(UNDER_ENGINE)  # pages of a WAL without a name may overwrite what others wrote
            self._wal_holds_work = not self._checkpoints.run(mode)
        except StorageError as error:
            batch: list[WorkItem] = []
            fatal = self._fail(batch, error)
            self._loop.call_soon(partial(self._answer, batch, []))
            if fatal is not None and self._on_fatal is not None:
                self._loop.call_soon(partial(self._on_fatal, fatal))

    def _truncate(self) -> None:
        """Cut the WAL off, unless a reader or another writer needs it: nobody is waited for."""
        self._quiet_since = time.monotonic()
        self._connection.set_busy_handler(lambda tries: False)
        try:
            self._checkpoint(apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            self._connection.set_busy_handler(self._wait_for_lock)

    # On the loop's thread again.

    def _answer(self, batch: list[WorkItem], after: list[After]) -> None:
        wake = self._loop.wake
        for piece in batch:
            piece.done = True
            try:
                wake(piece.waiter)
            except Exception:  # the others must hear all the same
                log.exception("answer.failed")
        for fn in after:
            try:
                fn()
            except Exception:
                log.exception("after_commit.failed")


def _call_each(before: Before) -> None:
    """The commit stays, whatever these raise."""
    for fn, value in before.items():
        try:
            fn(value)
        except Exception:
            log.exception("before_answers.failed")
