"""The envelope of a request: its canonical JSON text and its hash."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from craftcore.executions.model import EventType, Status, envelope, execution_id
from craftcore.serialization.canonical import canonicalize


def make_envelope(**changes):
    facts: dict[str, Any] = {
        "workflow": "greet",
        "payload": {},
        "request_id": "t1",
        "source": "IMMEDIATE",
        "session_id": None,
        "description": None,
        **changes,
    }
    payload = facts.pop("payload")
    return envelope(**facts, payload_json=canonicalize(payload))


def plain_envelope(**changes):
    """Return the text and the hash of the same envelope, computed from a plain object as the specification does."""
    facts: dict[str, Any] = {"workflow": "greet", "payload": {}, "request_id": "t1", "source": "IMMEDIATE", **changes}
    metadata = {"requestId": facts["request_id"], "source": facts["source"]}
    if facts.get("session_id") is not None:
        metadata["sessionId"] = facts["session_id"]
    if facts.get("description") is not None:
        metadata["description"] = facts["description"]
    workflow = facts["workflow"]
    head, at, tail = (workflow or "").rpartition("@")
    document = {
        "version": "1.0",
        "intent": {"name": head, "version": tail} if head and at and tail else {"name": workflow, "version": "1.0"},
        "payload": facts["payload"],
        "metadata": metadata,
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return text, f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


VECTORS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "no workflow": {"workflow": None},
    "a version": {"workflow": "brief.daily@2.0"},
    "no version": {"workflow": "brief@"},
    "a version without a name": {"workflow": "@2.0"},
    "unicode": {"payload": {"é": "日本語 😀", "a": "e\u0301"}},
    "nesting": {"payload": {"a": [{"b": [[], {}, None, True, 1.5, -0.0]}]}},
    "key order": {"payload": {"b": 1, "a": {"z": 1, "A": 2, "é": 3, "": 4}}},
    "controls": {"payload": {"\x00\n": "\x7f\u2028\\\"'/"}},
    "numbers": {"payload": {"a": [10**30, 1e300, 1e-7, 2**63]}},
    "a session": {"session_id": "s:1@x+y-z.0_"},
    "a quoting description": {"description": 'say "hi" \\ \n\t\x00 é 😀 </script>'},
    "an empty description": {"description": ""},
    "everything": {
        "workflow": "a.b",
        "payload": {"n": [1]},
        "request_id": "x",
        "source": "MESSAGE",
        "session_id": "s",
        "description": "d",
    },
}


@pytest.mark.parametrize("facts", VECTORS.values(), ids=VECTORS)
def test_envelope_and_hash_are_those_of_plain_canonical_json(facts):
    text, digest = plain_envelope(**facts)

    made = make_envelope(**facts)

    assert made.text == text
    assert made.hash == digest


NAMES = st.text(st.sampled_from("ABCxyz019._:@+-"), min_size=1, max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    workflow=st.none() | NAMES,
    payload=st.dictionaries(st.text(max_size=5), VALUES, max_size=4),
    session_id=st.none() | NAMES,
    description=st.none() | st.text(max_size=50),
)
def test_envelope_hash_can_be_computed_independently(workflow, payload, session_id, description):
    facts = {"workflow": workflow, "payload": payload, "session_id": session_id, "description": description}

    assert tuple(make_envelope(**facts)) == plain_envelope(**facts)


def test_envelope_hash_depends_on_payload_session_source_and_description():
    changes: list[dict[str, Any]] = [
        {},
        {"payload": {"a": 1}},
        {"session_id": "s"},
        {"source": "MESSAGE"},
        {"description": "d"},
    ]

    assert len({make_envelope(**change).hash for change in changes}) == len(changes)


def test_two_requests_with_the_same_facts_have_the_same_hash():
    assert make_envelope(payload={"a": 1, "b": 2}) == make_envelope(payload={"b": 2, "a": 1})


def test_record_id_is_the_trigger_id_and_the_start_number():
    assert execution_id("t1", 3) == "exec-t1.3"


def test_six_event_types_of_the_failure_model_come_first():
    assert list(EventType)[:6] == [
        "INTENT_RECEIVED",
        "AGENT_ATTEMPT_START",
        "AGENT_ATTEMPT_END",
        "FALLBACK_TRIGGERED",
        "ROUTER_DECISION",
        "FINAL_RESPONSE",
    ]
    assert set(Status) == {"success", "error", "incomplete", "suspended"}
