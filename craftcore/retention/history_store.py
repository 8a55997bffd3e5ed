"""The accounts: what became of occurrences, what people did by hand, and when daemons started and ended."""

from __future__ import annotations

from itertools import takewhile

from craftcore.retention.cutoffs import Cutoffs
from craftcore.retention.model import BATCH, Found, Taken
from craftcore.retention.scan_store import OldRows, build_removal
from craftcore.storage.facts import number
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

EPOCHS_KEPT = 100
"""Newest epochs that stay, whatever their age: safe mode reads them, and `status` the last two."""

EPOCHS = """
SELECT epoch
  FROM epochs
 WHERE epoch > :after
   AND epoch <= (SELECT epoch FROM epochs ORDER BY epoch DESC LIMIT 1 OFFSET :kept)
   AND coalesce(ended_at, started_at) <= :history
   AND epoch < coalesce((SELECT epoch
                           FROM executions
                          WHERE seq > (SELECT passed_seq FROM record_chain)
                          ORDER BY seq
                          LIMIT 1), epoch + 1)
   AND NOT EXISTS (SELECT 1 FROM triggers WHERE status = 'CLAIMED' AND claimed_epoch = epochs.epoch)
   AND NOT EXISTS (SELECT 1 FROM workflows WHERE workflows.epoch = epochs.epoch)
   AND NOT EXISTS (SELECT 1 FROM clock_events WHERE clock_events.epoch = epochs.epoch)
 ORDER BY epoch
 LIMIT :most
"""
"""Records are numbered as they begin, so the oldest one is of the earliest epoch that any of them is of. A record that
stays behind the anchor keeps no start."""

CALLED_IN = "SELECT DISTINCT epoch FROM activity_log WHERE epoch BETWEEN ?1 AND ?2"
"""A walk through the ledger, by a look only, and only when there is something to take."""

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

    def find(self, tx: Reader, old: Cutoffs, after: int) -> Found:
        seqs = [row["seq"] for row in self._due_rows(tx, old, after)]
        return Found(seqs, seqs[-1] if len(seqs) == BATCH else None)

    def take(self, tx: Transaction, old: Cutoffs, seqs: list[int]) -> Taken:
        """Remove the oldest ones that are due now."""
        taken = Taken()
        if due := self._due_rows(tx, old, 0):
            seq, digest = due[-1]["seq"], due[-1]["hash"]
            tx.run("UPDATE record_chain SET audit_anchor_seq = :seq, audit_anchor_hash = :hash", seq=seq, hash=digest)
            taken.removed["audit_log"] += tx.run("DELETE FROM audit_log WHERE seq <= :seq", seq=seq)
            taken.more = len(due) == BATCH
        return taken

    def _due_rows(self, tx: Reader, old: Cutoffs, after: int) -> list[Row]:
        rows = tx.fetch_all(LOG, after=after, most=BATCH)
        return list(takewhile(lambda row: row["at"] <= old.audit and not row["counts"], rows))


class OldEpochs:
    """The starts of daemons that ended long ago, but for the newest ones and those that anything still refers to.

    Nothing that is written later refers to an epoch that is over: what a look found stays so.
    """

    def find(self, tx: Reader, old: Cutoffs, after: int) -> Found:
        epochs = self._old_epochs(tx, old, after)
        if not epochs:
            return Found([], None)
        referred = {epoch for (epoch,) in tx.fetch_tuples(CALLED_IN, (epochs[0], epochs[-1]))}
        referred.add(int(number(tx, "released_epoch") or 0))
        return Found([epoch for epoch in epochs if epoch not in referred], epochs[-1])

    def take(self, tx: Transaction, old: Cutoffs, seqs: list[int]) -> Taken:
        """Remove those that are still old."""
        taken = Taken()
        found = set(seqs)
        for epoch in self._old_epochs(tx, old, seqs[0] - 1):
            if epoch in found:
                taken.removed["epochs"] += tx.run("DELETE FROM epochs WHERE epoch = :epoch", epoch=epoch)
        return taken

    def _old_epochs(self, tx: Reader, old: Cutoffs, after: int) -> list[int]:
        rows = tx.fetch_all(EPOCHS, after=after, kept=EPOCHS_KEPT, history=old.history, most=BATCH)
        return [row["epoch"] for row in rows]
