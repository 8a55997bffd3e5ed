"""The old rows of a table, looked at window by window: a look visits a bounded part of it, however large it is."""

from __future__ import annotations

from collections.abc import Callable

from craftcore.retention.cutoffs import Horizons
from craftcore.retention.in_use_store import InUse
from craftcore.retention.model import BATCH, WINDOW, Found
from craftcore.storage.transaction import Reader, Row

LONGEST_CATCH_UP = "SELECT coalesce(max(catch_up_window), 0.0) FROM schedules WHERE status <> 'REMOVED'"
"""The longest time, in seconds, for which a schedule may look back."""


class WindowScan:
    """How one kind of rows is found, and found again when it is taken.

    first     the moment of the first row after `:after`: while it is younger than `since`, nothing is old. One that is
              later than now says nothing of the rows behind it
    last      the number of the last row of the `:window` that begins there
    due       the rows after `:after` up to `:last` that are due by any of the horizons, `:most` of them
    at_rest   whether nothing goes on with what such a row belongs to
    """

    def __init__(
        self,
        *,
        first: str,
        last: str,
        due: str,
        since: Callable[[Horizons], float],
        at_rest: Callable[[InUse, Row], bool],
        most: int = BATCH,
    ) -> None:
        self._first = first
        self._last = last
        self._due = due
        self._since = since
        self._at_rest = at_rest
        self._most = most

    def find(self, tx: Reader, old: Horizons, after: int) -> Found:
        """Return what is due in the window after this number."""
        oldest: float | None = tx.fetch_value(self._first, after=after)
        if oldest is None or self._since(old) < oldest <= old.now:
            return Found([], None)
        last: int = tx.fetch_value(self._last, after=after, window=WINDOW)
        rows = self._rows(tx, old, after, last)
        found = self._idle_rows(tx, old, rows)
        kept = frozenset(row["seq"] for row in found if row.get("is_kept"))
        return Found([row["seq"] for row in found], rows[-1]["seq"] if len(rows) == self._most else last, kept)

    def select_due(self, tx: Reader, old: Horizons, seqs: list[int]) -> list[Row]:
        """Return those of a search that are due now."""
        return self._idle_rows(tx, old, self._rows(tx, old, seqs[0] - 1, seqs[-1]))

    def _rows(self, tx: Reader, old: Horizons, after: int, last: int) -> list[Row]:
        return tx.fetch_all(self._due, after=after, last=last, most=self._most, **old._asdict())

    def _idle_rows(self, tx: Reader, old: Horizons, rows: list[Row]) -> list[Row]:
        rest = InUse(tx, old.dead)
        return [row for row in rows if self._at_rest(rest, row)]
