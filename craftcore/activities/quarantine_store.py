"""Quarantine of `activity_log`: a corrupt activity stays DONE, or is in doubt. It is never called again unasked."""

from __future__ import annotations

from dataclasses import replace

from craftcore.activities.store import activity_of
from craftcore.clock import YEAR_10000
from craftcore.errors import UnreadableRow
from craftcore.storage.quarantine import Quarantine
from craftcore.storage.transaction import Row

ROWS = "SELECT *, task_seq AS owner FROM activity_log"

OPEN = """
 WHERE status NOT IN ('DONE', 'FAILED')
    OR task_seq IN (SELECT seq FROM tasks WHERE status NOT IN ('DONE', 'FAILED', 'CANCELLED'))
"""

KEY = """
coalesce(
    CASE WHEN idem_key = :idem_key THEN idem_key END,
    (
        SELECT nullif(payload_json, '') ->> 'key'
          FROM events
         WHERE activity_seq = :seq
           AND type = 'ACTIVITY_INTENT'
           AND NOT EXISTS (SELECT 1 FROM activity_log WHERE idem_key = nullif(payload_json, '') ->> 'key')
         LIMIT 1
    ),
    :idem_key
)
"""
"""A key that is not text is read from the event stream. Under another key the activity would be called again."""

IS_TIMED = f"min(first_call_at, last_call_at) >= 0 AND max(first_call_at, last_call_at) < {YEAR_10000}"


def check_activity(row: Row) -> None:
    """Check that the row is an activity. Raises ValueError."""
    activity = activity_of(row)
    if not all(0 <= moment < YEAR_10000 for moment in (activity.first_call_at, activity.last_call_at)):
        raise UnreadableRow("it was called at no moment")


OPEN_ACTIVITIES = Quarantine(
    table="activity_log",
    kind="activity",
    name="idem_key",
    rows=ROWS + OPEN,
    check=check_activity,
    becomes={
        "idem_key": KEY,
        "result_unstored": "CASE WHEN status = 'DONE' THEN :message END",
        "error_message": ":message",
        "reason": "'corrupt row'",
        "policy": "'ask'",
        "status": "CASE WHEN status = 'DONE' THEN 'DONE' ELSE 'UNKNOWN' END",
        "may_retry": "0",
        "in_doubt": "status <> 'DONE'",
        "first_call_at": f"CASE WHEN {IS_TIMED} THEN first_call_at ELSE :now END",
        "last_call_at": f"CASE WHEN {IS_TIMED} THEN last_call_at ELSE :now END",
        "updated_at": ":now",
        "settled_at": "CASE WHEN status = 'DONE' THEN :now END",
    },
    nulls=("result_json", "decision"),
)
"""The activities that a turn, a boot or a person will read again."""

ALL_ACTIVITIES = replace(OPEN_ACTIVITIES, rows=ROWS)
