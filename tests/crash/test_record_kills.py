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
from tests.crash.record_nursery import CLOSING, KILLED, Event, RecordDatabase, RecordRunner, record_runner
from tests.support.golden_runs import all_records

BACKENDS = ("asyncio", "trio")


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordRunner]:
    with record_runner(tmp_path_factory.mktemp("lives")) as runner:
        yield runner


@pytest.fixture
def database(runner: RecordRunner, request: pytest.FixtureRequest) -> RecordDatabase:
    return runner.new_database(request.node.name)


def records(database: RecordDatabase) -> list[ExecutionRecord]:
    core = Services(database.db, Config())
    with core.reading() as reader:
        found = all_records(reader)
    core.close()
    return found


# The three crashes of the page on the failure model


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("place", [Failpoint.EMIT_COMMITTED, Failpoint.CLAIM_COMMITTED])
def test_kill_before_execution_leaves_no_record_and_the_next_boot_runs_the_trigger(database, backend, place):
    database.run(emits="plain", backend=backend, ends=place)

    assert database.rows("SELECT * FROM executions") == database.rows("SELECT * FROM events") == []
    [trigger] = database.rows("SELECT id, starts, attempts, settled_at FROM triggers")
    assert trigger == {"id": "plain-1-1", "starts": 0, "attempts": 0, "settled_at": None}
    assert database.known() == []

    database.run(backend=backend)
    [record] = records(database)
    assert (record.id, record.attempt, record.status) == ("exec-plain-1-1.1", 1, "success")
    assert database.known() == [["AGENT_ATTEMPT_START", "agent", "plain"]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_kill_during_execution_leaves_a_record_of_all_events_before(database, backend):
    database.run(emits="plain", backend=backend, ends=IN_HANDLER)

    [record] = records(database)
    assert [event.type for event in record.events] == ["INTENT_RECEIVED", "AGENT_ATTEMPT_START"]
    assert (record.id, record.status, record.ended_at) == ("exec-plain-1-1.1", "incomplete", None)
    assert (record.replayable, record.replayable_reason) == (False, "execution_incomplete")
    assert refusal_to_replay(record) == "execution_incomplete"
    assert (record.response, faults(record)) == (None, [])

    database.run(backend=backend)
    left, again = records(database)
    assert left == record
    assert (again.id, again.attempt, again.status) == ("exec-plain-1-1.2", 2, "success")
    assert again.envelope_hash == left.envelope_hash
    assert refusal_to_replay(again) is None


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("place", [EVENTS_FLUSHED, Failpoint.SETTLE_COMMITTED])
def test_kill_after_execution_leaves_a_whole_record_and_nothing_runs_again(database, backend, place):
    """The last event is on disk, and the process that waits for the answer has not received it."""
    database.run(emits="plain", backend=backend, ends=place, at_pass=2 if place == EVENTS_FLUSHED else 1)

    [record] = records(database)
    assert record.events[-1].type == "FINAL_RESPONSE"
    assert (record.status, record.replayable, refusal_to_replay(record)) == ("success", True, None)
    assert record.response == {"metadata": {}, "payload": "done", "status": "success"}
    before = [database.rows(f"SELECT * FROM {table}") for table in ("executions", "events", "triggers")]

    database.run(backend=backend)
    assert [database.rows(f"SELECT * FROM {table}") for table in ("executions", "events", "triggers")] == before
    assert database.known() == [["AGENT_ATTEMPT_START", "agent", "plain"]]


# A kill at each commit


@pytest.fixture(scope="module", params=["asyncio", pytest.param("trio", marks=pytest.mark.acceptance)])
def unkilled(runner: RecordRunner, request: pytest.FixtureRequest) -> tuple[str, list[Event], list[int]]:
    """Return the backend, the events of a life without a kill, and their number after each commit that added some.

    The scheduling of the threads decides which other commits share a flush with these. The events of one commit are
    always the same.
    """
    backend: str = request.param
    database = runner.new_database(f"unkilled-{backend}")
    database.run(emits="whole", backend=backend)
    stream, lengths = database.stream(), lengths_of(database)
    assert len(stream) == lengths[-1]
    assert len(lengths) > 12
    return backend, stream, lengths


def lengths_of(database: RecordDatabase) -> list[int]:
    return sorted({0, *database.flushed()})


@pytest.mark.parametrize(
    "place",
    [
        EVENTS_FLUSHED,
        pytest.param(Failpoint.WRITER_FLUSHED, marks=pytest.mark.acceptance),
        pytest.param(Failpoint.WRITER_FLUSHING, marks=pytest.mark.acceptance),
    ],
)
def test_kill_at_any_commit_leaves_exactly_the_events_up_to_that_commit(runner, unkilled, place):
    """After the flush of the nth commit, n commits are on disk. Before it, n - 1 are."""
    backend, stream, lengths = unkilled
    left: list[int] = []

    for nth in count(1):
        database = runner.new_database(f"{backend}-{place}-{nth}")
        database.start(emits="whole", backend=backend, ends=place, at_pass=nth)
        if database.wait_for_end() != KILLED:
            break
        found, committed = database.stream(), database.flushed()
        if place != EVENTS_FLUSHED:
            assert len(committed) == (nth if place == Failpoint.WRITER_FLUSHED else nth - 1)
        assert lengths_of(database) == lengths[: len(lengths_of(database))]
        assert len(found) == max(committed, default=0)
        assert found == stream[: len(found)]
        assert_consistent(database)
        left.append(len(found))

    assert database.stream() == stream, "the life without a kill has not made all events"
    if place == EVENTS_FLUSHED:
        assert left == lengths[1:]


def assert_consistent(database: RecordDatabase) -> None:
    """Require the invariants of records after a kill.

    A record is open until an event ends it, and one record is open at a time. A settled trigger has its record. User
    code acted only on events that are on disk.
    """
    events = database.rows("SELECT * FROM events ORDER BY execution_seq, seq")
    rows = database.rows("SELECT * FROM executions ORDER BY seq")
    for row in rows:
        events_of_record = [event for event in events if event["execution_seq"] == row["seq"]]
        assert [event["seq"] for event in events_of_record] == list(range(1, len(events_of_record) + 1))
        ends = [event["type"] in CLOSING for event in events_of_record]
        assert any(ends[:-1]) is False
        assert ends[-1] == (row["ended_at"] is not None) == (row["record_hash"] is not None)
        assert ends[-1] or row is rows[-1]
    for trigger in database.rows("SELECT * FROM triggers"):
        records_of_trigger = [row for row in rows if row["trigger_id"] == trigger["id"]]
        ids = [f"exec-{trigger['id']}.{n}" for n in range(1, trigger["starts"] + 1)]
        assert [row["id"] for row in records_of_trigger] == ids
        if trigger["settled_at"] is not None:
            assert records_of_trigger[-1]["ended_at"] is not None
    on_disk = [(event["type"], json.loads(event["payload_json"])) for event in events]
    for type_, field, value in database.known():
        assert any(type_ == event and payload.get(field) == value for event, payload in on_disk), (type_, field, value)
