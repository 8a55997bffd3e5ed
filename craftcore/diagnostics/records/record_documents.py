"""The documents of a record: its header, one of its events, its envelope. Pure."""

from __future__ import annotations

from typing import Any

from craftcore.executions.chain.seal import Event
from craftcore.executions.record import ExecutionRecord, refusal_to_replay
from craftcore.serialization.display import json_or_text
from craftcore.serialization.time_text import add_iso_times

RECORD_KEYS = (
    *("trigger_id", "task_id", "turn", "attempt", "created_at", "ended_at", "workflow", "status", "latency_ms"),
    "envelope_hash",
)

Told = dict[str, Any]


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
            "error": error_document(record),
        }
    )


def event_document(event: Event) -> Told:
    """Return an event of the stream; what it has to do with, where it has."""
    document = add_iso_times({"seq": event.seq, "type": event.type, "at": event.at})
    document["payload"] = json_or_text(event.payload_json)
    of_task = {"task_seq": event.task_seq, "turn": event.turn, "memo": event.memo, "activity_seq": event.activity_seq}
    return {**document, **{name: value for name, value in of_task.items() if value is not None}}


def envelope_document(record: ExecutionRecord) -> Any:
    """Return what was asked for; None once it was stripped."""
    return json_or_text(record.envelope_json)


def _last_event(event: Event) -> Told:
    """Return an event with its facts beside its number and type, as in `"agent": "processor-a"`."""
    document = add_iso_times({"seq": event.seq, "type": event.type, "at": event.at})
    payload = json_or_text(event.payload_json)
    if not isinstance(payload, dict):
        return {**document, "payload": payload}
    return {**document, **{name: value for name, value in payload.items() if name not in document}}


def _routing(record: ExecutionRecord) -> Any:
    """Return the decision, under the strategy that brought it; None while nothing is decided."""
    routing = json_or_text(record.routing_json)
    if not isinstance(routing, dict):
        return routing
    decision = {"agent": routing.get("agent"), "intent": record.workflow, "reason": routing.get("reason")}
    return {"strategy": routing.get("strategy"), "decision": decision}


def error_document(record: ExecutionRecord) -> Told | None:
    """Return what the response says went wrong. Without one that can be read: its code, and nothing else is known."""
    if record.error_code is None:
        return None
    response = json_or_text(record.response_json)
    error = response.get("error") if isinstance(response, dict) else None
    unknown = {"code": record.error_code, "message": None, "retryable": None}
    return {**unknown, **error} if isinstance(error, dict) else unknown
