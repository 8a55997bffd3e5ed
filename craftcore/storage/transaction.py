"""The argument of each store method: a reader of one snapshot, or a transaction that also writes.

Rows come by name (`fetch_one`, `fetch_all`) or, for the main path, as tuples (`fetch_tuples`, `execute_many`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, TypeVar

import apsw

Row = dict[str, Any]
T = TypeVar("T")

STEPS_A_BEAT = 100_000


class BulkStatement:
    """One statement for many rows: `{rows}` in its text is replaced by their VALUES.

    Thirty-two rows a step cost a third of thirty-two steps, and the interpreter lock is free for the whole step:
    the event loop goes on beside it. `most`: a power of two; more rows than that take several steps.
    """

    def __init__(self, text: str, *, width: int, most: int = 32) -> None:
        row = f"({', '.join('?' * width)})"
        sizes = [1 << power for power in reversed(range(most.bit_length()))]
        self.sizes = [(size, text.replace("{rows}", ", ".join([row] * size))) for size in sizes]


class Reader:
    """Reads one connection. SQL is static text with named or positional parameters, never built from values."""

    __slots__ = ("_connection",)

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def fetch_one(self, sql: str, /, **params: Any) -> Row | None:
        """Return the first row by column name, None when there is none."""
        cursor = self._connection.execute(sql, params)
        row = cursor.fetchone()
        if row is None:
            return None
        names = [column[0] for column in cursor.get_description()]
        cursor.close()
        return dict(zip(names, row, strict=True))

    def fetch_all(self, sql: str, /, **params: Any) -> list[Row]:
        """Return every row by column name."""
        cursor = self._connection.execute(sql, params)
        first = cursor.fetchone()
        if first is None:
            return []
        names = [column[0] for column in cursor.get_description()]
        return [dict(zip(names, row, strict=True)) for row in (first, *cursor)]

    def iterate(self, sql: str, /, **params: Any) -> Iterator[Row]:
        """Yield every row by column name, stepped as they are consumed: rows not taken are rows not visited."""
        cursor = self._connection.execute(sql, params)
        names: list[str] = []
        for row in cursor:
            names = names or [column[0] for column in cursor.get_description()]
            yield dict(zip(names, row, strict=True))

    def fetch_all_as_bytes(self, sql: str, /, **params: Any) -> list[Row]:
        """Return the same rows with every text as bytes, which can be read also when the text is not valid."""
        cursor = self._connection.execute(sql, params)
        try:
            names = [f'"{column[0]}"' for column in cursor.get_description()]
        except apsw.ExecutionCompleteError:  # no row
            return []
        cursor.close()
        columns = ", ".join(
            f"CASE typeof({name}) WHEN 'text' THEN CAST({name} AS BLOB) ELSE {name} END AS {name}" for name in names
        )
        return self.fetch_all(f"SELECT {columns} FROM ({sql})", **params)  # noqa: S608 - the columns of a static statement

    def fetch_tuples(self, sql: str, params: Sequence[Any] = ()) -> Iterable[tuple[Any, ...]]:
        """Return the rows as tuples, stepped as they are consumed: rows not taken are rows not visited."""
        return self._connection.execute(sql, params)

    def fetch_value(self, sql: str, /, **params: Any) -> Any:
        """Return the first column of the first row, None when there is no row."""
        row = self._connection.execute(sql, params).fetchone()
        return None if row is None else row[0]

    @contextmanager
    def with_progress(self, on_progress: Callable[[], object]) -> Iterator[None]:
        """Call `on_progress` now and then while a statement in the block runs, which may take long."""

        def go_on() -> bool:
            on_progress()
            return False

        self._connection.set_progress_handler(go_on, STEPS_A_BEAT)
        try:
            yield
        finally:
            self._connection.set_progress_handler(None)


class Transaction(Reader):
    """One piece of work inside an open transaction. `now` is its one instant."""

    __slots__ = ("after", "before", "now")

    def __init__(self, connection: apsw.Connection, now: float) -> None:
        super().__init__(connection)
        self.now = now
        self.after: list[Callable[[], object]] = []
        self.before: dict[Callable[[Any], object], Any] = {}

    def run(self, sql: str, /, **params: Any) -> int:
        """Execute one writing statement; `:now` is the instant of the transaction. Return how many rows it changed."""
        params.setdefault("now", self.now)
        self._connection.execute(sql, params)
        return self._connection.changes()

    def run_one(self, sql: str, /, **params: Any) -> bool:
        """Execute one writing statement as `run` does. Return whether it changed the one row that it is about."""
        return self.run(sql, **params) == 1

    @property
    def rows_written(self) -> int:
        """How many rows its connection has inserted, changed or deleted so far, since it was opened."""
        return self._connection.total_changes()

    def execute_many(self, statement: BulkStatement, rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        """Execute a statement over all these rows; what RETURNING gave, in no order."""
        if len(rows) == 1:
            return list(self._connection.execute(statement.sizes[-1][1], rows[0]))
        returned: list[Sequence[Any]] = []
        start, end = 0, len(rows)
        for size, sql in statement.sizes:
            while end - start >= size:
                values = tuple(chain.from_iterable(rows[start : start + size]))
                returned.extend(self._connection.execute(sql, values))
                start += size
        return returned

    def after_commit(self, fn: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        """Call `fn` on the caller's side once this piece is on disk; its errors are logged, never raised."""
        self.after.append(lambda: fn(*args, **kwargs))

    def before_answers(self, fn: Callable[[Any], object], value: Any) -> None:
        """Call `fn(value)` on the thread of the commit once it is on disk and before any caller gets an answer. Only
        the last value for one function in a commit counts. `fn` must not raise: its error is logged."""
        self.before[fn] = value


KEYS_MAX = 11
"""Keys that a shortened one may mean: ten to name, and one that tells of more."""


def keys_like(tx: Reader, table: str, prefix: str, *, key: str = "id") -> list[str]:
    """Return the first keys of a table that begin with `prefix`: none, the one meant, or those it may mean."""
    sql = f"SELECT {key} FROM {table} WHERE {key} >= ?1 AND {key} < ?2 ORDER BY {key} LIMIT ?3"  # noqa: S608 - names
    return [key for (key,) in tx.fetch_tuples(sql, (prefix, prefix + "\x7f", KEYS_MAX))]


def keys_ending(tx: Reader, table: str, suffix: str, *, key: str = "id") -> list[str]:
    """Return the first keys of a table that end with `suffix`. It reads the whole index of the keys."""
    sql = f"SELECT DISTINCT {key} FROM {table} WHERE substr({key}, -length(?1)) = ?1 LIMIT ?2"  # noqa: S608 - names
    return [key for (key,) in tx.fetch_tuples(sql, (suffix, KEYS_MAX))]


def get_single_result(results: Sequence[T | Exception]) -> T:
    """Return the result of a batch of one item. Raises the result when it is an exception."""
    [result] = results
    if isinstance(result, Exception):
        raise result
    return result
