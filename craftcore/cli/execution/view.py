"""The view of an execution record: its JSON document, its row in a table, and statistics of many."""

from __future__ import annotations

from typing import Any

from craftcore.cli.output import Output
from craftcore.executions.listing_store import RecordSummary
from craftcore.executions.statistics import Statistics
from craftcore.serialization.time_text import add_iso_times, clock_time, format_span

LIST_COLUMNS = ("id", "created", "workflow", "status", "replayable")
REPLAYABLE, NOT_REPLAYABLE = "replayable", "not-replayable"

Told = dict[str, Any]


def summary_document(row: RecordSummary) -> Told:
    """Return a row of the list, for programs."""
    return add_iso_times({**row._asdict(), "replayable": row.replayable_reason is None})


def record_row(row: RecordSummary) -> tuple[object, ...]:
    """Return its row under LIST_COLUMNS."""
    replayable = REPLAYABLE if row.replayable_reason is None else f"{NOT_REPLAYABLE}: {row.replayable_reason}"
    return row.id, clock_time(row.created_at), row.workflow, row.status, replayable


def statistics_document(found: Statistics, limit: int) -> Told:
    """Return what many say, for programs. `limit`: how many there could have been."""
    return {
        **add_iso_times({"records": found.records, "oldest_at": found.oldest_at, "newest_at": found.newest_at}),
        "limit": limit,
        "by_status": found.by_status,
        "by_error_code": found.by_error_code,
        "replayable": found.replayable,
        "not_replayable": found.not_replayable,
        "latency_ms": {"median": found.median_ms, "p95": found.p95_ms},
    }


def say_statistics(out: Output, found: Statistics, limit: int) -> None:
    """Print the statistics for people."""
    if not found.records:
        out.line("no execution")
        return
    how_many = f"the last {found.records:,}" if found.records == limit else f"{found.records:,}"
    out.facts(
        {
            "executions": f"{how_many}, from {clock_time(found.oldest_at)} to {clock_time(found.newest_at)}",
            "status": _counts(found.by_status),
            "errors": _counts(found.by_error_code) or None,
            REPLAYABLE: f"{found.replayable:,}",
            NOT_REPLAYABLE: _counts(found.not_replayable) or None,
            "latency": _latency(found),
        }
    )


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def _latency(found: Statistics) -> str | None:
    if found.median_ms is None or found.p95_ms is None:
        return None
    return f"median {_duration_text(found.median_ms)}, 95 of 100 within {_duration_text(found.p95_ms)}"


def _duration_text(milliseconds: float) -> str:
    return f"{milliseconds:.1f} ms" if milliseconds < 1000 else format_span(milliseconds / 1000)
