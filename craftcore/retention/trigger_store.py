"""Settled triggers: removed, or, where the dedup key or an id of the producer's own has to hold, stripped."""

from __future__ import annotations

from craftcore.retention.in_use_store import InUse
from craftcore.retention.model import Taken
from craftcore.retention.scan_store import OldRows
from craftcore.storage.transaction import Row, Transaction

DUE = """
SELECT *
  FROM (SELECT seq,
               id,
               coalesce(task_id, id) AS task_id,
               stripped_at,
               seq = (SELECT max(seq) FROM triggers)
            OR (id_given AND settled_at > :keys)
            OR (    dedup_key IS NOT NULL
                AND dedup_scope = 'ever'
                AND (settled_at > :keys OR ((source = 'SCHEDULED' OR schedule_id IS NOT NULL)
                    AND dedup_key GLOB 'scheduled-once:*'))) AS is_kept
          FROM triggers
         WHERE seq > :after
           AND seq <= :last
           AND status IN ('DONE', 'FAILED', 'DEAD')
           AND settled_at <= CASE status WHEN 'DEAD' THEN :dead ELSE :triggers END
           AND NOT EXISTS (SELECT 1 FROM mailbox WHERE mailbox.trigger_id = triggers.id AND mailbox.status = 'UNREAD'))
 WHERE NOT is_kept
    OR stripped_at IS NULL
 ORDER BY seq
 LIMIT :most
"""
"""The newest row stays for its number, that of a one-time schedule for ever: it has fired. An unread message is emitted
again when its task ends."""

STRIP = """
UPDATE triggers
   SET payload_json  = '{}',
       description   = NULL,
       error_message = NULL,
       stripped_at   = :now
 WHERE seq = :seq
"""

STRIP_EARLY_MAIL = "DELETE FROM early_mail WHERE trigger_id = (SELECT id FROM triggers WHERE seq = :seq)"
"""Signals to a task that never began. Those of a removed trigger go with it."""


def _remove(tx: Transaction, row: Row, taken: Taken) -> None:
    if row["is_kept"]:
        taken.stripped["triggers"] += tx.run(STRIP, seq=row["seq"])
        tx.run(STRIP_EARLY_MAIL, seq=row["seq"])
    else:
        taken.removed["triggers"] += tx.run("DELETE FROM triggers WHERE seq = :seq", seq=row["seq"])
    taken.triggers.append(row["id"])


OLD_TRIGGERS = OldRows(
    table="triggers",
    since=lambda old: max(old.triggers, old.dead),
    due=DUE,
    at_rest=InUse.can_remove_trigger,
    remove=_remove,
)
