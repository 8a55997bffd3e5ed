"""Quarantine of `schedules`: a corrupt schedule is disabled until a person or the code declares it again."""

from __future__ import annotations

import json

from craftcore.schedules.store import schedule_of
from craftcore.storage.quarantine import Quarantine
from craftcore.storage.transaction import Row


def check_schedule(row: Row) -> None:
    """Check that the row is a schedule. Raises ValueError."""
    del row["row"]
    json.loads(schedule_of(row).payload_json)


SCHEDULES = Quarantine(
    table="schedules",
    kind="schedule",
    rows="SELECT rowid AS row, * FROM schedules",
    where="rowid = :row",
    check=check_schedule,
    becomes={
        "origin": "'operator'",
        "declared_hash": "''",
        "status": "'DISABLED'",
        "reason": "'corrupt row: ' || :wrong",
        "timezone": "'UTC'",
        "kind": "'startup'",
        "payload_json": "'{}'",
        "catch_up": "'none'",
        "overlap": "'skip'",
        "updated_at": ":now",
    },
    nulls=("at", "anchor_at", "step_seconds", "cron", "next_at", "session_id", "description"),
)
