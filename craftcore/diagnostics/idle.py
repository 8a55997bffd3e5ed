"""The check for work that stays due although the daemon has free slots and no known reason keeps it.

A single look proves little: between the end of one attempt and the start of the next a place is free for a moment. So
what looks idle is looked at again a second later.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from craftcore.clock import Clock
from craftcore.engine.engine_facts import read_engine_facts
from craftcore.serialization.canonical import canonicalize
from craftcore.storage.transaction import Reader

IDLE_SECONDS = 40.0
"""Seconds for which a trigger is due before it counts: more than the longest `daemon.poll_seconds`."""

AGAIN_SECONDS = 1.0
"""Between the two looks."""

WAITS = """
SELECT id, due_at
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
"""Without those that a limit of their workflow may keep, or a trigger of their lane."""

AT_WORK = "SELECT count(*) FROM triggers WHERE status = 'CLAIMED' AND started_at IS NOT NULL"
NEWEST = "SELECT seq, created_at FROM executions ORDER BY seq DESC LIMIT 1"
STARTED_AT = "SELECT started_at FROM epochs ORDER BY epoch DESC LIMIT 1"


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
    started_at = reader.fetch_value(STARTED_AT)
    before = clock.now() - IDLE_SECONDS
    if facts is None or started_at is None or started_at > before:
        return None
    running: int = reader.fetch_value(AT_WORK)
    newest = reader.fetch_one(NEWEST) or {"seq": 0, "created_at": 0.0}
    if running >= facts.places or newest["created_at"] > before:
        return None
    found = reader.fetch_one(WAITS, before=before, **_limited_workflows(facts.limits))
    if found is None:
        return None
    return Idle(found["id"], found["due_at"], facts.places, running, newest["seq"])


def _limited_workflows(limits: dict[str, dict[str, Any]]) -> dict[str, str]:
    sources = [source for limit in limits.values() for source in limit["sources"]]
    return {"workflows": canonicalize(sorted(limits)), "sources": canonicalize(sorted(sources))}
