"""Counts and latencies of many records."""

from __future__ import annotations

import pytest

from craftcore.executions.listing_store import RecordSummary
from craftcore.executions.model import Status
from craftcore.executions.statistics import rank, statistics


def new_summary(at: float, status: Status, *, code: str | None = None, ms: float | None = None, why: str | None = None):
    return RecordSummary(f"exec-t.{at}", at, "greet", status, code, ms, "t", 1, why)


def test_statistics_count_records_by_their_end():
    found = statistics(
        [
            new_summary(3, Status.ERROR, code="AGENT_ERROR", ms=4.0),
            new_summary(1, Status.ERROR, code="AGENT_TIMEOUT", ms=100.0, why="manually_invalidated"),
            new_summary(2, Status.ERROR, code="AGENT_TIMEOUT", ms=2.0),
            new_summary(4, Status.SUCCESS, ms=1.0),
            new_summary(5, Status.INCOMPLETE, why="execution_incomplete"),
        ]
    )

    assert (found.records, found.oldest_at, found.newest_at) == (5, 1, 5)
    assert found.by_status == {"success": 1, "error": 3, "incomplete": 1, "suspended": 0}
    assert list(found.by_error_code.items()) == [("AGENT_TIMEOUT", 2), ("AGENT_ERROR", 1)]
    assert found.replayable == 3
    assert found.not_replayable == {"manually_invalidated": 1, "execution_incomplete": 1}
    assert (found.median_ms, found.p95_ms) == (2.0, 100.0)


def test_statistics_of_no_records_have_no_times_and_latencies():
    found = statistics([])

    assert (found.records, found.oldest_at, found.newest_at) == (0, None, None)
    assert (found.median_ms, found.p95_ms, found.by_error_code, found.not_replayable) == (None, None, {}, {})


@pytest.mark.parametrize(("count", "median", "p95"), [(1, 1, 1), (2, 1, 2), (3, 2, 3), (20, 10, 19), (100, 50, 95)])
def test_percentile_is_the_smallest_latency_that_reaches_the_share(count, median, p95):
    ordered = [float(n) for n in range(1, count + 1)]

    assert (rank(ordered, 0.5), rank(ordered, 0.95)) == (median, p95)
