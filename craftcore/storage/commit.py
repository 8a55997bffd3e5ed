"""The beginning and the end of a transaction on a connection, and what a failed flush means."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import apsw

from craftcore.errors import DatabaseInvalid, OutcomeUnknown, StorageError
from craftcore.storage.files.open_files import OpenFiles
from craftcore.storage.sqlite_errors import is_undone, translate

CAN_BE_EMITTED_AGAIN = "Emitting the same spec again ends as one row"


def begin(connection: apsw.Connection, path: Path) -> None:
    """Take the write lock. Raises a StorageError, and nothing is open then."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except apsw.Error as error:
        raise translate(error, path, connection) from error


def commit(connection: apsw.Connection, path: Path) -> None:
    """Commit and flush. Raises StorageFull when nothing was written; OutcomeUnknown when that is unknown."""
    if not connection.in_transaction:
        raise StorageError(f"{path}: SQLite ended the transaction; nothing was written")
    try:
        connection.execute("COMMIT")
    except apsw.Error as error:
        meant, undone = translate(error, path, connection), is_undone(error, connection)
        if roll_back(connection) and undone:  # judged before it: a rollback that fails has an errno of its own
            raise meant from error
        corrupt = isinstance(meant, DatabaseInvalid)
        raise OutcomeUnknown(
            f"{path}: the flush failed ({error}); the write may or may not be on disk. "
            + ("The database is corrupt: restore a backup" if corrupt else CAN_BE_EMITTED_AGAIN),
            exit_code=meant.exit_code if corrupt else OutcomeUnknown.exit_code,
        ) from error


def require_same(files: OpenFiles) -> None:
    """Raise OutcomeUnknown when what was committed may be in a file that has lost its name."""
    try:
        files.refuse_replaced("during the commit: the write may be lost")
    except StorageError as error:
        raise OutcomeUnknown(f"{error.message}. {CAN_BE_EMITTED_AGAIN}", exit_code=error.exit_code) from error


def call_after_commit(calls: Iterable[Callable[[], object]]) -> None:
    """Make the calls that waited for a commit. Their errors are logged: the commit stays."""
    for call in calls:
        try:
            call()
        except Exception:
            from craftcore.log import get_logger  # when it is needed: a reading command must not pay for it

            get_logger(__name__).exception("after_commit.failed")


def roll_back(connection: apsw.Connection) -> bool:
    """Leave the transaction without writing; whether that worked. SQLite may have left it already."""
    if not connection.in_transaction:
        return True
    try:
        connection.execute("ROLLBACK")
    except apsw.Error:
        return False
    return True


def close(connection: apsw.Connection, *, as_it_is: bool = False) -> None:
    """Close. `as_it_is` leaves the WAL alone: after a failed flush, what memory shows of it may not be on disk."""
    if as_it_is:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.close()
