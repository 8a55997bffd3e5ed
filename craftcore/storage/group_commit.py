"""The commit of a batch: run its groups in one transaction, flush, and call what waited for the flush.

Each group runs under its own savepoint. An item that raises is undone and gets its error; the others stay. A batch of a
single group needs no savepoint: with it the whole transaction is undone.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import apsw

from craftcore.errors import StorageError, StorageFull
from craftcore.failpoints import Failpoint, hit
from craftcore.log import get_logger
from craftcore.serialization.untrusted import release_frames, safe_isinstance
from craftcore.storage.checkpoints import Checkpoints
from craftcore.storage.commit import begin, close, commit, require_same, roll_back
from craftcore.storage.database import Database
from craftcore.storage.files.open_files import OpenFiles
from craftcore.storage.sqlite_errors import translate
from craftcore.storage.transaction import Transaction
from craftcore.storage.user_sql.user_transaction import UserConnection
from craftcore.storage.write_pacer import LockWait

log = get_logger(__name__)

UNDER_ENGINE = "under the running engine, which ends. Nothing was written. Find out which program did that"
"""The end of the message of a file that was replaced: when, the outcome of the write, and what to do."""

SLOW_SECONDS = 1.0
"""A flush that takes longer is slow, since a sound disk needs milliseconds."""

RECENT_SECONDS = 60.0
"""How long the longest flush is remembered."""


@dataclass(slots=True, eq=False, repr=False)
class WorkItem:
    """One caller's work, and later its answer. `is_grouped`: it runs together with others of the same work.
    `is_separate`: it has a commit of its own."""

    work: Callable[..., Any]
    args: tuple[Any, ...]
    waiter: Any
    is_grouped: bool = False
    is_separate: bool = False
    result: Any = None
    error: BaseException | None = None
    done: bool = False


After = Callable[[], object]
"""A function that is called after the callers have their answers."""

Before = dict[Callable[[Any], object], Any]
"""Functions that are called once before the answers of a commit, each with its last value."""

WorkGroup = list[WorkItem]
"""Items that run together: a single one, or several of the same work."""


class FlushTimes:
    """Measures flushes on the writer's thread; `longest` is read on any."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._longest = 0.0
        self._longest_at = 0.0

    def begin(self) -> None:
        """Note that a flush begins."""
        self._began = time.monotonic()

    def end(self) -> float:
        """Note the end of a flush, successful or not. Return how many seconds it took."""
        assert self._began is not None, "no flush has begun"
        now = time.monotonic()
        seconds, self._began = now - self._began, None
        if seconds >= self.longest:
            self._longest, self._longest_at = seconds, now
        return seconds

    @property
    def longest(self) -> float:
        """Seconds of the longest flush of the last RECENT_SECONDS, including one that has not ended yet."""
        now, began = time.monotonic(), self._began
        recent = self._longest if now - self._longest_at < RECENT_SECONDS else 0.0
        return recent if began is None else max(recent, now - began)

    @property
    def is_slow(self) -> bool:
        """True when a recent flush took longer than SLOW_SECONDS."""
        return self.longest > SLOW_SECONDS


class GroupCommit:
    """Commits batches of items, on the connections of the writer. All methods run on its thread, but for `connect` and
    `close`.

    `full`: the last commit found the disk full. `commits` and `items` count the commits and their items.
    `on_flushed(items, seconds)` is among the calls that each commit returns.
    """

    def __init__(
        self,
        database: Database,
        checkpoints: Checkpoints,
        lock_wait: LockWait,
        *,
        on_busy: Callable[[int], bool],
        on_flushed: Callable[[int, float], None],
    ) -> None:
        self._database = database
        self._checkpoints = checkpoints
        self._lock_wait = lock_wait
        self._on_busy = on_busy
        self._on_flushed = on_flushed
        self.user_sql = UserConnection(database, on_busy, checkpoints.note_pages)
        self.connection: apsw.Connection
        self.files: OpenFiles
        self.flushes = FlushTimes()
        self.full = False
        self.commits = 0
        self.items = 0

    def connect(self) -> None:
        """Open the connection. Raises StorageError."""
        self.connection, self.files = self._database.connect_and_watch(
            on_busy=self._on_busy, on_wal=self._checkpoints.note_pages
        )
        self._checkpoints.attach(self.connection)

    def close(self, *, as_it_is: bool) -> None:
        """Close the connections. A slow or full disk, or a file without its name, is left `as_it_is`: a stop does not
        wait for a checkpoint that the next start does."""
        as_it_is = as_it_is or self.flushes.is_slow or self.full or self.files.find_replaced() is not None
        self.user_sql.close(as_it_is=as_it_is)
        close(self.connection, as_it_is=as_it_is)

    def run(self, batch: list[WorkItem]) -> list[After]:
        """Run and flush a batch. Return what to call after the commit.

        Raises when nothing was committed, or when that is unknown. The transaction is rolled back then.
        """
        try:
            connection = self.user_sql.connection() if batch[0].is_separate else self.connection
        except StorageError as error:  # the second connection cannot be opened; the first still serves the others
            batch[0].error = error
            return []
        try:
            return self._run_on(connection, batch)
        except BaseException:
            roll_back(connection)
            raise

    def refuse_replaced(self) -> None:
        """Raise StorageError when a file that is open was deleted or replaced."""
        self.files.refuse_replaced(UNDER_ENGINE)

    def _run_on(self, connection: apsw.Connection, batch: list[WorkItem]) -> list[After]:
        groups = group_items(batch)
        while True:  # a pass that fails leaves out the item at fault, or splits its group
            self.refuse_replaced()
            begin(connection, self._database.path)
            self._lock_wait.since = None
            changes = connection.total_changes()
            after: list[After] = []
            before: Before = {}
            again = run_groups(connection, self._database, groups, before, after)
            if batch[0].is_separate and batch[0].error is not None:
                roll_back(connection)  # a flush of what was undone under a savepoint would be wasted
            if connection.in_transaction:
                after.append(partial(self._on_flushed, len(batch), self._flush(connection)))
                self.commits += 1
                self.items += len(batch)
                self.full = False
                self._checkpoints.note_commit(has_changes=connection.total_changes() != changes)
                _call_before_answers(before)
                return after
            if not again:
                return []
            groups = again

    def _flush(self, connection: apsw.Connection) -> float:
        """Commit. Return the seconds that it took."""
        hit(Failpoint.WRITER_FLUSHING)
        self.flushes.begin()
        try:
            commit(connection, self._database.path)
        finally:
            seconds = self.flushes.end()
        require_same(self.files)
        hit(Failpoint.WRITER_FLUSHED)
        return seconds


def _call_before_answers(before: Before) -> None:
    """Call each function with its value. The commit stays, whatever they raise."""
    for fn, value in before.items():
        try:
            fn(value)
        except Exception:
            log.exception("before_answers.failed")


def group_items(batch: list[WorkItem]) -> list[WorkGroup]:
    """Group items of the same work, each group in the place of its first item."""
    groups: list[WorkGroup] = []
    alike: dict[Any, WorkGroup] = {}
    for item in batch:
        group = alike.get(item.work) if item.is_grouped else None
        if group is not None:
            group.append(item)
            continue
        groups.append([item])
        if item.is_grouped:
            alike[item.work] = groups[-1]
    return groups


def run_groups(
    connection: apsw.Connection, database: Database, groups: list[WorkGroup], before: Before, after: list[After]
) -> list[WorkGroup]:
    """Run every group. Return the groups that must run again, because their transaction was rolled back: by SQLite
    during one of them, or here because the single group failed.

    Raises StorageFull when SQLite rolled it back because the disk is full, since the other groups would fail, too.
    """
    completed: list[WorkGroup] = []
    queue = deque(groups)
    is_alone = len(groups) == 1
    while queue:
        group = queue.popleft()
        error = _run_group(connection, database, group, before, after, is_alone)
        if error is None:
            completed.append(group)
        elif len(group) > 1:  # one of them is at fault: each runs on its own, so that the others are written
            queue.extendleft([item] for item in reversed(group))
        else:
            group[0].error = error
        if not connection.in_transaction:
            if error is not None and safe_isinstance(error, StorageFull):
                raise error
            return [*completed, *queue]
        if error is not None and is_alone:
            connection.execute("ROLLBACK")
            return list(queue)
    return []


def _run_group(
    connection: apsw.Connection,
    database: Database,
    group: WorkGroup,
    before: Before,
    after: list[After],
    is_alone: bool,
) -> BaseException | None:
    """Run the items of one group, and set their answers. Return None, or the error that the work raised.

    After an error the writes of the group are undone. Those of a group that `is_alone` in its transaction are not yet:
    the caller rolls the transaction back.
    """
    tx = Transaction(connection, database.clock.now())
    work, is_grouped = group[0].work, group[0].is_grouped
    if not is_alone:
        connection.execute("SAVEPOINT work_group")
    try:
        if is_grouped:
            results = work(tx, [item.args[0] for item in group])
            assert len(results) == len(group), (work, len(results), len(group))
        else:
            results = (work(tx, *group[0].args),)
    except BaseException as error:  # SystemExit, too, which ends the caller and not the writer
        release_frames(error)  # a statement left half-way there would keep the others from committing
        if connection.in_transaction and not is_alone:
            connection.execute("ROLLBACK TO work_group")
            connection.execute("RELEASE work_group")
        if safe_isinstance(error, apsw.Error):
            return translate(cast(apsw.Error, error), database.path, connection)
        return error
    if not is_alone:
        connection.execute("RELEASE work_group")
    elif not connection.in_transaction:  # the work caught that error; without one here it would run again and again
        raise StorageError(f"{database.path}: a statement ended the transaction, and its work went on")
    for item, result in zip(group, results, strict=True):
        if is_grouped and isinstance(result, Exception):
            item.error, item.result = result, None
        else:
            item.error, item.result = None, result
    before.update(tx.before)
    after.extend(tx.after)
    return None
