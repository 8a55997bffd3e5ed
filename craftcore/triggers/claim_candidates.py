"""The candidates of a look within limits: what is full stays where it lies, and holds up nobody behind it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from craftcore.serialization.canonical import canonical
from craftcore.storage.transaction import Reader
from craftcore.triggers.budget import Spending

BEHIND = """
SELECT due_at + ?4, seq, lane, due_at, coalesce(workflow, '/' || source)
  FROM triggers
 WHERE status = 'PENDING'
   AND priority = ?1
   AND due_at <= ?2
   AND (due_at, seq) > (?7, ?8)
   AND (lane IS NULL OR lane NOT IN (SELECT value FROM json_each(?3)))
   AND coalesce(workflow, '/' || source) NOT IN (SELECT value FROM json_each(?5))
   AND NOT (?6 AND source IN ('SCHEDULED', 'RESUME'))
 ORDER BY due_at, seq
"""
"""What comes after a place: (?7, ?8). ?5 is what is full, ?6 whether it is safe mode. The index tells it all: what is
passed over costs an entry, not a row."""


def within_limits(
    tx: Reader, asked: tuple[int, float, str, float], spending: Spending, *, safe_mode: bool
) -> Iterator[tuple[float, int, int, str | None]]:
    """The candidates of one priority, as CANDIDATES brings them. Once another workflow is full they are asked for anew,
    from there on."""
    priority = asked[0]
    reached = (-math.inf, 0)
    while True:
        full = canonical(spending.full)
        for rank, seq, lane, due_at, destination in tx.tuples(BEHIND, (*asked, full, safe_mode, *reached)):
            reached = (due_at, seq)
            if spending.is_full(destination):
                break
            spending.note(seq, destination)
            yield rank, priority, seq, lane
        else:
            return
