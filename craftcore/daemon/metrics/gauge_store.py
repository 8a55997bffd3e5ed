"""Gauges that are read from the database. Every statement goes by an index of what is live."""

from __future__ import annotations

from craftcore.activities.listing_store import ActivityListStore
from craftcore.storage.facts import get_fact, number
from craftcore.storage.transaction import Reader
from craftcore.tasks.hold_store import HoldStore
from craftcore.tasks.listing_store import TaskLists
from craftcore.triggers.listing_store import LATELY, TriggerLists, counts_document

OLDEST_READY = """
SELECT min(due_at)
  FROM (SELECT min(due_at) AS due_at FROM triggers WHERE status = 'PENDING' AND due_at <= :now
        UNION ALL
        SELECT min(due_at) FROM triggers WHERE status = 'CLAIMED' AND (started_at IS NULL OR NOT :claims_live))
"""
EPOCH = "SELECT max(epoch) FROM epochs"


def read_gauges(reader: Reader, now: float, *, claims_live: bool) -> tuple[dict[str, int], dict[str, float]]:
    """Return the triggers in each state, and the other gauges by name. Claims that are not live were left by a dead
    daemon and count as due."""
    counts = counts_document(TriggerLists().live_counts(reader, now), claims_live=claims_live)
    del counts["cut_off"]  # they are among those due
    oldest = reader.fetch_value(OLDEST_READY, now=now, claims_live=claims_live)
    clock_held = number(reader, "clock_held")
    return counts, {
        "failed_lately": TriggerLists().count_failed_since(reader, now - LATELY).count,
        "ready_age_seconds": 0.0 if oldest is None else max(0.0, now - oldest),
        "activities_unknown": ActivityListStore().count_in_doubt(reader)[0],
        "questions_open": TaskLists().counts(reader)["questions"],
        "tasks_held": HoldStore().count(reader),
        "held": get_fact(reader, "held") is not None,
        "safe_mode": get_fact(reader, "safe_mode") is not None,
        "schedules_held": clock_held is not None and clock_held > now,
        "epoch": reader.fetch_value(EPOCH) or 0,
    }
