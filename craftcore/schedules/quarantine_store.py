"""Rows of `schedules` that a bad disk or a foreign hand changed: found, and disabled with their reason.

Looked for only when reading many of them failed: then one row is at fault, and the others must not pay.
"""

from __future__ import annotations

import json

from craftcore.schedules.store import schedule_of
from craftcore.storage.transaction import Reader, Row, Transaction

AS_STORED = """
SELECT rowid                       AS row,
       CAST(id AS BLOB)            AS id,
       CAST(declared_hash AS BLOB) AS declared_hash,
       CAST(status AS BLOB)        AS status,
       CAST(reason AS BLOB)        AS reason,
       CAST(origin AS BLOB)        AS origin,
       CAST(expression AS BLOB)    AS expression,
       CAST(timezone AS BLOB)      AS timezone,
       CAST(cron AS BLOB)          AS cron,
       CAST(workflow AS BLOB)      AS workflow,
       CAST(payload_json AS BLOB)  AS payload_json,
       CAST(session_id AS BLOB)    AS session_id,
       CAST(description AS BLOB)   AS description,
       CAST(kind AS BLOB)          AS kind,
       CAST(catch_up AS BLOB)      AS catch_up,
       CAST(overlap AS BLOB)       AS overlap
  FROM schedules
"""

DISABLE = """
UPDATE schedules
   SET id            = :id,
       origin        = 'operator',
       declared_hash = '',
       status        = 'DISABLED',
       reason        = :reason,
       expression    = :expression,
       timezone      = 'UTC',
       kind          = 'startup',
       at            = NULL,
       anchor_at     = NULL,
       step_seconds  = NULL,
       cron          = NULL,
       workflow      = :workflow,
       payload_json  = '{}',
       session_id    = NULL,
       description   = NULL,
       catch_up      = 'none',
       overlap       = 'skip',
       next_at       = NULL,
       updated_at    = :now
 WHERE rowid = :row
"""


def set_aside_corrupt_schedules(tx: Transaction) -> list[str]:
    """Disable every schedule that cannot be read; what was wrong, by id. They are declared anew, or removed."""
    found = []
    for row in tx.all(AS_STORED):
        wrong = _what_is_wrong(tx, row)
        if wrong is None:
            continue
        texts = {name: row[name].decode(errors="backslashreplace") for name in ("id", "expression", "workflow")}
        tx.run(DISABLE, **texts, reason=f"corrupt row: {wrong}", now=tx.now, row=row["row"])
        found.append(f"schedule {texts['id']}: {wrong}")
    return found


def _what_is_wrong(tx: Reader, stored: Row) -> str | None:
    for name, value in stored.items():
        try:
            if isinstance(value, bytes):
                value.decode()
        except UnicodeDecodeError:
            return f"{name} is not UTF-8: {value!r:.200}"
    row = tx.one("SELECT * FROM schedules WHERE rowid = :row", row=stored["row"])
    assert row is not None, stored
    try:
        json.loads(schedule_of(row).payload_json)
    except (ValueError, TypeError) as error:
        return str(error)
    return None
