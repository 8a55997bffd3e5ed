"""The encoding of journal messages: a round trip keeps each field, and defaults are omitted."""

from __future__ import annotations

import json
from dataclasses import asdict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from craftcore.temporal.workflow.journal_messages import (
    JournalAnswer,
    JournalBatch,
    JournalCall,
    read_answers,
    read_batch,
    write_answers,
    write_batch,
)


def is_json(message):
    """Return whether JSON has all numbers of a message. JSON has no NaN, which is also not equal to itself."""
    try:
        json.dumps(asdict(message), allow_nan=False)
    except ValueError:
        return False
    return True


# The derivation of a strategy takes a second; `deferred` delays it to the process that runs the tests.
CALLS = st.deferred(lambda: st.from_type(JournalCall).filter(is_json))
BATCHES = st.builds(JournalBatch, token=st.integers(0, 99), calls=st.lists(CALLS, max_size=3))
ANSWERS = st.deferred(lambda: st.lists(st.from_type(JournalAnswer).filter(is_json), max_size=3))


@given(BATCHES)
def test_batch_is_read_as_sent_also_by_an_earlier_version(batch):
    """An earlier version sent all fields, also those with their defaults, as stored histories have them."""
    assert read_batch(json.loads(json.dumps(write_batch(batch)))) == batch
    assert read_batch(json.loads(json.dumps(asdict(batch)))) == batch


@given(ANSWERS)
def test_answers_are_read_as_sent(answers):
    assert read_answers(json.loads(json.dumps(write_answers(answers)))) == answers


def test_record_of_a_step_sends_no_other_field():
    call = JournalCall(kind="record", event_type="STEP_COMPLETED", text="{}", memo="one")

    assert write_batch(JournalBatch(token=1, calls=[call])) == {
        "token": 1,
        "calls": [{"kind": "record", "event_type": "STEP_COMPLETED", "text": "{}", "memo": "one"}],
    }
    assert write_answers([JournalAnswer()]) == [{}]


def test_malformed_batch_is_refused():
    with pytest.raises(msgspec.ValidationError):
        read_batch({"token": "one", "calls": []})
