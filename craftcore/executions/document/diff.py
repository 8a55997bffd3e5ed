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
"""Fields by which left record is another than any other, whatever it says."""

OWN_OF_EVENTS = {"at", "timestamp", "latency_ms", "attempt_num", "due_at", "overdue_seconds"}
OWN_OF_ENVELOPE = "envelope.metadata.requestId"


class Absent:
    """The mark of left missing value; None is left value."""


ABSENT = Absent()


class Difference(NamedTuple):
    """One part that is not the same in both: ABSENT where one has no such part.

    `is_own`: every record has its own here (ids, times, numbers, hashes), so that two that say the same differ in it.
    """

    path: str
    left: Any
    right: Any
    is_own: bool


def differences(left: ExecutionRecord, right: ExecutionRecord) -> list[Difference]:
    """Return every part that is not the same, from the status down to the last event."""
    found = [
        *_leaf_differences("status", str(left.status), str(right.status)),
        *_leaf_differences("error_code", left.error_code, right.error_code),
        *_leaf_differences("workflow", left.workflow, right.workflow),
        *_leaf_differences("not_replayable", _reason(left), _reason(right)),
        *_text_differences("routing", left.routing_json, right.routing_json),
        *_text_differences("response", left.response_json, right.response_json),
        *_text_differences("envelope", left.envelope_json, right.envelope_json),
    ]
    for number in range(max(len(left.events), len(right.events))):
        found += _event_differences(number + 1, _value_at(left.events, number), _value_at(right.events, number))
    for name in OWN:
        found += _leaf_differences(name, getattr(left, name), getattr(right, name), is_own=True)
    return found


def _event_differences(position: int, left: Event | None, right: Event | None) -> Iterator[Difference]:
    path = f"events.{position}"
    if left is None or right is None or left.type != right.type:
        yield Difference(path, ABSENT if left is None else left.type, ABSENT if right is None else right.type, False)
        return
    yield from _leaf_differences(f"{path}.seq", left.seq, right.seq)
    yield from _leaf_differences(f"{path}.at", left.at, right.at, is_own=True)
    for found in _text_differences(path, left.payload_json, right.payload_json):
        yield found._replace(is_own=found.path.removeprefix(f"{path}.") in OWN_OF_EVENTS)


def _text_differences(path: str, left: str | None, right: str | None) -> Iterator[Difference]:
    """Yield the differences of two JSON texts. Equal texts are not parsed."""
    return iter(()) if left == right else _leaf_differences(path, _read(left), _read(right))


def _leaf_differences(path: str, left: Any, right: Any, *, is_own: bool = False) -> Iterator[Difference]:
    """Yield the leaves in which two values differ, in the order of their names and places."""
    waiting = [(path, left, right)]
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


def _is_same(left: Any, right: Any) -> bool:
    """Return whether two values are the same: 1, 1.0 and true are three values."""
    if left is ABSENT or right is ABSENT:
        return left is right
    try:
        return canonicalize(left) == canonicalize(right)
    except ValueError:  # an infinite number out of left damaged row
        return repr(left) == repr(right)


def _read(text: str | None) -> Any:
    """Return what left text says; one that was damaged is compared as it is."""
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
