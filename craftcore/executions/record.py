"""A whole record as it is read back, and whether it can be replayed. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from craftcore.executions.chain.seal import Event, Header, events_hash, record_hash
from craftcore.executions.model import Reason, Status
from craftcore.serialization.canonical import sha256_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionRecord:
    """One record: header, envelope, events and response.

    Texts are as they were written, canonical JSON. `envelope_json` and `response_json` are None once retention stripped
    them (`stripped_at`); a record without a response has no `response_hash` either. The fields of the chain
    (`chain_seq` to `record_hash`) are None until it is closed. `invalidated`: why a person invalidated it; None: it is
    valid.
    """

    seq: int
    id: str
    trigger_id: str
    task_id: str | None
    turn: int | None
    attempt: int
    epoch: int
    workflow: str | None
    created_at: float
    ended_at: float | None
    status: Status
    replayable: bool
    replayable_reason: str | None
    envelope_json: str | None
    envelope_hash: str
    routing_json: str | None
    response_json: str | None
    error_code: str | None
    latency_ms: float | None
    chain_seq: int | None
    events_hash: str | None
    response_hash: str | None
    prev_hash: str | None
    record_hash: str | None
    stripped_at: float | None
    invalidated: str | None
    events: tuple[Event, ...]

    @property
    def response(self) -> dict[str, Any] | None:
        """The response as an object; None when it has none, or no more."""
        return None if self.response_json is None else json.loads(self.response_json)

    @property
    def envelope(self) -> dict[str, Any] | None:
        """The envelope as an object; None once it was stripped."""
        return None if self.envelope_json is None else json.loads(self.envelope_json)

    @property
    def routing(self) -> dict[str, Any] | None:
        """The decision; None while there is none."""
        return None if self.routing_json is None else json.loads(self.routing_json)


class RecordState(NamedTuple):
    """The state of a closed record: when its bodies were removed, and the row of its last invalidation."""

    stripped_at: float | None
    invalidation: int | None


def refusal_to_replay(record: ExecutionRecord, known_faults: list[str] | None = None) -> str | None:
    """Return why it cannot be replayed, None when it can. In this order: it has no response; its header says so, or a
    person; it is not what was written. `known_faults`: what `faults` has returned; None: it is asked."""
    if record.response_hash is None and record.response_json is None:
        return Reason.EXECUTION_INCOMPLETE
    if record.invalidated is not None:
        return Reason.MANUALLY_INVALIDATED
    if not record.replayable:
        return record.replayable_reason or Reason.EXECUTION_INCOMPLETE
    if record.stripped_at is not None:
        return Reason.BODY_STRIPPED
    wrong = faults(record) if known_faults is None else known_faults
    return Reason.RECORD_CORRUPTED if wrong else None


def faults(record: ExecutionRecord) -> list[str]:
    """Return what of a record is not as it was written, in words; [] when it is all there and whole.

    A record that was closed before there was a chain (`record_hash` None) has only its envelope's hash to go by.
    """
    found = []
    if record.envelope_json is not None and sha256_of(record.envelope_json) != record.envelope_hash:
        found.append("its envelope is not the one that its hash was made of")
    numbers = [event.seq for event in record.events]
    if numbers != list(range(1, len(numbers) + 1)):
        found.append(f"its events are numbered {_summarize(numbers)}, not from 1 on without a gap")
    if record.stripped_at is None and record.envelope_json is None:
        found.append("its envelope is gone, and retention did not take it")
    if record.record_hash is None or record.chain_seq is None or record.ended_at is None:
        return found
    if record.response_json is not None and sha256_of(record.response_json) != record.response_hash:
        found.append("its response is not the one that its hash was made of")
    if record.response_json is None and record.response_hash is not None and record.stripped_at is None:
        found.append("its response is gone, and retention did not take it")
    stripped = record.stripped_at is not None and any(event.payload_json == "" for event in record.events)
    if not stripped and events_hash(record.events) != record.events_hash:
        found.append("its events are not those that their hash was made of")
    if record_hash(header_of(record)) != record.record_hash:
        found.append("its header is not the one that the record's hash was made of")
    return found


def header_of(record: ExecutionRecord) -> Header:
    """Return what the hash of a closed record covers."""
    assert record.chain_seq is not None, record.id
    assert record.ended_at is not None, record.id
    return Header(
        record.attempt, record.chain_seq, record.created_at, record.ended_at, record.envelope_hash, record.epoch,
        record.error_code, record.events_hash or "", record.id, record.latency_ms, record.prev_hash or "",
        int(record.replayable), record.replayable_reason, record.response_hash, record.routing_json, record.seq,
        record.status, record.task_id, record.trigger_id, record.turn, record.workflow,
    )  # fmt: skip


def _summarize(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return shown if len(numbers) <= 10 else f"{shown}, …"
