"""The accounts: what became of occurrences, and what people did by hand."""

from __future__ import annotations

from craftcore.retention.cutoffs import Horizons
from craftcore.retention.model import BATCH, Found, Taken
from craftcore.retention.scan_store import WindowScan
from craftcore.storage.transaction import Reader, Row, Transaction

FIRST = "SELECT decided_at FROM schedule_occurrences WHERE seq > :after ORDER BY seq LIMIT 1"
LAST = "SELECT max(seq) FROM (SELECT seq FROM schedule_occurrences WHERE seq > :after ORDER BY seq LIMIT :window)"

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


WINDOWED = WindowScan(
    first=FIRST,
    last=LAST,
    due=DUE,
    since=lambda old: old.history,
    at_rest=lambda rest, row: rest.is_idle(row["trigger_id"], row["trigger_id"]),
)


class OldOccurrences:
    """Finds and takes. Holds nothing."""

    def find(self, tx: Reader, old: Horizons, after: int) -> Found:
        return WINDOWED.find(tx, old, after)

    def take(self, tx: Transaction, old: Horizons, seqs: list[int]) -> Taken:
        """Remove those that are still due."""
        taken = Taken()
        for row in WINDOWED.select_due(tx, old, seqs):
            gone = tx.run("DELETE FROM schedule_occurrences WHERE seq = :seq", seq=row["seq"])
            taken.removed["schedule_occurrences"] += gone
        return taken


class OldAudit:
    """The operators' log, from its oldest end on, and its anchor with it."""

    def find(self, tx: Reader, old: Horizons, after: int) -> Found:
        seqs = [row["seq"] for row in self._due_rows(tx, old, after)]
        return Found(seqs, seqs[-1] if len(seqs) == BATCH else None)

    def take(self, tx: Transaction, old: Horizons, seqs: list[int]) -> Taken:
        """Return the oldest ones that are due now."""
        taken = Taken()
        due = self._due_rows(tx, old, 0)
        if due:
            last = due[-1]
            tx.run("UPDATE record_chain SET audit_anchor_seq = :seq, audit_anchor_hash = :hash", **_place(last))
            taken.removed["audit_log"] += tx.run("DELETE FROM audit_log WHERE seq <= :seq", seq=last["seq"])
            taken.more = len(due) == BATCH
        return taken

    def _due_rows(self, tx: Reader, old: Horizons, after: int) -> list[Row]:
        due: list[Row] = []
        for row in tx.fetch_all(LOG, after=after, most=BATCH):
            if row["at"] > old.audit or row["counts"]:
                break
            due.append(row)
        return due


def _place(row: Row) -> Row:
    return {"seq": row["seq"], "hash": row["hash"]}
