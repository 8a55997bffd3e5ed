"""The only SQL that reads whole records."""

from __future__ import annotations

from craftcore.executions.event_store import EventStore
from craftcore.executions.model import Status
from craftcore.executions.record import ExecutionRecord, RecordState
from craftcore.storage.transaction import Reader, Row

INVALIDATE = "invalidate"
"""The action under which `audit_log` has an invalidation."""

WHOLE = """
SELECT executions.*,
       (SELECT body FROM blobs WHERE execution_seq = executions.seq AND part = 'envelope') AS envelope_blob,
       (SELECT body FROM blobs WHERE execution_seq = executions.seq AND part = 'response') AS response_blob,
       (SELECT coalesce(reason, '')
          FROM audit_log
         WHERE subject = executions.id
           AND action = 'invalidate'
         ORDER BY audit_log.seq DESC
         LIMIT 1) AS invalidated
  FROM executions
"""


STANDING = """
SELECT stripped_at,
       (SELECT max(audit_log.seq)
          FROM audit_log
         WHERE subject = executions.id
           AND action = 'invalidate')
  FROM executions
 WHERE executions.id = ?1
"""


class RecordStore:
    """Reads records. Holds nothing."""

    def get(self, tx: Reader, execution_id: str) -> ExecutionRecord | None:
        """Return the record with this id; None when there is none."""
        row = tx.fetch_one(WHOLE + " WHERE executions.id = :id", id=execution_id)
        return None if row is None else self._read_record(tx, row)

    def get_by_seq(self, tx: Reader, seq: int) -> ExecutionRecord | None:
        """Return the record of this number; None when there is none."""
        row = tx.fetch_one(WHOLE + " WHERE executions.seq = :seq", seq=seq)
        return None if row is None else self._read_record(tx, row)

    def get_state(self, tx: Reader, execution_id: str) -> RecordState | None:
        """Return what has happened to this record since it was closed; None when there is none."""
        for row in tx.fetch_tuples(STANDING, (execution_id,)):
            return RecordState._make(row)
        return None

    def _read_record(self, tx: Reader, row: Row) -> ExecutionRecord:
        envelope_blob, response_blob = row.pop("envelope_blob"), row.pop("response_blob")
        row["status"] = Status(row["status"])
        row["replayable"] = bool(row["replayable"])
        row["envelope_json"] = row["envelope_json"] or envelope_blob
        row["response_json"] = row["response_json"] or response_blob
        events = EventStore().whole(tx, row["seq"], row.pop("first_events"), row.pop("last_events"))
        return ExecutionRecord(**row, events=events)
