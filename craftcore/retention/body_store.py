"""The bodies of records and of activities: taken away, while keys, hashes and references stay."""

from __future__ import annotations

from craftcore.retention.horizons import Horizons
from craftcore.retention.model import BATCH, WINDOW, Found, Taken
from craftcore.retention.rest_store import Rest
from craftcore.storage.transaction import Reader, Row, Transaction

FIRST = "SELECT created_at FROM executions WHERE seq > :after ORDER BY seq LIMIT 1"
LAST = "SELECT max(seq) FROM (SELECT seq FROM executions WHERE seq > :after ORDER BY seq LIMIT :window)"

DUE = """
SELECT seq,
       trigger_id,
       task_id,
       stripped_at
  FROM executions
 WHERE seq > :after
   AND seq <= :last
   AND coalesce(ended_at, created_at) <= :bodies
   AND (   stripped_at IS NULL
        OR (SELECT payload_json FROM events WHERE execution_seq = executions.seq ORDER BY seq DESC LIMIT 1) <> '')
 ORDER BY seq
 LIMIT :most
"""
"""Events lose their texts in order, and those of a long record not all at once: the last one tells whether all have."""

STRIP = """
UPDATE executions
   SET stripped_at   = :now,
       envelope_json = '',
       response_json = CASE WHEN response_json IS NULL THEN NULL ELSE '' END
 WHERE seq = :seq
"""

STRIP_EVENTS = """
UPDATE events
   SET payload_json = ''
 WHERE execution_seq = :seq
   AND seq IN (SELECT seq FROM events WHERE execution_seq = :seq AND payload_json <> '' ORDER BY seq LIMIT :most)
"""

ACTS_FIRST = "SELECT created_at FROM activity_log WHERE seq > :after ORDER BY seq LIMIT 1"
ACTS_LAST = "SELECT max(seq) FROM (SELECT seq FROM activity_log WHERE seq > :after ORDER BY seq LIMIT :window)"

ACTS_DUE = """
SELECT seq,
       task_id
  FROM activity_log
 WHERE seq > :after
   AND seq <= :last
   AND status IN ('DONE', 'FAILED')
   AND coalesce(settled_at, updated_at) <= :bodies
   AND (request_json IS NOT NULL OR result_json IS NOT NULL OR error_message IS NOT NULL)
 ORDER BY seq
 LIMIT :most
"""

STRIP_ACT = "UPDATE activity_log SET request_json = NULL, result_json = NULL, error_message = NULL WHERE seq = :seq"


class OldBodies:
    """Of records. An attempt that runs has a trigger that is CLAIMED, and is left alone."""

    def find(self, tx: Reader, old: Horizons, after: int) -> Found:
        oldest: float | None = tx.value(FIRST, after=after)
        if oldest is None or old.bodies < oldest <= old.now:
            return Found([], None)
        last: int = tx.value(LAST, after=after, window=WINDOW)
        rows, next_after = self._due(tx, old, after, last)
        return Found([row["seq"] for row in rows], next_after)

    def take(self, tx: Transaction, old: Horizons, seqs: list[int]) -> Taken:
        """Of these, what is still due now; of a long record so many events as a batch may hold."""
        taken = Taken()
        for row in self._due(tx, old, seqs[0] - 1, seqs[-1])[0]:
            if (room := BATCH - taken.rows) <= 0:
                taken.more = True
                break
            seq = row["seq"]
            if row["stripped_at"] is None:
                taken.stripped["executions"] += tx.run(STRIP, seq=seq, now=tx.now)
                taken.removed["blobs"] += tx.run("DELETE FROM blobs WHERE execution_seq = :seq", seq=seq)
            events = tx.run(STRIP_EVENTS, seq=seq, most=room)
            taken.stripped["events"] += events
            taken.more = events == room  # there may be more of it
        return taken

    def _due(self, tx: Reader, old: Horizons, after: int, last: int) -> tuple[list[Row], int]:
        rows = tx.all(DUE, after=after, last=last, bodies=old.bodies, most=BATCH)
        rest = Rest(tx, old.dead)
        found = [row for row in rows if rest.has(row["task_id"], row["trigger_id"])]
        return found, rows[-1]["seq"] if len(rows) == BATCH else last


class OldArguments:
    """Of activities: what was asked for and what came back. One that is in doubt keeps them."""

    def find(self, tx: Reader, old: Horizons, after: int) -> Found:
        oldest: float | None = tx.value(ACTS_FIRST, after=after)
        if oldest is None or old.bodies < oldest <= old.now:
            return Found([], None)
        last: int = tx.value(ACTS_LAST, after=after, window=WINDOW)
        return self._due(tx, old, after, last)

    def take(self, tx: Transaction, old: Horizons, seqs: list[int]) -> Taken:
        """Of these, what is still due now."""
        taken = Taken()
        for seq in self._due(tx, old, seqs[0] - 1, seqs[-1]).seqs:
            taken.stripped["activity_log"] += tx.run(STRIP_ACT, seq=seq)
        return taken

    def _due(self, tx: Reader, old: Horizons, after: int, last: int) -> Found:
        rows = tx.all(ACTS_DUE, after=after, last=last, bodies=old.bodies, most=BATCH)
        rest = Rest(tx, old.dead)
        found = [row["seq"] for row in rows if rest.has(row["task_id"], None)]
        return Found(found, rows[-1]["seq"] if len(rows) == BATCH else last)
