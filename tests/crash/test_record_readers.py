"""Concurrent readers of records: no reader sees a partial record while writers run and are killed."""

from __future__ import annotations

import os
import random
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from craftcore.config import Config
from craftcore.errors import ErrorCode
from craftcore.executions.chain.seal import FIRST
from craftcore.executions.record import ExecutionRecord, faults, refusal_to_replay
from craftcore.failpoints import Failpoint
from craftcore.services import Services
from tests.crash.child import IN_HANDLER, QUIET
from tests.crash.record_lives import AT_FLUSH, GO_ON
from tests.crash.record_nursery import CLOSING, RecordDatabase, RecordRunner, record_runner
from tests.support.golden_runs import all_records
from tests.support.processes import PATIENCE

LIVES = 25

KILLS = (
    Failpoint.START_COMMITTED,
    Failpoint.STEP_COMMITTED,
    Failpoint.FELL_BACK,
    Failpoint.PROVIDER_ANSWERED,
    Failpoint.SETTLE_BEGUN,
    Failpoint.SETTLE_COMMITTED,
    Failpoint.WRITER_FLUSHING,
    Failpoint.WRITER_FLUSHED,
    IN_HANDLER,
)


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[RecordRunner]:
    """Return a new runner for each test, because a failed test leaves a life that still runs."""
    with record_runner(tmp_path) as runner:
        yield runner


@contextmanager
def pipes(database: RecordDatabase) -> Iterator[tuple[int, int]]:
    """Open the pipes of a watched life, and let the life continue when the block ends."""
    for pipe in (AT_FLUSH, GO_ON):
        os.mkfifo(database.folder / pipe)
    at_flush, go_on = (os.open(database.folder / pipe, os.O_RDWR) for pipe in (AT_FLUSH, GO_ON))
    try:
        yield at_flush, go_on
    finally:
        os.write(go_on, b"." * 1000)
        os.close(at_flush)
        os.close(go_on)


class Snapshot(NamedTuple):
    """One snapshot of the records. `settled` leaves out the poisoned triggers, which a boot settles without a run."""

    records: list[ExecutionRecord]
    starts: dict[str, int]
    settled: set[str]
    head: tuple[int, str]


class Observer:
    """A reader that checks each snapshot by itself and against the snapshot before it."""

    def __init__(self, database: RecordDatabase) -> None:
        self._core = Services(database.db, Config())
        self._before: dict[str, ExecutionRecord] = {}
        self.looks = self.open = self.closed_meanwhile = 0

    def close(self) -> None:
        self._core.close()

    def look(self) -> None:
        snapshot = self._read_snapshot()
        for record in snapshot.records:
            assert faults(record) == []
            assert (record.ended_at is not None) == (record.record_hash is not None)
            assert (record.ended_at is not None) == (record.events[-1].type in CLOSING)
            if record.events[-1].type == "FINAL_RESPONSE":
                assert record.response is not None
                assert refusal_to_replay(record) is None
        self._check_chain(snapshot)
        self._check_triggers(snapshot)
        self._check_changes(snapshot.records)
        self.looks += 1
        self._before = {record.id: record for record in snapshot.records}

    def _read_snapshot(self) -> Snapshot:
        with self._core.reading() as reader:
            [(place, hash)] = reader.fetch_tuples("SELECT head_seq, head_hash FROM record_chain")
            triggers = list(reader.fetch_tuples("SELECT id, starts, settled_at, error_code FROM triggers"))
            return Snapshot(
                all_records(reader),
                {id: starts for id, starts, *_ in triggers},
                {id for id, _, settled_at, error in triggers if settled_at is not None and error != ErrorCode.POISON},
                (place, hash),
            )

    def _check_chain(self, snapshot: Snapshot) -> None:
        before = FIRST
        in_chain = [record for record in snapshot.records if record.chain_seq is not None]
        closed = sorted(in_chain, key=lambda record: record.chain_seq or 0)
        for place, record in enumerate(closed, 1):
            assert (record.chain_seq, record.prev_hash) == (place, before)
            before = record.record_hash or ""
        assert snapshot.head == (len(closed), before)

    def _check_triggers(self, snapshot: Snapshot) -> None:
        """Require a record for each start, and a closed last record for each settled trigger."""
        for id, starts in snapshot.starts.items():
            records = [record for record in snapshot.records if record.trigger_id == id]
            assert [record.id for record in records] == [f"exec-{id}.{n}" for n in range(1, starts + 1)]
            if id in snapshot.settled and starts:
                assert records[-1].ended_at is not None

    def _check_changes(self, records: list[ExecutionRecord]) -> None:
        """Require that closed records are unchanged, and that open records keep their events."""
        now = {record.id: record for record in records}
        for id, before in self._before.items():
            if before.ended_at is not None:
                assert now[id] == before
                continue
            self.open += 1
            assert now[id].events[: len(before.events)] == before.events
            self.closed_meanwhile += now[id].ended_at is not None


@contextmanager
def open_observer(database: RecordDatabase) -> Iterator[Observer]:
    observer = Observer(database)
    try:
        yield observer
    finally:
        observer.close()


@pytest.mark.parametrize("backend", ["asyncio", pytest.param("trio", marks=pytest.mark.acceptance)])
def test_record_is_whole_or_open_before_and_after_each_flush(runner, backend):
    """The writer waits at each flush while the observer reads: a batch is visible as a whole, or not at all."""
    database = runner.new_database(f"watched-{backend}")
    with pipes(database) as (at_flush, go_on), open_observer(database) as observer:
        database.start(emits="whole", count=4, backend=backend, is_watched=True)
        while at_flush in select.select([at_flush, database.process.stdout], [], [], PATIENCE)[0]:
            os.read(at_flush, 1)
            observer.look()
            os.write(go_on, b".")
        assert database.wait_for_end() == 0
        observer.look()

    assert observer.looks > 2 * len(database.flushed())
    assert observer.closed_meanwhile == 4 * 4


@pytest.mark.parametrize("count", [7, pytest.param(LIVES, marks=pytest.mark.campaign)])
def test_reader_never_sees_half_a_record_while_writers_are_killed(runner, count):
    """The observer reads as often as it can while each life runs, and once after its end."""
    chance = random.Random(7)
    database = runner.new_database(f"hunted-{count}")
    with open_observer(database) as observer:
        for number in range(count + 1):
            ends = QUIET if number == count else chance.choice(KILLS)
            database.start(
                emits="" if ends == QUIET else "plain" if ends == IN_HANDLER else "whole",
                count=2,
                backend=chance.choice(["asyncio", "trio"]),
                ends=ends,
                at_pass=chance.randint(1, 12) if "writer" in ends else chance.randint(1, 2),
            )
            while not select.select([database.process.stdout], [], [], 0)[0]:
                observer.look()
            database.wait_for_end()
            observer.look()
        [interrupted] = database.rows("SELECT count(*) AS open FROM executions WHERE ended_at IS NULL")

    assert observer.looks > count
    assert interrupted["open"] > 0, "no kill interrupted an attempt"
    assert database.rows("SELECT 1 FROM triggers WHERE settled_at IS NULL") == []


def test_life_after_a_kill_within_a_call_ends_with_the_decision_of_a_person(runner):
    """The result of the call is unknown, and the task needs it."""
    database = runner.new_database("in-doubt")
    with open_observer(database) as observer:
        database.start(emits="whole", count=1, ends=Failpoint.PROVIDER_ANSWERED, at_pass=1)
        database.wait_for_end()
        observer.look()
        database.start(emits="")
        assert database.wait_for_end() == 0
        observer.look()

    asked = database.rows("SELECT kind, answer FROM questions ORDER BY seq")
    assert [(one["kind"], one["answer"]) for one in asked] == [("activity", "happened"), ("ask", "yes")]
