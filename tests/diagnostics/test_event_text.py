"""Events of a stream as one line of text: every type, damaged facts and unknown types."""

from __future__ import annotations

import pytest

from craftcore.diagnostics.text.event_text import event_text
from craftcore.executions.model import EventType

EXAMPLES = [
    ("INTENT_RECEIVED", {"intent": "brief", "timestamp": 0.0}, "brief"),
    ("INTENT_RECEIVED", {"intent": None, "timestamp": 0.0}, "no workflow named"),
    ("AGENT_ATTEMPT_START", {"agent": "brief", "attempt_num": 2}, "brief, attempt 2"),
    ("AGENT_ATTEMPT_END", {"agent": "brief", "latency_ms": 300.0, "status": "success"}, "brief: success after 0.3 s"),
    (
        "AGENT_ATTEMPT_END",
        {"agent": "brief", "error_code": "AGENT_TIMEOUT", "latency_ms": 60_000.0, "status": "error"},
        "brief: AGENT_TIMEOUT after 60 s",
    ),
    ("FALLBACK_TRIGGERED", {"from_agent": "brief", "to_agent": "plain"}, "brief -> plain"),
    ("ROUTER_DECISION", {"agent": "a", "intent": "a", "reason": "rule by source"}, "a: rule by source"),
    ("FINAL_RESPONSE", {"has_error": False, "status": "success"}, "success"),
    ("FINAL_RESPONSE", {"error_code": "POISON", "has_error": True, "status": "error"}, "POISON"),
    ("OVERDUE", {"due_at": 0.0, "overdue_seconds": 300.0}, "due 1970-01-01 00:00:00Z, 5 min late"),
    ("CANCEL_REQUESTED", {}, ""),
    ("ATTEMPT_RELEASED", {"reason": "shutdown"}, "shutdown"),
    ("TURN_ENTERED", {"completed": 0, "resume": "NEXT", "turn": 2}, "NEXT"),
    ("TURN_ENTERED", {"completed": 2, "resume": "CRASH", "turn": 2}, "CRASH; 2 completed before"),
    (
        "TURN_ENTERED",
        {"completed": 1, "resume": "ANSWER", "turn": 1, "resolved_by": "answer", "value": "é", "wait": "ask#1"},
        'ANSWER: ask#1 -> "é" by answer; 1 completed before',
    ),
    ("TURN_CONTINUED", {}, ""),
    (
        "TURN_SUSPENDED",
        {"wait": "sleep#1", "kind": "timer", "event": None, "due_at": 0.0},
        "sleep#1 until 1970-01-01 00:00:00Z",
    ),
    (
        "TURN_SUSPENDED",
        {"wait": "wait_for#1", "kind": "event", "event": "go", "due_at": None},
        "wait_for#1 for the event go",
    ),
    (
        "TURN_SUSPENDED",
        {"wait": "ask#1", "kind": "question", "event": None, "due_at": 0.0, "question": "Send it?"},
        'ask#1 for an answer to "Send it?" until 1970-01-01 00:00:00Z',
    ),
    ("TURN_SUSPENDED", {"wait": "child/x", "kind": "child", "event": "x", "due_at": None}, "child/x"),
    (
        "STEP_COMPLETED",
        {"args": "", "key": None, "latency_ms": 1500.0, "name": "weather", "result": {"sky": "blue"}},
        'weather -> {"sky":"blue"} after 1.5 s',
    ),
    (
        "STEP_FAILED",
        {"attempt": 1, "error": "no route", "key": "rome", "name": "weather", "retry_in": 2.0},
        "weather/rome, attempt 1: no route; again after 2.0 s",
    ),
    ("NOTE", {"data": [1], "key": None, "name": "seen"}, "seen: [1]"),
    ("EMITTED", {"workflow": "greet", "id": "x", "created": True}, "greet: x"),
    ("EMITTED", {"workflow": None, "id": "x", "created": False}, "no workflow named: x, which was there already"),
    ("CHILD_STARTED", {"workflow": "nap", "id": "x", "created": True}, "nap: x"),
    ("DELIVERED", {"task": "x"}, "to task x"),
    ("ACTIVITY_INTENT", {"action": "pay", "attempt": 1, "key": "activity:x:1.1"}, "pay: activity:x:1.1"),
    ("ACTIVITY_INTENT", {"action": "pay", "attempt": 2, "key": "activity:x:1.1"}, "pay, call 2: activity:x:1.1"),
    ("ACTIVITY_DONE", {"action": "pay", "provider_ref": "pay-7", "reason": "the provider answered"}, "pay -> pay-7"),
    ("ACTIVITY_DONE", {"action": "pay", "provider_ref": None, "reason": "the provider answered"}, "pay -> done"),
    (
        "ACTIVITY_FAILED",
        {"action": "pay", "error": "declined", "reason": "it was refused"},
        "pay: it was refused: declined",
    ),
    (
        "ACTIVITY_UNKNOWN",
        {"action": "pay", "error": "within 60 s", "reason": "it did not answer in time"},
        "pay: it did not answer in time: within 60 s",
    ),
    ("ACTIVITY_UNKNOWN", {"action": "pay", "reason": "the process ended"}, "pay: the process ended"),
    (
        "ACTIVITY_RESOLVED",
        {"action": "pay", "by": "reconcile", "decision": "happened", "reference": "pay-7"},
        "pay: happened (pay-7), by reconcile",
    ),
    (
        "ACTIVITY_RESOLVED",
        {"action": "pay", "by": "policy assume_done", "decision": "happened", "reference": None},
        "pay: happened, by policy assume_done",
    ),
]


@pytest.mark.parametrize(("type_", "facts", "text"), EXAMPLES, ids=[example[0] for example in EXAMPLES])
def test_event_text_has_the_facts_in_a_single_line(type_, facts, text):
    assert event_text(type_, facts) == text


def test_event_text_examples_cover_every_event_type():
    assert {example[0] for example in EXAMPLES} == set(EventType)


@pytest.mark.parametrize("facts", [{}, None, "text", {"due_at": "soon"}, [1]])
@pytest.mark.parametrize("type_", [*EventType, "A_NEW_ONE"])
def test_event_text_accepts_damaged_facts_and_unknown_types(type_, facts):
    assert isinstance(event_text(type_, facts), str)
    assert event_text("A_NEW_ONE", {"a": 1}) == '{"a":1}'
