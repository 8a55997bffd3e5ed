"""Replay of records: the recorded response, refusals with a reason, and forced replay with a warning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from craftcore.errors import InvalidInput, NotReplayable, ReplayHashMismatch
from craftcore.executions.model import Reason
from craftcore.executions.record import refusal_to_replay
from craftcore.executions.recorder import Recorder
from craftcore.executions.replay import FORCED, ReplayResult, refusal, replay
from craftcore.serialization.canonical import canonicalize
from craftcore.serialization.encode import encode
from craftcore.triggers.settlement import Cancelled, Released, Snoozed, Succeeded
from tests.support.fakes import NEW_YEAR
from tests.support.record_steps import HELLO, TIMEOUT, invalidate, look, record_attempt, strip

LARGE = {"data": "é" * 1_000_000}
VALUES: list[Any] = [
    None,
    True,
    0,
    -0.0,
    1e22,
    1.0,
    5e-324,
    1.7976931348623157e308,
    10**400,
    -(2**63) - 1,
    "",
    "say \"hi\" \\ 'there'\n\r\t\x00\x1f\x7f é 😀 \u2028",
    [],
    {},
    {"b": [1, None, {"": []}], "a": {"é": "ü", "😀": 1, "\uffff": 2}},
    {10: "ten", 2: "two"},
    LARGE,
]


# Replay


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:30])
def test_replay_returns_the_result_byte_for_byte(core, value):
    text = encode(value, "result")
    record = look(core, record_attempt(core, Succeeded(result_json=text)))

    result = replay(record)

    assert canonicalize(result.payload) == text
    assert result.response_json == f'{{"metadata":{{}},"payload":{text},"status":"success"}}' == record.response_json
    assert (result.status, result.error, result.warnings) == ("success", None, [])


def test_replay_states_that_the_result_is_a_replay_and_its_source(core):
    result = replay(look(core, record_attempt(core, id="t")))

    assert result == ReplayResult(
        status="success",
        payload={"hello": "Ada"},
        metadata={},
        error=None,
        response_json='{"metadata":{},"payload":{"hello":"Ada"},"status":"success"}',
        from_replay=True,
        original_execution_id="exec-t.1",
        original_timestamp="2026-01-01T00:00:00.000Z",
        warnings=[],
    )


def test_replay_returns_a_recorded_error_as_that_error(core):
    record = look(core, record_attempt(core, TIMEOUT))

    result = replay(record)

    assert (result.status, result.payload) == ("error", None)
    assert result.error == {
        "code": "AGENT_TIMEOUT",
        "message": "it took too long",
        "retryable": False,
        "details": {"timeout_ms": 30_000},
        "effect_possible": False,
        "retry_after": 2.5,
    }
    assert result.response_json == canonicalize({"error": result.error, "metadata": result.metadata, "status": "error"})


def test_replay_returns_a_cancellation_as_a_cancellation(core):
    result = replay(look(core, record_attempt(core, Cancelled())))

    assert result.status == "error"
    assert result.error is not None
    assert result.error["code"] == "WORKFLOW_ABORTED"


def test_replay_of_a_none_result_returns_none_without_a_refusal(core):
    result = replay(look(core, record_attempt(core, Succeeded())))

    assert (result.status, result.payload, result.warnings) == ("success", None, [])


# Records that cannot be replayed


def incomplete(core):
    return look(core, record_attempt(core, None))


def released(core):
    return look(core, record_attempt(core, Released(reason="shutdown")))


def suspended(core):
    return look(core, record_attempt(core, Snoozed(until=NEW_YEAR + 60)))


def not_kept(core):
    return look(
        core,
        record_attempt(core, Succeeded(result_json='"' + "x" * 200 + '"'), recorder=Recorder(response_max_bytes=100)),
    )


def invalidated(core):
    execution_id = record_attempt(core)
    invalidate(core, execution_id)
    return look(core, execution_id)


def stripped(core):
    execution_id = record_attempt(core)
    strip(core, execution_id)
    return look(core, execution_id)


def corrupted(core):
    record = look(core, record_attempt(core))
    return replace(record, response_json='{"metadata":{},"payload":{"hello":"Eve"},"status":"success"}')


STATES = [
    (incomplete, "execution_incomplete", "it has no response", "incomplete", None),
    (released, "execution_incomplete", "it has no response", "incomplete", None),
    (suspended, "execution_incomplete", "it has no response", "suspended", None),
    (not_kept, "recording_failure", "could not be kept", "success", "result_unstored"),
    (invalidated, "manually_invalidated", "it names another customer", "success", "hello"),
    (stripped, "body_stripped", "retention", "success", None),
    (corrupted, "record_corrupted", "its response is not the one", "success", "hello"),
]
IDS = [state[0].__name__ for state in STATES]


@pytest.mark.parametrize(("state", "reason", "words", "status", "payload"), STATES, ids=IDS)
def test_replay_is_refused_with_the_reason_of_each_state(core, state, reason, words, status, payload):
    record = state(core)

    with pytest.raises(NotReplayable) as refused:
        replay(record)

    assert refused.value.details == {"execution_id": record.id, "reason": reason}
    assert (refused.value.name, refused.value.code, refused.value.exit_code) == ("NOT_REPLAYABLE", "NOT_REPLAYABLE", 11)
    assert refused.value.message.startswith(f"{record.id} cannot be replayed ({reason}): ")
    assert words in refused.value.message
    assert refusal(record) == reason


@pytest.mark.parametrize(("state", "reason", "words", "status", "payload"), STATES, ids=IDS)
def test_forced_replay_returns_the_stored_data_with_a_warning(core, state, reason, words, status, payload):
    result = replay(state(core), force=True)

    assert result.warnings[0] == FORCED == "Forced replay of non-replayable record"
    assert result.warnings[1].startswith(f"{reason}: ")
    assert words in result.warnings[1]
    assert len(result.warnings) == 2
    assert result.status == status
    assert result.from_replay
    assert (payload in result.payload) if payload else result.payload is None


def test_forced_replay_does_not_change_whether_a_record_is_replayable(core):
    record = look(core, record_attempt(core))

    assert replay(record, force=True) == replay(record)


def test_replay_refusal_reasons_have_a_fixed_order(core):
    """The order is: no response, invalidated by a person, header, stripped by retention, damaged."""
    whole = look(core, record_attempt(core))
    damaged = replace(whole, response_json='{"metadata":{},"payload":1,"status":"success"}')
    all_wrong = replace(
        damaged,
        replayable=False,
        replayable_reason="recording_failure",
        invalidated="by hand",
        stripped_at=NEW_YEAR,
    )

    found = [
        refusal(replace(all_wrong, response_json=None, response_hash=None)),
        refusal(all_wrong),
        refusal(replace(all_wrong, invalidated=None)),
        refusal(replace(damaged, stripped_at=NEW_YEAR)),
        refusal(damaged),
        refusal(whole),
    ]

    assert found == [
        Reason.EXECUTION_INCOMPLETE,
        Reason.MANUALLY_INVALIDATED,
        Reason.RECORDING_FAILURE,
        Reason.BODY_STRIPPED,
        Reason.RECORD_CORRUPTED,
        None,
    ]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '"success"', '{"metadata":[],"payload":1}', '{"error":"it broke"}', "[" * 100_000, "\x00"],
    ids=repr,
)
def test_replay_of_an_invalid_response_is_refused_even_without_a_hash(core, text):
    """A record that was closed before there was a chain has only its envelope's hash."""
    old = replace(
        look(core, record_attempt(core)), record_hash=None, response_hash=None, chain_seq=None, response_json=text
    )
    assert refusal_to_replay(old) is None

    with pytest.raises(NotReplayable, match="record_corrupted"):
        replay(old)
    assert replay(old, force=True).payload is None


# The envelope


def test_replay_accepts_the_matching_envelope_in_any_key_order(core):
    record = look(
        core, record_attempt(core, id="t", payload={"b": 1, "a": [{"y": 1, "x": 1.5}]}, description="é", session_id="s")
    )
    shuffled = {
        "version": "1.0",
        "payload": {"a": [{"x": 1.5, "y": 1}], "b": 1},
        "routingMetadata": {"hop": 3},
        "metadata": {"source": "IMMEDIATE", "sessionId": "s", "requestId": "t", "description": "é"},
        "intent": {"version": "1.0", "name": "greet"},
    }

    assert replay(record, shuffled) == replay(record)


@pytest.mark.parametrize(
    "changed",
    [{"payload": {"n": 2}}, {"payload": {"n": 1.0}}, {"more": None}],
    ids=repr,
)
def test_replay_of_another_envelope_is_refused_with_both_hashes_even_by_force(core, changed):
    record = look(core, record_attempt(core, payload={"n": 1}))
    envelope = {**(record.envelope or {}), **changed}

    for force in (False, True):
        with pytest.raises(ReplayHashMismatch) as refused:
            replay(record, envelope, force=force)

        details = refused.value.details
        assert details["recorded"] == record.envelope_hash != details["provided"]
        assert details["provided"].startswith("sha256:")
        assert details["recorded"] in refused.value.message
        assert details["provided"] in refused.value.message
        assert (refused.value.name, refused.value.code, refused.value.exit_code) == (
            "REPLAY_HASH_MISMATCH",
            "REPLAY_HASH_MISMATCH",
            11,
        )


def test_replay_refusal_has_priority_over_the_envelope_check(core):
    with pytest.raises(NotReplayable):
        replay(incomplete(core), {})


@pytest.mark.parametrize("envelope", [{"a": {1, 2}}, {"a": float("nan")}, {"a": b""}, {1: 1, "a": 1}], ids=repr)
def test_replay_with_an_invalid_json_envelope_is_refused(core, envelope):
    with pytest.raises(InvalidInput, match="not JSON"):
        replay(look(core, record_attempt(core)), envelope)


def test_replay_result_is_immutable(core):
    result = replay(look(core, record_attempt(core, HELLO)))

    with pytest.raises(AttributeError):
        result.status = "error"  # type: ignore[misc]


# Envelopes of other versions


@pytest.mark.parametrize(
    ("envelope", "expected"),
    [
        ({"version": "2.0"}, "Invalid envelope: unsupported version '2.0'; the version that is read is 1.0"),
        ({"version": 1.0}, "Invalid envelope: unsupported version 1.0"),
        ({"version": None}, "Invalid envelope: unsupported version None"),
        ({"version": "1.0", "intent": {"name": "", "version": "1.0"}}, "the name of the intent is empty"),
        ({"version": "2.0", "intent": {"name": "", "version": "1.0"}}, "unsupported version '2.0'"),
    ],
)
def test_replay_with_an_unsupported_envelope_is_refused_with_its_code(core, envelope, expected):
    record = look(core, record_attempt(core, Succeeded(result_json="1")))

    with pytest.raises(InvalidInput) as refused:
        replay(record, envelope)

    assert expected in refused.value.message
    assert refused.value.code == "VALIDATION_ERROR"


def test_replay_envelope_without_a_version_is_compared_by_hash(core):
    record = look(core, record_attempt(core, Succeeded(result_json="1")))

    assert replay(record, record.envelope).payload == 1
    for envelope in ({}, {"version": "1.0", "intent": {"name": None}}):
        with pytest.raises(ReplayHashMismatch):
            replay(record, envelope)
