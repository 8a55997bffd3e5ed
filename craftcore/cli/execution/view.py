"""The view of an execution record: its JSON document, its row in a table, and statistics of many."""

from __future__ import annotations

from typing import Any

from craftcore.cli.output import Output
from craftcore.executions.chain.seal import Event
from craftcore.executions.listing_store import RecordSummary
from craftcore.executions.record import ExecutionRecord, refusal_to_replay
from craftcore.executions.statistics import Statistics
from craftcore.serialization.display import json_or_text
from craftcore.serialization.time_text import add_iso_times, clock_time, format_span

LIST_COLUMNS = ("id", "created", "workflow", "status", "replayable")
RECORD_KEYS = (
    *("trigger_id", "task_id", "turn", "attempt", "created_at", "ended_at", "workflow", "status", "latency_ms"),
    "envelope_hash",
)
REPLAYABLE, NOT_REPLAYABLE = "replayable", "not-replayable"

Told = dict[str, Any]


def summary_document(row: RecordSummary) -> Told:
    """Return a row of the list, for programs."""
    return add_iso_times({**row._asdict(), "replayable": row.replayable_reason is None})


def record_row(row: RecordSummary) -> tuple[object, ...]:
    """Return its row under LIST_COLUMNS."""
    replayable = REPLAYABLE if row.replayable_reason is None else f"{NOT_REPLAYABLE}: {row.replayable_reason}"
    return row.id, clock_time(row.created_at), row.workflow, row.status, replayable


def record_document(record: ExecutionRecord) -> Told:
    """Return the document of one, without its stream and its bodies. A text that is not JSON any more is returned as it
    is."""
    reason = refusal_to_replay(record)
    return add_iso_times(
        {
            "execution_id": record.id,
            **{name: getattr(record, name) for name in RECORD_KEYS},
            "replayable": reason is None,
            "replayable_reason": reason,
            "invalidated": record.invalidated,
            "event_count": len(record.events),
            "last_event": _last_event(record.events[-1]) if record.events else None,
            "routing": _routing(record),
            "error": _error(record),
        }
    )


def event_document(event: Event) -> Told:
    """Return an event of the stream; what it has to do with, where it has."""
    told = add_iso_times({"seq": event.seq, "type": event.type, "at": event.at})
    told["payload"] = json_or_text(event.payload_json)
    of_task = {"task_seq": event.task_seq, "turn": event.turn, "memo": event.memo, "activity_seq": event.activity_seq}
    return {**told, **{name: value for name, value in of_task.items() if value is not None}}


def envelope_document(record: ExecutionRecord) -> Any:
    """Return what was asked for; None once it was stripped."""
    return json_or_text(record.envelope_json)


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


def _last_event(event: Event) -> Told:
    """Return an event with its facts beside its number and type, as in `"agent": "processor-a"`."""
    told = add_iso_times({"seq": event.seq, "type": event.type, "at": event.at})
    payload = json_or_text(event.payload_json)
    if not isinstance(payload, dict):
        return {**told, "payload": payload}
    return {**told, **{name: value for name, value in payload.items() if name not in told}}


def _routing(record: ExecutionRecord) -> Any:
    """Return the decision, under the strategy that brought it; None while nothing is decided."""
    routing = json_or_text(record.routing_json)
    if not isinstance(routing, dict):
        return routing
    decision = {"agent": routing.get("agent"), "intent": record.workflow, "reason": routing.get("reason")}
    return {"strategy": routing.get("strategy"), "decision": decision}


def _error(record: ExecutionRecord) -> Told | None:
    """Return what the response says went wrong. Without one that can be read: its code, and nothing else is known."""
    if record.error_code is None:
        return None
    response = json_or_text(record.response_json)
    error = response.get("error") if isinstance(response, dict) else None
    unknown = {"code": record.error_code, "message": None, "retryable": None}
    return {**unknown, **error} if isinstance(error, dict) else unknown


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def _latency(found: Statistics) -> str | None:
    if found.median_ms is None or found.p95_ms is None:
        return None
    return f"median {_duration_text(found.median_ms)}, 95 of 100 within {_duration_text(found.p95_ms)}"


def _duration_text(milliseconds: float) -> str:
    return f"{milliseconds:.1f} ms" if milliseconds < 1000 else format_span(milliseconds / 1000)
