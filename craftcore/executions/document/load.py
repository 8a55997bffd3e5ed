"""A document read as a record: a document of craftcore, or one with only the parts of the failure model. Pure.

The text may come from anywhere. It is a record only in shape: whether it is whole is for `faults` to say. In a
document of craftcore, `craftcore` counts where it and `header` have the same fact. The missing parts of a plain
document follow from the others: an event happened when the record began, and the status is that of the response.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from craftcore.clock import YEAR_10000, utc_iso
from craftcore.executions.chain.seal import Event
from craftcore.executions.document.export import event_path, parse_object
from craftcore.executions.document.schema import Document, Object, Ours, schema_refusal, shape_of
from craftcore.executions.model import Status, require_supported
from craftcore.executions.record import ExecutionRecord
from craftcore.serialization.canonical import canonicalize, sha256_of
from craftcore.serialization.plurals import format_count


def record_of(value: Any) -> ExecutionRecord:
    """Return the record of a document. Raises InvalidInput with the path to what cannot be in one: `events[3].seq:
    …`."""
    document = shape_of(value)
    if document.envelope is not None:
        require_supported(document.envelope)
    return _load_plain(document) if document.craftcore is None else _validate_record(document, document.craftcore)


def _validate_record(document: Document, ours: Ours) -> ExecutionRecord:
    if len(ours.events) != len(document.events):
        raise schema_refusal(
            "craftcore.events", f"there are {len(ours.events)} of {format_count(len(document.events), 'event')}"
        )
    if document.header.createdUtcIso != utc_iso(ours.header.created_at):
        raise schema_refusal("header.createdUtcIso", "it is another moment than craftcore.header.created_at")
    texts = dict(ours.texts)

    def text_of(path: str, part: Object | None) -> str | None:
        text = texts.pop(path, None)
        if text is None:
            return None if part is None else _canonicalize(path, part)
        if parse_object(text)[0] != part:
            raise schema_refusal(path, "it is not what craftcore.texts says of it")
        return text

    events = []
    for number, (event, rest) in enumerate(zip(document.events, ours.events, strict=True)):
        path = event_path(number)
        text = text_of(path, event.payload)
        if text is None:
            raise schema_refusal(path, "it is null, and craftcore.texts has none")
        events.append(
            Event(event.seq, event.type, rest.at, text, rest.task_seq, rest.turn, rest.memo, rest.activity_seq)
        )
    record = ExecutionRecord(
        **msgspec.structs.asdict(ours.header),
        id=document.header.executionId,
        envelope_hash=document.header.envelopeHash,
        envelope_json=text_of("envelope", document.envelope),
        routing_json=text_of("routerDecision", document.routerDecision),
        response_json=text_of("finalResponse", document.finalResponse),
        events=tuple(events),
    )
    if texts:
        raise schema_refusal("craftcore.texts", f"it has {next(iter(texts))!r:.80}, which is not part of the document")
    return record


def _load_plain(document: Document) -> ExecutionRecord:
    header, response, created_at = document.header, document.finalResponse, _moment(document.header.createdUtcIso)
    envelope, error = document.envelope or {}, (response or {}).get("error")
    if response is None:
        status = Status.INCOMPLETE
    else:
        status = Status.ERROR if error is not None or response.get("status") == Status.ERROR else Status.SUCCESS
    return ExecutionRecord(
        seq=0,
        id=header.executionId,
        trigger_id=_text_in(envelope.get("metadata"), "requestId") or header.executionId,
        task_id=None,
        turn=None,
        attempt=1,
        epoch=0,
        workflow=_text_in(envelope.get("intent"), "name"),
        created_at=created_at,
        ended_at=None,
        status=status,
        replayable=header.replayable,
        replayable_reason=header.replayableReason,
        envelope_json=_hashed_text(document),
        envelope_hash=header.envelopeHash,
        routing_json=None
        if document.routerDecision is None
        else _canonicalize("routerDecision", document.routerDecision),
        response_json=None if response is None else _canonicalize("finalResponse", response),
        error_code=_text_in(error, "code"),
        latency_ms=None,
        chain_seq=None,
        events_hash=None,
        response_hash=None,
        prev_hash=None,
        record_hash=None,
        stripped_at=None,
        invalidated=None,
        events=tuple(
            Event(event.seq, event.type, created_at, _payload(event_path(number), event.payload))
            for number, event in enumerate(document.events)
        ),
    )


def _payload(path: str, payload: Object | None) -> str:
    if payload is None:
        raise schema_refusal(path, "it is null")
    return _canonicalize(path, payload)


def _hashed_text(document: Document) -> str | None:
    """Return the text of the envelope that its hash is of: some hash `routingMetadata` with it, and most do not."""
    if document.envelope is None:
        return None
    text = _canonicalize("envelope", document.envelope)
    if sha256_of(text) == document.header.envelopeHash:
        return text
    return _canonicalize("envelope", {key: part for key, part in document.envelope.items() if key != "routingMetadata"})


def _moment(text: str | None) -> float:
    try:
        when = datetime.fromisoformat(text or "")
        moment = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        moment = -1.0
    if not 0 <= moment < YEAR_10000:
        raise schema_refusal("header.createdUtcIso", f"{text!r:.80} is not a moment such as 2026-01-02T03:04:05.678Z")
    return moment


def _text_in(part: Any, key: str) -> str | None:
    value = part.get(key) if isinstance(part, dict) else None
    return value if isinstance(value, str) else None


def _canonicalize(path: str, part: Object) -> str:
    try:
        return canonicalize(part)
    except ValueError as error:
        raise schema_refusal(path, f"it is not JSON: {error}") from None
