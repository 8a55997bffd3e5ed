"""Records: envelope, events and response. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from craftcore.errors import InvalidInput
from craftcore.serialization.canonical import canonicalize, sha256_of
from craftcore.triggers.workflow_names import FIRST_VERSION, intent_of


class EventType(StrEnum):
    """The types of events in the stream of a record. The first six are the failure model's, the others ours."""

    INTENT_RECEIVED = "INTENT_RECEIVED"
    AGENT_ATTEMPT_START = "AGENT_ATTEMPT_START"
    AGENT_ATTEMPT_END = "AGENT_ATTEMPT_END"
    FALLBACK_TRIGGERED = "FALLBACK_TRIGGERED"
    ROUTER_DECISION = "ROUTER_DECISION"
    FINAL_RESPONSE = "FINAL_RESPONSE"
    OVERDUE = "OVERDUE"
    CANCEL_REQUESTED = "CANCEL_REQUESTED"
    ATTEMPT_RELEASED = "ATTEMPT_RELEASED"
    TURN_ENTERED = "TURN_ENTERED"
    TURN_CONTINUED = "TURN_CONTINUED"
    TURN_SUSPENDED = "TURN_SUSPENDED"
    STEP_COMPLETED = "STEP_COMPLETED"
    STEP_FAILED = "STEP_FAILED"
    NOTE = "NOTE"
    EMITTED = "EMITTED"
    CHILD_STARTED = "CHILD_STARTED"
    DELIVERED = "DELIVERED"
    ACTIVITY_INTENT = "ACTIVITY_INTENT"
    ACTIVITY_DONE = "ACTIVITY_DONE"
    ACTIVITY_FAILED = "ACTIVITY_FAILED"
    ACTIVITY_UNKNOWN = "ACTIVITY_UNKNOWN"
    ACTIVITY_RESOLVED = "ACTIVITY_RESOLVED"


class Status(StrEnum):
    """`incomplete` from the first event on, until a final response closes the record."""

    SUCCESS = "success"
    ERROR = "error"
    INCOMPLETE = "incomplete"
    SUSPENDED = "suspended"


class Strategy(StrEnum):
    """How the agents of a route are tried."""

    DIRECT = "DIRECT"
    """One, and its end is that of the attempt."""
    FALLBACK = "FALLBACK"
    """When one fails the next is tried at once, each once, in order."""


class Reason(StrEnum):
    """Why a record cannot be replayed."""

    EXECUTION_INCOMPLETE = "execution_incomplete"
    """It has no response: its attempt runs, was handed back, waits, or ended with the process."""
    RECORDING_FAILURE = "recording_failure"
    """Its response could not be kept as it was."""
    MANUALLY_INVALIDATED = "manually_invalidated"
    BODY_STRIPPED = "body_stripped"
    """Retention took its bodies away."""
    RECORD_CORRUPTED = "record_corrupted"
    """It is not what was written."""


class Envelope(NamedTuple):
    """The canonical text of what was asked for, and its hash."""

    text: str
    hash: str


def execution_id(trigger_id: str, start: int) -> str:
    """Return `exec-<trigger id>.<start>`: a trigger's records lie side by side, and the trigger's id is the request
    id."""
    return f"exec-{trigger_id}.{start}"


def milliseconds(since: float, now: float) -> float:
    """Return how long it took; 0.0 when the clock was set back."""
    return max(0.0, round((now - since) * 1000, 3))


def envelope(
    *,
    workflow: str | None,
    payload_json: str,
    request_id: str,
    source: str,
    session_id: str | None,
    description: str | None,
) -> Envelope:
    """Return the envelope of one attempt: the same for every attempt of a trigger.

    Put together from texts that are canonical already, which is what makes hashing it cheap; names cannot hold
    a character that JSON would escape.
    """
    metadata = f'"requestId":"{request_id}",'
    if description is not None:
        metadata = f'"description":{canonicalize(description)},{metadata}'
    if session_id is not None:
        metadata += f'"sessionId":"{session_id}",'
    intent, version = (None, FIRST_VERSION) if workflow is None else intent_of(workflow)
    name = "null" if intent is None else f'"{intent}"'
    text = (
        f'{{"intent":{{"name":{name},"version":"{version}"}},"metadata":{{{metadata}"source":"{source}"}},'
        f'"payload":{payload_json},"version":"{ENVELOPE_VERSION}"}}'
    )
    return Envelope(text, sha256_of(text))


ENVELOPE_VERSION = "1.0"
"""The version of envelopes that are written, and the only one that is read."""


def require_supported(envelope: Mapping[str, Any]) -> None:
    """Raise InvalidInput, a VALIDATION_ERROR, for an envelope of another version, or one whose intent has no name.

    An envelope without a version passes. An intent whose name is null passes: its router decides.
    """
    version, intent = envelope.get("version", ENVELOPE_VERSION), envelope.get("intent")
    if version != ENVELOPE_VERSION:
        raise InvalidInput(
            f"Invalid envelope: unsupported version {version!r:.80}; the version that is read is {ENVELOPE_VERSION}"
        )
    if isinstance(intent, Mapping) and intent.get("name") == "":
        raise InvalidInput("Invalid envelope: the name of the intent is empty; give the name of a workflow")


def envelope_hash(envelope: Mapping[str, Any]) -> str:
    """Return the hash of an envelope, whatever the order of its keys. `routingMetadata` does not count.

    Raises TypeError, ValueError or RecursionError for what is not JSON.
    """
    return sha256_of(canonicalize({key: value for key, value in envelope.items() if key != "routingMetadata"}))
