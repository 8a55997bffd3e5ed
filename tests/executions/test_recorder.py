"""The recorder: the record of an attempt from its first event to its end, with events in order."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from craftcore.errors import StorageError
from craftcore.executions.event_store import EventStore
from craftcore.executions.record_store import RecordStore
from craftcore.executions.recorder import AttemptInfo as Opened
from craftcore.executions.recorder import Record, Recorder, Routed
from craftcore.executions.store import ExecutionStore
from craftcore.triggers.model import Claim
from craftcore.triggers.settlement import (
    Cancelled,
    Corrupt,
    Failed,
    Outcome,
    Released,
    Rerouted,
    Snoozed,
    Succeeded,
)
from tests.support.fakes import NEW_YEAR, VirtualCore
from tests.support.trigger_steps import BROKEN, ack, claim_one, emit, start, start_one

GREET = Routed("greet", "explicit workflow")
HOSTILE = 'say "hi" \\ \'there\'\n\r\t\x00\x1f\x7f é 😀 \u2028 </script> {"a": 1}'


class Attempt:
    """A started attempt with its open record."""

    def __init__(self, core: VirtualCore, claim: Claim, routed: Routed | None, recorder: Recorder) -> None:
        self.core = core
        self.claim = claim
        self.recorder = recorder
        [self.record] = core.do(recorder.open_all, 1, [Opened(claim, routed)])

    def close(self, outcome: Outcome, record: Record | None = None) -> None:
        self.core.do(self.recorder.close_all, [(record or self.record, outcome)])

    @property
    def header(self) -> dict[str, Any]:
        [row] = self.core.rows("SELECT * FROM executions WHERE seq = :seq", seq=self.record.seq)
        return row

    @property
    def response(self) -> dict[str, Any] | None:
        """The response of the record, stored inline or as a blob."""
        with self.core.reading() as reader:
            record = RecordStore().get_by_seq(reader, self.record.seq)
        assert record is not None
        return record.response

    @property
    def events(self) -> list[tuple[str, dict[str, Any]]]:
        """Type and payload of each event, whose numbers must go from 1 without a gap."""
        with self.core.reading() as reader:
            rows = EventStore().list_of_record(reader, self.record.seq)
        assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
        return [(row["type"], json.loads(row["payload_json"])) for row in rows]


@pytest.fixture
def attempt(core):
    """Emit, claim, start and open the record of one attempt."""

    def attempt(routed: Routed | None = GREET, recorder: Recorder | None = None, **spec: Any) -> Attempt:
        emit(core, **spec)
        return Attempt(core, start_one(core), routed, recorder or Recorder())

    return attempt


# Open


def test_record_exists_and_is_incomplete_from_its_first_event(core, attempt):
    seen = attempt(id="t", session_id="s", task_id="task")

    header = seen.header
    assert (header["id"], header["trigger_id"], header["task_id"]) == ("exec-t.1", "t", "task")
    assert (header["attempt"], header["epoch"], header["workflow"]) == (1, 1, "greet")
    assert (header["status"], header["replayable"], header["replayable_reason"]) == (
        "incomplete",
        0,
        "execution_incomplete",
    )
    assert (header["created_at"], header["ended_at"], header["response_json"]) == (NEW_YEAR, None, None)
    assert json.loads(header["routing_json"]) == {
        "agent": "greet",
        "reason": "explicit workflow",
        "strategy": "DIRECT",
    }
    assert seen.events == [
        ("INTENT_RECEIVED", {"intent": "greet", "timestamp": NEW_YEAR}),
        ("AGENT_ATTEMPT_START", {"agent": "greet", "attempt_num": 1}),
    ]


def test_unrouted_record_has_no_agent_yet(attempt):
    seen = attempt(routed=None, workflow=None, session_id="s")

    assert seen.events == [("INTENT_RECEIVED", {"intent": None, "timestamp": NEW_YEAR})]
    assert (seen.header["workflow"], seen.header["routing_json"]) == (None, None)


def test_router_decision_is_recorded_before_the_workflow_runs(core, clock, attempt):
    seen = attempt(routed=None, workflow=None, session_id="s")
    clock.advance(seconds=2)

    record = core.do(seen.recorder.record_decision, seen.record, Opened(seen.claim, Routed("greet", "router")))
    seen.close(Succeeded(), record)

    assert [name for name, _ in seen.events] == [
        "INTENT_RECEIVED",
        "AGENT_ATTEMPT_START",
        "AGENT_ATTEMPT_END",
        "ROUTER_DECISION",
        "FINAL_RESPONSE",
    ]
    assert seen.header["workflow"] == "greet"
    assert json.loads(seen.header["routing_json"])["reason"] == "router"


def test_late_start_is_recorded_as_an_event(core, clock):
    emit(core)
    clock.advance(minutes=10)

    seen = Attempt(core, start_one(core), GREET, Recorder(overdue_after=120))

    assert seen.events == [
        ("INTENT_RECEIVED", {"intent": "greet", "timestamp": NEW_YEAR + 600}),
        ("OVERDUE", {"due_at": NEW_YEAR, "overdue_seconds": 600.0}),
        ("AGENT_ATTEMPT_START", {"agent": "greet", "attempt_num": 1}),
    ]


# Close

START = [
    ("INTENT_RECEIVED", {"intent": "greet", "timestamp": NEW_YEAR}),
    ("AGENT_ATTEMPT_START", {"agent": "greet", "attempt_num": 1}),
]
DECISION = ("ROUTER_DECISION", {"agent": "greet", "intent": "greet", "reason": "explicit workflow"})


def test_success_ends_the_record_with_its_result(clock, attempt):
    seen = attempt()
    clock.advance(seconds=1.5)

    seen.close(Succeeded(result_json='{"hello":"Ada"}'))

    assert seen.events == [
        *START,
        ("AGENT_ATTEMPT_END", {"agent": "greet", "status": "success", "latency_ms": 1500.0}),
        DECISION,
        ("FINAL_RESPONSE", {"status": "success", "has_error": False, "latency_ms": 1500.0}),
    ]
    header = seen.header
    assert (header["status"], header["replayable"], header["replayable_reason"]) == ("success", 1, None)
    assert (header["ended_at"], header["latency_ms"], header["error_code"]) == (NEW_YEAR + 1.5, 1500.0, None)
    assert json.loads(header["response_json"]) == {"status": "success", "payload": {"hello": "Ada"}, "metadata": {}}


def test_failure_ends_the_record_with_its_error(clock, attempt):
    seen = attempt()
    clock.advance(seconds=30)

    seen.close(Failed(code="AGENT_TIMEOUT", message="too slow", retryable=True, details={"timeout_ms": 30000}))

    assert seen.events == [
        *START,
        (
            "AGENT_ATTEMPT_END",
            {"agent": "greet", "status": "error", "error_code": "AGENT_TIMEOUT", "latency_ms": 30000.0},
        ),
        DECISION,
        (
            "FINAL_RESPONSE",
            {"status": "error", "has_error": True, "error_code": "AGENT_TIMEOUT", "latency_ms": 30000.0},
        ),
    ]
    assert (seen.header["status"], seen.header["error_code"], seen.header["replayable"]) == (
        "error",
        "AGENT_TIMEOUT",
        1,
    )
    assert json.loads(seen.header["response_json"]) == {
        "status": "error",
        "error": {
            "code": "AGENT_TIMEOUT",
            "message": "too slow",
            "retryable": True,
            "details": {"timeout_ms": 30000},
            "effect_possible": False,
            "retry_after": None,
        },
        "metadata": {},
    }


def test_unhandled_trigger_has_a_record_too(attempt):
    seen = attempt(routed=None, workflow=None, session_id="s")

    seen.close(Failed(code="CAPABILITY_NOT_FOUND", message="no workflow", retryable=False))

    assert seen.events == [
        ("INTENT_RECEIVED", {"intent": None, "timestamp": NEW_YEAR}),
        (
            "FINAL_RESPONSE",
            {"status": "error", "has_error": True, "error_code": "CAPABILITY_NOT_FOUND", "latency_ms": 0.0},
        ),
    ]
    assert seen.header["status"] == "error"


def test_cancellation_is_recorded_before_the_end(attempt):
    seen = attempt()

    seen.close(Cancelled())

    assert [name for name, _ in seen.events[2:]] == [
        "CANCEL_REQUESTED",
        "AGENT_ATTEMPT_END",
        "ROUTER_DECISION",
        "FINAL_RESPONSE",
    ]
    assert json.loads(seen.header["response_json"])["error"]["code"] == "WORKFLOW_ABORTED"


def test_corrupt_row_is_recorded_as_a_validation_error(attempt):
    seen = attempt()

    seen.close(Corrupt(message="the payload is not JSON"))

    assert seen.header["error_code"] == "VALIDATION_ERROR"
    assert json.loads(seen.header["response_json"])["error"]["message"] == "the payload is not JSON"


@pytest.mark.parametrize(
    ("outcome", "status", "reason"),
    [
        (Released(reason="shutdown"), "incomplete", "shutdown"),
        (Rerouted(session_id="s"), "incomplete", "waits for session s"),
        (Snoozed(until=NEW_YEAR), "suspended", "snoozed"),
    ],
    ids=["released", "rerouted", "snoozed"],
)
def test_released_attempt_ends_without_a_response(clock, attempt, outcome, status, reason):
    seen = attempt()
    clock.advance(seconds=1)

    seen.close(outcome)

    header = seen.header
    assert seen.events == [*START, ("ATTEMPT_RELEASED", {"reason": reason})]
    assert (header["status"], header["ended_at"], header["response_json"]) == (status, NEW_YEAR + 1, None)
    assert (header["replayable"], header["replayable_reason"]) == (0, "execution_incomplete")


def test_events_are_ordered_by_number_also_when_the_clock_is_set_back(core, clock, attempt):
    seen = attempt()
    clock.set_back(seconds=3600)

    seen.close(Succeeded())

    assert seen.events[-1][0] == "FINAL_RESPONSE"
    assert seen.header["latency_ms"] == 0.0
    times = [row["at"] for row in core.rows("SELECT at FROM events ORDER BY seq")]
    assert times[0] > times[-1]


# Closed records are final


def dump_tables(core):
    tables = ("SELECT * FROM executions", "SELECT * FROM events", "SELECT * FROM blobs", "SELECT * FROM record_chain")
    return [core.rows(table) for table in tables]


@pytest.mark.parametrize("second", [Succeeded(result_json="2"), BROKEN, Released(reason="shutdown")])
@pytest.mark.parametrize("first", [Succeeded(result_json="1"), BROKEN, Released(reason="shutdown")])
def test_closed_record_is_unchanged_by_a_second_close(core, attempt, first, second):
    seen = attempt()
    seen.close(first)
    before = dump_tables(core)

    seen.close(second)

    assert dump_tables(core) == before


def test_closed_record_accepts_no_further_event_or_decision(core, attempt):
    seen = attempt()
    seen.close(Succeeded())
    before = dump_tables(core)

    with pytest.raises(StorageError):
        core.do(seen.recorder.record_decision, seen.record, Opened(seen.claim, Routed("other", "router")))

    assert dump_tables(core) == before


def test_record_of_a_killed_process_stays_incomplete(core, clock, attempt):
    first = attempt(id="t")
    core.do(core.claims.reclaim, 2)
    second = Attempt(core, start_one(core, epoch=2), GREET, Recorder())
    second.close(Succeeded())

    assert first.events == START
    assert (first.header["status"], first.header["ended_at"]) == ("incomplete", None)
    assert (second.header["id"], second.header["attempt"]) == ("exec-t.2", 2)
    assert second.header["status"] == "success"


# Several attempts


def test_attempts_have_separate_records_and_the_same_envelope(core, clock):
    emit(core, id="t", payload={"b": [1, None], "a": "é"}, description=HOSTILE, session_id="s")
    seen = []
    for _ in range(3):
        claim = start(core, claim_one(core))
        seen.append(Attempt(core, claim, GREET, Recorder()))
        seen[-1].close(BROKEN)
        ack(core, claim, BROKEN)
        clock.advance(hours=1)

    assert [one.header["id"] for one in seen] == ["exec-t.1", "exec-t.2", "exec-t.3"]
    assert [one.header["attempt"] for one in seen] == [1, 2, 3]
    assert [one.events[-3][1] for one in seen] == [one.events[-3][1] for one in seen[:1]] * 3
    assert len({one.header["envelope_hash"] for one in seen}) == 1
    assert len({one.header["envelope_json"] for one in seen}) == 1


def test_released_attempt_does_not_reuse_its_record_number(core):
    emit(core, id="t")
    first = Attempt(core, start_one(core), GREET, Recorder())
    first.close(Released(reason="shutdown"))
    ack(core, first.claim, Released(reason="shutdown"))

    second = Attempt(core, start_one(core), GREET, Recorder())

    assert (second.header["id"], second.header["attempt"]) == ("exec-t.2", 1)


def test_batch_opens_and_closes_every_record_with_its_own_events(core):
    claims = []
    for n in range(50):
        emit(core, id=f"t{n:02}", payload={"n": n})
    for claim in sorted(core.do(core.claims.claim, epoch=1, limit=50).claims):
        claims.append(start(core, claim))
    recorder = Recorder()

    records = core.do(recorder.open_all, 1, [Opened(claim, GREET) for claim in claims])
    ends = [(record, Succeeded(result_json=str(n))) for n, record in enumerate(records)]
    core.do(recorder.close_all, ends)

    rows = core.rows("SELECT * FROM executions ORDER BY trigger_id")
    assert [row["id"] for row in rows] == [f"exec-t{n:02}.1" for n in range(50)]
    assert [json.loads(row["envelope_json"])["payload"]["n"] for row in rows] == list(range(50))
    assert [json.loads(row["response_json"])["payload"] for row in rows] == list(range(50))
    counts = core.rows("SELECT count(*) AS events FROM events GROUP BY execution_seq")
    assert [row["events"] for row in counts] == [5] * 50


def test_records_of_a_trigger_are_separate_from_those_of_a_similar_id(core):
    for trigger_id in ("a", "a.b", "a.1", "a.1.1", "a-b"):
        emit(core, id=trigger_id)
        Attempt(core, start_one(core), GREET, Recorder())

    with core.reading() as reader:
        found = {
            own: [row["id"] for row in ExecutionStore().list_of_trigger(reader, own)] for own in ("a", "a.1", "a.b")
        }

    assert found == {"a": ["exec-a.1"], "a.1": ["exec-a.1.1"], "a.b": ["exec-a.b.1"]}


# Hostile content


@pytest.mark.parametrize("text", [HOSTILE, "\ud800", "", "x" * 100_000], ids=["hostile", "surrogate", "empty", "long"])
def test_error_text_of_any_kind_keeps_events_and_response_valid_json(attempt, text):
    seen = attempt()

    seen.close(Failed(code="AGENT_ERROR", message=text, retryable=False, details={text: [text]}))

    assert seen.response is not None
    error = seen.response["error"]
    assert (error["message"], error["details"]) == (text, {text: [text]})
    assert seen.events[-1][1]["error_code"] == "AGENT_ERROR"


def test_error_code_of_user_code_is_kept(attempt):
    seen = attempt()

    seen.close(Failed(code=HOSTILE, message="", retryable=False))

    assert json.loads(seen.header["response_json"])["error"]["code"] == HOSTILE
    assert [payload.get("error_code") for _, payload in seen.events[2:]] == [HOSTILE, None, HOSTILE]
    assert seen.header["error_code"] == HOSTILE


def test_error_without_a_code_gets_the_default_code(attempt):
    seen = attempt()

    seen.close(Failed(code="", message="no", retryable=False))

    assert (seen.events[-1][1]["status"], seen.events[-1][1]["has_error"]) == ("error", True)


def test_release_reason_is_kept(attempt):
    seen = attempt()

    seen.close(Released(reason=HOSTILE))

    assert seen.events[-1] == ("ATTEMPT_RELEASED", {"reason": HOSTILE})


# Limits


def test_result_over_the_limit_becomes_a_stub_with_size_and_hash(attempt):
    seen = attempt(recorder=Recorder(response_max_bytes=100))
    result = json.dumps("x" * 99)

    seen.close(Succeeded(result_json=result))

    assert len(result) == 101
    assert json.loads(seen.header["response_json"])["payload"] == {
        "result_unstored": "too large",
        "bytes": 101,
        "sha256": hashlib.sha256(result.encode()).hexdigest(),
    }
    assert seen.header["status"] == "success"


def test_result_of_exactly_the_limit_is_kept(attempt):
    seen = attempt(recorder=Recorder(response_max_bytes=100))

    seen.close(Succeeded(result_json=json.dumps("x" * 98)))

    assert json.loads(seen.header["response_json"])["payload"] == "x" * 98
