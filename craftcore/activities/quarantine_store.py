"""Rows of the ledger that a bad disk or a foreign hand changed: found, made readable, and not called again unasked.

Looked for only when a statement over many rows failed: then one row is at fault, and the others must not pay.
"""

from __future__ import annotations

from typing import NamedTuple

from craftcore.activities.store import activity_of
from craftcore.storage.damaged_rows import no_model, no_text, readable
from craftcore.storage.transaction import Reader, Row, Transaction

ROWS = """
SELECT seq,
       task_seq,
       CAST(idem_key AS BLOB)        AS idem_key,
       CAST(task_id AS BLOB)         AS task_id,
       CAST(action AS BLOB)          AS action,
       CAST(status AS BLOB)          AS status,
       CAST(reason AS BLOB)          AS reason,
       CAST(policy AS BLOB)          AS policy,
       CAST(args_hash AS BLOB)       AS args_hash,
       CAST(request_json AS BLOB)    AS request_json,
       CAST(result_json AS BLOB)     AS result_json,
       CAST(result_unstored AS BLOB) AS result_unstored,
       CAST(provider_ref AS BLOB)    AS provider_ref,
       CAST(error_code AS BLOB)      AS error_code,
       CAST(error_message AS BLOB)   AS error_message,
       CAST(decision AS BLOB)        AS decision,
       min(first_call_at, last_call_at) >= 0 AND max(first_call_at, last_call_at) < 253402300800 AS is_timed
  FROM activity_log
 WHERE :everywhere
    OR status NOT IN ('DONE', 'FAILED')
    OR task_seq IN (SELECT seq FROM tasks WHERE status NOT IN ('DONE', 'FAILED', 'CANCELLED'))
"""
"""Unless everywhere, those that somebody will come to again: what has not ended, or its task has not."""

MEND = """
UPDATE activity_log
   SET idem_key        = :idem_key,
       task_id         = :task_id,
       action          = :action,
       args_hash       = :args_hash,
       request_json    = :request_json,
       result_json     = NULL,
       result_unstored = CASE WHEN status = 'DONE' THEN :wrong END,
       provider_ref    = :provider_ref,
       error_code      = :error_code,
       error_message   = :wrong,
       reason          = 'corrupt row',
       policy          = 'ask',
       status          = CASE WHEN status = 'DONE' THEN 'DONE' ELSE 'UNKNOWN' END,
       may_retry       = 0,
       in_doubt        = status <> 'DONE',
       decision        = NULL,
       first_call_at   = CASE WHEN :is_timed THEN first_call_at ELSE :now END,
       last_call_at    = CASE WHEN :is_timed THEN last_call_at ELSE :now END,
       updated_at      = :now,
       settled_at      = CASE WHEN status = 'DONE' THEN :now END
 WHERE seq = :seq
"""

KEY = """
SELECT nullif(payload_json, '') ->> 'key'
  FROM events
 WHERE activity_seq = :seq
   AND type = 'ACTIVITY_INTENT'
   AND NOT EXISTS (SELECT 1 FROM activity_log WHERE idem_key = nullif(payload_json, '') ->> 'key')
 LIMIT 1
"""
"""As the stream has it, unless it was used again."""

MENDED = ("idem_key", "task_id", "action", "args_hash", "request_json", "provider_ref", "error_code")


class CorruptActivity(NamedTuple):
    """A row that nothing can be done with, and what is wrong with it."""

    row: Row
    task_seq: int
    wrong: str


class CorruptActivityStore:
    """Rows of `activity_log` as they lie on disk. Holds nothing."""

    def find(self, tx: Reader, *, everywhere: bool) -> list[CorruptActivity]:
        """Those that cannot be read; `everywhere`: also where nobody will come to them again."""
        found = []
        for row in tx.all(ROWS, everywhere=everywhere):
            wrong = no_text(row) or no_model(tx, "SELECT * FROM activity_log WHERE seq = :seq", row, activity_of)
            if wrong := wrong or (None if row["is_timed"] else "it was called at no moment"):
                found.append(CorruptActivity(row, row["task_seq"], f"activity {readable(row)['idem_key']}: {wrong}"))
        return found

    def mend(self, tx: Transaction, found: CorruptActivity) -> None:
        """Make it readable, its bad bytes as escapes. It stays DONE, if it says so; else nobody knows."""
        texts = readable(found.row)
        if no_text({"idem_key": found.row["idem_key"]}):  # found under another key, it would be called again
            texts["idem_key"] = tx.value(KEY, seq=found.row["seq"]) or texts["idem_key"]
        tx.run(
            MEND,
            **{name: texts[name] for name in MENDED},
            is_timed=found.row["is_timed"],
            wrong=found.wrong,
            now=tx.now,
            seq=found.row["seq"],
        )
