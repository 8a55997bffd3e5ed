"""Rows that a bad disk or a foreign hand changed: found, and set aside as DEAD with their reason.

Looked for only when a statement over many rows failed: then one row is at fault, and the others must not pay.
"""

from __future__ import annotations

from craftcore.clock import YEAR_10000
from craftcore.storage.transaction import Reader, Row, Transaction
from craftcore.triggers.model import TriggerSource

COUNT_LIMIT = 1 << 31

LIVE = """
SELECT seq,
       CAST(id AS BLOB)            AS id,
       CAST(source AS BLOB)        AS source,
       CAST(dedup_key AS BLOB)     AS dedup_key,
       CAST(session_id AS BLOB)    AS session_id,
       CAST(task_id AS BLOB)       AS task_id,
       CAST(schedule_id AS BLOB)   AS schedule_id,
       CAST(workflow AS BLOB)      AS workflow,
       CAST(lane AS BLOB)          AS lane,
       CAST(description AS BLOB)   AS description,
       CAST(payload_json AS BLOB)  AS payload_json,
       CAST(lease_token AS BLOB)   AS lease_token,
       CAST(reason AS BLOB)        AS reason,
       CAST(error_code AS BLOB)    AS error_code,
       CAST(error_message AS BLOB) AS error_message,
       CAST(superseded_by AS BLOB) AS superseded_by,
       status = 'CLAIMED'          AS claimed,
       claimed_epoch,
       fire_at,
       attempts,
       starts,
       crash_count,
       machine_restarts,
       started_at,
       settled_at,
       started_at IS NULL AND EXISTS (
           SELECT 1 FROM executions WHERE executions.id = 'exec-' || triggers.id || '.' || (starts + 1)
       ) AS start_taken
  FROM triggers
"""
PENDING = LIVE + "WHERE status = 'PENDING'"
CLAIMED = LIVE + "WHERE status = 'CLAIMED'"

BURY = """
UPDATE triggers
   SET status        = 'DEAD',
       reason        = 'corrupt row',
       error_code    = NULL,
       error_message = :message,
       superseded_by = NULL,
       id            = :id,
       source        = :source,
       dedup_key     = :dedup_key,
       dedup_scope   = CASE WHEN :dedup_key IS NULL THEN NULL ELSE 'ever' END,
       session_id    = :session_id,
       task_id       = :task_id,
       schedule_id   = :schedule_id,
       workflow      = :workflow,
       lane          = :lane,
       description   = :description,
       payload_json  = :payload_json,
       claimed_epoch = NULL,
       lease_token   = NULL,
       lease_until   = NULL,
       settled_at    = :now,
       updated_at    = :now
 WHERE seq = :seq
"""

TEXTS = (
    "id",
    "source",
    "dedup_key",
    "session_id",
    "task_id",
    "schedule_id",
    "workflow",
    "lane",
    "description",
    "payload_json",
)


class CorruptStore:
    """Live rows of `triggers` as they lie on disk. Every method runs on the transaction it is given."""

    def find(self, tx: Reader) -> list[tuple[Row, str]]:
        """The live rows that cannot be carried on, with what is wrong with each. Reads all that is live."""
        rows = [*tx.all(PENDING), *tx.all(CLAIMED)]
        return [(row, wrong) for row in rows if (wrong := what_is_wrong(row))]

    def bury(self, tx: Transaction, row: Row, wrong: str) -> str:
        """Settle it as DEAD; its id. Text that is none is kept readable, its bad bytes as escapes."""
        texts = {name: None if row[name] is None else row[name].decode(errors="backslashreplace") for name in TEXTS}
        if texts["source"] not in tuple(TriggerSource):
            texts["source"] = TriggerSource.SYSTEM.value
        if not _is_text(row["dedup_key"]):
            texts["dedup_key"] = None
        tx.run(BURY, **texts, message=wrong, now=tx.now, seq=row["seq"])
        return str(texts["id"])


def what_is_wrong(row: Row) -> str | None:
    """Why the engine can do nothing with a live row; None when it can. Pure."""
    for name in (*TEXTS, "lease_token", "reason", "error_code", "error_message", "superseded_by"):
        if not _is_text(row[name]):
            return f"{name} is not UTF-8: {row[name]!r:.200}"
    if row["source"].decode() not in tuple(TriggerSource):
        return f"source {row['source'].decode()!r:.80} is unknown"
    if not 0 <= row["fire_at"] < YEAR_10000:
        return f"fire_at {row['fire_at']!r} is no moment"
    for name in ("attempts", "starts", "crash_count", "machine_restarts"):
        if not 0 <= row[name] < COUNT_LIMIT:
            return f"{name} {row[name]!r} is no count"
    if row["settled_at"] is not None:
        return "it is live, and has a moment at which it was settled"
    if row["claimed"] != (row["lease_token"] is not None) or row["claimed"] != (row["claimed_epoch"] is not None):
        return "its lease and its status contradict each other"
    if row["start_taken"]:
        return f"the record of its start {row['starts'] + 1} is there already"
    return None


def _is_text(value: bytes | None) -> bool:
    try:
        return value is None or value.decode() is not None
    except UnicodeDecodeError:
        return False
