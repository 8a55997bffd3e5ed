"""The SQL of the rates: bounds on the primary key of the records, and counts by the indexes of open and failed ones."""

from __future__ import annotations

from craftcore.storage.transaction import Reader
from craftcore.web.spark import Minute, pick_sample

OLDEST = "SELECT min(seq) FROM executions"
NEWEST = "SELECT max(seq) FROM executions"
FROM_SEQ = "SELECT seq, created_at FROM executions WHERE seq >= ? ORDER BY seq LIMIT 1"
COUNT = """
SELECT count(*)
  FROM executions INDEXED BY executions_{status}
 WHERE status = '{status}'
   AND seq >= :low
   AND seq < :high
"""
OPEN, FAILED = COUNT.format(status="incomplete"), COUNT.format(status="error")
SPAN = "SELECT ended_at - created_at FROM executions WHERE seq = ? AND ended_at >= created_at"
BACKWARD = """
SELECT max(at)
  FROM (SELECT at, kind FROM clock_events ORDER BY seq DESC LIMIT 100)
 WHERE kind IN ('backward', 'held')
"""


class RatesStore:
    """Reads of `executions`. The cost does not depend on how many records there are."""

    def find_bounds(self, tx: Reader) -> tuple[int, int]:
        """Return the first number of a record and the one after the last; equal when there is none."""
        oldest, newest = tx.fetch_value(OLDEST), tx.fetch_value(NEWEST)
        return (0, 0) if oldest is None or newest is None else (oldest, newest + 1)

    def created_at(self, tx: Reader, seq: int) -> tuple[int, float] | None:
        """Return number and begin of the first record from `seq` on; None when there is none."""
        return next(iter(tx.fetch_tuples(FROM_SEQ, (seq,))), None)

    def minute(self, tx: Reader, at: float, low: int, high: int) -> Minute:
        """Return the figures of the records low..high-1. Their numbers have gaps only where some were deleted."""
        if low >= high:
            return Minute(at=at)
        return Minute(
            at=at,
            begun=high - low,
            open=tx.fetch_value(OPEN, low=low, high=high),
            failed=tx.fetch_value(FAILED, low=low, high=high),
            durations=tuple(seconds for seq in pick_sample(low, high) for (seconds,) in tx.fetch_tuples(SPAN, (seq,))),
        )

    def find_step_back(self, tx: Reader) -> float | None:
        """Return when the clock was last found set back, on the clock as it is since; None: not lately."""
        moment: float | None = tx.fetch_value(BACKWARD)
        return moment
