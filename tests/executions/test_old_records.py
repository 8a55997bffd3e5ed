"""Records from before the migration of events into two texts: read, verified and closed like new records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from craftcore.executions.chain.verify import Verification
from craftcore.executions.document.export import document_of
from craftcore.executions.record import ExecutionRecord
from craftcore.executions.record_store import RecordStore
from craftcore.executions.recorder import AttemptInfo, Recorder, Routed
from craftcore.storage.transaction import Reader
from craftcore.triggers.settlement import Succeeded
from tests.support.damage import unguarded
from tests.support.event_rows import move_events_to_rows
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore
from tests.support.trigger_steps import claim_all, emit, start

GREET = Routed("greet", "explicit workflow")


@pytest.fixture
def old(sound: Path, tmp_path: Path) -> Iterator[Reader]:
    path = tmp_path / "old.db"
    path.write_bytes(sound.read_bytes())
    connection = apsw.Connection(str(path))
    with unguarded(connection):
        move_events_to_rows(connection.execute)
    yield Reader(connection)
    connection.close()


@pytest.fixture
def new(sound: Path) -> Iterator[Reader]:
    connection = apsw.Connection(str(sound), flags=apsw.SQLITE_OPEN_READONLY)
    yield Reader(connection)
    connection.close()


def records_of(reader: Reader) -> list[ExecutionRecord]:
    ids = [id for (id,) in reader.fetch_tuples("SELECT id FROM executions ORDER BY seq")]
    return [record for id in ids if (record := RecordStore().get(reader, id)) is not None]


def test_old_and_new_records_are_equal_when_read(old, new):
    assert len(records_of(new)) > 5
    assert records_of(old) == records_of(new)


def test_old_and_new_records_are_exported_as_equal_documents(old, new):
    for one, other in zip(records_of(old), records_of(new), strict=True):
        assert document_of(one) == document_of(other)


def test_old_records_verify(old):
    assert list(Verification(old, NEW_YEAR).faults()) == []


@pytest.mark.parametrize("is_known", [True, False], ids=["by its engine", "after a crash"])
def test_record_opened_before_the_migration_is_closed_afterwards(core, is_known):
    recorder = Recorder()
    for _ in range(2):
        emit(core)
    claims = [start(core, claim) for claim in claim_all(core)]
    records = core.do(recorder.open_all, 1, [AttemptInfo(claim, GREET) for claim in claims])
    connection = core.database.connect()
    with unguarded(connection):
        move_events_to_rows(connection.execute)
    connection.close()

    if is_known:
        core.do(recorder.close_all, [(record, Succeeded()) for record in records])
    else:
        core.do(recorder.release_open, 1, "shutdown")

    with core.reading() as reader:
        closed = records_of(reader)
        assert list(Verification(reader, VirtualClock().now()).faults()) == []
    rows = core.rows("SELECT execution_seq, count(*) AS n FROM event_rows GROUP BY execution_seq")
    assert [row["n"] for row in rows] == [2, 2]
    assert [[event.seq for event in record.events] for record in closed] == [list(range(1, 6 if is_known else 4))] * 2


def test_record_with_a_damaged_text_is_left_open_and_does_not_stop_the_others(core: VirtualCore):
    recorder = Recorder()
    for _ in range(3):
        emit(core)
    claims = [start(core, claim) for claim in claim_all(core)]
    records = core.do(recorder.open_all, 1, [AttemptInfo(claim, GREET) for claim in claims])
    connection = core.database.connect()
    with unguarded(connection):
        connection.execute("UPDATE executions SET first_events = '[1,' WHERE seq = ?", (records[1].seq,))
    connection.close()

    core.do(recorder.release_open, 1, "shutdown")

    ended = core.rows("SELECT seq, ended_at IS NOT NULL AS has_ended FROM executions ORDER BY seq")
    assert [row["has_ended"] for row in ended] == [1, 0, 1]
    with core.reading() as reader:
        wrong = {fault.wrong for fault in Verification(reader, VirtualClock().now()).faults()}
    assert wrong == {"its events are numbered 0, not from 1 on without a gap"}
