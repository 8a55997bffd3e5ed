"""Hashes of records, computed with `json` and `hashlib` alone by the rules of the documentation page."""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from craftcore.audit.model import Actor
from craftcore.audit.store import audit
from craftcore.executions.chain.seal import FEW, Event, Header, Stream, events_hash, format_floats, record_hash
from craftcore.executions.model import envelope
from craftcore.executions.record_store import RecordStore
from craftcore.serialization.canonical import canonicalize, sha256_of
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.recorded_executions import record_everything


def plain_hash(value: Any) -> str:
    """Return a hash as docs/explanation/records-and-integrity.md describes: sorted keys, no spaces, ASCII, sha256."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return "sha256:" + hashlib.sha256(text.encode("ascii")).hexdigest()


VALUES: dict[str, Any] = {
    "nothing": None,
    "an empty object": {},
    "unicode": {"é": "日本語 😀", "e\u0301": "\u2028\u2029\ufeff", "\U0001f600": "\x7f\x80"},
    "half a surrogate": {"a": "\ud800"},
    "controls": {"\x00\n\t": '\\"/\x1f\x7f'},
    "key order": {"b": 1, "a": {"z": 1, "A": 2, "é": 3, "": 4, "10": 5, "9": 6}},
    "keys beyond the first plane": {"\U00010000": 1, "\uffff": 2},
    "big integers": [2**53, 2**53 + 1, -(2**63), 2**64, 10**100],
    "floats": [0.1, -0.0, 1e-7, 1e16, 1e22, 1.0, 5e-324, 1.7976931348623157e308, 123456789.12345679],
    "words": [True, False, None, "true", 0, 1],
    "nesting": {"a": [{"b": [[], {}, [[[{"c": {"d": []}}]]]]}]},
}
KNOWN = {
    "{}": "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
    '{"a":"\\u00e9"}': "sha256:57e512a1ff02f75e939e93d2196b8d29ad3721b70ce25a601402d26410f453a2",
}
"""Hashes by `sha256sum`, so that the test and the code cannot share an error."""


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_value_hash_equals_that_of_plain_json(value):
    assert sha256_of(canonicalize(value)) == plain_hash(value)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_envelope_hash_equals_that_of_plain_json(value):
    made = envelope(
        workflow="brief@2.0",
        payload_json=canonicalize({"value": value}),
        request_id="t-1",
        source="MESSAGE",
        session_id="s",
        description='say "hi" é\n',
    )

    metadata = {"requestId": "t-1", "source": "MESSAGE", "sessionId": "s", "description": 'say "hi" é\n'}
    request = {"version": "1.0", "intent": {"name": "brief", "version": "2.0"}, "payload": {"value": value}}
    assert made.hash == plain_hash({**request, "metadata": metadata})


@given(st.lists(st.floats() | st.floats(1e-4, 1e16) | st.floats(0, 4e9) | st.integers() | st.text(), max_size=4))
@example([1e-4, 1e16])
@example([9.9e-05, 1.0])
@example([1767225600.25, 9999999999999998.0, 0.0001])
def test_floats_in_an_event_are_written_as_by_repr(numbers):
    many = numbers * FEW

    assert format_floats(numbers) == [repr(number) for number in numbers]
    assert format_floats(many) == [repr(number) for number in many]


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_stream_hash_equals_that_of_plain_json(value):
    rows: list[Any] = [
        [1, "INTENT_RECEIVED", 1767225600.0, value, None, None, None, None],
        [2, "STEP_COMPLETED", 1767225600.25, {"result": value}, 12, 1, "step:first~2", None],
        [3, "ACTIVITY_INTENT", 0.1, [value], 12, 1, None, 9],
    ]
    events = [Event._make([*row[:3], canonicalize(row[3]), *row[4:]]) for row in rows]
    stream = Stream()
    for event in events:
        stream.add(event)

    assert events_hash(events) == plain_hash(rows)
    assert stream.hash == plain_hash(rows)
    assert events_hash(events[:1]) == plain_hash(rows[:1])
    assert events_hash([]) == plain_hash([])


def make_header(**changes: Any) -> dict[str, Any]:
    """Return all fields of a header by name, with the routing as an object."""
    return {
        "attempt": 1,
        "chain_seq": 7,
        "created_at": 1767225600.123,
        "ended_at": 1767225601.0,
        "envelope_hash": plain_hash({}),
        "epoch": 3,
        "error_code": None,
        "events_hash": plain_hash([]),
        "id": "exec-t-1.2",
        "latency_ms": 877.0,
        "prev_hash": "",
        "replayable": 1,
        "replayable_reason": None,
        "response_hash": None,
        "routing_json": None,
        "seq": 2**40,
        "status": "success",
        "task_id": None,
        "trigger_id": "t-1",
        "turn": None,
        "workflow": None,
        **changes,
    }


def seal(fields: dict[str, Any]) -> str:
    routing = fields["routing_json"]
    return record_hash(Header(**{**fields, "routing_json": None if routing is None else canonicalize(routing)}))


HEADERS: dict[str, dict[str, Any]] = {
    "the first of a chain": {},
    "a later record": {"prev_hash": plain_hash(1), "response_hash": plain_hash(2)},
    "of a task": {"task_id": "task-1", "turn": 3, "workflow": "brief.daily@2.0"},
    "without an answer": {"replayable": 0, "replayable_reason": "execution_incomplete", "latency_ms": None},
    "an error code of user code": {"status": "error", "error_code": 'say "no" é\n\x00'},
    "a routing": {"routing_json": {"strategy": "FALLBACK", "agent": "b", "reason": "a router"}},
    "odd moments": {"created_at": 1e-7, "ended_at": 1e22, "latency_ms": 0.001},
}


@pytest.mark.parametrize("changes", HEADERS.values(), ids=HEADERS)
def test_record_hash_equals_that_of_plain_json_of_its_header(changes):
    fields = make_header(**changes)

    assert seal(fields) == plain_hash(fields)


@given(
    error_code=st.none() | st.text(max_size=30),
    moments=st.tuples(*[st.floats(0, 1e12)] * 3),
    numbers=st.tuples(*[st.integers(0, 2**63 - 1)] * 4),
)
def test_record_hash_can_be_computed_independently_for_any_header(error_code, moments, numbers):
    created_at, ended_at, latency = moments
    seq, chain_seq, attempt, epoch = numbers
    fields = make_header(
        error_code=error_code,
        created_at=created_at,
        ended_at=ended_at,
        latency_ms=latency,
        seq=seq,
        chain_seq=chain_seq,
        attempt=attempt,
        epoch=epoch,
    )

    assert seal(fields) == plain_hash(fields)


def test_record_hash_covers_every_field_of_the_header():
    known = seal(make_header())
    other: dict[type, Any] = {int: 9, float: 0.5, str: "x", type(None): "x"}

    for name, value in make_header().items():
        changed = {"routing_json": {"a": 1}, "latency_ms": 1.0, "turn": 4}.get(name, other[type(value)])
        assert seal(make_header(**{name: changed})) != known, name
    assert set(make_header()) == set(Header._fields)


@pytest.mark.parametrize(("text", "digest"), KNOWN.items())
def test_known_texts_have_known_hashes(text, digest):
    assert sha256_of(text) == digest


def test_closed_records_of_an_engine_are_sealed_as_documented(tmp_path):
    """The hash of each closed record is computed from its columns alone."""
    core = VirtualCore(record_everything(tmp_path), VirtualClock())
    before = core.rows("SELECT anchor_hash FROM record_chain")[0]["anchor_hash"]
    with core.reading() as reader:
        for row in reader.fetch_all("SELECT seq FROM executions WHERE chain_seq IS NOT NULL ORDER BY chain_seq"):
            record = RecordStore().get_by_seq(reader, row["seq"])
            assert record is not None
            fields = {name: getattr(record, name) for name in Header._fields}
            fields["replayable"] = int(record.replayable)
            fields["routing_json"] = record.routing
            assert record.record_hash == plain_hash(fields)
            assert record.prev_hash == before
            before = record.record_hash
            if record.stripped_at is None:
                events = [
                    [e.seq, e.type, e.at, json.loads(e.payload_json), e.task_seq, e.turn, e.memo, e.activity_seq]
                    for e in record.events
                ]
                assert record.events_hash == plain_hash(events)
                assert record.envelope_hash == plain_hash(record.envelope)
                assert record.response_hash == (None if record.response is None else plain_hash(record.response))
    core.close()


def test_audit_row_hash_equals_that_of_plain_json(core):
    rng = random.Random(1)
    before = ""
    for n, value in enumerate(VALUES.values(), 1):
        subject = rng.choice([None, "task-1"])
        core.do(audit, Actor(uid=n, name="ada é"), "task cancel", subject, reason=None, details={"value": value})

    rows = core.rows("SELECT * FROM audit_log ORDER BY seq")

    for row in rows:
        fields = [row["seq"], row["at"], row["uid"], row["name"], row["action"], row["subject"], row["reason"]]
        assert row["hash"] == plain_hash([*fields, json.loads(row["details_json"]), row["prev_hash"]])
        assert row["prev_hash"] == before
        before = row["hash"]
    assert len(rows) == len(VALUES)
