"""The size limit: what the database holds, what the ages would need, and how far the limit moves the cutoffs.

A limit is a pair of moments: bodies that ended before the first, and rows that ended before the second, go although
their age is not over. The look that finds the limit takes nothing, so a dry run and the real run use the same one.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from craftcore.config import RetentionSettings
from craftcore.retention.cutoffs import NEVER, Cutoffs
from craftcore.retention.in_use_store import InUse
from craftcore.retention.limit_store import (
    ACTIVITY_BODIES,
    AVERAGE_BODY,
    CLOSED_RECORDS,
    FIRST_RECORD,
    NEWEST_RECORD,
    PASSED_RECORD,
    RECORD_BODIES,
    RECORD_COUNT,
    STREAM_BODIES,
    TRIGGER_BODIES,
    USED_BYTES,
)
from craftcore.storage.transaction import Reader, Row

NEAR = 0.8
"""From this share of the limit on it is worth a word."""

DOWN_TO = 0.95
"""A database above its limit is cut to this share of it: the plan counts bytes of text, and pages are freed whole."""

DAY, WEEK = 86_400.0, 604_800.0


class Size(NamedTuple):
    """In bytes. `max_bytes` 0: there is no limit. `needed_bytes`: what the ages alone would come to; None: that is not
    known, or the limit is far."""

    used_bytes: int
    max_bytes: int
    needed_bytes: int | None


class Limit(NamedTuple):
    """Rows that ended at or before these moments are removed before their age; NEVER: none."""

    bodies: float = NEVER
    rows: float = NEVER

    def tighten(self, old: Cutoffs) -> Cutoffs:
        """Return the tightened ages. Dead letters, dedup keys and the audit log keep theirs."""
        return old._replace(
            triggers=max(old.triggers, self.bodies),
            bodies=max(old.bodies, self.bodies),
            history=max(old.history, self.rows),
        )


UNLIMITED = Limit()


def is_near(used_bytes: int, max_bytes: int) -> bool:
    """Return whether it is worth a word.

    >>> is_near(79, 100), is_near(80, 100), is_near(10**12, 0)
    (False, True, False)
    """
    return max_bytes > 0 and used_bytes >= NEAR * max_bytes


def size_of(tx: Reader, settings: RetentionSettings, now: float) -> Size:
    """Return what the database holds without its free pages and its WAL."""
    used: int = tx.fetch_value(USED_BYTES)
    needed = _needed_bytes(tx, settings, used, now) if is_near(used, settings.max_bytes) else None
    return Size(used, settings.max_bytes, needed)


def limit_of(tx: Reader, old: Cutoffs, excess: int, beat: Callable[[], object]) -> Limit:
    """Return the moments up to which the oldest settled bodies, then rows, come to `excess` bytes."""
    rest = InUse(tx, old.dead)
    streams = (
        _weights(tx.iterate(RECORD_BODIES), rest.can_remove_record, old.bodies, old.now),
        _weights(tx.iterate(ACTIVITY_BODIES), rest.can_remove_activity, old.bodies, old.now),
        _weights(tx.iterate(STREAM_BODIES), rest.can_remove_stream, old.bodies, old.now),
        _weights(tx.iterate(TRIGGER_BODIES), rest.can_remove_trigger, old.triggers, old.now),
    )
    rows = _weights(tx.iterate(CLOSED_RECORDS), rest.can_remove_record, old.history, old.now)
    return plan(heapq.merge(*streams), rows, old, excess=excess, share=_share(tx), beat=beat)


def plan(
    bodies: Iterable[tuple[float, float]],
    rows: Iterable[tuple[float, float]],
    old: Cutoffs,
    *,
    excess: int,
    share: float,
    beat: Callable[[], object] = lambda: None,
) -> Limit:
    """Decide how far the limit moves the cutoffs. Pure. `bodies`: (moment, bytes) of what may be stripped, about in
    the order of the moments; `rows`: of what may be removed after that, each worth `share` bytes.

    >>> old = Cutoffs(*[0.0] * 7, now=9.0)
    >>> plan([(1.0, 60.0), (2.0, 60.0)], [(1.0, 0.0)], old, excess=100, share=10.0)
    Limit(bodies=2.0, rows=-inf)
    """
    reached, left = old.bodies, float(excess)
    for number, (at, size) in enumerate(bodies):
        reached, left = max(reached, at), left - size
        if left <= 0:
            return Limit(bodies=reached)
        if not number % 1_000:
            beat()
    oldest = old.history
    for number, (at, _) in enumerate(rows):
        oldest, left = max(oldest, at), left - share
        if left <= 0:
            break
        if not number % 1_000:
            beat()
    return Limit(bodies=old.now, rows=oldest)


def _weights(
    rows: Iterable[Row], is_free: Callable[[Row], bool], since: float, now: float
) -> Iterator[tuple[float, float]]:
    """Yield (moment, bytes) of the rows that are removed for the limit only, about in the order of the moments."""
    for row in rows:
        if since < row["at"] <= now and is_free(row):
            yield row["at"], row.get("bytes", 0)


def _share(tx: Reader) -> float:
    """Return the bytes of the database for each record, once no body is left to strip."""
    return float(tx.fetch_value(USED_BYTES)) / max(1, int(tx.fetch_value(RECORD_COUNT)))


def _needed_bytes(tx: Reader, settings: RetentionSettings, used: int, now: float) -> int | None:
    """Return what the database would come to by the ages, if work goes on as in the last week. None: it is younger
    than a day, or is to be kept for ever."""
    first = tx.fetch_one(FIRST_RECORD, after=tx.fetch_value(PASSED_RECORD))
    if first is None or now - first["created_at"] < DAY or not settings.bodies or not settings.history:
        return None
    newest: int = tx.fetch_value(NEWEST_RECORD)
    began = _find_first_since(tx, first["seq"], newest, now - WEEK)
    rate = (newest - began["seq"] + 1) / max(DAY, now - began["created_at"])
    body: float = tx.fetch_value(AVERAGE_BODY)
    bodies = body * rate * min(settings.bodies, now - first["created_at"])
    share = max(0.0, used - bodies) / max(1, int(tx.fetch_value(RECORD_COUNT)))
    needed: float = rate * (body * settings.bodies + share * settings.history)
    return round(needed)


def _find_first_since(tx: Reader, low: int, high: int, moment: float) -> Row:
    """Return the first record that began since then, by bisection: records are numbered as they begin."""
    found = tx.fetch_one(FIRST_RECORD, after=low - 1)
    assert found is not None
    while low < high:
        middle = (low + high) // 2
        row = tx.fetch_one(FIRST_RECORD, after=middle - 1)
        if row is not None and row["created_at"] < moment:
            low = middle + 1
        else:
            high = middle
    return tx.fetch_one(FIRST_RECORD, after=low - 1) or found
