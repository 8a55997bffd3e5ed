"""Records after a kill: exactly the committed events, and the outcome that the next boot writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count

import pytest

from craftcore.config import Config
from craftcore.executions.record import ExecutionRecord, faults, refusal_to_replay
from craftcore.failpoints import Failpoint
from craftcore.services import Services
from tests.crash.child import IN_HANDLER
from tests.crash.record_lives import EVENTS_FLUSHED
from tests.crash.record_nursery import CLOSING, KILLED, Cradle, Event, Nursery, nursery
from tests.support.golden_runs import all_records

BACKENDS = ("asyncio", "trio")


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with nursery(tmp_path_factory.mktemp("lives")) as born:
        yield born


@pytest.fixture
def cradle(lives: Nursery, request: pytest.FixtureRequest) -> Cradle:
    return lives.cradle(request.node.name)


def records(cradle: Cradle) -> list[ExecutionRecord]:
    core = Services(cradle.db, Config())
    with core.reading() as reader:
        found = all_records(reader)
    core.close()
    return found


# The three crashes of the failure model's page


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("place", [Failpoint.EMIT_COMMITTED, Failpoint.CLAIM_COMMITTED])
def test_kill_before_execution_leaves_no_record_and_the_next_boot_runs_the_trigger(cradle, backend, place):
    cradle.life(emits="plain", backend=backend, ends=place)

    assert cradle.rows("SELECT * FROM executions") == cradle.rows("SELECT * FROM events") == []
    [trigger] = cradle.rows("SELECT id, starts, attempts, settled_at FROM triggers")
    assert trigger == {"id": "plain-1-1", "starts": 0, "attempts": 0, "settled_at": None}
    assert cradle.known() == []

    cradle.life(backend=backend)
    [record] = records(cradle)
    assert (record.id, record.attempt, record.status) == ("exec-plain-1-1.1", 1, "success")
    assert cradle.known() == [["AGENT_ATTEMPT_START", "agent", "plain"]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_kill_during_execution_leaves_a_record_of_all_events_before(cradle, backend):
    cradle.life(emits="plain", backend=backend, ends=IN_HANDLER)

    [record] = records(cradle)
    assert [event.type for event in record.events] == ["INTENT_RECEIVED", "AGENT_ATTEMPT_START"]
    assert (record.id, record.status, record.ended_at) == ("exec-plain-1-1.1", "incomplete", None)
    assert (record.replayable, record.replayable_reason) == (False, "execution_incomplete")
    assert refusal_to_replay(record) == "execution_incomplete"
    assert (record.response, faults(record)) == (None, [])

    cradle.life(backend=backend)
    left, again = records(cradle)
    assert left == record
    assert (again.id, again.attempt, again.status) == ("exec-plain-1-1.2", 2, "success")
    assert again.envelope_hash == left.envelope_hash
    assert refusal_to_replay(again) is None


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("place", [EVENTS_FLUSHED, Failpoint.SETTLE_COMMITTED])
def test_kill_after_execution_leaves_a_whole_record_and_nothing_runs_again(cradle, backend, place):
    """Its last event is on disk; whoever waits for the answer has not heard of it."""
    cradle.life(emits="plain", backend=backend, ends=place, at_pass=2 if place == EVENTS_FLUSHED else 1)

    [record] = records(cradle)
    assert record.events[-1].type == "FINAL_RESPONSE"
    assert (record.status, record.replayable, refusal_to_replay(record)) == ("success", True, None)
    assert record.response == {"metadata": {}, "payload": "done", "status": "success"}
    before = [cradle.rows(f"SELECT * FROM {table}") for table in ("executions", "events", "triggers")]

    cradle.life(backend=backend)
    assert [cradle.rows(f"SELECT * FROM {table}") for table in ("executions", "events", "triggers")] == before
    assert cradle.known() == [["AGENT_ATTEMPT_START", "agent", "plain"]]


# A kill at each commit


@pytest.fixture(scope="module", params=["asyncio", pytest.param("trio", marks=pytest.mark.acceptance)])
def unkilled(lives: Nursery, request: pytest.FixtureRequest) -> tuple[str, list[Event], list[int]]:
    """The backend, the stream of a life that nobody killed, and how long it was after each commit that made it longer.

    Other commits ride with these or come between, as the threads happen to run; what is in one commit with an event is
    always the same.
    """
    backend: str = request.param
    cradle = lives.cradle(f"unkilled-{backend}")
    cradle.life(emits="whole", backend=backend)
    stream, lengths = cradle.stream(), lengths_of(cradle)
    assert len(stream) == lengths[-1]
    assert len(lengths) > 12
    return backend, stream, lengths


def lengths_of(cradle: Cradle) -> list[int]:
    return sorted({0, *cradle.flushed()})


@pytest.mark.parametrize(
    "place",
    [
        EVENTS_FLUSHED,
        pytest.param(Failpoint.WRITER_FLUSHED, marks=pytest.mark.acceptance),
        pytest.param(Failpoint.WRITER_FLUSHING, marks=pytest.mark.acceptance),
    ],
)
def test_kill_at_any_commit_leaves_exactly_the_events_up_to_that_commit(lives, unkilled, place):
    """After the flush of the nth commit: n commits are on disk. Before it: n - 1."""
    backend, stream, lengths = unkilled
    left: list[int] = []

    for nth in count(1):
        cradle = lives.cradle(f"{backend}-{place}-{nth}")
        cradle.begin(emits="whole", backend=backend, ends=place, at_pass=nth)
        if cradle.ended() != KILLED:
            break
        found, committed = cradle.stream(), cradle.flushed()
        if place != EVENTS_FLUSHED:
            assert len(committed) == (nth if place == Failpoint.WRITER_FLUSHED else nth - 1)
        assert lengths_of(cradle) == lengths[: len(lengths_of(cradle))]
        assert len(found) == max(committed, default=0)
        assert found == stream[: len(found)]
        assert_consistent(cradle)
        left.append(len(found))

    assert cradle.stream() == stream, "whom nobody killed has done everything"
    if place == EVENTS_FLUSHED:
        assert left == lengths[1:]


def assert_consistent(cradle: Cradle) -> None:
    """A record is open until an event ends it, one is open at a time, a trigger that is settled has its record, and
    user code knew of nothing that was not on disk."""
    events = cradle.rows("SELECT * FROM events ORDER BY execution_seq, seq")
    rows = cradle.rows("SELECT * FROM executions ORDER BY seq")
    for row in rows:
        mine = [event for event in events if event["execution_seq"] == row["seq"]]
        assert [event["seq"] for event in mine] == list(range(1, len(mine) + 1))
        ends = [event["type"] in CLOSING for event in mine]
        assert any(ends[:-1]) is False
        assert ends[-1] == (row["ended_at"] is not None) == (row["record_hash"] is not None)
        assert ends[-1] or row is rows[-1]
    for trigger in cradle.rows("SELECT * FROM triggers"):
        mine = [row for row in rows if row["trigger_id"] == trigger["id"]]
        assert [row["id"] for row in mine] == [f"exec-{trigger['id']}.{n}" for n in range(1, trigger["starts"] + 1)]
        if trigger["settled_at"] is not None:
            assert mine[-1]["ended_at"] is not None
    on_disk = [(event["type"], json.loads(event["payload_json"])) for event in events]
    for type_, field, value in cradle.known():
        assert any(type_ == event and said.get(field) == value for event, said in on_disk), (type_, field, value)
