"""The check for work that stays due because every slot is taken, and nothing that runs has ended for a while.

The slots may be taken by long work, or by work that waits for what is due. The rows show no difference.
"""

from __future__ import annotations

from typing import Any

from craftcore.storage.transaction import Reader

AT_WORK = """
SELECT count(*) AS running, max(started_at) AS last_start
  FROM triggers
 WHERE status = 'CLAIMED'
   AND started_at IS NOT NULL
"""
NEXT = """
SELECT id, due_at
  FROM triggers
 WHERE status = 'CLAIMED'
   AND started_at IS NULL
   AND due_at <= :before
 ORDER BY due_at, seq
 LIMIT 1
"""
"""A claimed trigger waits for nothing but a slot. The finding `behind` reports others."""


def find_full(reader: Reader, slots: int, now: float, allowed: float) -> dict[str, Any] | None:
    """Return the trigger that waits longest for a slot, and for how long nothing has started.

    None: that is at most `allowed` seconds, or a slot is free.

    While triggers wait, the end of one is the start of another. So nothing has ended since the last start.
    """
    work = reader.fetch_one(AT_WORK)
    if work is None or work["running"] < slots or now - work["last_start"] <= allowed:
        return None
    found = reader.fetch_one(NEXT, before=now - allowed)
    if found is None:
        return None
    return {
        "id": found["id"],
        "seconds": now - found["due_at"],
        "places": slots,
        "still_seconds": now - work["last_start"],
    }
