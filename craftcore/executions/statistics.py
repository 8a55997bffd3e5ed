"""Statistics of many records: outcomes, errors and durations. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from craftcore.executions.listing_store import RecordSummary
from craftcore.executions.model import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Figures over that many records. Moments and latencies are None where none of them has any; the most frequent
    comes first."""

    records: int
    oldest_at: float | None
    newest_at: float | None
    by_status: dict[str, int]
    by_error_code: dict[str, int]
    replayable: int
    not_replayable: dict[str, int]
    median_ms: float | None
    p95_ms: float | None


def statistics(found: Sequence[RecordSummary]) -> Statistics:
    """Count them."""
    moments = [one.created_at for one in found]
    statuses = Counter(one.status for one in found)
    reasons = Counter(one.replayable_reason for one in found)
    replayable = reasons.pop(None, 0)
    latencies = sorted(one.latency_ms for one in found if one.latency_ms is not None)
    return Statistics(
        records=len(found),
        oldest_at=min(moments, default=None),
        newest_at=max(moments, default=None),
        by_status={status.value: statuses[status] for status in Status},
        by_error_code=dict(Counter(one.error_code for one in found if one.error_code is not None).most_common()),
        replayable=replayable,
        not_replayable={str(reason): count for reason, count in reasons.most_common()},
        median_ms=rank(latencies, 0.5),
        p95_ms=rank(latencies, 0.95),
    )


def rank(ordered: Sequence[float], share: float) -> float | None:
    """Return the smallest that so large a share is not above: of [1, 2, 3, 4] half is at most 2. None of nothing."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else None
