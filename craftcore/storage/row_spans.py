"""The span of rows that a search looks at: the newest of a table that grows, by its number."""

from __future__ import annotations

from typing import Generic, NamedTuple

from craftcore.storage.damaged_rows import Damaged, Model
from craftcore.storage.transaction import Reader

ROWS = 20_000
"""Rows that one search looks at, at most."""

NO_BOUND = 1 << 62


class RowSpan(NamedTuple):
    """The rows with `after` < seq < `before`.

    oldest_at    the moment of the oldest of them; None: there is no row in it
    next_before  the `before` of a search that goes on behind it; None: nothing is older
    """

    after: int
    before: int
    oldest_at: float | None
    next_before: int | None


class RowPage(NamedTuple, Generic[Model]):
    """Some of the rows that match, newest first. `span`: the rows that were looked at; None: there was no filter."""

    rows: list[Model | Damaged]
    span: RowSpan | None


def find_span(tx: Reader, table: str, moment: str, before: int | None) -> RowSpan:
    """Return the newest rows below the number `before`; None: the newest of all. `moment`: a column of the table."""
    end = NO_BOUND if before is None else before
    newest = f"SELECT seq FROM {table} WHERE seq < :end ORDER BY seq DESC LIMIT 1"  # noqa: S608 - names
    oldest = f"SELECT {moment} FROM {table} WHERE seq > :after AND seq < :end ORDER BY seq LIMIT 1"  # noqa: S608 - names
    last = tx.fetch_value(newest, end=end)
    if last is None:
        return RowSpan(0, end, None, None)
    after = max(0, last - ROWS)
    behind = tx.fetch_value(newest, end=after + 1)
    oldest_at = tx.fetch_value(oldest, after=after, end=end)
    readable = oldest_at if isinstance(oldest_at, int | float) else None
    return RowSpan(after, end, readable, None if behind is None else behind + 1)
