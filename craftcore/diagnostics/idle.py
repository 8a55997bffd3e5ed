"""The checks for work that stays due: although a slot is free, or because nothing that runs has ended for a while.

A single look at a free slot proves little: between the end of one attempt and the start of the next a place is free for
a moment. So what looks idle is looked at again a second later. Slots that are taken may be taken by long work, or by
work that waits for what is due. The rows show no difference.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from craftcore.clock import Clock
from craftcore.diagnostics.live_counts import BOOTED_AT
from craftcore.engine.engine_facts import read_engine_facts
from craftcore.serialization.canonical import canonicalize
from craftcore.storage.transaction import Reader

IDLE_SECONDS = 40.0
"""Seconds for which a trigger is due before it counts: more than the longest `daemon.poll_seconds`."""

AGAIN_SECONDS = 1.0
"""Between the two looks."""

FIRST_DUE = """
  FROM triggers
 WHERE seq = (SELECT seq
                FROM triggers
               WHERE status = 'PENDING'
                 AND due_at <= :before
                 AND (lane IS NULL
                      OR lane NOT IN (SELECT lane FROM triggers WHERE status = 'CLAIMED' AND lane IS NOT NULL))
                 AND coalesce(workflow, '') NOT IN (SELECT value FROM json_each(:workflows))
                 AND (workflow IS NOT NULL OR source NOT IN (SELECT value FROM json_each(:sources)))
               ORDER BY due_at, seq
               LIMIT 1)
"""
"""The trigger that is due for longest, without those of these limited workflows, or with a trigger of their lane at
work."""

WAITS = f"SELECT id, due_at {FIRST_DUE}"
BEHIND = f"""
SELECT CAST(id AS BLOB) AS id, due_at, CAST(workflow AS BLOB) AS workflow, CAST(source AS BLOB) AS source
  {FIRST_DUE}
"""

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

NEWEST = "SELECT seq, created_at FROM executions ORDER BY seq DESC LIMIT 1"


class Idle(NamedTuple):
    """The trigger that waits, since when it is due, the places of the daemon and those in use, the newest attempt."""

    id: str
    due_at: float
    places: int
    running: int
    newest: int


def idle(look: Callable[[], Idle | None]) -> Idle | None:
    """Look, and once more when it seems so: None unless the same trigger waits, and nothing was started meanwhile."""
    first = look()
    if first is None:
        return None
    time.sleep(AGAIN_SECONDS)
    second = look()
    return second if second is not None and (first.id, first.newest) == (second.id, second.newest) else None


def find_idle(reader: Reader, clock: Clock) -> Idle | None:
    """Return the trigger that waits too long while a slot is free. None when there is none, or that is unknown."""
    facts = read_engine_facts(reader)
    started_at = reader.fetch_value(BOOTED_AT)
    before = clock.now() - IDLE_SECONDS
    if facts is None or started_at is None or started_at > before:
        return None
    running, _ = _read_work(reader)
    newest = reader.fetch_one(NEWEST) or {"seq": 0, "created_at": 0.0}
    if running >= facts.places or newest["created_at"] > before:
        return None
    found = reader.fetch_one(WAITS, before=before, **_limited_workflows(facts.limits))
    if found is None:
        return None
    return Idle(found["id"], found["due_at"], facts.places, running, newest["seq"])


def find_full(reader: Reader, slots: int, now: float, allowed: float) -> dict[str, Any] | None:
    """Return the trigger that waits longest for a slot, and for how long nothing has started.

    None: that is at most `allowed` seconds, or a slot is free.

    While triggers wait, the end of one is the start of another. So nothing has ended since the last start.
    """
    running, last_start = _read_work(reader)
    if running < slots or now - last_start <= allowed:
        return None
    found = reader.fetch_one(NEXT, before=now - allowed)
    if found is None:
        return None
    return {
        "id": found["id"],
        "seconds": now - found["due_at"],
        "places": slots,
        "still_seconds": now - last_start,
    }


def _read_work(reader: Reader) -> tuple[int, float]:
    """Return how many attempts run, and when the last of them began."""
    [(running, last_start)] = reader.fetch_tuples(AT_WORK)
    return running, last_start or 0.0


def _limited_workflows(limits: dict[str, dict[str, Any]]) -> dict[str, str]:
    sources = [source for limit in limits.values() for source in limit["sources"]]
    return {"workflows": canonicalize(sorted(limits)), "sources": canonicalize(sorted(sources))}
