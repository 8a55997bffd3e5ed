"""How a record is sealed: the hashes that show later whether anything of it was changed. Pure.

    events_hash    sha256 of the canonical JSON [[seq, type, at, payload, task_seq, turn, memo, activity_seq], …]
    response_hash  sha256 of the canonical response; None: it has none
    record_hash    sha256 of the canonical JSON object of the header: every field of `Header` by its name, the routing
                   as the object it is

A hash shows a change by accident or by a user unaware of the chain. It does not show a change by one who hashes all
later records again. Against that, keep the head of the chain somewhere else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import islice
from typing import Any, NamedTuple

from craftcore.serialization.canonical import canonicalize

FIRST = ""
"""The `prev_hash` of the first record of a chain."""


TEXT_HELD = 1 << 16
"""Characters of a stream that wait to be hashed: many short texts are hashed faster as one."""

EVENTS_HELD = 256
"""Events of a whole stream whose texts are hashed as one."""

EMPTY = '""'
"""The payload of a stripped event in a text."""

SMALLEST_PLAIN, LEAST_WITH_EXPONENT = 1e-4, 1e16
"""Within these bounds `repr` writes a float without an exponent."""

FEW = 64
"""Floats that are written without msgspec. Most commands read no more, and do without importing it."""

DAMAGED = "DAMAGED"
"""The type of the one event of a text that cannot be read."""


class Event(NamedTuple):
    """One event of a record's stream. `payload_json` is '' once retention stripped it."""

    seq: int
    type: str
    at: float
    payload_json: str
    task_seq: int | None = None
    turn: int | None = None
    memo: str | None = None
    activity_seq: int | None = None


class Header(NamedTuple):
    """The fields that the hash of a record covers, in the order of its canonical text."""

    attempt: int
    chain_seq: int
    created_at: float
    ended_at: float
    envelope_hash: str
    epoch: int
    error_code: str | None
    events_hash: str
    id: str
    latency_ms: float | None
    prev_hash: str
    replayable: int
    replayable_reason: str | None
    response_hash: str | None
    routing_json: str | None
    seq: int
    status: str
    task_id: str | None
    trigger_id: str
    turn: int | None
    workflow: str | None


class Stream:
    """The hash of a stream as its events come, in order; how many there were is `count`. One that goes on where another
    stood is given what that had as `text` and `count`."""

    __slots__ = ("_digest", "count", "text")

    def __init__(self, text: str = "[", count: int = 0) -> None:
        self.text = text
        self.count = count
        self._digest: Any = None

    def append(self, type_: str, at: float, payload_json: str) -> str:
        """Append the next event of the attempt itself; its text."""
        self.count += 1
        text = f'[{self.count},"{type_}",{at!r},{payload_json},null,null,null,null]'
        self.text += f",{text}" if self.count > 1 else text
        return text

    def add(self, event: Event) -> None:
        """Append an event as it was read."""
        [text] = event_texts([event])
        self.text += f",{text}" if self.count else text
        self.count += 1
        if len(self.text) > TEXT_HELD:
            self._digest = self._digest or sha256()
            self._digest.update(self.text.encode())
            self.text = ""

    @property
    def identity(self) -> tuple[str, int, str]:
        """A value that no stream with other events has."""
        return self.text, self.count, "" if self._digest is None else self._digest.hexdigest()

    @property
    def hash(self) -> str:
        """The hash of the events so far."""
        digest = sha256() if self._digest is None else self._digest.copy()
        digest.update(f"{self.text}]".encode())
        return f"sha256:{digest.hexdigest()}"


def event_texts(events: Sequence[Event]) -> list[str]:
    """Return the texts of events, as the hash of their record covers them. A stripped payload is ""."""
    return [  # without a call for each part: a record has up to ten thousand events
        f'[{seq},"{type_}",{at},{payload or EMPTY},{"null" if task_seq is None else repr(task_seq)},'
        f"{'null' if turn is None else repr(turn)},{_name(memo)},"
        f"{'null' if activity_seq is None else repr(activity_seq)}]"
        for (seq, type_, _, payload, task_seq, turn, memo, activity_seq), at in zip(
            events, format_floats([event.at for event in events]), strict=True
        )
    ]


def format_floats(numbers: Sequence[float]) -> list[str]:
    """Return the `repr` of each. msgspec writes the same in a fifth of the time, unless an exponent is needed.

    A bad disk may have made a text of a number.
    """
    if len(numbers) <= FEW or {*map(type, numbers)} != {float}:
        return [repr(number) for number in numbers]
    if min(numbers) < SMALLEST_PLAIN or max(numbers) >= LEAST_WITH_EXPONENT:
        return [repr(number) for number in numbers]
    from msgspec.json import encode

    return encode(numbers).decode()[1:-1].split(",")


def events_of(text: str) -> tuple[Event, ...]:
    """Return the events of a text that has them separated by commas. A text that is not as `event_texts` writes it is
    one event, DAMAGED, which has no number."""
    try:
        events = tuple(_event_of(*event) for event in json.loads(f"[{text}]"))
        is_as_written = ",".join(event_texts(events)) == text
    except (ValueError, TypeError, RecursionError):
        is_as_written = False
    return events if is_as_written else (Event(0, DAMAGED, 0.0, text),)


def _event_of(seq: int, type_: str, at: float, payload: Any, *others: Any) -> Event:
    return Event(seq, type_, at, "" if payload == "" else canonicalize(payload), *others)


def events_hash(events: Iterable[Event]) -> str:
    """Return the hash of a whole stream."""
    digest, before, rest = sha256(b"["), "", iter(events)
    while several := [*islice(rest, EVENTS_HELD)]:
        digest.update(f"{before}{','.join(event_texts(several))}".encode())
        before = ","
    digest.update(b"]")
    return f"sha256:{digest.hexdigest()}"


def record_hash(header: Header) -> str:
    """Return the hash of a header. Put together by hand, because it is on the way of every trigger; only what an author
    chooses can hold a character that JSON would escape."""
    text = (
        f'{{"attempt":{header.attempt},"chain_seq":{header.chain_seq},"created_at":{header.created_at!r},'
        f'"ended_at":{header.ended_at!r},"envelope_hash":"{header.envelope_hash}","epoch":{header.epoch},'
        f'"error_code":{_text(header.error_code)},"events_hash":"{header.events_hash}","id":"{header.id}",'
        f'"latency_ms":{_number(header.latency_ms)},"prev_hash":"{header.prev_hash}",'
        f'"replayable":{header.replayable},"replayable_reason":{_name(header.replayable_reason)},'
        f'"response_hash":{_name(header.response_hash)},"routing_json":{header.routing_json or "null"},'
        f'"seq":{header.seq},"status":"{header.status}","task_id":{_name(header.task_id)},'
        f'"trigger_id":"{header.trigger_id}","turn":{_number(header.turn)},"workflow":{_name(header.workflow)}}}'
    )
    return f"sha256:{sha256(text.encode()).hexdigest()}"


def _number(value: float | None) -> str:
    return "null" if value is None else repr(value)


def _name(value: str | None) -> str:
    return "null" if value is None else f'"{value}"'


def _text(value: str | None) -> str:
    return "null" if value is None else canonicalize(value)
