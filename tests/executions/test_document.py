"""Records as JSON documents: round trips, and refusal of invalid documents."""

from __future__ import annotations

import contextlib
import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from craftcore.errors import InvalidInput, NotReplayable, ReplayHashMismatch
from craftcore.executions.document.export import document_of
from craftcore.executions.document.load import record_of
from craftcore.executions.model import Status
from craftcore.executions.record import ExecutionRecord, faults
from craftcore.executions.replay import refusal, replay
from craftcore.serialization.canonical import canonicalize, sha256_of
from craftcore.triggers.settlement import Failed, Released, Snoozed, Succeeded
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore
from tests.support.record_steps import HELLO, TIMEOUT, invalidate, look, record_attempt, spoil, strip

HOSTILE = "say \"hi\" \\ 'there'\n\r\t\x00\x1f\x7f é 😀 \u2028 </script>"


def read_document(record: ExecutionRecord) -> dict[str, Any]:
    """Return the document of a record, read back from indented JSON."""
    document: dict[str, Any] = json.loads(json.dumps(document_of(record), indent=2))
    return document


def round_trip(record: ExecutionRecord) -> ExecutionRecord:
    return record_of(read_document(record))


@pytest.fixture
def document(core) -> dict[str, Any]:
    """Return the document of a closed record, as read from a file."""
    return read_document(look(core, record_attempt(core, id="t", payload={"n": 1}, session_id="s")))


# Writing


def test_document_has_the_shape_of_the_failure_model(document):
    assert list(document) == ["header", "envelope", "routerDecision", "events", "finalResponse", "craftcore"]
    assert document["header"] == {
        "executionId": "exec-t.1",
        "createdUtcIso": "2026-01-01T00:00:00.000Z",
        "envelopeHash": sha256_of(canonicalize(document["envelope"])),
        "replayable": True,
        "replayableReason": None,
    }
    assert document["envelope"]["payload"] == {"n": 1}
    assert document["routerDecision"] == {"agent": "greet", "reason": "explicit workflow", "strategy": "DIRECT"}
    assert [event["seq"] for event in document["events"]] == [1, 2, 3, 4, 5]
    assert document["events"][0] == {
        "seq": 1,
        "type": "INTENT_RECEIVED",
        "payload": {"intent": "greet", "timestamp": NEW_YEAR},
    }
    assert document["finalResponse"] == {"status": "success", "payload": {"hello": "Ada"}, "metadata": {}}
    assert document["craftcore"]["format"] == 1
    assert document["craftcore"]["texts"] == {}


def test_header_states_why_a_record_cannot_be_replayed(core):
    gone, open_ = record_attempt(core, id="gone"), record_attempt(core, None, id="open")
    invalidate(core, gone)

    headers = [document_of(look(core, execution_id))["header"] for execution_id in (gone, open_)]

    assert [(header["replayable"], header["replayableReason"]) for header in headers] == [
        (False, "manually_invalidated"),
        (False, "execution_incomplete"),
    ]
    assert document_of(look(core, open_))["finalResponse"] is None


# Reading


@pytest.mark.parametrize(
    "outcome",
    [
        HELLO,
        TIMEOUT,
        None,
        Succeeded(),
        Succeeded(result_json=json.dumps("é" * 600_000)),
        Released(reason=HOSTILE),
        Snoozed(until=NEW_YEAR),
        Failed(code=HOSTILE, message=HOSTILE, retryable=True, details={HOSTILE: [HOSTILE, -0.0, 1e22, 10**400]}),
        Failed(code="AGENT_ERROR", message="", retryable=False, details={"10": "\ud800", "2": 1}),
    ],
    ids=lambda outcome: repr(outcome)[:60],
)
def test_record_round_trips_through_its_document(core, clock, outcome):
    clock.advance(seconds=0.1)
    record = look(
        core, record_attempt(core, outcome, description=HOSTILE, session_id="s", payload={"body": ["ü", 1e22]})
    )

    assert round_trip(record) == record
    assert faults(round_trip(record)) == faults(record) == []


def test_invalidated_or_stripped_record_round_trips_through_its_document(core):
    first, second = record_attempt(core, id="a"), record_attempt(core, id="b")
    invalidate(core, first, HOSTILE)
    invalidate(core, second, None)
    strip(core, second)

    for execution_id in (first, second):
        record = look(core, execution_id)
        assert round_trip(record) == record
        assert refusal(round_trip(record)) == "manually_invalidated"


def test_task_record_with_memos_round_trips_through_its_document(core):
    record = look(core, record_attempt(core))
    events = tuple(
        event._replace(task_seq=3, turn=1, memo=f"step/{event.seq}", activity_seq=9) for event in record.events
    )
    whole = replace(record, task_id="task", turn=1, events=events)

    assert round_trip(whole) == whole


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "null", '{"b": 1, "a": 2}', '{"a":NaN}', '{"a":1,"a":2}', "[" * 9_999]
)
def test_damaged_text_is_kept_literally_and_stays_damaged(core, text):
    whole = look(core, record_attempt(core))
    event = whole.events[1]._replace(payload_json=text)
    events = (whole.events[0], event, *whole.events[2:])
    damaged = replace(whole, response_json=text, envelope_json=text, routing_json=text, events=events)

    assert round_trip(damaged) == damaged
    assert faults(round_trip(damaged)) == faults(damaged) != []
    assert document_of(damaged)["header"]["replayable"] is False


def test_bit_flip_in_the_database_is_detected_in_the_document(core):
    execution_id = record_attempt(core)
    spoil(core, "UPDATE executions SET response_json = replace(response_json, 'Ada', 'Ade')")

    found = round_trip(look(core, execution_id))

    assert found == look(core, execution_id)
    with pytest.raises(NotReplayable, match="record_corrupted"):
        replay(found)


def test_edited_document_is_a_damaged_record(document):
    document["finalResponse"]["payload"] = {"hello": "Eve"}

    record = record_of(document)

    with pytest.raises(NotReplayable, match="its response is not the one that its hash was made of"):
        replay(record)


def test_document_key_order_does_not_matter(document):
    def reverse_keys(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: reverse_keys(value[key]) for key in reversed(value)}
        return [reverse_keys(part) for part in value] if isinstance(value, list) else value

    assert record_of(reverse_keys(document)) == record_of(document)


# Documents of other programs

PLAIN: dict[str, Any] = {
    "header": {
        "executionId": "exec-a1b2c3d4",
        "createdUtcIso": "2024-01-15T10:30:00",
        "envelopeHash": "",
        "replayable": True,
        "replayableReason": None,
    },
    "envelope": {
        "intent": {"name": "ProcessIntent", "version": "1.0"},
        "payload": {"z": 1, "a": "é"},
        "metadata": {"requestId": "r-1"},
        "routingMetadata": {"hops": 2},
    },
    "routerDecision": {"agent": "processor-b"},
    "events": [
        {"seq": 1, "type": "INTENT_RECEIVED", "payload": {"intent": "ProcessIntent"}},
        {"seq": 2, "type": "AGENT_ATTEMPT_START", "payload": {"agent": "processor-b"}},
        {"seq": 3, "type": "FINAL_RESPONSE", "payload": {"status": "success"}},
    ],
    "finalResponse": {"status": "success", "payload": {"done": True}, "metadata": {"traceId": "x"}},
}


def plain_document(*, leave_out: bool = True, **changes: Any) -> dict[str, Any]:
    document = copy.deepcopy(PLAIN)
    envelope = {key: value for key, value in document["envelope"].items() if key != "routingMetadata" or not leave_out}
    document["header"]["envelopeHash"] = sha256_of(canonicalize(envelope))
    return {**document, **changes}


@pytest.mark.parametrize("leave_out", [True, False], ids=["as it is replayed", "as it is recorded"])
def test_plain_document_is_read_and_replayed(leave_out):
    record = record_of(plain_document(leave_out=leave_out))

    assert (record.id, record.trigger_id, record.workflow, record.status) == (
        "exec-a1b2c3d4",
        "r-1",
        "ProcessIntent",
        Status.SUCCESS,
    )
    assert faults(record) == []
    result = replay(record)
    assert (result.payload, result.metadata) == ({"done": True}, {"traceId": "x"})
    assert result.original_timestamp == "2024-01-15T10:30:00.000Z"
    assert round_trip(record) == record


def test_plain_document_envelope_can_be_verified():
    record = record_of(plain_document())

    assert replay(record, {**PLAIN["envelope"], "routingMetadata": {"hops": 9}}).from_replay
    with pytest.raises(ReplayHashMismatch):
        replay(record, {**PLAIN["envelope"], "payload": {}})


@pytest.mark.parametrize(
    ("changes", "status", "reason"),
    [
        ({"finalResponse": None}, "incomplete", "execution_incomplete"),
        ({"finalResponse": {"payload": {"data": "x" * 3_000_000}}}, "success", None),
        ({"finalResponse": {"status": "success", "payload": None}}, "success", None),
        ({"finalResponse": {"status": "error", "error": {"code": "AGENT_ERROR", "message": "no"}}}, "error", None),
        ({"finalResponse": {"status": "success", "metadata": 5}}, "success", "record_corrupted"),
        ({"envelope": None}, "success", "record_corrupted"),
        ({"envelope": {"payload": {}}}, "success", "record_corrupted"),
        ({"events": list(reversed(PLAIN["events"]))}, "success", "record_corrupted"),
        ({"events": [PLAIN["events"][0]] * 2}, "success", "record_corrupted"),
        ({"header": {**plain_document()["header"], "replayable": False}}, "success", "execution_incomplete"),
        (
            {"header": {**plain_document()["header"], "replayable": False, "replayableReason": "manually_invalidated"}},
            "success",
            "manually_invalidated",
        ),
    ],
)
def test_plain_document_is_read_in_each_state(changes, status, reason):
    record = record_of(plain_document(**changes))

    assert (record.status, refusal(record)) == (status, reason)
    if status == "error":
        assert (record.error_code, replay(record).error) == ("AGENT_ERROR", {"code": "AGENT_ERROR", "message": "no"})


# Invalid documents


def put(document: dict[str, Any], path: tuple[str | int, ...], value: Any) -> None:
    part: Any = document
    for step in path[:-1]:
        part = part[step]
    if value is LEFT_OUT:
        del part[path[-1]]
    else:
        part[path[-1]] = value


LEFT_OUT = "<left out>"  # not a value of the format; a text, so that the ids of tests are the same in every run
DEEP: Any = 1
for _ in range(150):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("header",), LEFT_OUT, "header"),
        (("header",), [], "header"),
        (("header", "executionId"), LEFT_OUT, "header: Object missing required field `executionId`"),
        (("header", "executionId"), "exec 1", "header.executionId"),
        (("header", "executionId"), "exec-1\n", "header.executionId"),
        (("header", "executionId"), "x" * 301, "header.executionId"),
        (("header", "createdUtcIso"), "2026-01-01T00:00:00.001Z", "header.createdUtcIso: it is another moment"),
        (("header", "replayable"), 1, "header.replayable: Expected `bool`, got `int`"),
        (("header", "replayableReason"), "\ud800", "header.replayableReason: it has half of a character"),
        (("envelope",), [], "envelope"),
        (("envelope",), LEFT_OUT, "envelope"),
        (("envelope", "payload"), float("inf"), "envelope: it is not JSON"),
        (("envelope", "payload"), DEEP, "deeper than 100 levels"),
        (("events",), {}, "events"),
        (("events", 3), "x", "events[3]: Expected `object`, got `str`"),
        (("events", 3, "seq"), "4", "events[3].seq: Expected `int`, got `str`"),
        (("events", 3, "seq"), 4.0, "events[3].seq"),
        (("events", 3, "seq"), True, "events[3].seq: Expected `int`, got `bool`"),
        (("events", 3, "seq"), -1, "events[3].seq"),
        (("events", 3, "seq"), 10**400, "events[3].seq"),
        (("events", 3, "type"), None, "events[3].type"),
        (("events", 3, "type"), "\udfff", "events[3].type: it has half of a character"),
        (("events", 3, "payload"), [], "events[3].payload"),
        (("events", 3, "payload"), None, "events[3].payload: it is null"),
        (("events", 3, "payload"), {"a": float("nan")}, "events[3].payload: it is not JSON"),
        (("events", 3), LEFT_OUT, "craftcore.events: there are 5 of 4 events"),
        (("finalResponse",), "success", "finalResponse"),
        (("routerDecision",), 5, "routerDecision"),
        (("craftcore",), 5, "craftcore"),
        (("craftcore", "format"), 2, "craftcore.format: it is 2, and this program reads 1"),
        (("craftcore", "format"), LEFT_OUT, "craftcore.format: it is None"),
        (("craftcore", "more"), 1, "craftcore: Object contains unknown field `more`"),
        (("craftcore", "header", "attempt"), LEFT_OUT, "craftcore.header"),
        (("craftcore", "header", "status"), "done", "craftcore.header.status: Invalid enum value 'done'"),
        (("craftcore", "header", "created_at"), 1e999, "craftcore.header.created_at"),
        (("craftcore", "header", "created_at"), "today", "craftcore.header.created_at"),
        (("craftcore", "header", "ended_at"), -1.0, "craftcore.header.ended_at"),
        (("craftcore", "header", "workflow"), "a b", "craftcore.header.workflow"),
        (("craftcore", "header", "error_code"), "x" * 10_001, "craftcore.header.error_code"),
        (("craftcore", "header", "error_code"), "\ud800", "craftcore.header.error_code: it has half of a character"),
        (("craftcore", "events", 2, "at"), None, "craftcore.events[2].at"),
        (("craftcore", "events", 2, "memo"), "\ud800", "craftcore.events[2].memo: it has half of a character"),
        (("craftcore", "texts", "envelope"), "{}", "envelope: it is not what craftcore.texts says of it"),
        (("craftcore", "texts", "envelope"), "\ud800", "craftcore.texts.envelope: it has half of a character"),
        (("craftcore", "texts", "events[9].payload"), "{}", "craftcore.texts: it has 'events[9].payload'"),
        (("craftcore", "texts", "events[0].payload"), 5, "craftcore.texts"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_invalid_document_is_refused_with_the_path_of_the_fault(document, path, value, words):
    put(document, path, value)

    with pytest.raises(InvalidInput) as refused:
        record_of(document)

    assert refused.value.message.startswith("it is not the document of a record: ")
    assert words in refused.value.message
    assert len(refused.value.message) < 300


@pytest.mark.parametrize(
    "value", [None, 5, "x", [], {}, [{}], {"header": None}, {"craftcore": {}}, "\ud800", {"\ud800": 1}], ids=ascii
)
def test_json_of_another_shape_is_not_a_document(value):
    with pytest.raises(InvalidInput, match="it is not the document of a record"):
        record_of(value)


@pytest.mark.parametrize("moment", ["", "yesterday", "1969-12-31T23:59:59Z", "0001-01-01T00:00:00", None, "x" * 9_999])
def test_plain_document_requires_its_start_time(moment):
    with pytest.raises(InvalidInput, match=r"header\.createdUtcIso: .{0,90} is not a moment"):
        record_of(plain_document(header={**plain_document()["header"], "createdUtcIso": moment}))


def test_plain_document_event_requires_its_payload():
    with pytest.raises(InvalidInput, match=r"events\[1\]\.payload: it is null"):
        record_of(plain_document(events=[PLAIN["events"][0], {"seq": 2, "type": "FINAL_RESPONSE"}]))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(st.text(), parts, max_size=4),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, Any]:
    core = VirtualCore(tmp_path_factory.mktemp("whole") / "agent.db", VirtualClock())
    document = read_document(look(core, record_attempt(core, TIMEOUT)))
    core.close()
    return document


def paths_in(value: Any, above: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [above] if above else []
    for key, part in parts:
        found += paths_in(part, (*above, key))
    return found


@given(data=st.data())
def test_mutated_document_is_a_record_or_is_refused_with_a_message(whole, data):
    document = copy.deepcopy(whole)
    if data.draw(st.booleans()):
        del document["craftcore"]
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(paths_in(document)))
        put(document, path, data.draw(JSON | st.just(LEFT_OUT)))

    record = None
    with contextlib.suppress(InvalidInput):
        record = record_of(document)

    if record is not None:
        assert round_trip(record) == record
        assert replay(record, force=True).original_execution_id == record.id


@pytest.mark.parametrize("change", [{"version": "2.0"}, {"intent": {"name": "", "version": "1.0"}}])
def test_document_with_an_unsupported_envelope_is_refused(core, change):
    document = document_of(look(core, record_attempt(core, Succeeded(result_json="1"))))
    document["envelope"] = {**document["envelope"], **change}

    with pytest.raises(InvalidInput, match="Invalid envelope") as refused:
        record_of(document)

    assert refused.value.code == "VALIDATION_ERROR"
