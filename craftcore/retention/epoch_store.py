"""The starts of daemons that ended long ago, but for the newest ones and those that anything still refers to."""

from __future__ import annotations

from craftcore.retention.cutoffs import Horizons
from craftcore.retention.model import BATCH, Found, Taken
from craftcore.storage.facts import number
from craftcore.storage.transaction import Reader, Transaction

KEPT = 100
"""Newest epochs that stay, whatever their age: safe mode reads them, and `status` the last two."""

OLD = """
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


class OldEpochs:
    """Finds and takes. Nothing that is written later refers to an epoch that is over: what a look found stays so."""

    def find(self, tx: Reader, old: Horizons, after: int) -> Found:
        epochs = self._old_epochs(tx, old, after)
        if not epochs:
            return Found([], None)
        referred = {epoch for (epoch,) in tx.fetch_tuples(CALLED_IN, (epochs[0], epochs[-1]))}
        referred.add(int(number(tx, "released_epoch") or 0))
        return Found([epoch for epoch in epochs if epoch not in referred], epochs[-1])

    def take(self, tx: Transaction, old: Horizons, seqs: list[int]) -> Taken:
        """Remove those that are still old."""
        taken = Taken()
        found = set(seqs)
        for epoch in self._old_epochs(tx, old, seqs[0] - 1):
            if epoch in found:
                taken.removed["epochs"] += tx.run("DELETE FROM epochs WHERE epoch = :epoch", epoch=epoch)
        return taken

    def _old_epochs(self, tx: Reader, old: Horizons, after: int) -> list[int]:
        rows = tx.fetch_all(OLD, after=after, kept=KEPT, history=old.history, most=BATCH)
        return [row["epoch"] for row in rows]
