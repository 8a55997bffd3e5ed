"""The bodies of records and of activities: taken away, while keys, hashes and references stay."""

from __future__ import annotations

from craftcore.retention.event_text_store import strip_events
from craftcore.retention.in_use_store import InUse
from craftcore.retention.model import BATCH, Taken
from craftcore.retention.scan_store import OldRows
from craftcore.storage.transaction import Row, Transaction

DUE_RECORDS = """
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
        OR (SELECT payload_json FROM event_rows WHERE execution_seq = executions.seq ORDER BY seq DESC LIMIT 1) <> '')
 ORDER BY seq
 LIMIT :most
"""
"""Rows of events lose their texts in order, and those of a long record not all at once: the last one tells whether all
have."""

STRIP = f"""
UPDATE executions
   SET stripped_at   = :now,
       envelope_json = '',
       response_json = CASE WHEN response_json IS NULL THEN NULL ELSE '' END,
       first_events  = {strip_events("first_events")},
       last_events   = {strip_events("last_events")}
 WHERE seq = :seq
"""  # noqa: S608 - static parts

STRIP_EVENTS = """
UPDATE event_rows
   SET payload_json = ''
 WHERE execution_seq = :seq
   AND seq IN (SELECT seq FROM event_rows WHERE execution_seq = :seq AND payload_json <> '' ORDER BY seq LIMIT :most)
"""

DUE_ACTIVITIES = """
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


def _strip_record(tx: Transaction, row: Row, taken: Taken) -> None:
    """Strip a record, or of a long one as many events as the batch may hold."""
    seq, room = row["seq"], BATCH - taken.rows
    if row["stripped_at"] is None:
        taken.stripped["executions"] += tx.run(STRIP, seq=seq)
        taken.removed["blobs"] += tx.run("DELETE FROM blobs WHERE execution_seq = :seq", seq=seq)
    events = tx.run(STRIP_EVENTS, seq=seq, most=room)
    taken.stripped["event_rows"] += events
    taken.more = events == room  # there may be more of it


def _strip_activity(tx: Transaction, row: Row, taken: Taken) -> None:
    taken.stripped["activity_log"] += tx.run(STRIP_ACT, seq=row["seq"])


OLD_BODIES = OldRows(
    table="executions",
    since=lambda old: old.bodies,
    due=DUE_RECORDS,
    at_rest=InUse.can_remove_record,
    remove=_strip_record,
)
"""Bodies of old records. A running attempt has a CLAIMED trigger, and is left alone."""

OLD_ARGUMENTS = OldRows(
    table="activity_log",
    since=lambda old: old.bodies,
    due=DUE_ACTIVITIES,
    at_rest=InUse.can_remove_activity,
    remove=_strip_activity,
)
"""Arguments and results of old activities. An activity in doubt keeps them."""
