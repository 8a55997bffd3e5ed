"""The writes of each step of an attempt into its record. Each method is a rule over a transaction it is given."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from craftcore.executions.chain.append import ChainWriter, KnownRecord, RecordEnd
from craftcore.executions.chain.seal import Stream
from craftcore.executions.event_store import EventStore
from craftcore.executions.model import EventType, Reason, Status, Strategy, envelope, execution_id, milliseconds
from craftcore.executions.responses import response_of, truncate_result
from craftcore.executions.store import ExecutionStore, NewRecord, OpenHeader
from craftcore.serialization.canonical import canonicalize
from craftcore.storage.transaction import Transaction
from craftcore.triggers.model import Claim
from craftcore.triggers.overdue import moment_due, overdue_seconds
from craftcore.triggers.settlement import (
    Cancelled,
    Continued,
    Delivered,
    Failed,
    Outcome,
    Released,
    Rerouted,
    Snoozed,
    Suspended,
)


class Routed(NamedTuple):
    """Where a trigger goes, and why. `workflow`: the agent that runs; `intent`: what was asked for, None: the same;
    `agents`: all that are tried, in this order; (): that one."""

    workflow: str
    reason: str
    intent: str | None = None
    agents: tuple[str, ...] = ()

    @property
    def strategy(self) -> Strategy:
        return Strategy.FALLBACK if len(self.agents) > 1 else Strategy.DIRECT


class AttemptInfo(NamedTuple):
    """The values by which a record is opened. `turn` None: it is of no task. `entered`: the text of the event that
    says with what a turn is entered again; None: there is nothing to say."""

    claim: Claim
    routed: Routed | None
    task_id: str | None = None
    turn: int | None = None
    entered: str | None = None


class Record(NamedTuple):
    """An open record as the engine carries it, and which agent runs since when. `known`: what need not be read again;
    None: nothing."""

    seq: int
    id: str
    created_at: float
    routed: Routed | None
    agent_since: float
    known: KnownRecord | None = None


LastEvents = dict[Hashable, tuple[tuple[EventType, str], ...]]
"""The last events of a batch, by all that tells them apart."""


class Recorder:
    """Opens, extends and closes records. `response_max_bytes` bounds what a response keeps of a result."""

    def __init__(self, *, response_max_bytes: int = 8 << 20, overdue_after: float = 120.0) -> None:
        self._response_max_bytes = response_max_bytes
        self._overdue_after = overdue_after
        self._store = ExecutionStore()
        self._events = EventStore()
        self._chaining = ChainWriter()

    def open_all(self, tx: Transaction, epoch: int, attempts: Sequence[AttemptInfo]) -> list[Record]:
        """Open a record for each started attempt, with its first events."""
        now = tx.now
        openings: list[NewRecord] = []
        records: list[Record] = []
        streams: dict[Hashable, Stream] = {}
        for seq, attempt in enumerate(attempts, self._store.next_seq(tx)):
            header, envelope_text = _opening(seq, epoch, now, attempt)
            stream = self._first_events(now, attempt, streams)
            openings.append(NewRecord(header, envelope_text, stream.text[1:]))
            known = KnownRecord(header, stream.text, stream.count)
            records.append(Record(seq, header.id, now, attempt.routed, now, known))
        self._store.open_all(tx, openings)
        return records

    def record_decision(self, tx: Transaction, record: Record, attempt: AttemptInfo) -> Record:
        """Note the decision of a router that was asked inside the attempt, before the workflow runs."""
        assert record.known is not None, record
        assert attempt.routed is not None, attempt
        routed, header = attempt.routed, record.known.header
        header = header._replace(workflow=routed.intent or routed.workflow, routing_json=_routing(routed))
        if attempt.task_id is not None and attempt.turn is not None:
            header = header._replace(task_id=attempt.task_id, turn=attempt.turn)
        self._store.decide(tx, header)
        known = self._append(tx, record.known, header, _attempt_started(attempt))
        return record._replace(known=known, routed=routed, agent_since=tx.now)

    def record_fallback(self, tx: Transaction, record: Record, failed: Failed, attempt: AttemptInfo) -> Record:
        """Record that the agent which ran has failed, and that the one of `attempt` is tried next, before it runs."""
        assert record.known is not None, record
        assert record.routed is not None, record
        assert attempt.routed is not None, attempt
        before, after = record.routed.workflow, attempt.routed.workflow
        took = milliseconds(record.agent_since, tx.now)
        fallback = canonicalize({"from_agent": before, "to_agent": after, "reason": str(failed.code)})
        stream = [
            (EventType.AGENT_ATTEMPT_END, _agent_end_event(before, _error_field(failed.code), took, Status.ERROR)),
            (EventType.FALLBACK_TRIGGERED, fallback),
            *_attempt_started(attempt),
        ]
        header = record.known.header._replace(routing_json=_routing(attempt.routed))
        self._store.decide(tx, header)
        known = self._append(tx, record.known, header, stream)
        return record._replace(known=known, routed=attempt.routed, agent_since=tx.now)

    def close_all(self, tx: Transaction, ends: Sequence[tuple[Record, Outcome]]) -> None:
        """Close each record by what its attempt came to."""
        streams: LastEvents = {}
        self._chaining.close_all(tx, [self._end_of(record, outcome, tx.now, streams) for record, outcome in ends])

    def release_open(self, tx: Transaction, epoch: int, reason: str) -> None:
        """Close the records of this epoch's started claims as released; before the claims are handed back."""
        started = self._store.list_started(tx, epoch)
        self._chaining.close_all(tx, [_release_end(seq, Status.INCOMPLETE, reason, None) for seq in started])

    def truncate_result(self, result_json: str) -> str:
        """Return the result, or a stub with its size and hash when it is over the limit."""
        return truncate_result(result_json, self._response_max_bytes)

    def _append(
        self, tx: Transaction, known: KnownRecord, header: OpenHeader, stream: Sequence[tuple[EventType, str]]
    ) -> KnownRecord:
        """Return the record as it is known then. Its count no longer fits after events that it did not know."""
        last = self._events.newest_numbers(tx, [header.seq])[header.seq]
        rows = [(header.seq, number, type_, tx.now, text) for number, (type_, text) in enumerate(stream, last + 1)]
        self._events.add_all(tx, rows)
        goes_on = Stream(known.text, known.events)
        for type_, text in stream:
            goes_on.append(type_, tx.now, text)
        return KnownRecord(header, goes_on.text, goes_on.count, goes_on.count)

    def _first_events(self, now: float, attempt: AttemptInfo, streams: dict[Hashable, Stream]) -> Stream:
        """Return the first events of an attempt. Those of a batch that are alike are made once, and kept in
        `streams`."""
        claim = attempt.claim
        due_at = moment_due(claim)
        late = overdue_seconds(due_at, now, self._overdue_after)
        alike = (claim.workflow, claim.attempts, attempt.routed, attempt.entered, late and (due_at, late))
        stream = streams.get(alike)
        if stream is None:
            stream = streams[alike] = Stream()
            name = "null" if claim.workflow is None else f'"{claim.workflow}"'
            stream.append(EventType.INTENT_RECEIVED, now, f'{{"intent":{name},"timestamp":{now!r}}}')
            if late is not None:
                stream.append(EventType.OVERDUE, now, f'{{"due_at":{due_at!r},"overdue_seconds":{late!r}}}')
            for type_, text in () if attempt.routed is None else _attempt_started(attempt):
                stream.append(type_, now, text)
        return stream

    def _end_of(self, record: Record, outcome: Outcome, now: float, streams: LastEvents) -> RecordEnd:
        match outcome:
            case Released(reason=reason):
                return _release_end(record.seq, Status.INCOMPLETE, reason, record.known)
            case Rerouted(session_id=session_id):
                return _release_end(record.seq, Status.INCOMPLETE, f"waits for session {session_id}", record.known)
            case Snoozed(reason=reason):
                return _release_end(record.seq, Status.SUSPENDED, reason, record.known)
            case Suspended(event=wait):
                event = (EventType.TURN_SUSPENDED, canonicalize(wait))
                return _interrupted_end(record.seq, Status.SUSPENDED, event, record.known)
            case _:
                pass
        response = response_of(outcome, self._response_max_bytes)
        status, code = response.status, response.error_code
        delivered_to = outcome.task_id if isinstance(outcome, Delivered) else None
        alike = (type(outcome), delivered_to, record.routed, record.agent_since, record.created_at, status, code)
        events = streams.get(alike)
        if events is None:
            events = streams[alike] = tuple(_last_events(record, outcome, status, code, now))
        reason_ = None if response.is_whole else Reason.RECORDING_FAILURE
        return RecordEnd(record.seq, events, status, reason_, response.text, code, record.known)


def _last_events(
    record: Record, outcome: Outcome, status: Status, code: str | None, now: float
) -> Iterator[tuple[EventType, str]]:
    """Yield the events that end an attempt with a response."""
    match outcome:
        case Cancelled():
            yield EventType.CANCEL_REQUESTED, "{}"
        case Continued():
            yield EventType.TURN_CONTINUED, "{}"
        case Delivered(task_id=task_id):
            yield EventType.DELIVERED, canonicalize({"task": task_id})
        case _:
            pass
    error = _error_field(code)
    if record.routed is not None:
        took = milliseconds(record.agent_since, now)
        yield EventType.AGENT_ATTEMPT_END, _agent_end_event(record.routed.workflow, error, took, status)
        yield EventType.ROUTER_DECISION, _decision(record.routed)
    has_error = "true" if status is Status.ERROR else "false"
    took = milliseconds(record.created_at, now)
    yield EventType.FINAL_RESPONSE, f'{{{error}"has_error":{has_error},"latency_ms":{took!r},"status":"{status}"}}'


def _release_end(seq: int, status: Status, reason: str, known: KnownRecord | None) -> RecordEnd:
    event = (EventType.ATTEMPT_RELEASED, canonicalize({"reason": reason}))
    return _interrupted_end(seq, status, event, known)


def _interrupted_end(seq: int, status: Status, event: tuple[EventType, str], known: KnownRecord | None) -> RecordEnd:
    """Return the end of an attempt without a response."""
    return RecordEnd(seq, (event,), status, Reason.EXECUTION_INCOMPLETE, None, None, known)


def _opening(seq: int, epoch: int, now: float, attempt: AttemptInfo) -> tuple[OpenHeader, str]:
    """Return the header of a new record, and the text of its envelope."""
    claim, routed = attempt.claim, attempt.routed
    asked = envelope(
        workflow=claim.workflow,
        payload_json=claim.payload_json,
        request_id=claim.id,
        source=claim.source,
        session_id=claim.session_id,
        description=claim.description,
    )
    header = OpenHeader(
        seq,
        execution_id(claim.id, claim.starts),
        claim.id,
        attempt.task_id or claim.task_id,
        attempt.turn,
        claim.attempts,
        epoch,
        routed.intent or routed.workflow if routed else None,
        now,
        asked.hash,
        _routing(routed) if routed else None,
    )
    return header, asked.text


@lru_cache(maxsize=1024)
def _routing(routed: Routed) -> str:
    agents = f'"agents":{canonicalize(list(routed.agents))},' if len(routed.agents) > 1 else ""
    return f'{{"agent":"{routed.workflow}",{agents}"reason":"{routed.reason}","strategy":"{routed.strategy}"}}'


@lru_cache(maxsize=1024)
def _decision(routed: Routed) -> str:
    intent = routed.intent or routed.workflow
    return f'{{"agent":"{routed.workflow}","intent":"{intent}","reason":"{routed.reason}"}}'


def _error_field(code: str | None) -> str:
    """Return the field of an event that says it, with its comma."""
    return f'"error_code":{canonicalize(str(code))},' if code else ""


def _agent_end_event(agent: str, error: str, took: float, status: str) -> str:
    return f'{{"agent":"{agent}",{error}"latency_ms":{took!r},"status":"{status}"}}'


def _attempt_started(attempt: AttemptInfo) -> list[tuple[EventType, str]]:
    assert attempt.routed is not None, attempt
    text = f'{{"agent":"{attempt.routed.workflow}","attempt_num":{attempt.claim.attempts}}}'
    stream = [(EventType.AGENT_ATTEMPT_START, text)]
    if attempt.entered is not None:
        stream.append((EventType.TURN_ENTERED, attempt.entered))
    return stream
