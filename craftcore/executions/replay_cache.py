"""Replays that were given before, those used last. Pure: the caller passes the time and the state of the record."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

from craftcore.executions.record import RecordState
from craftcore.executions.replay import ReplayResult


class Kept(NamedTuple):
    """A result, and what it was true of. `until`: from this moment of the boot clock on it is read again."""

    result: ReplayResult
    envelope_hash: str
    standing: RecordState
    until: float


class ReplayCache:
    """At most `size` results, each for `ttl` seconds. May be shared by threads."""

    def __init__(self, size: int, ttl: float) -> None:
        self._size = size
        self._ttl = ttl
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, execution_id: str, standing: RecordState | None, now: float) -> Kept | None:
        """Return the kept result of this record. None when there is none, it is too old, or the record has changed."""
        with self._lock:
            kept = self._kept.get(execution_id)
            if kept is None:
                return None
            if kept.standing != standing or now >= kept.until:
                del self._kept[execution_id]
                return None
            self._kept.move_to_end(execution_id)
            return kept

    def keep(self, result: ReplayResult, envelope_hash: str, standing: RecordState, now: float) -> None:
        """Keep it, in place of the one that was not asked for for longest."""
        with self._lock:
            self._kept[result.original_execution_id] = Kept(result, envelope_hash, standing, now + self._ttl)
            self._kept.move_to_end(result.original_execution_id)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
