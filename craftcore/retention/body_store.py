"""The bodies of records and of activities: taken away, while keys, hashes and references stay."""

from __future__ import annotations

from craftcore.retention.cutoffs import Horizons
from craftcore.retention.in_use_store import InUse
from craftcore.retention.model import BATCH, Found, Taken
from craftcore.retention.scan_store import WindowScan
from craftcore.storage.transaction import Reader, Transaction

FIRST = "SELECT created_at FROM executions WHERE seq > :after ORDER BY seq LIMIT 1"
LAST = "SELECT max(seq) FROM (SELECT seq FROM executions WHERE seq > :after ORDER BY seq LIMIT :window)"

DUE = """
SELECT seq,
       chain_seq,
       trigger_id,
       task_id,
       turn,
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
       idem_key,
       task_id,
       turn
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


RECORDS = WindowScan(
    first=FIRST,
    last=LAST,
    due=DUE,
    since=lambda old: old.bodies,
    at_rest=InUse.can_remove_record,
)

ACTS = WindowScan(
    first=ACTS_FIRST,
    last=ACTS_LAST,
    due=ACTS_DUE,
    since=lambda old: old.bodies,
    at_rest=InUse.can_remove_activity,
)


class OldBodies:
    """Bodies of old records. A running attempt has a CLAIMED trigger, and is left alone."""

    def find(self, tx: Reader, old: Horizons, after: int) -> Found:
        return RECORDS.find(tx, old, after)

    def take(self, tx: Transaction, old: Horizons, seqs: list[int]) -> Taken:
        """Strip those that are still due; of a long record as many events as a batch may hold."""
        taken = Taken()
        for row in RECORDS.select_due(tx, old, seqs):
            if (room := BATCH - taken.rows) <= 0:
                taken.more = True
                break
            seq = row["seq"]
            if row["stripped_at"] is None:
                taken.stripped["executions"] += tx.run(STRIP, seq=seq)
                taken.removed["blobs"] += tx.run("DELETE FROM blobs WHERE execution_seq = :seq", seq=seq)
            events = tx.run(STRIP_EVENTS, seq=seq, most=room)
            taken.stripped["events"] += events
            taken.more = events == room  # there may be more of it
        return taken


class OldArguments:
    """Arguments and results of old activities. An activity in doubt keeps them."""

    def find(self, tx: Reader, old: Horizons, after: int) -> Found:
        return ACTS.find(tx, old, after)

    def take(self, tx: Transaction, old: Horizons, seqs: list[int]) -> Taken:
        """Remove those that are still due."""
        taken = Taken()
        for row in ACTS.select_due(tx, old, seqs):
            taken.stripped["activity_log"] += tx.run(STRIP_ACT, seq=row["seq"])
        return taken
