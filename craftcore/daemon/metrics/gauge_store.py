"""Gauges that are read from the database. Every statement goes by an index of what is live."""

from __future__ import annotations

from dataclasses import dataclass

from craftcore.activities.listing_store import ActivityListStore
from craftcore.storage.facts import get_fact, number
from craftcore.storage.transaction import Reader
from craftcore.tasks.hold_store import HoldStore
from craftcore.tasks.listing_store import TaskLists
from craftcore.triggers.cut_off import counts_document
from craftcore.triggers.listing_store import LATELY, TriggerLists

OLDEST_READY = """
SELECT min(due_at)
  FROM (SELECT min(due_at) AS due_at FROM triggers WHERE status = 'PENDING' AND due_at <= :now
        UNION ALL
        SELECT min(due_at) FROM triggers WHERE status = 'CLAIMED' AND (started_at IS NULL OR NOT :claims_live))
"""
EPOCH = "SELECT max(epoch) FROM epochs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """`triggers` by state. `ready_age`: seconds for which the oldest due trigger has waited for its start, claimed or
    not; 0 when there is none. `epoch` of the last start."""

    triggers: dict[str, int]
    failed_lately: int
    ready_age: float
    in_doubt: int
    questions: int
    held_tasks: int
    held: bool
    safe_mode: bool
    schedules_held: bool
    epoch: int


def read_gauges(reader: Reader, now: float, *, claims_live: bool) -> Gauges:
    """Read the gauges of this moment. Claims that are not live were left by a dead daemon and count as due."""
    oldest = reader.fetch_value(OLDEST_READY, now=now, claims_live=claims_live)
    counts = counts_document(TriggerLists().live_counts(reader, now), claims_live=claims_live)
    del counts["cut_off"]  # they are among those due
    clock_held = number(reader, "clock_held")
    return Gauges(
        triggers=counts,
        failed_lately=TriggerLists().count_failed_since(reader, now - LATELY).count,
        ready_age=0.0 if oldest is None else max(0.0, now - oldest),
        in_doubt=ActivityListStore().count_in_doubt(reader)[0],
        questions=TaskLists().counts(reader)["questions"],
        held_tasks=HoldStore().count(reader),
        held=get_fact(reader, "held") is not None,
        safe_mode=get_fact(reader, "safe_mode") is not None,
        schedules_held=clock_held is not None and clock_held > now,
        epoch=reader.fetch_value(EPOCH) or 0,
    )
