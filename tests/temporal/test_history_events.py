"""The events of a history in the words of a task, without a cluster."""

from __future__ import annotations

import json

import pytest

from craftcore.temporal.records.history_events import HistoryReader
from craftcore.temporal.workflow.journal_messages import (
    DRAFT_ID,
    JournalAnswer,
    JournalBatch,
    JournalCall,
    write_answers,
    write_batch,
)

CREATED = json.dumps({"created": True, "held": None, "id": DRAFT_ID})
HELD = json.dumps({"created": False, "held": "id", "id": DRAFT_ID})
OF_FIRST_VERSION = json.dumps({"created": "@CREATED@", "held": None, "id": DRAFT_ID})


def read_events(call: JournalCall, answer: JournalAnswer) -> list[tuple[str, object]]:
    """Return the events of an entry that has made this call."""
    reader = HistoryReader()
    entry = {"token": 1, "task": {"turn": 1}, "attempts": 1, "resume": "FIRST"}
    reader.enter(0.0, 1, [entry])
    reader.ask(1.0, "update", "journal", [write_batch(JournalBatch(token=1, calls=[call]))])
    reader.confirm(1.0, "update", [write_answers([answer])], None)
    return [(event.type, event.payload) for event in reader.history.events if event.type != "TURN_ENTERED"]


@pytest.mark.parametrize(
    ("text", "held_text", "created", "shown"),
    [
        (CREATED, HELD, True, {"created": True, "held": None, "id": "a-task"}),
        (CREATED, HELD, False, {"created": False, "held": "id", "id": "a-task"}),
        (OF_FIRST_VERSION, "", True, {"created": True, "held": None, "id": "a-task"}),
        (OF_FIRST_VERSION, "", False, {"created": False, "held": None, "id": "a-task"}),
    ],
)
def test_emission_shows_whether_its_key_was_held(text, held_text, created, shown):
    call = JournalCall(kind="emit", event_type="EMITTED", text=text, held_text=held_text)
    assert read_events(call, JournalAnswer(task_id="a-task", created=created)) == [("EMITTED", shown)]


def test_emission_that_was_refused_is_no_event():
    call = JournalCall(kind="emit", event_type="EMITTED", text=CREATED, held_text=HELD, refuses_duplicate=True)
    assert read_events(call, JournalAnswer(task_id="a-task")) == []


def test_decision_without_a_reference_is_an_event():
    call = JournalCall(kind="decide", key="pay", decision="give up", by="its policy")
    facts = {"action": "unknown", "key": "pay", "decision": "give up", "reference": None, "by": "its policy"}
    assert read_events(call, JournalAnswer()) == [("ACTIVITY_RESOLVED", facts)]
