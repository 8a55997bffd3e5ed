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
from craftcore.triggers.settlement import (
    Cancelled,
    Continued,
    Corrupt,
    Delivered,
    Failed,
    Obsolete,
    Outcome,
    Released,
    Rerouted,
    Snoozed,
    Succeeded,
    Suspended,
)


class Routed(NamedTuple):
    """Where a trigger goes, and why."""

    workflow: str
    reason: str


class Attempt(NamedTuple):
    """What a record is opened of. `turn` None: it is of no task. `entered`: the text of the event that says with what
    a turn is entered again; None: there is nothing to say."""

    claim: Claim
    routed: Routed | None
    task_id: str | None = None
    turn: int | None = None
    entered: str | None = None


class Record(NamedTuple):
    """An open record as the engine carries it: which one, its next event number, and since when it runs.

    `is_task`: what the task completes is recorded as it goes, so the next number is the table's to say.
    """

    seq: int
    id: str
    next_event: int
    created_at: float
    routed: Routed | None
    is_task: bool


class Recorder:
    """Opens, extends and closes records. `response_max_bytes` bounds what a response keeps of a result."""

    def __init__(self, *, response_max_bytes: int = 8 << 20, overdue_after: float = 120.0) -> None:
        self._response_max_bytes = response_max_bytes
        self._overdue_after = overdue_after
        self._store = ExecutionStore()

    def open_all(self, tx: Transaction, epoch: int, attempts: Sequence[Attempt]) -> list[Record]:
        """Open a record for each started attempt, with its first events."""
        now = tx.now
        openings: list[Opening] = []
        events: list[EventRow] = []
        records: list[Record] = []
        for seq, attempt in enumerate(attempts, self._store.next_seq(tx)):
            opening = _opening(seq, epoch, now, attempt)
            stream = self._beginning(now, attempt)
            openings.append(opening)
            for number, (type_, text) in enumerate(stream, 1):
                events.append((seq, number, type_, now, text))
            records.append(
                Record(seq, opening.id, len(stream) + 1, now, attempt.routed, is_task=attempt.turn is not None)
            )
        self._store.open_all(tx, openings)
        self._store.add_events(tx, events)
        return records

    def decided(self, tx: Transaction, record: Record, attempt: Attempt) -> Record:
        """Note the decision of a router that was asked inside the attempt, before the workflow runs."""
        assert attempt.routed is not None, attempt
        self._store.decide(tx, record.seq, attempt.routed.workflow, _routing(attempt.routed))
        if attempt.task_id is not None and attempt.turn is not None:
            self._store.join_task(tx, record.seq, attempt.task_id, attempt.turn)
        stream = _attempt_started(attempt)
        self._store.add_events(
            tx,
            [
                (record.seq, number, type_, tx.now, text)
                for number, (type_, text) in enumerate(stream, record.next_event)
            ],
        )
        return record._replace(
            next_event=record.next_event + len(stream), routed=attempt.routed, is_task=attempt.turn is not None
        )

    def close_all(self, tx: Transaction, ends: Sequence[tuple[Record, Outcome]]) -> None:
        """Close each record by what its attempt came to."""
        events: list[EventRow] = []
        closings: list[Closing] = []
        grown = [record.seq for record, _ in ends if record.is_task]
        last = self._store.last_events(tx, grown) if grown else {}
        for record, outcome in ends:
            next_event = last[record.seq] + 1 if record.is_task else record.next_event
            latency = max(0.0, round((tx.now - record.created_at) * 1000, 3))
            stream, closing = self._ending(record, outcome, tx.now, latency)
            for number, (type_, text) in enumerate(stream, next_event):
                events.append((record.seq, number, type_, tx.now, text))
            closings.append(closing)
        self._store.add_events(tx, events)
        self._store.close_all(tx, closings)

    def _beginning(self, now: float, attempt: Attempt) -> list[tuple[EventType, str]]:
        claim = attempt.claim
        name = "null" if claim.workflow is None else f'"{claim.workflow}"'
        stream = [(EventType.INTENT_RECEIVED, f'{{"intent":{name},"timestamp":{now!r}}}')]
        due_at = due_moment(claim)
        if (late := overdue_seconds(due_at, now, self._overdue_after)) is not None:
            stream.append((EventType.OVERDUE, f'{{"due_at":{due_at!r},"overdue_seconds":{late!r}}}'))
        return stream if attempt.routed is None else [*stream, *_attempt_started(attempt)]

    def _ending(
        self, record: Record, outcome: Outcome, now: float, latency: float
    ) -> tuple[list[tuple[EventType, str]], Closing]:
        if isinstance(outcome, (Released, Rerouted, Snoozed, Suspended)):
            left, event, text = _left_open(outcome)
            return [(event, text)], Closing(left, 0, "execution_incomplete", None, None, now, latency, record.seq)
        status, code, response = self._response(outcome)
        agent = f'"{record.routed.workflow}"' if record.routed else "null"
        error = f',"error_code":{canonical(str(code))}' if code else ""
        stream = []
        match outcome:
            case Cancelled():
                stream.append((EventType.CANCEL_REQUESTED, "{}"))
            case Continued():
                stream.append((EventType.TURN_CONTINUED, "{}"))
            case Delivered(task_id=task_id):
                stream.append((EventType.DELIVERED, canonical({"task": task_id})))
        if record.routed is not None:
            end = f'{{"agent":{agent}{error},"latency_ms":{latency!r},"status":"{status}"}}'
            stream.append((EventType.AGENT_ATTEMPT_END, end))
            stream.append((EventType.ROUTER_DECISION, _decision(record.routed)))
        final = f'{{{error[1:] + "," if error else ""}"has_error":{"true" if code else "false"},"status":"{status}"}}'
        stream.append((EventType.FINAL_RESPONSE, final))
        return stream, Closing(status, 1, None, response, code, now, latency, record.seq)

    def _response(
        self, outcome: Succeeded | Failed | Cancelled | Corrupt | Continued | Delivered | Obsolete
    ) -> tuple[str, str | None, str]:
        """Status, error code and the response's text."""
        match outcome:
            case Succeeded(result_json=result):
                return "success", None, f'{{"metadata":{{}},"payload":{self.bounded(result)},"status":"success"}}'
            case Continued() | Delivered():
                return "success", None, '{"metadata":{},"payload":null,"status":"success"}'
            case Obsolete(reason=reason):
                return "error", ErrorCode.WORKFLOW_ABORTED, _error(ErrorCode.WORKFLOW_ABORTED, reason, False, {})
            case Failed():
                text = _error(outcome.code, outcome.message, outcome.retryable, outcome.details)
                if len(text) > self._response_max_bytes:
                    details = {"details_unstored": "too large", "bytes": len(text)}
                    text = _error(outcome.code, outcome.message, outcome.retryable, details)
                return "error", outcome.code, text
            case Cancelled():
                code = ErrorCode.WORKFLOW_ABORTED
                return "error", code, _error(code, "cancelled while it ran", False, {})
            case Corrupt(message=message):
                code = ErrorCode.VALIDATION_ERROR
                return "error", code, _error(code, message, False, {})

    def bounded(self, result_json: str) -> str:
        """The result, or a stub with its size and hash when it is over the limit."""
        if len(result_json) <= self._response_max_bytes:
            return result_json
        digest = sha256(result_json.encode()).hexdigest()
        return canonical({"result_unstored": "too large", "bytes": len(result_json), "sha256": digest})


def _opening(seq: int, epoch: int, now: float, attempt: Attempt) -> Opening:
    claim, routed = attempt.claim, attempt.routed
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
        attempt.task_id or claim.task_id,
        attempt.turn,
        claim.attempts,
        epoch,
        routed.workflow if routed else None,
        now,
        asked.text,
        asked.hash,
        _routing(routed) if routed else None,
    )


def _left_open(outcome: Released | Rerouted | Snoozed | Suspended) -> tuple[Status, EventType, str]:
    match outcome:
        case Released(reason=reason):
            return Status.INCOMPLETE, EventType.ATTEMPT_RELEASED, canonical({"reason": reason})
        case Rerouted(session_id=session_id):
            reason = f"waits for session {session_id}"
            return Status.INCOMPLETE, EventType.ATTEMPT_RELEASED, canonical({"reason": reason})
        case Snoozed():
            return Status.SUSPENDED, EventType.ATTEMPT_RELEASED, canonical({"reason": "snoozed"})
        case Suspended(event=event):
            return Status.SUSPENDED, EventType.TURN_SUSPENDED, canonical(event)


def _error(code: str, message: str, retryable: bool, details: dict[str, Any]) -> str:
    error = {"code": str(code), "message": message, "retryable": retryable, "details": details}
    return canonical({"error": error, "metadata": {}, "status": "error"})


@lru_cache(maxsize=1024)
def _routing(routed: Routed) -> str:
    return f'{{"agent":"{routed.workflow}","reason":"{routed.reason}","strategy":"DIRECT"}}'


@lru_cache(maxsize=1024)
def _decision(routed: Routed) -> str:
    return f'{{"agent":"{routed.workflow}","intent":"{routed.workflow}","reason":"{routed.reason}"}}'


def _attempt_started(attempt: Attempt) -> list[tuple[EventType, str]]:
    assert attempt.routed is not None, attempt
    text = f'{{"agent":"{attempt.routed.workflow}","attempt_num":{attempt.claim.attempts}}}'
    stream = [(EventType.AGENT_ATTEMPT_START, text)]
    if attempt.entered is not None:
        stream.append((EventType.TURN_ENTERED, attempt.entered))
    return stream
