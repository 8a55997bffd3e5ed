"""The file: how a connection is opened, and how a thread commits a transaction."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import apsw

from craftcore.clock import Clock
from craftcore.errors import InvalidInput, OutcomeUnknown, PermissionRefused, StorageBusy, StorageError
from craftcore.storage.commit import begin, call_after_commit, close, commit, require_same, roll_back
from craftcore.storage.connection import (
    CHECKPOINT_PAGES,
    STATEMENT_CACHE,
    configure,
    limit_wal,
    open_connection,
    open_to_read,
    refuse_foreign,
    refuse_inherited,
    refuse_missing,
    refuse_old_sqlite,
    refuse_unwritable,
    require_utf8,
    switch_journal,
)
from craftcore.storage.files.daemon_files import refuse_lost_by_daemon
from craftcore.storage.files.file_modes import close_to_others, make_folders
from craftcore.storage.files.open_files import OpenFiles
from craftcore.storage.files.second_names import refuse_second_name
from craftcore.storage.sqlite_errors import translate, translate_os
from craftcore.storage.transaction import Reader, Transaction
from craftcore.storage.user_sql.nested_call import refuse_nested
from craftcore.storage.write_pacer import WritePacer, busy_timeout_handler

STEPS_BETWEEN_LOOKS = 10_000
"""Steps of SQLite's machine after which a reader looks at the time: less than a millisecond's worth."""


class Database:
    """One database file, opened as often as needed.

    `synchronous` is "full" or "normal". `busy_timeout` is how long `transaction` waits for the write lock. A connection
    that writes creates the file (mode 0600, in a directory of mode 0700) when it is missing. With
    `read_only` such a connection is refused before anything is opened. `vfs`: SQLite's file system of that name, which
    takes the path as it is; None: the default one, which resolves links first. `statement_cache`: how many prepared
    statements a connection keeps.
    """

    def __init__(
        self,
        path: str | Path,
        clock: Clock,
        *,
        synchronous: str = "full",
        busy_timeout: float = 30.0,
        read_only: bool = False,
        vfs: str | None = None,
        statement_cache: int = STATEMENT_CACHE,
    ) -> None:
        if str(path) == ":memory:":
            raise InvalidInput(":memory: is not a file, and work must survive its process: give the path of a file")
        self.path = Path(path).absolute()
        require_utf8(self.path)
        self.clock = clock
        self._synchronous = synchronous
        self._busy_timeout = busy_timeout
        self._read_only = read_only
        self._vfs = vfs
        self._statement_cache = statement_cache
        self._lock = threading.RLock()
        self._connection: apsw.Connection | None = None
        self._files: OpenFiles | None = None
        self._pace = WritePacer()

    def connect(
        self,
        *,
        on_busy: Callable[[int], bool] | None = None,
        on_wal: Callable[[int], object] | None = None,
        statement_cache: int = STATEMENT_CACHE,
    ) -> apsw.Connection:
        """Open a connection that writes. Raises CannotCreate for a file that may have another name.

        `on_busy(tries)` says whether to try again; default: until the busy timeout. `on_wal(pages)` is called after
        each commit with the length of the WAL; a caller that passes it does the checkpoints. Default: SQLite does them
        at CHECKPOINT_PAGES, and drops their errors.
        """
        refuse_old_sqlite()
        refuse_lost_by_daemon(self.path)
        self.create()
        refuse_second_name(self.path)
        connection = open_connection(self.path, apsw.SQLITE_OPEN_READWRITE, self._vfs, statement_cache)
        try:
            refuse_unwritable(connection, self.path)
            connection.set_busy_handler(on_busy or busy_timeout_handler(self._busy_timeout))
            # A file of another program is left as it is: without this, closing it would move its WAL into it.
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            refuse_foreign(connection, self.path)
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
            close_to_others(str(self.path) if self._vfs else os.path.realpath(self.path))
            if connection.pragma("page_count") == 0:  # it counts only now, and later it would be a write for nothing
                connection.pragma("auto_vacuum", "incremental")
            if not switch_journal(connection, "wal", self._busy_timeout):
                raise StorageBusy("the database is locked by another process and cannot be switched to WAL. Try again")
            connection.pragma("synchronous", self._synchronous)
            connection.pragma("secure_delete", True)
            connection.pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
            if on_wal is not None:
                connection.set_wal_hook(partial(_tell_wal, on_wal))
            limit_wal(connection)
            configure(connection)
        except apsw.Error as error:
            connection.close()
            raise translate(error, self.path) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def connect_and_watch(
        self, *, on_busy: Callable[[int], bool] | None = None, on_wal: Callable[[int], object] | None = None
    ) -> tuple[apsw.Connection, OpenFiles]:
        """Open a connection as `connect` does. Return its files, too. Raises StorageError when one was replaced."""
        connection = self.connect(on_busy=on_busy, on_wal=on_wal, statement_cache=self._statement_cache)
        try:
            return connection, OpenFiles.from_connection(self.path)
        except BaseException:
            close(connection, as_it_is=True)
            raise

    @property
    def real_path(self) -> str:
        """The file itself, also when a link leads to it: the one that is open, if one is."""
        files = self._files
        return os.path.realpath(self.path) if files is None else files.real

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Open one IMMEDIATE transaction, which is on disk when the block is left.

        An exception in the block rolls everything back. Raises StorageFull or StorageBusy (nothing was written),
        OutcomeUnknown (the flush failed), or InvalidInput within a user's transaction on the same file.
        """
        refuse_inherited(self.path)  # before the lock, which a thread of the parent may have held
        refuse_nested(self.path)
        with self._lock:
            if self._connection is None or self._files is None:
                self._connection, self._files = self.connect_and_watch()
            self._pace.before_begin()
            try:
                self._files.refuse_replaced(NOTHING_WRITTEN)
                begin(self._connection, self.path)
                tx = Transaction(self._connection, self.clock.now())
                try:
                    yield tx
                except apsw.Error as error:
                    meant = translate(error, self.path, self._connection)
                    roll_back(self._connection)
                    raise meant from error
                except BaseException:
                    roll_back(self._connection)
                    raise
                commit(self._connection, self.path)
                require_same(self._files)
            except OutcomeUnknown:
                self._drop(as_it_is=True)
                raise
            except StorageError:
                if self._files.find_replaced() is not None:
                    self._drop(as_it_is=True)
                raise
            finally:
                self._pace.after_commit()
        call_after_commit([*(partial(fn, value) for fn, value in tx.before.items()), *tx.after])

    @contextmanager
    def reading(self, *, with_checks: bool = False, within: float | None = None) -> Iterator[Reader]:
        """Open one read-only snapshot on its own connection, which never waits for a writer.

        `with_checks`: the schema has its CHECKs, which SQLite omits on a connection that may not write; `query_only`
        protects the file instead. `within`: a statement that runs longer than that many seconds is interrupted with a
        StorageError. Raises NotFound when the file is missing: reading never creates it.
        """
        began = time.monotonic()
        refuse_old_sqlite()
        refuse_missing(self.path)
        try:
            connection = self._open_reader(with_checks, self._busy_timeout if within is None else within)
        except apsw.Error as error:
            raise self._read_error(error) from error
        is_whole = False
        try:
            if within is not None:
                connection.set_progress_handler(lambda: time.monotonic() - began > within, STEPS_BETWEEN_LOOKS)
            connection.execute("BEGIN")
            yield Reader(connection)
            is_whole = True
        except apsw.InterruptError as error:
            raise StorageError(f"{self.path}: reading took longer than {within or 0:g} s, and was ended") from error
        except apsw.Error as error:
            raise self._read_error(error) from error
        finally:
            self._close_reader(connection, may_be_kept=is_whole and not with_checks)

    def _open_reader(self, with_checks: bool, patience: float) -> apsw.Connection:
        return self.connect_to_read(with_checks, patience)

    def _close_reader(self, connection: apsw.Connection, *, may_be_kept: bool) -> None:
        connection.close()

    def _read_error(self, error: apsw.Error) -> StorageError:
        """Return why it cannot be read: a WAL that was taken away looks like a damaged file."""
        try:
            refuse_lost_by_daemon(self.path)
        except StorageError as lost:
            return lost
        return translate(error, self.path)

    def copy_into(self, empty: str, place: Path) -> None:
        """Write one snapshot of it into an empty file, which a file: URI names: compact, with no WAL, not yet flushed.

        No writer waits for it; the WAL grows meanwhile. Raises as `reading` does, and StorageFull about the `place`.
        """
        with self.reading():  # refuses a file that is missing, or another program's
            pass
        connection = self.connect_to_read(False, self._busy_timeout, apsw.SQLITE_OPEN_URI)
        try:
            connection.pragma("query_only", False)  # it is open to be read only, and what is written is elsewhere
            connection.execute("VACUUM INTO ?", (empty,))
        except (apsw.CorruptError, apsw.NotADBError, apsw.BusyError) as error:
            raise translate(error, self.path) from error
        except apsw.Error as error:
            raise translate(error, place) from error
        finally:
            connection.close()

    def connect_to_read(self, with_checks: bool = False, patience: float = 0.0, also: int = 0) -> apsw.Connection:
        """Open a connection that only reads. Raises an apsw.Error; `reading` says what is wrong."""
        flags = (apsw.SQLITE_OPEN_READWRITE if with_checks else apsw.SQLITE_OPEN_READONLY) | also
        try:
            return open_to_read(self.path, patience, flags, self._vfs)
        except apsw.ReadOnlyError as error:
            if getattr(error, "extendedresult", None) != apsw.SQLITE_READONLY_ROLLBACK:
                raise
        self.connect().close()  # whoever made the file was killed on the way; only a writer can undo its half
        return open_to_read(self.path, patience, flags, self._vfs)

    def close_readers(self) -> None:
        """Close the connections that wait for a next reading: this class keeps none."""

    def close(self) -> None:
        """Close the connection of synchronous transactions, if it was ever used."""
        with self._lock:
            self._drop(as_it_is=self._files is not None and self._files.find_replaced() is not None)

    def _drop(self, *, as_it_is: bool) -> None:
        if self._connection is not None:
            close(self._connection, as_it_is=as_it_is)
        self._connection = self._files = None

    def create(self) -> None:
        """Make the empty file and its directory when they are missing. Raises CannotCreate or PermissionRefused."""
        if self._read_only:
            raise PermissionRefused(
                f"{self.path}: is read only here, and this needs to write; nothing was opened for it"
            )
        try:
            make_folders(self.path.parent)
            # Made without a descriptor: to close one would drop the locks that another thread's connection has by then.
            os.mknod(os.path.realpath(self.path), 0o600 | stat.S_IFREG)
        except FileExistsError:
            pass
        except OSError as error:
            raise translate_os(error, self.path) from error


NOTHING_WRITTEN = "while it was in use. Nothing was written. The next call opens the file of that name"


def _tell_wal(on_wal: Callable[[int], object], _connection: apsw.Connection, _name: str, pages: int) -> int:
    on_wal(pages)
    return apsw.SQLITE_OK
