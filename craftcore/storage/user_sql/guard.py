"""The guard of user SQL: it enforces the authorizer and the time limit, and finalizes the statements."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self, cast

import apsw

from craftcore.clock import Clock
from craftcore.errors import CraftcoreError, InvalidInput, RowInvalid, StorageError, TransactionTimeout
from craftcore.serialization.untrusted import message_of, release_frames, safe_isinstance
from craftcore.storage.sqlite_errors import translate
from craftcore.storage.user_sql.authorizer import refusal

APART_SECONDS = 1.0
"""Seconds for which the user's function may hold the write lock."""

STEPS_BETWEEN_LOOKS = 100_000
"""About a millisecond of SQLite's work. Each look at the clock waits for Python's interpreter lock."""


class Guard:
    """Guards a connection with an open transaction while a user function uses it, and judges what that function did.

    with Guard(connection, clock, path, our_names()) as guard:
        …                       # each statement in a `guard.statement(sql)`
    guard.verify()

    SQL that takes too long is interrupted. Python cannot be, nor one long call inside SQLite: `verify` finds it out.
    """

    def __init__(self, connection: apsw.Connection, clock: Clock, path: Path, reserved: frozenset[str]) -> None:
        self._connection = connection
        self._clock = clock
        self._path = path
        self._reserved = reserved
        self._until = clock.boot_time() + APART_SECONDS
        self._thread = threading.get_ident()
        self._makes_tables = False
        self._gone = False

    def __enter__(self) -> Self:
        self._connection.authorizer = self._authorize
        self._connection.set_progress_handler(self._is_late, STEPS_BETWEEN_LOOKS)
        return self

    def __exit__(self, *_: object) -> None:
        self._gone = True
        self._connection.set_progress_handler(None)
        self._connection.authorizer = None

    @contextmanager
    def statement(self, sql: str) -> Iterator[None]:
        """Run one in this block. Errors of SQLite become errors of craftcore, and no statement stays half-read."""
        if self._gone:
            raise InvalidInput("the transaction is over, and this statement did nothing. Use tx within its function")
        if threading.get_ident() != self._thread:
            raise InvalidInput("tx belongs to the thread of its function; this statement of another one did nothing")
        self._require_open()
        try:
            yield
        except Exception as error:
            release_frames(error)  # whoever keeps the exception would keep its statement open
            if safe_isinstance(error, apsw.Error):
                raise self._translate_error(cast(apsw.Error, error), sql) from error
            raise

    def verify(self) -> None:
        """Raise what forbids committing what the function did, although it returned."""
        self._require_open()
        if self._connection.status(apsw.SQLITE_DBSTATUS_DEFERRED_FKS)[0]:  # the COMMIT would fail, and look like a disk
            raise RowInvalid(f"{self._path}: a deferred foreign key leads to no row; nothing was written")
        if self._makes_tables:
            self._refuse_keys_to_reserved()

    def _require_open(self) -> None:
        if self._is_late():
            raise self._timeout_error()
        if not self._connection.in_transaction:  # OR ROLLBACK; what comes now would be committed by itself
            raise StorageError(f"{self._path}: a statement ended the transaction; nothing was written")

    def _timeout_error(self) -> TransactionTimeout:
        return TransactionTimeout(
            f"a transaction's function took longer than {APART_SECONDS:g} s; nothing was written. "
            "Do what is slow in a step before it"
        )

    def _is_late(self) -> bool:
        return self._clock.boot_time() > self._until

    def _authorize(
        self, action: int, first: str | None, second: str | None, where: str | None, trigger: str | None
    ) -> int:
        if reason := refusal(action, first, second, where, trigger, self._reserved):
            raise InvalidInput(reason)
        self._makes_tables |= action in (apsw.SQLITE_CREATE_TABLE, apsw.SQLITE_ALTER_TABLE)
        return apsw.SQLITE_OK

    def _translate_error(self, error: apsw.Error, sql: str) -> CraftcoreError:
        match error:
            case apsw.InterruptError():
                return self._timeout_error()
            case (
                apsw.SQLError()
                | apsw.BindingsError()
                | apsw.IncompleteExecutionError()
                | apsw.MismatchError()
                | apsw.RangeError()
                | apsw.TooBigError()
            ):
                return InvalidInput(f"SQLite refused a statement of a transaction: {message_of(error)}: {sql:.300}")
            case _:
                return translate(error, self._path, self._connection)

    def _refuse_keys_to_reserved(self) -> None:
        keys = self._connection.execute(
            """
            SELECT made.name,
                   key."table"
              FROM sqlite_schema AS made,
                   pragma_foreign_key_list(made.name) AS key
             WHERE made.type = 'table'
            """
        ).fetchall()
        for table, parent in keys:
            if str(parent).lower() in self._reserved and str(table).lower() not in self._reserved:
                raise InvalidInput(
                    f"the table {table} has a foreign key to {parent}, which is craftcore's own: it could keep us from "
                    "deleting a row of it. Keep the id in a plain column; nothing was written"
                )
