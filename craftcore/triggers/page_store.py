"""The SQL of triggers as people page through them: the newest that match, and dead letters by their error."""

from __future__ import annotations

from typing import NamedTuple

from craftcore.storage.damaged_rows import Damaged, read_rows, readable_text
from craftcore.storage.row_spans import NO_BOUND, RowPage, find_span
from craftcore.storage.transaction import Reader
from craftcore.triggers.model import Trigger
from craftcore.triggers.store import trigger_of

DEAD_READ = 5_000
"""Dead letters that are grouped, or searched for an error: the newest."""

LIST = """
SELECT *
  FROM triggers NOT INDEXED
 WHERE seq > :after
   AND seq < :before
   AND (:status IS NULL OR status = :status)
   AND (:source IS NULL OR source = :source)
   AND (:workflow IS NULL OR workflow = :workflow)
   AND (:session_id IS NULL OR session_id = :session_id)
   AND (:schedule_id IS NULL OR schedule_id = :schedule_id)
 ORDER BY seq DESC
 LIMIT :limit
"""

DEAD_GROUPS = """
SELECT CAST(coalesce(error_code, reason) AS BLOB) AS error,
       count(*)                                   AS letters,
       min(settled_at)                            AS oldest_at,
       max(settled_at)                            AS newest_at
  FROM (SELECT error_code, reason, settled_at
          FROM triggers
         WHERE status = 'DEAD'
         ORDER BY settled_at DESC, seq DESC
         LIMIT :read)
 GROUP BY 1
 ORDER BY 2 DESC, 1
"""

DEAD_LETTERS = """
SELECT *
  FROM (SELECT *
          FROM triggers
         WHERE status = 'DEAD'
           AND settled_at <= :at
           AND (settled_at < :at OR seq < :seq)
         ORDER BY settled_at DESC, seq DESC
         LIMIT :read)
 WHERE :error IS NULL
    OR coalesce(error_code, reason) = :error
 LIMIT :limit
"""


class TriggerFilter(NamedTuple):
    """Which triggers; None: whatever it is."""

    status: str | None = None
    source: str | None = None
    workflow: str | None = None
    session_id: str | None = None
    schedule_id: str | None = None


class DeadGroup(NamedTuple):
    """The dead letters of one error, among the newest."""

    error: str
    letters: int
    oldest_at: float
    newest_at: float


class TriggerPageStore:
    """Rows of `triggers`, a page at a time. Holds nothing."""

    def list_page(self, tx: Reader, those: TriggerFilter, limit: int, before: int | None = None) -> RowPage[Trigger]:
        """Return the newest triggers that match, with a `seq` below `before`. A filter looks at a span of rows only."""
        span = None if those == TriggerFilter() else find_span(tx, "triggers", "created_at", before)
        end = NO_BOUND if before is None else before
        after = 0 if span is None else span.after
        rows = read_rows(tx, LIST, trigger_of, after=after, before=end, limit=limit, **those._asdict())
        return RowPage(rows, span)

    def group_dead(self, tx: Reader, read: int = DEAD_READ) -> list[DeadGroup]:
        """Return the newest dead letters by error, the most frequent error first. The error of one without a code is
        its reason."""
        rows = tx.fetch_all(DEAD_GROUPS, read=read)
        return [DeadGroup(**{**row, "error": readable_text(row["error"]) or ""}) for row in rows]

    def list_dead(
        self, tx: Reader, limit: int, *, error: str | None = None, before: tuple[float, int] | None = None
    ) -> list[Trigger | Damaged]:
        """Return dead letters, last buried first. `before`: moment and `seq` of the last one that was seen."""
        at, seq = before or (float(NO_BOUND), NO_BOUND)
        return read_rows(tx, DEAD_LETTERS, trigger_of, at=at, seq=seq, error=error, read=DEAD_READ, limit=limit)
