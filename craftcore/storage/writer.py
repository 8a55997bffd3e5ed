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
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import anyio
import apsw

from craftcore.errors import InvalidInput, StorageError, StorageFull, WriterDied
from craftcore.log import get_logger
from craftcore.serialization.untrusted import safe_repr
from craftcore.storage.checkpoints import Checkpoints
from craftcore.storage.commit import call_after_commit
from craftcore.storage.database import Database
from craftcore.storage.event_loop import ELSEWHERE, Loop, get_current_loop
from craftcore.storage.group_commit import After, GroupCommit, WorkItem
from craftcore.storage.sqlite_errors import translate
from craftcore.storage.transaction import Transaction
from craftcore.storage.user_sql.nested_call import refuse_nested
from craftcore.storage.user_sql.user_transaction import UserTransaction, require_plain
from craftcore.storage.write_pacer import LockWait, WritePacer

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
Item = TypeVar("Item")

log = get_logger(__name__)

BATCH_LIMIT = 1000
"""Items of one commit, so that no caller waits for an endless one."""


class Writer:
    """The thread that owns the daemon's write connection. Open it with `async with`.

    `on_fatal(error)` is called on the loop's thread when the file can no longer be trusted or written;
    from then on every commit is refused with that error. `on_flushed(items, seconds)` is called there, too, after each
    commit: of how many items it was, and how long the flush took.
    """

    def __init__(
        self,
        database: Database,
        *,
        on_fatal: Callable[[StorageError], None] | None = None,
        on_flushed: Callable[[int, float], None] = lambda _items, _seconds: None,
    ) -> None:
        self._database = database
        self._on_fatal = on_fatal
        self.queue = CommitQueue(database.path)
        self._batch: list[WorkItem] = []
        """The items that are being written, until their answers are on their way."""
        self._batch_is_over = False
        """The batch was committed, or failed: its items have their answers."""
        self.lock_wait = LockWait()
        self.checkpoints = Checkpoints(database.path)
        self.group_commit = GroupCommit(
            database, self.checkpoints, self.lock_wait, on_busy=self._wait_for_lock, on_flushed=on_flushed
        )
        self._loop: Loop
        self._thread: threading.Thread

    @property
    def failed(self) -> StorageError | None:
        """The error that ended writing; None while the writer writes."""
        return self.queue.failed

    async def __aenter__(self) -> Writer:
        self._loop = get_current_loop()
        self.group_commit.connect()
        self._thread = threading.Thread(target=self._write, name="craftcore-writer", daemon=True)
        try:
            self._thread.start()
        except BaseException:  # the system gives no thread
            self.group_commit.close(as_it_is=True)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self.queue.close()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._thread.join)
        self.group_commit.close(as_it_is=self.failed is not None)

    def require_loop(self) -> None:
        """Raise InvalidInput on another event loop than the one that commits are awaited on."""
        if not self._loop.is_current():
            raise InvalidInput(ELSEWHERE)

    async def commit(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(tx, *args, **kwargs)` and return its answer once it is on disk.

        An exception of `work` is raised here, and none of its writes stay. Also raises StorageFull (nothing written),
        OutcomeUnknown (the flush failed). Cancelling a caller withdraws an item that has not begun. An item that has
        begun runs to its end first.
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
        grouped = WorkItem(work, (item,), self._loop.create_waiter(), is_grouped=True)
        result: T = await self._submit(grouped, in_any_case=in_any_case)
        return result

    async def commit_user_sql(
        self, user: Callable[..., T], args: tuple[Any, ...], record: Callable[[Transaction, T], R]
    ) -> R:
        """Run `user(tx, *args)`, which writes the user's tables, and `record(tx, its result)`, which writes those of
        craftcore, in a commit of their own. Return the answer of `record`.

        An exception of either is raised here and nothing was written, as with `commit`. SQL that `user` may not run is
        InvalidInput, a constraint it breaks RowInvalid. After APART_SECONDS it is TransactionTimeout: SQL is
        interrupted then, Python cannot be, and holds up every other commit until it returns.
        """
        require_plain(user)
        refuse_nested(self._database.path)
        result: R = await self._submit(
            WorkItem(self.group_commit.user_sql.run, (user, args, record), self._loop.create_waiter(), is_separate=True)
        )
        return result

    async def commit_before_user_sql(
        self, work: Callable[[Transaction], T], user: Callable[[UserTransaction, T], object]
    ) -> T:
        """Run `work(tx)`, and then `user(tx, its answer)`, which writes the user's tables, in a commit of their own.
        Return the answer of `work`.

        Raises UserSqlFailed for what `user` raised, also by the rules of `commit_user_sql`, and what `commit` raises.
        Nothing was written then, of `work` neither.
        """
        result: T = await self._submit(
            WorkItem(self.group_commit.user_sql.run_after, (work, user), self._loop.create_waiter(), is_separate=True)
        )
        return result

    async def _submit(self, item: WorkItem, *, in_any_case: bool = False) -> Any:
        self.queue.put(item)
        try:
            await self._loop.wait(item.waiter)
        except anyio.get_cancelled_exc_class():
            await self._withdraw_or_wait(item, in_any_case)
            raise
        if item.error is not None:
            raise item.error
        return item.result

    async def _withdraw_or_wait(self, item: WorkItem, in_any_case: bool) -> None:
        if not in_any_case and self.queue.withdraw(item):
            return
        while not item.done:
            item.waiter = self._loop.create_waiter()
            with anyio.CancelScope(shield=True):
                await self._loop.wait(item.waiter)

    # On the writer's thread from here on.

    def _write(self) -> None:
        try:
            self._serve()
        except BaseException as error:  # outside of a commit: an error of craftcore, or no memory
            self._die(error)

    def _serve(self) -> None:
        pace = WritePacer()
        while (batch := self._take()) is not None:
            self._batch = batch
            pace.before_begin()
            after: list[After] = []
            fatal: StorageError | None = None
            try:
                after = self.group_commit.run(batch)
            except BaseException as error:
                fatal = self._fail(batch, error)
            self._batch_is_over = True
            pace.after_commit()
            self._report(batch, after, fatal)
            self._batch, self._batch_is_over = [], False
            if self.checkpoints.is_due:
                self._checkpoint()
        if not self.group_commit.flushes.is_slow:
            self._checkpoint()

    def _die(self, error: BaseException) -> None:
        """Answer every caller after an error that ends this thread; the daemon ends. A finished commit stays."""
        why = WriterDied(f"{self._database.path}: the thread that writes was ended by {safe_repr(error)}")
        batch = self._batch
        if not self._batch_is_over:
            for item in batch:
                item.error = why if item.error is None else item.error
        self._report(batch, [], self._fail_rest(batch, self.failed or why))
        log.critical("writer.died", exc_info=error)  # last: the rendering of an error may fail, too

    def _take(self) -> list[WorkItem] | None:
        """Return the next batch; None when the writer closes and nothing waits any more."""
        while not (batch := self.queue.take(self.checkpoints.idle_seconds)):
            if batch is None:
                return None
            if self.checkpoints.holds_work:
                self._checkpoint()
            else:
                self._truncate()
            self.checkpoints.measure()
        return batch

    def _fail(self, batch: list[WorkItem], error: BaseException) -> StorageError | None:
        """Answer every caller with the error of a batch that was not committed, or may not be. Each error but a full
        disk is fatal."""
        if isinstance(error, apsw.Error):
            error = translate(error, self._database.path, self.group_commit.connection)
        for item in batch:
            item.error = error if item.error is None else item.error
        if isinstance(error, StorageFull):
            self.group_commit.full = True
            return None
        fatal = error if isinstance(error, StorageError) else StorageError(f"{self._database.path}: {safe_repr(error)}")
        return self._fail_rest(batch, fatal)

    def _fail_rest(self, batch: list[WorkItem], fatal: StorageError) -> StorageError:
        """Refuse every later write. Callers that still wait are answered together with the batch."""
        self.checkpoints.holds_work = False  # a checkpoint could move pages that the failed flush did not write
        batch.extend(self.queue.fail(fatal))
        return fatal

    def _report(self, batch: list[WorkItem], after: list[After], fatal: StorageError | None) -> None:
        """Answer the callers on the loop's thread, and then tell it of the error that ended writing."""
        self._loop.call_soon(partial(self._answer, batch, after))
        if fatal is not None and self._on_fatal is not None:  # after the answers: it may cancel who waits for one
            self._loop.call_soon(partial(self._on_fatal, fatal))

    def _wait_for_lock(self, tries: int) -> bool:
        """Wait for the write lock. Give up only now and then, while the writer closes."""
        self.lock_wait.wait()
        return not self.queue.is_closing or random.random() > 0.001

    def _checkpoint(self, *, truncates: bool = False) -> None:
        """Move the WAL into the file, as far as readers allow, without waiting for them."""
        if self.failed is not None:
            return
        try:
            self.group_commit.refuse_replaced()  # pages of a WAL without a name may overwrite a foreign file
            self.checkpoints.run(truncates=truncates)
        except StorageError as error:
            batch: list[WorkItem] = []
            fatal = self._fail(batch, error)
            self._report(batch, [], fatal)

    def _truncate(self) -> None:
        """Cut the WAL off, unless a reader or another writer needs it, without waiting for them."""
        self.checkpoints.note_truncation()
        self.group_commit.connection.set_busy_handler(lambda tries: False)
        try:
            self._checkpoint(truncates=True)
        finally:
            self.group_commit.connection.set_busy_handler(self._wait_for_lock)

    # On the loop's thread again.

    def _answer(self, batch: list[WorkItem], after: list[After]) -> None:
        wake = self._loop.wake
        for item in batch:
            item.done = True
            try:
                wake(item.waiter)
            except Exception:  # the other callers need their answers all the same
                log.exception("answer.failed")
        call_after_commit(after)


class CommitQueue:
    """Items that wait for a commit, oldest first. Every method may be called from any thread.

    `failed`: the error that ended writing; from then on every item is refused with it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending: deque[WorkItem] = deque()
        self._lock = threading.Lock()
        self._bell = threading.Lock()
        """Free from a ring until the waiting thread takes it. A Condition would make a lock for each wait."""
        self._bell.acquire()
        self._is_waiting = False
        self.is_closing = False
        self.failed: StorageError | None = None

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[WorkItem]:
        return iter(list(self._pending))

    def put(self, item: WorkItem) -> None:
        """Append an item. Raises the error that ended writing, and StorageError once the queue is closed."""
        with self._lock:
            if self.failed or self.is_closing:
                raise self.failed or StorageError(f"{self._path}: the writer is closed; nothing was written")
            self._pending.append(item)
            self._ring()

    def withdraw(self, item: WorkItem) -> bool:
        """Take an item back. Return False when it was taken already."""
        with self._lock:
            if item not in self._pending:
                return False
            self._pending.remove(item)
            return True

    def take(self, seconds: float | None) -> list[WorkItem] | None:
        """Take the items of the next commit. Wait for the first at most `seconds`; None: for ever.

        Return an empty list when none came, and None when the queue is closed and empty.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            with self._lock:
                if self._pending:
                    return self._take_batch()
                if self.is_closing:
                    return None
                self._is_waiting = True
            if not self._wait_for_ring(deadline):
                return []

    def _take_batch(self) -> list[WorkItem]:
        """Take all items that wait, at most a batch, up to the first that has a commit of its own; or that one."""
        batch: list[WorkItem] = []
        while self._pending and len(batch) < BATCH_LIMIT:
            if self._pending[0].is_separate:
                return batch or [self._pending.popleft()]
            batch.append(self._pending.popleft())
        return batch

    def _wait_for_ring(self, deadline: float | None) -> bool:
        """Return False when none came in time. The item that rang may have been withdrawn since."""
        if self._bell.acquire(timeout=-1 if deadline is None else max(0.0, deadline - time.monotonic())):
            return True
        with self._lock:
            if self._is_waiting:
                self._is_waiting = False
                return False
        return self._bell.acquire()  # the ring came with the end of the wait

    def _ring(self) -> None:
        """Wake the thread if it waits. Call it with the lock."""
        if self._is_waiting:
            self._is_waiting = False
            self._bell.release()

    def close(self) -> None:
        """Refuse new items. Those that wait are still taken."""
        with self._lock:
            self.is_closing = True
            self._ring()

    def fail(self, error: StorageError) -> list[WorkItem]:
        """Refuse everything from now on with `error`. Return the items that waited, each with its error."""
        with self._lock:
            self.failed = error
            refused = list(self._pending)
            self._pending.clear()
        kind = WriterDied if isinstance(error, WriterDied) else StorageError  # a daemon exits by its kind
        for item in refused:
            item.error = kind(f"nothing was written: {error}")
        return refused
