"""The accounts: what became of occurrences, and what people did by hand."""

from __future__ import annotations

from itertools import takewhile

from craftcore.retention.cutoffs import Horizons
from craftcore.retention.model import BATCH, Found, Taken
from craftcore.retention.scan_store import OldRows, build_removal
from craftcore.storage.transaction import Reader, Row, Transaction

DUE = """
SELECT seq,
       trigger_id
  FROM schedule_occurrences AS line
 WHERE seq > :after
   AND seq <= :last
   AND decided_at <= :history
   AND outcome <> 'buffered'
   AND seq < (SELECT max(seq) FROM schedule_occurrences AS newest WHERE newest.schedule_id = line.schedule_id)
 ORDER BY seq
 LIMIT :most
"""
"""The newest line of each schedule stays."""

LOG = """
SELECT seq,
       at,
       hash,
       action = 'invalidate'
   AND EXISTS (SELECT 1 FROM executions WHERE executions.id = subject AND stripped_at IS NULL) AS counts
  FROM audit_log
 WHERE seq > :after
 ORDER BY seq
 LIMIT :most
"""
"""An invalidation counts while its record could be replayed."""

OLD_OCCURRENCES = OldRows(
    table="schedule_occurrences",
    moment="decided_at",
    since=lambda old: old.history,
    due=DUE,
    at_rest=lambda rest, row: rest.is_idle(row["trigger_id"], row["trigger_id"]),
    remove=build_removal(schedule_occurrences="DELETE FROM schedule_occurrences WHERE seq = :seq"),
)


class OldAudit:
    """The operators' log, from its oldest end on, and its anchor with it."""

    def find(self, tx: Reader, old: Horizons, after: int) -> Found:
        seqs = [row["seq"] for row in self._due_rows(tx, old, after)]
        return Found(seqs, seqs[-1] if len(seqs) == BATCH else None)

    def take(self, tx: Transaction, old: Horizons, seqs: list[int]) -> Taken:
        """Remove the oldest ones that are due now."""
        taken = Taken()
        if due := self._due_rows(tx, old, 0):
            seq, digest = due[-1]["seq"], due[-1]["hash"]
            tx.run("UPDATE record_chain SET audit_anchor_seq = :seq, audit_anchor_hash = :hash", seq=seq, hash=digest)
            taken.removed["audit_log"] += tx.run("DELETE FROM audit_log WHERE seq <= :seq", seq=seq)
            taken.more = len(due) == BATCH
        return taken

    def _due_rows(self, tx: Reader, old: Horizons, after: int) -> list[Row]:
        rows = tx.fetch_all(LOG, after=after, most=BATCH)
        return list(takewhile(lambda row: row["at"] <= old.audit and not row["counts"], rows))
