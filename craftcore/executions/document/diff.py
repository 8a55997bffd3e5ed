"""How two records differ: status, response, envelope, routing, and the events by position. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from craftcore.executions.chain.seal import Event
from craftcore.executions.record import ExecutionRecord
from craftcore.executions.replay import refusal
from craftcore.serialization.canonical import canonicalize

OWN = (
    "id", "trigger_id", "task_id", "turn", "attempt", "epoch", "seq", "created_at", "ended_at", "latency_ms",
    "chain_seq", "envelope_hash", "events_hash", "response_hash", "prev_hash", "record_hash", "stripped_at",
)  # fmt: skip
"""Fields by which a record is another than any other, whatever it says."""

OWN_OF_EVENTS = {"at", "timestamp", "latency_ms", "attempt_num", "due_at", "overdue_seconds"}
OWN_OF_ENVELOPE = "envelope.metadata.requestId"


class Absent:
    """The mark of a missing value; None is a value."""


ABSENT = Absent()


class Difference(NamedTuple):
    """One part that is not the same in both: ABSENT where one has no such part.

    `is_own`: every record has its own here (ids, times, numbers, hashes), so that two that say the same differ in it.
    """

    path: str
    a: Any
    b: Any
    is_own: bool


def differences(a: ExecutionRecord, b: ExecutionRecord) -> list[Difference]:
    """Return every part that is not the same, from the status down to the last event."""
    found = [
        *_leaf_differences("status", str(a.status), str(b.status)),
        *_leaf_differences("error_code", a.error_code, b.error_code),
        *_leaf_differences("workflow", a.workflow, b.workflow),
        *_leaf_differences("not_replayable", _reason(a), _reason(b)),
        *_text_differences("routing", a.routing_json, b.routing_json),
        *_text_differences("response", a.response_json, b.response_json),
        *_text_differences("envelope", a.envelope_json, b.envelope_json),
    ]
    for number in range(max(len(a.events), len(b.events))):
        found += _event_differences(number + 1, _value_at(a.events, number), _value_at(b.events, number))
    for name in OWN:
        found += _leaf_differences(name, getattr(a, name), getattr(b, name), is_own=True)
    return found


def _event_differences(position: int, a: Event | None, b: Event | None) -> Iterator[Difference]:
    path = f"events.{position}"
    if a is None or b is None or a.type != b.type:
        yield Difference(path, ABSENT if a is None else a.type, ABSENT if b is None else b.type, False)
        return
    yield from _leaf_differences(f"{path}.seq", a.seq, b.seq)
    yield from _leaf_differences(f"{path}.at", a.at, b.at, is_own=True)
    for found in _text_differences(path, a.payload_json, b.payload_json):
        yield found._replace(is_own=found.path.removeprefix(f"{path}.") in OWN_OF_EVENTS)


def _text_differences(path: str, a: str | None, b: str | None) -> Iterator[Difference]:
    """Text by text first: parsing what is the same would be for nothing."""
    return iter(()) if a == b else _leaf_differences(path, _read(a), _read(b))


def _leaf_differences(path: str, a: Any, b: Any, *, is_own: bool = False) -> Iterator[Difference]:
    """Yield the leaves in which two values differ, in the order of their names and places."""
    waiting = [(path, a, b)]
    while waiting:
        where, one, other = waiting.pop()
        match one, other:
            case dict(), dict():
                names = sorted(one.keys() | other.keys(), reverse=True)
                waiting += [(f"{where}.{name}", one.get(name, ABSENT), other.get(name, ABSENT)) for name in names]
            case list(), list():
                for place in reversed(range(max(len(one), len(other)))):
                    waiting.append(
                        (f"{where}[{place}]", _value_at(one, place, ABSENT), _value_at(other, place, ABSENT))
                    )
            case _ if not _is_same(one, other):
                yield Difference(where, one, other, is_own or where == OWN_OF_ENVELOPE)


def _is_same(a: Any, b: Any) -> bool:
    """1, 1.0 and true are three values."""
    if a is ABSENT or b is ABSENT:
        return a is b
    try:
        return canonicalize(a) == canonicalize(b)
    except ValueError:  # an infinite number out of a damaged row
        return repr(a) == repr(b)


def _read(text: str | None) -> Any:
    """Return what a text says; one that was damaged is compared as it is."""
    try:
        value = None if text is None else json.loads(text)
        canonicalize(value)
    except (ValueError, RecursionError):
        return text
    return value


def _reason(record: ExecutionRecord) -> str | None:
    reason = refusal(record)
    return None if reason is None else str(reason)


def _value_at(parts: Any, place: int, absent: Any = None) -> Any:
    return parts[place] if place < len(parts) else absent
