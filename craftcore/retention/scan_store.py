"""The old rows of a table, window by window: a look visits a bounded part of it, however large it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from craftcore.retention.cutoffs import Cutoffs
from craftcore.retention.in_use_store import InUse
from craftcore.retention.model import BATCH, WINDOW, Found, Taken
from craftcore.storage.transaction import Reader, Row, Transaction

LONGEST_CATCH_UP = "SELECT coalesce(max(catch_up_window), 0.0) FROM schedules WHERE status <> 'REMOVED'"
"""The longest time, in seconds, for which a schedule may look back."""

Removal = Callable[[Transaction, Row, Taken], None]
"""Removes or strips one row with all that hangs on it, and counts what it changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OldRows:
    """One kind of old rows: how they are found, found again, and taken.

    moment    the column of the age. While the first row after `:after` is younger than `since`, nothing is old. A row
              later than now says nothing of the rows behind it
    due       the rows after `:after` up to `:last` that are due by any of the cutoffs, `:most` of them
    at_rest   whether nothing goes on with what such a row belongs to
    """

    table: str
    moment: str = "created_at"
    since: Callable[[Cutoffs], float]
    due: str
    at_rest: Callable[[InUse, Row], bool] = lambda rest, row: True
    remove: Removal
    most: int = BATCH

    def find(self, tx: Reader, old: Cutoffs, after: int) -> Found:
        """Return what is due in the window after this number."""
        first = f"SELECT {self.moment} FROM {self.table} WHERE seq > :after ORDER BY seq LIMIT 1"  # noqa: S608 - names
        oldest: float | None = tx.fetch_value(first, after=after)
        if oldest is None or self.since(old) < oldest <= old.now:
            return Found([], None)
        window = f"SELECT seq FROM {self.table} WHERE seq > :after ORDER BY seq LIMIT :window"  # noqa: S608 - names
        last: int = tx.fetch_value(f"SELECT max(seq) FROM ({window})", after=after, window=WINDOW)  # noqa: S608 - names
        rows = self._rows(tx, old, after, last)
        found = self._idle_rows(tx, old, rows)
        kept = frozenset(row["seq"] for row in found if row.get("is_kept"))
        return Found([row["seq"] for row in found], rows[-1]["seq"] if len(rows) == self.most else last, kept)

    def take(self, tx: Transaction, old: Cutoffs, seqs: list[int]) -> Taken:
        """Take those that are due now, as many as a batch may hold and at least one."""
        taken = Taken()
        for row in self._idle_rows(tx, old, self._rows(tx, old, seqs[0] - 1, seqs[-1])):
            if taken.rows >= BATCH:
                taken.more = True
                break
            self.remove(tx, row, taken)
        return taken

    def _rows(self, tx: Reader, old: Cutoffs, after: int, last: int) -> list[Row]:
        return tx.fetch_all(self.due, after=after, last=last, most=self.most, **old._asdict())

    def _idle_rows(self, tx: Reader, old: Cutoffs, rows: list[Row]) -> list[Row]:
        rest = InUse(tx, old.dead)
        return [row for row in rows if self.at_rest(rest, row)]


def build_removal(**deletes: str) -> Removal:
    """Return the removal of a row by these statements, by table, in the order in which the rows can go."""

    def remove(tx: Transaction, row: Row, taken: Taken) -> None:
        for table, delete in deletes.items():
            taken.removed[table] += tx.run(delete, seq=row["seq"])

    return remove
