"""The commit of a batch: run its groups in one transaction, flush, and call what waited for the flush."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import apsw

from craftcore.errors import StorageError
from craftcore.failpoints import Failpoint, hit
from craftcore.log import get_logger
from craftcore.storage.batch import After, Before, WorkItem, group_items, run_groups
from craftcore.storage.checkpoints import Checkpoints
from craftcore.storage.commit import begin, close, commit, require_same, roll_back
from craftcore.storage.database import Database
from craftcore.storage.files.open_files import OpenFiles
from craftcore.storage.flush_times import FlushTimes
from craftcore.storage.user_sql.user_transaction import UserConnection
from craftcore.storage.write_pacer import LockWait

log = get_logger(__name__)

UNDER_ENGINE = "under the running engine, which ends. Nothing was written. Find out which program did that"


class GroupCommit:
    """The connections of the writer. All methods run on its thread, but for `connect` and `close`.

    `full`: the last commit found the disk full. `commits` and `pieces` count the commits and their items.
    `on_flushed(pieces, seconds)` is among the calls that each commit returns.
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
        self.pieces = 0

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

        Raises when nothing was committed, or that is unknown. The transaction is rolled back then.
        """
        try:
            connection = self.user_sql.connection() if batch[0].apart else self.connection
        except StorageError as error:  # no second connection can be had: the first still serves the others
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
            if batch[0].apart and batch[0].error is not None:
                roll_back(connection)  # a flush of what was undone under a savepoint would be wasted
            if connection.in_transaction:
                after.append(partial(self._on_flushed, len(batch), self._flush(connection)))
                self.commits += 1
                self.pieces += len(batch)
                self.full = False
                self._checkpoints.note_commit(has_changes=connection.total_changes() != changes)
                _call_each(before)
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


def _call_each(before: Before) -> None:
    """Call what was to be called before the answers. The commit stays, whatever these raise."""
    for fn, value in before.items():
        try:
            fn(value)
        except Exception:
            log.exception("before_answers.failed")
