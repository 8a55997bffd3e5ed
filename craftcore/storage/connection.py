"""Connections to the database file: how one is opened, what it refuses, and its settings."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import apsw

from craftcore.errors import CannotCreate, DatabaseInvalid, InvalidInput, NotFound, StorageError
from craftcore.storage.files.daemon_files import refuse_lost_by_daemon
from craftcore.storage.sqlite_errors import is_read_only, translate, translate_os
from craftcore.storage.transaction import Reader
from craftcore.storage.write_pacer import backoff_sleep, busy_timeout_handler

OLDEST_SQLITE = 3_051_003
"""Older ones can corrupt a database when the WAL is reset (fixed in SQLite 3.51.3)."""

APPLICATION_ID = 0x43524654
"""`CRFT` in the file's header: what tells our database from anybody else's."""

CHECKPOINT_PAGES = 4000
"""Pages of WAL (16 MiB) after which a commit moves them into the file."""

STATEMENT_CACHE = 200
"""Prepared statements a connection keeps: all that the engine has."""

WAL_LIMIT = 64 << 20
"""Bytes of length that a restarted WAL may keep: overwriting is faster than lengthening the file."""

ITS_TABLE = "SELECT count(*) FROM sqlite_schema WHERE name = '_litestream_seq'"


def limit_wal(connection: apsw.Connection) -> None:
    """Set how many bytes of the WAL file stay when this connection restarts the WAL: none if Litestream replicates it.

    Litestream finds its place in the WAL by the last frame that it has read. While it is away, others may restart the
    WAL. If that frame is still in the file then, Litestream 0.5.17 takes the new WAL for the next one. The writes in
    between are missing then, and a restore from the replica is damaged. Without the frame Litestream copies the whole
    database.
    """
    is_replicated = connection.execute(ITS_TABLE).get
    connection.pragma("journal_size_limit", 0 if is_replicated else WAL_LIMIT)


def refuse_foreign(connection: apsw.Connection, path: Path) -> None:
    """Raise DatabaseInvalid when the tables of the file are another program's: its data is never touched."""
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    application_id = connection.pragma("application_id")  # read second: whoever makes the tables sets it with them
    if tables and application_id != APPLICATION_ID:
        raise DatabaseInvalid(f"{path}: another program's database (application_id {application_id}); left unchanged")


def refuse_old_sqlite() -> None:
    if apsw.SQLITE_VERSION_NUMBER < OLDEST_SQLITE:
        raise DatabaseInvalid(f"SQLite {apsw.sqlite_lib_version()} is older than 3.51.3; install apsw 3.54 or newer")


_inherited: set[str] = set()
"""Databases that the process which forked this one had open."""


def _note_inherited() -> None:
    _inherited.update(connection.filename for connection in apsw.connections())


os.register_at_fork(after_in_child=_note_inherited)


def refuse_inherited(path: Path) -> None:
    """Raise StorageError where SQLite believes to hold locks on this file, which only the parent process holds."""
    if _inherited and os.path.realpath(path) in _inherited:
        raise StorageError(
            f"{path}: this process was forked from one that has the database open, and what it wrote could damage it. "
            "Nothing was done. Start it with multiprocessing's spawn, or use the craftcore command"
        )


def require_utf8(path: Path) -> None:
    """Raise InvalidInput for a path with bytes that are not UTF-8, which SQLite does not open."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise InvalidInput(
            f"{path}: SQLite opens only paths of UTF-8 text. Rename the folder or the file, or give another path"
        ) from None


def open_connection(path: Path, flags: int, vfs: str | None, statement_cache: int = STATEMENT_CACHE) -> apsw.Connection:
    refuse_inherited(path)
    _refuse_device(path)
    try:
        return apsw.Connection(str(path), flags=flags, vfs=vfs, statementcachesize=statement_cache)
    except apsw.Error as error:
        if path.exists() and not os.access(path, os.R_OK):
            raise translate_os(PermissionError(13, "permission denied"), path) from error
        raise translate(error, path) from error


def open_to_read(path: Path, patience: float, flags: int, vfs: str | None) -> apsw.Connection:
    """Open a connection that only reads, and creates no file. Raises NotFound when the file is missing, also when it
    is taken away meanwhile, and otherwise a StorageError or an apsw.Error."""
    try:
        return _open_to_read(path, patience, flags, vfs)
    except (StorageError, apsw.Error):
        refuse_missing(path)
        raise


def _open_to_read(path: Path, patience: float, flags: int, vfs: str | None) -> apsw.Connection:
    connection = open_connection(path, flags, vfs)
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.pragma("query_only", True)
        connection.set_busy_handler(busy_timeout_handler(patience))
        refuse_foreign(connection, path)
        configure(connection)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def read_passively(path: Path) -> Iterator[Reader]:
    """Read what is there now: this creates no file and waits for no lock.

    SQLite creates a `-shm` for every reader beside a `-wal`. Without a `-wal` the file is complete, and is read as
    immutable. With a `-wal` but no `-shm` the file is not read. Raises NotFound, DatabaseInvalid or an apsw.Error; the
    caller goes on without the data.
    """
    real = os.path.realpath(path)
    beside = [os.path.exists(f"{real}{end}") for end in ("-wal", "-shm", "-journal")]
    if not os.path.isfile(real) or beside not in ([True, True, False], [False, False, False]):
        raise NotFound(f"{path}: not a database that can be read without waiting")
    how = "" if beside[0] else "&immutable=1"
    connection = apsw.Connection(
        f"file:{quote(real)}?mode=ro{how}", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    )
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.pragma("query_only", True)
        connection.pragma("trusted_schema", False)
        refuse_foreign(connection, path)
        yield Reader(connection)
    finally:
        connection.close()


def refuse_unwritable(connection: apsw.Connection, path: Path) -> None:
    """Raise PermissionRefused, or StorageError for a read-only mount, where SQLite could only read the file. SQLite
    would create a WAL of the same mode, into which no process could write."""
    if connection.readonly("main"):
        number = errno.EROFS if is_read_only(path) else errno.EACCES
        raise translate_os(OSError(number, os.strerror(number)), path)


def refuse_missing(path: Path) -> None:
    """Raise NotFound for a missing file, DatabaseInvalid for a directory, and StorageError for an unreadable one."""
    try:
        if stat.S_ISDIR(path.stat().st_mode):
            raise DatabaseInvalid(f"{path}: a directory, not a database. Name a file in it")
    except (FileNotFoundError, NotADirectoryError):
        refuse_lost_by_daemon(path)
        raise NotFound(
            f"{path}: no such database. Is it the one you mean (--db, CRAFTCORE_DB)? craftcore run or emit makes a new "
            "one, craftcore db restore brings back a lost one"
        ) from None
    except OSError as error:
        raise translate_os(error, path) from error


def _refuse_device(path: Path) -> None:
    """Raise CannotCreate for a device, a pipe or a socket: reading one may wait for ever, and a /dev/null that is
    closed to others harms the whole machine."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return  # SQLite says what is wrong with it
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise CannotCreate(f"{path}: cannot be opened: it is not a file; nothing was changed")


def switch_journal(connection: apsw.Connection, mode: str, patience: float) -> bool:
    """Switch to WAL, or away from it. SQLite calls no busy handler for this, so it is asked again until it answers.

    Return False when other processes prevented it for `patience` seconds.
    """
    deadline = time.monotonic() + patience
    while True:
        with suppress(apsw.BusyError):
            if connection.pragma("journal_mode", mode) == mode:
                return True
        if time.monotonic() > deadline:
            return False
        backoff_sleep()


def configure(connection: apsw.Connection) -> None:
    connection.pragma("foreign_keys", True)
    connection.pragma("trusted_schema", False)
    connection.pragma("recursive_triggers", True)  # without it INSERT OR REPLACE deletes past triggers that refuse it
    connection.pragma("cache_size", -16_384)  # 16 MiB: the live edge of every index fits, history need not
