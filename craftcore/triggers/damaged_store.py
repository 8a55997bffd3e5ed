"""The SQL of dead letters whose row is damaged: they can be named and discarded, and nothing else."""

from __future__ import annotations

from typing import NamedTuple

from craftcore.storage.damaged_rows import Damaged, read_rows, readable_text
from craftcore.storage.transaction import Reader, Transaction
from craftcore.triggers.page_store import DEAD_READ
from craftcore.triggers.store import trigger_of

BY_SEQ = "SELECT * FROM triggers WHERE seq = :seq"

PLACE = "SELECT seq, CAST(status AS BLOB) AS status FROM triggers WHERE id = :id"

IDS_OF_DEAD = """
SELECT seq, CAST(status AS BLOB) AS status, CAST(id AS BLOB) AS id
  FROM triggers
 WHERE status = 'DEAD'
 ORDER BY settled_at DESC
 LIMIT :read
"""

DISCARD = """
UPDATE triggers
   SET status        = 'FAILED',
       reason        = :reason,
       claimed_epoch = NULL,
       lease_token   = NULL,
       lease_until   = NULL,
       updated_at    = :now
 WHERE seq = :seq
   AND status = 'DEAD'
"""


class DamagedTrigger(NamedTuple):
    """A trigger whose row is damaged."""

    seq: int
    status: str
    row: Damaged


class DamagedTriggerStore:
    """Damaged rows of `triggers`, one at a time. Holds nothing."""

    def find(self, tx: Reader, trigger_id: str) -> DamagedTrigger | None:
        """Return the damaged row of this id; None when there is none, or the row can be read.

        A dead letter whose id has bad bytes is known by them as escapes, among the newest DEAD_READ.
        """
        place = tx.fetch_one(PLACE, id=trigger_id)
        if place is None and "\\x" in trigger_id:
            rows = tx.fetch_all(IDS_OF_DEAD, read=DEAD_READ)
            place = next((row for row in rows if readable_text(row["id"]) == trigger_id), None)
        if place is None:
            return None
        [row] = read_rows(tx, BY_SEQ, trigger_of, seq=place["seq"])
        status = readable_text(place["status"]) or ""
        return DamagedTrigger(place["seq"], status, row) if isinstance(row, Damaged) else None

    def discard(self, tx: Transaction, seq: int, reason: str) -> bool:
        """Move a damaged row DEAD -> FAILED; its other columns stay as they are. False when it is not DEAD."""
        return tx.run_one(DISCARD, seq=seq, reason=reason)
