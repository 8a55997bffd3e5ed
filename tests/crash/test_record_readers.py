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
from tests.crash.record_lives import GO_ON, HERE
from tests.crash.record_nursery import CLOSING, Cradle, Nursery, nursery
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
def lives(tmp_path: Path) -> Iterator[Nursery]:
    """A parent for each test: one that fails leaves a life behind that is still to end."""
    with nursery(tmp_path) as born:
        yield born


@contextmanager
def pipes(cradle: Cradle) -> Iterator[tuple[int, int]]:
    """Those of a watched life, which is let go when nobody watches it any more."""
    for pipe in (HERE, GO_ON):
        os.mkfifo(cradle.folder / pipe)
    here, go_on = (os.open(cradle.folder / pipe, os.O_RDWR) for pipe in (HERE, GO_ON))
    try:
        yield here, go_on
    finally:
        os.write(go_on, b"." * 1000)
        os.close(here)
        os.close(go_on)


class Seen(NamedTuple):
    """What one snapshot showed. `settled`: triggers with an end; not by a boot, which buries what has killed too many
    processes."""

    records: list[ExecutionRecord]
    starts: dict[str, int]
    settled: set[str]
    head: tuple[int, str]


class Onlooker:
    """Reads everything, again and again, and judges each snapshot by itself and by the one before."""

    def __init__(self, cradle: Cradle) -> None:
        self._core = Services(cradle.db, Config())
        self._before: dict[str, ExecutionRecord] = {}
        self.looks = self.open = self.closed_meanwhile = 0

    def close(self) -> None:
        self._core.close()

    def look(self) -> None:
        seen = self._snapshot()
        for record in seen.records:
            assert faults(record) == []
            assert (record.ended_at is not None) == (record.record_hash is not None)
            assert (record.ended_at is not None) == (record.events[-1].type in CLOSING)
            if record.events[-1].type == "FINAL_RESPONSE":
                assert record.response is not None
                assert refusal_to_replay(record) is None
        self._judge_chain(seen)
        self._judge_triggers(seen)
        self._judge_change(seen.records)
        self.looks += 1
        self._before = {record.id: record for record in seen.records}

    def _snapshot(self) -> Seen:
        with self._core.reading() as reader:
            [(place, hash)] = reader.fetch_tuples("SELECT head_seq, head_hash FROM record_chain")
            triggers = list(reader.fetch_tuples("SELECT id, starts, settled_at, error_code FROM triggers"))
            return Seen(
                all_records(reader),
                {id: starts for id, starts, *_ in triggers},
                {id for id, _, settled_at, error in triggers if settled_at is not None and error != ErrorCode.POISON},
                (place, hash),
            )

    def _judge_chain(self, seen: Seen) -> None:
        before = FIRST
        closed = sorted((one for one in seen.records if one.chain_seq is not None), key=lambda one: one.chain_seq or 0)
        for place, record in enumerate(closed, 1):
            assert (record.chain_seq, record.prev_hash) == (place, before)
            before = record.record_hash or ""
        assert seen.head == (len(closed), before)

    def _judge_triggers(self, seen: Seen) -> None:
        """As many records as starts, and nobody is told of an end that has no record."""
        for id, starts in seen.starts.items():
            records = [record for record in seen.records if record.trigger_id == id]
            assert [record.id for record in records] == [f"exec-{id}.{n}" for n in range(1, starts + 1)]
            if id in seen.settled and starts:
                assert records[-1].ended_at is not None

    def _judge_change(self, records: list[ExecutionRecord]) -> None:
        """None is gone, what was closed is as it was, and what was open has what it had."""
        now = {record.id: record for record in records}
        for id, before in self._before.items():
            if before.ended_at is not None:
                assert now[id] == before
                continue
            self.open += 1
            assert now[id].events[: len(before.events)] == before.events
            self.closed_meanwhile += now[id].ended_at is not None


@contextmanager
def an_onlooker(cradle: Cradle) -> Iterator[Onlooker]:
    onlooker = Onlooker(cradle)
    try:
        yield onlooker
    finally:
        onlooker.close()


@pytest.mark.parametrize("backend", ["asyncio", pytest.param("trio", marks=pytest.mark.acceptance)])
def test_record_is_whole_or_open_before_and_after_each_flush(lives, backend):
    """The writer waits at each while somebody looks: what a batch wrote is all there, or not at all."""
    cradle = lives.cradle(f"watched-{backend}")
    with pipes(cradle) as (here, go_on), an_onlooker(cradle) as onlooker:
        cradle.begin(emits="whole", count=4, backend=backend, is_watched=True)
        while here in select.select([here, cradle.process.stdout], [], [], PATIENCE)[0]:
            os.read(here, 1)
            onlooker.look()
            os.write(go_on, b".")
        assert cradle.ended() == 0
        onlooker.look()

    assert onlooker.looks > 2 * len(cradle.flushed())
    assert onlooker.closed_meanwhile == 4 * 4


@pytest.mark.parametrize("count", [7, pytest.param(LIVES, marks=pytest.mark.campaign)])
def test_reader_never_sees_half_a_record_while_writers_are_killed(lives, count):
    """Nobody waits for the reader here: it looks as often as it can while each life is lived, and once it is over."""
    chance = random.Random(7)
    cradle = lives.cradle(f"hunted-{count}")
    with an_onlooker(cradle) as onlooker:
        for number in range(count + 1):
            ends = QUIET if number == count else chance.choice(KILLS)
            cradle.begin(
                emits="" if ends == QUIET else "plain" if ends == IN_HANDLER else "whole",
                count=2,
                backend=chance.choice(["asyncio", "trio"]),
                ends=ends,
                at_pass=chance.randint(1, 12) if "writer" in ends else chance.randint(1, 2),
            )
            while not select.select([cradle.process.stdout], [], [], 0)[0]:
                onlooker.look()
            cradle.ended()
            onlooker.look()
        [left] = cradle.rows("SELECT count(*) AS open FROM executions WHERE ended_at IS NULL")

    assert onlooker.looks > count
    assert left["open"] > 0, "some were interrupted, and stay as they are"
    assert cradle.rows("SELECT 1 FROM triggers WHERE settled_at IS NULL") == []
