"""Replay: a record gives back what was recorded, or says why it cannot. Pure: nothing is run, nothing is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from craftcore.clock import utc_iso
from craftcore.errors import CraftcoreError, InvalidInput, NotReplayable, ReplayHashMismatch
from craftcore.executions.model import Reason, envelope_hash, require_supported
from craftcore.executions.record import ExecutionRecord, faults, refusal_to_replay

FORCED = "Forced replay of non-replayable record"
"""The first warning of a replay that only `force` made possible; the second is the reason."""

NO_RESPONSE = "its response is not a JSON object, or its metadata or error is not one"

_WORDS: dict[str, str] = {
    Reason.EXECUTION_INCOMPLETE: "it has no response: it runs, was handed back, waits, or ended with its process",
    Reason.RECORDING_FAILURE: "its response could not be kept as it was",
    Reason.BODY_STRIPPED: "retention took its bodies away",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """The recorded outcome of an attempt; nothing was run for it. It may be shared: do not change it.

    `status` is the record's: `success`, `error`, and after a forced replay also `incomplete` or `suspended`. `payload`
    is the result, None when there is none. `error` is the recorded error, an object with its `code` and `message`; None
    for a success. `response_json` is the whole response, to the byte as it was recorded; None where there is none.
    `original_timestamp` is when the attempt began, ISO 8601 in UTC. `warnings` is [] unless the replay was forced.
    """

    status: str
    payload: Any
    metadata: dict[str, Any]
    error: dict[str, Any] | None
    response_json: str | None
    from_replay: bool = True
    original_execution_id: str
    original_timestamp: str
    warnings: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayEntry:
    """One of several replays. Either `result` or `error` is there."""

    execution_id: str
    result: ReplayResult | None = None
    error: CraftcoreError | None = None

    @property
    def code(self) -> str | None:
        """Why there is no result: `NOT_FOUND`, `NOT_REPLAYABLE`, …; None when there is one."""
        return None if self.error is None else self.error.name

    @property
    def reason(self) -> str | None:
        """Why its record cannot be replayed, a word of Reason; None when that is not what is wrong."""
        return None if self.error is None else self.error.details.get("reason")


def replay(record: ExecutionRecord, envelope: Mapping[str, Any] | None = None, *, force: bool = False) -> ReplayResult:
    """Return the recorded response. With `envelope`, only if that is what the record is of.

    `force` gives what there is of a record that cannot be replayed, with warnings; a wrong envelope it does not excuse.
    Raises NotReplayable, ReplayHashMismatch; InvalidInput for an envelope that is not JSON.
    """
    response = _response(record)
    reason = _refuse(record, response)
    if reason is not None and not force:
        raise NotReplayable(
            f"{record.id} cannot be replayed ({reason}): {_explain(record, reason)}",
            execution_id=record.id,
            reason=str(reason),
        )
    if envelope is not None:
        require_envelope(record.id, record.envelope_hash, envelope)
    response = response or {}
    return ReplayResult(
        status=str(record.status),
        payload=response.get("payload"),
        metadata=response.get("metadata", {}),
        error=response.get("error"),
        response_json=record.response_json,
        original_execution_id=record.id,
        original_timestamp=utc_iso(record.created_at) or str(record.created_at),
        warnings=[] if reason is None else [FORCED, f"{reason}: {_explain(record, reason)}"],
    )


def refusal(record: ExecutionRecord) -> str | None:
    """Return why a record cannot be replayed, None when it can; in the order of `why_not_replayable`."""
    return _refuse(record, _response(record))


def require_envelope(execution_id: str, recorded: str, envelope: Mapping[str, Any]) -> None:
    """Raise ReplayHashMismatch unless `recorded` is the hash of the envelope; InvalidInput when it has none, or its
    version is not supported."""
    require_supported(envelope)
    try:
        provided = envelope_hash(envelope)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the envelope to compare {execution_id} with is not JSON: {error}") from error
    if provided != recorded:
        raise ReplayHashMismatch(
            f"{execution_id} is the record of another envelope: recorded {recorded}, provided {provided}",
            execution_id=execution_id,
            recorded=recorded,
            provided=provided,
        )


def _refuse(record: ExecutionRecord, response: dict[str, Any] | None) -> str | None:
    return refusal_to_replay(record) or (Reason.RECORD_CORRUPTED if response is None else None)


def _response(record: ExecutionRecord) -> dict[str, Any] | None:
    """Return the response as the object it must be. None: it is missing or not an object."""
    try:
        response = None if record.response_json is None else json.loads(record.response_json)
    except (ValueError, RecursionError):
        return None
    if not isinstance(response, dict) or not isinstance(response.get("metadata", {}), dict):
        return None
    return response if isinstance(response.get("error"), dict | None) else None


def _explain(record: ExecutionRecord, reason: str) -> str:
    match reason:
        case Reason.RECORD_CORRUPTED:
            return "; ".join(faults(record) or [NO_RESPONSE])
        case Reason.MANUALLY_INVALIDATED if record.invalidated:
            return f"it was invalidated: {record.invalidated}"
        case Reason.MANUALLY_INVALIDATED:
            return "it was invalidated"
        case _:
            return _WORDS.get(reason, "its header says so")
