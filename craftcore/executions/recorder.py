"""What each step of an attempt writes into its record. Each method is a rule over a transaction it is given."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

from craftcore.canonical import canonical
from craftcore.errors import ErrorCode
from craftcore.executions.model import EventType, Status, envelope, execution_id
from craftcore.executions.store import Closing, EventRow, ExecutionStore, Opening
from craftcore.storage.transaction import Transaction
from craftcore.triggers.model import Claim
from craftcore.triggers.overdue import due_moment, overdue_seconds
from craftcore.triggers.settlement import Cancelled, Corrupt, Failed, Outcome, Released, Rerouted, Snoozed, Succeeded


class Routed(NamedTuple):
    """Where a trigger goes, and why."""

    workflow: str
    reason: str


class Record(NamedTuple):
    """An open record as the engine carries it: which one, its next event number, and since when it runs."""

    seq: int
    id: str
    next_event: int
    created_at: float
    routed: Routed | None


class Recorder:
    """Opens, extends and closes records. `response_max_bytes` bounds what a response keeps of a result."""

    def __init__(self, *, response_max_bytes: int = 8 << 20, overdue_after: float = 120.0) -> None:
        self._response_max_bytes = response_max_bytes
        self._overdue_after = overdue_after
        self._store = ExecutionStore()

    def open_all(self, tx: Transaction, epoch: int, attempts: Sequence[tuple[Claim, Routed | None]]) -> list[Record]:
        """Open a record for each started attempt, with its first events."""
        now = tx.now
        openings: list[Opening] = []
        events: list[EventRow] = []
        records: list[Record] = []
        for seq, (claim, routed) in enumerate(attempts, self._store.next_seq(tx)):
            opening = _opening(seq, epoch, now, claim, routed)
            stream = self._beginning(now, claim, routed)
            openings.append(opening)
            for number, (type_, text) in enumerate(stream, 1):
                events.append((seq, number, type_, now, text))
            records.append(Record(seq, opening.id, len(stream) + 1, now, routed))
        self._store.open_all(tx, openings)
        self._store.add_events(tx, events)
        return records

    def decided(self, tx: Transaction, record: Record, claim: Claim, routed: Routed) -> Record:
        """Note the decision of a router that was asked inside the attempt, before the workflow runs."""
        self._store.decide(tx, record.seq, routed.workflow, _routing(routed))
        text = _attempt_start(routed, claim)
        self._store.add_events(tx, [(record.seq, record.next_event, EventType.AGENT_ATTEMPT_START, tx.now, text)])
        return record._replace(next_event=record.next_event + 1, routed=routed)

    def close_all(self, tx: Transaction, ends: Sequence[tuple[Record, Outcome]]) -> None:
        """Close each record by what its attempt came to."""
        events: list[EventRow] = []
        closings: list[Closing] = []
        for record, outcome in ends:
            latency = max(0.0, round((tx.now - record.created_at) * 1000, 3))
            stream, closing = self._ending(record, outcome, tx.now, latency)
            for number, (type_, text) in enumerate(stream, record.next_event):
                events.append((record.seq, number, type_, tx.now, text))
            closings.append(closing)
        self._store.add_events(tx, events)
        self._store.close_all(tx, closings)

    def _beginning(self, now: float, claim: Claim, routed: Routed | None) -> list[tuple[EventType, str]]:
        name = "null" if claim.workflow is None else f'"{claim.workflow}"'
        stream = [(EventType.INTENT_RECEIVED, f'{{"intent":{name},"timestamp":{now!r}}}')]
        due_at = due_moment(claim)
        if (late := overdue_seconds(due_at, now, self._overdue_after)) is not None:
            stream.append((EventType.OVERDUE, f'{{"due_at":{due_at!r},"overdue_seconds":{late!r}}}'))
        if routed is not None:
            stream.append((EventType.AGENT_ATTEMPT_START, _attempt_start(routed, claim)))
        return stream

    def _ending(
        self, record: Record, outcome: Outcome, now: float, latency: float
    ) -> tuple[list[tuple[EventType, str]], Closing]:
        if isinstance(outcome, (Released, Rerouted, Snoozed)):
            left, reason = _given_back(outcome)
            stream = [(EventType.ATTEMPT_RELEASED, canonical({"reason": reason}))]
            return stream, Closing(left, 0, "execution_incomplete", None, None, now, latency, record.seq)
        status, code, response = self._response(outcome)
        agent = f'"{record.routed.workflow}"' if record.routed else "null"
        error = f',"error_code":{canonical(str(code))}' if code else ""
        stream = []
        if isinstance(outcome, Cancelled):
            stream.append((EventType.CANCEL_REQUESTED, "{}"))
        if record.routed is not None:
            end = f'{{"agent":{agent}{error},"latency_ms":{latency!r},"status":"{status}"}}'
            stream.append((EventType.AGENT_ATTEMPT_END, end))
            stream.append((EventType.ROUTER_DECISION, _decision(record.routed)))
        final = f'{{{error[1:] + "," if error else ""}"has_error":{"true" if code else "false"},"status":"{status}"}}'
        stream.append((EventType.FINAL_RESPONSE, final))
        return stream, Closing(status, 1, None, response, code, now, latency, record.seq)

    def _response(self, outcome: Succeeded | Failed | Cancelled | Corrupt) -> tuple[str, str | None, str]:
        """Status, error code and the response's text."""
        match outcome:
            case Succeeded(result_json=result):
                return "success", None, f'{{"metadata":{{}},"payload":{self._bounded(result)},"status":"success"}}'
            case Failed():
                text = _error(outcome.code, outcome.message, outcome.retryable, outcome.details)
                return "error", outcome.code, text
            case Cancelled():
                code = ErrorCode.WORKFLOW_ABORTED
                return "error", code, _error(code, "cancelled while it ran", False, {})
            case Corrupt(message=message):
                code = ErrorCode.VALIDATION_ERROR
                return "error", code, _error(code, message, False, {})

    def _bounded(self, result_json: str) -> str:
        """The result, or a stub with its size and hash when it is over the limit."""
        if len(result_json) <= self._response_max_bytes:
            return result_json
        digest = sha256(result_json.encode()).hexdigest()
        return canonical({"result_unstored": "too large", "bytes": len(result_json), "sha256": digest})


def _opening(seq: int, epoch: int, now: float, claim: Claim, routed: Routed | None) -> Opening:
    asked = envelope(
        workflow=claim.workflow,
        payload_json=claim.payload_json,
        request_id=claim.id,
        source=claim.source,
        session_id=claim.session_id,
        description=claim.description,
    )
    return Opening(
        seq,
        execution_id(claim.id, claim.starts),
        claim.id,
        claim.task_id,
        claim.attempts,
        epoch,
        routed.workflow if routed else None,
        now,
        asked.text,
        asked.hash,
        _routing(routed) if routed else None,
    )


def _given_back(outcome: Released | Rerouted | Snoozed) -> tuple[Status, str]:
    match outcome:
        case Released(reason=reason):
            return Status.INCOMPLETE, reason
        case Rerouted(session_id=session_id):
            return Status.INCOMPLETE, f"waits for session {session_id}"
        case Snoozed():
            return Status.SUSPENDED, "snoozed"


def _error(code: str, message: str, retryable: bool, details: dict[str, Any]) -> str:
    error = {"code": str(code), "message": message, "retryable": retryable, "details": details}
    return canonical({"error": error, "metadata": {}, "status": "error"})


@lru_cache(maxsize=1024)
def _routing(routed: Routed) -> str:
    return f'{{"agent":"{routed.workflow}","reason":"{routed.reason}","strategy":"DIRECT"}}'


@lru_cache(maxsize=1024)
def _decision(routed: Routed) -> str:
    return f'{{"agent":"{routed.workflow}","intent":"{routed.workflow}","reason":"{routed.reason}"}}'


def _attempt_start(routed: Routed, claim: Claim) -> str:
    return f'{{"agent":"{routed.workflow}","attempt_num":{claim.attempts}}}'
