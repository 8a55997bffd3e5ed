"""A transaction of the user's: their function writes their own tables, and our record of it goes into the same commit.

Its connection is the writer's second one, on the writer's thread: what is prepared here under a guard, and what the
engine prepared for itself, never meet.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from types import CoroutineType
from typing import Any, NoReturn, TypeVar, cast

import apsw

from craftcore import forks
from craftcore.errors import InvalidInput, StorageFull
from craftcore.serialization.untrusted import safe_isinstance
from craftcore.storage.commit import close
from craftcore.storage.database import Database
from craftcore.storage.transaction import BulkStatement, Row, Transaction
from craftcore.storage.user_sql.authorizer import list_reserved_names
from craftcore.storage.user_sql.guard import Guard
from craftcore.storage.user_sql.nested_call import function_running

T = TypeVar("T")
R = TypeVar("R")

COROUTINE = "the function of a transaction is a plain one, not async: nothing is awaited in it. Nothing was written"


class UserSqlFailed(Exception):
    """The user's function failed that runs after work of the engine. The text says why. Nothing was written."""


class UserTransaction(Transaction):
    """The transaction that the function of `ctx.transaction` or `app.transaction` receives. It works within that
    function only. Every row is read at once: a half-read statement would keep its snapshot into the next transaction.
    """

    __slots__ = ("_guard",)

    def __init__(self, connection: apsw.Connection, now: float, guard: Guard) -> None:
        super().__init__(connection, now)
        self._guard = guard

    def fetch_one(self, sql: str, /, **params: Any) -> Row | None:
        with self._guard.statement(sql):
            return super().fetch_one(sql, **params)

    def fetch_all(self, sql: str, /, **params: Any) -> list[Row]:
        with self._guard.statement(sql):
            return super().fetch_all(sql, **params)

    def fetch_all_as_bytes(self, sql: str, /, **params: Any) -> list[Row]:
        with self._guard.statement(sql):
            return super().fetch_all_as_bytes(sql, **params)

    def iterate(self, sql: str, /, **params: Any) -> Iterator[Row]:
        return iter(self.fetch_all(sql, **params))

    def fetch_tuples(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._guard.statement(sql):
            return list(super().fetch_tuples(sql, params))

    def fetch_value(self, sql: str, /, **params: Any) -> Any:
        with self._guard.statement(sql):
            return super().fetch_value(sql, **params)

    def run(self, sql: str, /, **params: Any) -> int:
        with self._guard.statement(sql):
            for _ in self._connection.execute(sql, params):  # to the end of a text of several statements
                pass
            return self._connection.changes()

    def execute_many(self, statement: BulkStatement, rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        with self._guard.statement(statement.sizes[-1][1]):
            return super().execute_many(statement, rows)

    one, all, value, tuples, many, each = fetch_one, fetch_all, fetch_value, fetch_tuples, execute_many, iterate
    """Shorter names of these methods, for functions that use them."""

    def after_commit(self, fn: Callable[..., object], *args: Any, **kwargs: Any) -> NoReturn:
        """Raise InvalidInput: a crash after the commit would lose the call, and does not lose a step."""
        raise InvalidInput("a user transaction has no after_commit: do that in a step after it")

    def before_answers(self, fn: Callable[[Any], object], value: Any) -> NoReturn:
        """Raise InvalidInput: user code must not run on the thread that writes for all."""
        raise InvalidInput("a user transaction has no before_answers: do that in a step after it")


class UserConnection:
    """The connection for SQL of the user's, opened when it is first needed."""

    def __init__(self, database: Database, on_busy: Callable[[int], bool], on_wal: Callable[[int], object]) -> None:
        self._database = database
        self._on_busy = on_busy
        self._on_wal = on_wal
        self._connection: apsw.Connection | None = None
        self._reserved: frozenset[str] = frozenset()

    def connection(self) -> apsw.Connection:
        """Raise a StorageError when it cannot be opened."""
        if self._connection is None:
            self._reserved = list_reserved_names()
            self._connection = self._database.connect(on_busy=self._on_busy, on_wal=self._on_wal, statement_cache=0)
        return self._connection

    def run(
        self, tx: Transaction, user: Callable[..., T], args: tuple[Any, ...], record: Callable[[Transaction, T], R]
    ) -> R:
        """Run `user` guarded and `record` unguarded, in the transaction that `tx` is of; the answer of `record`."""
        return record(tx, run_guarded(self._database, self.connection(), self._reserved, tx.now, user, args))

    def run_after(
        self, tx: Transaction, work: Callable[[Transaction], R], user: Callable[[UserTransaction, R], object]
    ) -> R:
        """Run `work` unguarded, then `user` guarded on its answer, in the transaction that `tx` is of. Return that
        answer. Raises UserSqlFailed for what `user` raised, and StorageFull."""
        answer = work(tx)
        try:
            run_guarded(self._database, self.connection(), self._reserved, tx.now, user, (answer,))
        except StorageFull:
            raise
        except BaseException as error:  # SystemExit, too: it must not end what was done before it
            from craftcore.serialization.encode import describe_error  # its library is not needed before an error

            raise UserSqlFailed(describe_error(error)) from error
        return answer

    def close(self, *, as_it_is: bool) -> None:
        """Close the connection, if it was ever opened. `as_it_is` leaves the WAL alone."""
        if self._connection is not None:
            close(self._connection, as_it_is=as_it_is)


def run_guarded(
    database: Database,
    connection: apsw.Connection,
    reserved: frozenset[str],
    now: float,
    user: Callable[..., T],
    args: tuple[Any, ...],
) -> T:
    """Run `user(tx, *args)` under a guard in the open transaction of the connection. Return its result.

    Raises what it raises, and what forbids the commit of what it did.
    """
    with Guard(connection, database.clock, database.path, reserved) as guard, function_running(database.path):
        began_in = forks.generation
        try:
            result = user(UserTransaction(connection, now, guard), *args)
        finally:
            forks.require_not_forked(began_in)
    refuse_coroutine(result)
    guard.verify()
    return result


class UserDatabase:
    """The file as a program beside the engine opens it for SQL of its own. May be shared by threads.

    `database` is open with no cache of statements: what is prepared under a guard is never used without one.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._reserved: frozenset[str] = frozenset()

    def commit(self, user: Callable[..., T], args: tuple[Any, ...]) -> T:
        """Run `user(tx, *args)` in a transaction, which is on disk when this returns. Return its result.

        Raises what it raises, as `Writer.commit_user_sql` does, and as `Database.transaction` does.
        """
        require_plain(user)
        self._reserved = self._reserved or list_reserved_names()
        with self._database.transaction() as tx:
            return run_guarded(self._database, tx._connection, self._reserved, tx.now, user, args)

    def close(self) -> None:
        """Close the connection, if it was ever opened."""
        self._database.close()


def refuse_coroutine(result: object) -> None:
    """Close the coroutine that a function of a transaction has returned, and raise InvalidInput. Accept all else."""
    if safe_isinstance(result, CoroutineType):
        cast("CoroutineType[Any, Any, Any]", result).close()
        raise InvalidInput(COROUTINE)


def require_plain(user: Callable[..., Any]) -> None:
    """Raise InvalidInput for a coroutine function: nothing may be awaited while the file is locked."""
    if inspect.iscoroutinefunction(user):
        raise InvalidInput(COROUTINE)
