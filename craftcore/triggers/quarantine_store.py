"""Quarantine of `triggers`: a corrupt live row is a dead letter."""

from __future__ import annotations

from craftcore.clock import YEAR_10000
from craftcore.errors import UnreadableRow
from craftcore.storage.quarantine import Quarantine
from craftcore.storage.transaction import Row
from craftcore.triggers.model import TriggerSource

COUNT_LIMIT = 1 << 31

LIVE = """
SELECT *,
       started_at IS NULL AND EXISTS (
           SELECT 1 FROM executions WHERE executions.id = 'exec-' || triggers.id || '.' || (starts + 1)
       ) AS start_taken
  FROM triggers
"""


def check_trigger(row: Row) -> None:
    """Check that the engine can go on with a live row that is text throughout. Raises UnreadableRow."""
    if row["source"] not in tuple(TriggerSource):
        raise UnreadableRow(f"source {row['source']!r:.80} is unknown")
    if not 0 <= row["fire_at"] < YEAR_10000:
        raise UnreadableRow(f"fire_at {row['fire_at']!r} is not a moment")
    for name in ("attempts", "starts", "crash_count", "machine_restarts"):
        if not 0 <= row[name] < COUNT_LIMIT:
            raise UnreadableRow(f"{name} {row[name]!r} is not a count")
    if row["settled_at"] is not None:
        raise UnreadableRow("it is live, and has a moment at which it was settled")
    claimed = row["status"] == "CLAIMED"
    if claimed != (row["lease_token"] is not None) or claimed != (row["claimed_epoch"] is not None):
        raise UnreadableRow("its lease and its status contradict each other")
    if row["start_taken"]:
        raise UnreadableRow(f"the record of its start {row['starts'] + 1} is there already")


TRIGGERS = Quarantine(
    table="triggers",
    kind="trigger",
    rows=LIVE + "WHERE status = 'PENDING' UNION ALL" + LIVE + "WHERE status = 'CLAIMED'",
    check=check_trigger,
    becomes={
        "status": "'DEAD'",
        "reason": "'corrupt row'",
        "error_message": ":wrong",
        "source": f"CASE WHEN source IN {tuple(map(str, TriggerSource))} THEN source ELSE 'SYSTEM' END",
        "dedup_key": "CASE WHEN dedup_key = :dedup_key THEN dedup_key END",  # NULL when it is not text
        "dedup_scope": "CASE WHEN dedup_key = :dedup_key THEN 'ever' END",
        "settled_at": ":now",
        "updated_at": ":now",
    },
    nulls=("error_code", "superseded_by", "claimed_epoch", "lease_token", "lease_until"),
)
