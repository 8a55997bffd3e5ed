"""Golden records of each end of an attempt, and of the example on the page about records.

The runs and the format of their records are in `golden_runs.py`.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest

from craftcore.executions.model import EventType
from craftcore.executions.record import ExecutionRecord, faults, refusal_to_replay
from tests.support.cells import cells
from tests.support.golden_runs import GOLDEN, RUNS, recorded, to_plain_json

BACKENDS = ("asyncio", "trio")

EXAMPLE = [
    {"seq": 1, "type": "INTENT_RECEIVED", "payload": {"intent": "ProcessIntent"}},
    {"seq": 2, "type": "AGENT_ATTEMPT_START", "payload": {"agent": "processor-a"}},
    {"seq": 3, "type": "AGENT_ATTEMPT_END", "payload": {"agent": "processor-a", "status": "error"}},
    {"seq": 4, "type": "FALLBACK_TRIGGERED", "payload": {"from": "processor-a", "to": "processor-b"}},
    {"seq": 5, "type": "AGENT_ATTEMPT_START", "payload": {"agent": "processor-b"}},
    {"seq": 6, "type": "AGENT_ATTEMPT_END", "payload": {"agent": "processor-b", "status": "success"}},
    {"seq": 7, "type": "ROUTER_DECISION", "payload": {"agent": "processor-b"}},
    {"seq": 8, "type": "FINAL_RESPONSE", "payload": {"status": "success"}},
]
"""The example on the page about the failure model, unchanged."""

FIELD_NAMES = {"from": "from_agent", "to": "to_agent"}
"""Field of the example -> field in the table of event types on that page. craftcore follows the table."""

KEYS = {
    "INTENT_RECEIVED": {"intent", "timestamp"},
    "AGENT_ATTEMPT_START": {"agent", "attempt_num"},
    "AGENT_ATTEMPT_END": {"agent", "status", "latency_ms"},
    "FALLBACK_TRIGGERED": {"from_agent", "to_agent", "reason"},
    "ROUTER_DECISION": {"agent", "intent", "reason"},
    "FINAL_RESPONSE": {"status", "has_error", "latency_ms"},
}
"""The fields of each payload in that table, with the latency. An error also has a code."""


def each_run(*backends: str) -> Any:
    """Run a test with each run on each of these backends."""
    return pytest.mark.parametrize(("name", "backend"), [(name, backend) for name in RUNS for backend in backends])


def golden_records(name: str) -> list[dict[str, Any]]:
    """Return the records of a run from its golden file."""
    records: list[dict[str, Any]] = json.loads((GOLDEN / f"{name}.json").read_text())
    return records


# The example


@pytest.mark.parametrize("backend", BACKENDS)
def test_fallback_is_recorded_as_the_eight_events_of_the_example_in_order(backend):
    [record] = to_plain_json(recorded("fallback_success", backend).records)

    assert [(event["seq"], event["type"]) for event in record["events"]] == [
        (event["seq"], event["type"]) for event in EXAMPLE
    ]
    for event, example in zip(record["events"], EXAMPLE, strict=True):
        payload = {FIELD_NAMES.get(key, key): value for key, value in example["payload"].items()}  # type: ignore[attr-defined]
        if example["type"] == "INTENT_RECEIVED":
            payload["intent"] = "processor-a"  # the intent is the workflow, which is also the first agent
        assert payload.items() <= event["payload"].items()


@each_run("asyncio")
def test_six_event_types_have_exactly_the_fields_of_the_failure_model(name, backend):
    for record in recorded(name, backend).records:
        for event in record.events:
            payload = json.loads(event.payload_json)
            if event.type in KEYS:
                assert set(payload) - {"error_code"} == KEYS[event.type]
            if event.type in ("AGENT_ATTEMPT_END", "FINAL_RESPONSE"):
                assert ("error_code" in payload) == (payload["status"] == "error")


# Whole records


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *((name, "asyncio") for name in RUNS),
        *cells([(name, "trio") for name in RUNS], [f"{name}-trio" for name in RUNS]),
    ],
)
def test_golden_run_leaves_exactly_the_kept_records(name, backend):
    assert to_plain_json(recorded(name, backend).records) == golden_records(name)


def test_golden_records_are_those_of_the_runs():
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(RUNS)


def test_golden_records_have_every_event_type():
    seen = {event["type"] for name in RUNS for record in golden_records(name) for event in record["events"]}

    assert seen == set(EventType)


@each_run("asyncio")
def test_attempt_of_any_outcome_has_a_record(name, backend):
    run = recorded(name, backend)

    assert [record.id for record in sorted(run.records, key=lambda record: (record.trigger_id, record.id))] == [
        f"exec-{trigger}.{start}" for trigger, starts in sorted(run.starts.items()) for start in range(1, starts + 1)
    ]
    assert run.records, "the run has no record"


@each_run("asyncio")
def test_record_is_replayable_when_its_response_was_kept_unchanged(name, backend):
    for record in recorded(name, backend).records:
        assert faults(record) == []
        assert refusal_to_replay(record) == record.replayable_reason
        if name == "result_that_cannot_be_kept":
            assert record.replayable_reason == "recording_failure"
        elif record.response is None:
            assert record.replayable_reason == "execution_incomplete"
        else:
            assert record.replayable


# Hashes


def plain_hash(value: Any) -> str:
    """Return the hash of a value, computed as the page about envelopes describes."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"sha256:{sha256(text.encode()).hexdigest()}"


def header(record: ExecutionRecord) -> dict[str, Any]:
    """Return the fields that the hash of a record covers: its row without the bodies, which have their own hashes."""
    excluded = ("envelope_json", "response_json", "record_hash", "stripped_at", "invalidated", "events")
    fields = {name: getattr(record, name) for name in ExecutionRecord.__slots__ if name not in excluded}
    return {**fields, "replayable": int(record.replayable), "routing_json": record.routing}


@each_run("asyncio")
def test_hashes_can_be_recomputed_from_plain_json(name, backend):
    before = ""
    for record in sorted(recorded(name, backend).records, key=lambda record: record.chain_seq or 0):
        events = [
            [*event[:3], json.loads(event.payload_json), event.task_seq, event.turn, event.memo, event.activity_seq]
            for event in record.events
        ]
        assert record.envelope_hash == plain_hash(record.envelope)
        assert record.events_hash == plain_hash(events)
        assert record.response_hash == (None if record.response is None else plain_hash(record.response))
        assert record.prev_hash == before
        assert record.record_hash == plain_hash(header(record))
        before = record.record_hash or ""


def test_golden_hashes_are_the_same_in_every_version():
    [record] = recorded("success").records

    assert record.envelope_hash == "sha256:9b3efcdeaf62c8612a02073d003cda14c047925f3d03c06f6be9ecab858a4fa0"
    assert record.events_hash == "sha256:e007e1640e96a99a988d275b48e27a5c4a53167c70e40096d3799c77ffb074c1"
    assert record.response_hash == "sha256:9dcde640a924440b248fcacca56f8f3b0e044ddb25bd321b6e9a60cc06f80469"
    assert record.record_hash == "sha256:500feaf558dbe551f4646de91e461c21d6e27e32c521bd4140d1d170b418c89f"


@each_run("asyncio")
def test_envelope_hash_is_shared_only_by_attempts_of_a_single_trigger(name, backend):
    by_hash: dict[str, set[str]] = {}
    for record in recorded(name, backend).records:
        by_hash.setdefault(record.envelope_hash, set()).add(record.trigger_id)

    assert all(len(triggers) == 1 for triggers in by_hash.values())
    assert len(by_hash) == len({record.trigger_id for record in recorded(name, backend).records})
