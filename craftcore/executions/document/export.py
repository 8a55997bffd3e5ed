"""A record as the JSON document that is carried elsewhere, and read there again. Pure.

    header           executionId, createdUtcIso, envelopeHash, replayable, replayableReason
    envelope         what was asked for; null once it was stripped
    routerDecision   agent, reason, strategy; null while nothing is decided
    events           [{seq, type, payload}, …]
    finalResponse    {status, payload, metadata} or {status, error, metadata}; null: it has none, or no more
    craftcore        what the document has no other place for, so that it comes back as the record it was

The first five are the document of the failure model: `replayable` says whether the record can be replayed, also when it
is invalidated or damaged. `craftcore` has the `format`, the rest of the `header` and of the `events`, in their order.
It also has the `texts` of parts that are not canonical JSON.
"""

from __future__ import annotations

import json
from typing import Any

from craftcore.clock import utc_iso
from craftcore.executions.document.schema import FORMAT, OurEvent, OurHeader
from craftcore.executions.record import ExecutionRecord
from craftcore.executions.replay import refusal
from craftcore.serialization.canonical import canonicalize


def document_of(record: ExecutionRecord) -> dict[str, Any]:
    """Return the document. A text that is not JSON is null in its place, and whole in `craftcore.texts`."""
    texts: dict[str, str] = {}

    def part(path: str, text: str | None) -> dict[str, Any] | None:
        value, is_exact = parse_object(text)
        if text is not None and not is_exact:
            texts[path] = text
        return value

    envelope, routing = part("envelope", record.envelope_json), part("routerDecision", record.routing_json)
    events = [
        {"seq": event.seq, "type": event.type, "payload": part(event_path(number), event.payload_json)}
        for number, event in enumerate(record.events)
    ]
    response = part("finalResponse", record.response_json)
    reason = refusal(record)
    return {
        "header": {
            "executionId": record.id,
            "createdUtcIso": utc_iso(record.created_at),
            "envelopeHash": record.envelope_hash,
            "replayable": reason is None,
            "replayableReason": None if reason is None else str(reason),
        },
        "envelope": envelope,
        "routerDecision": routing,
        "events": events,
        "finalResponse": response,
        "craftcore": {
            "format": FORMAT,
            "header": {name: getattr(record, name) for name in OurHeader.__struct_fields__},
            "events": [
                {name: value for name in OurEvent.__struct_fields__ if (value := getattr(event, name)) is not None}
                for event in record.events
            ],
            "texts": texts,
        },
    }


def event_path(number: int) -> str:
    """Return the path of the payload of an event; events are counted from 0."""
    return f"events[{number}].payload"


def parse_object(text: str | None) -> tuple[dict[str, Any] | None, bool]:
    """Return the object that a text says, None when it says none; and whether the text is what canonical JSON makes of
    it."""
    try:
        value = None if text is None else json.loads(text)
        again = canonicalize(value)
    except (ValueError, RecursionError):
        return None, False
    return (value, again == text) if isinstance(value, dict) else (None, False)
