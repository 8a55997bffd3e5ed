"""Repeated readings share a connection, and never see an old file or an old snapshot."""

from __future__ import annotations

import shutil

import apsw
import pytest

from craftcore.errors import NotFound, StorageError
from craftcore.storage.repeated_reads import RepeatedReads
from tests.support.trigger_steps import emit

COUNT = "SELECT count(*) FROM triggers"


@pytest.fixture
def database(core):
    database = RepeatedReads(core.database.path, core.clock, read_only=True)
    yield database
    database.close()


def read(database: RepeatedReads) -> tuple[int, apsw.Connection]:
    with database.reading() as reader:
        return reader.fetch_value(COUNT), connection_of(reader)


def connection_of(reader) -> apsw.Connection:
    connection: apsw.Connection = reader.fetch_tuples("SELECT 1").connection
    return connection


def test_readings_share_a_connection_and_each_sees_the_last_commit(core, database):
    before, first = read(database)
    emit(core)
    after, second = read(database)

    assert (before, after) == (0, 1)
    assert first is second


def test_kept_connection_locks_nothing_between_two_readings(core, database):
    read(database)
    emit(core)
    core.database.close()
    with core.database.reading(with_checks=True) as reader:
        connection = connection_of(reader)
        connection.execute("ROLLBACK")
        busy, _, _ = next(iter(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")))
        connection.execute("BEGIN")

    assert busy == 0


def test_reading_within_a_reading_has_a_connection_of_its_own(core, database):
    with database.reading() as outer:
        assert outer.fetch_value(COUNT) == 0
        emit(core)
        count, inner = read(database)
        assert count == 1
        assert outer.fetch_value(COUNT) == 0, "its snapshot is older"
        assert inner is not connection_of(outer)

    assert read(database)[1] is inner, "one of them is kept"


def test_replaced_file_is_read_from_then_on(core, database):
    _, first = read(database)
    emit(core)
    core.close()
    path = core.database.path
    shutil.copy(path, path.with_name("copy.db"))
    path.with_name("copy.db").rename(path)

    count, second = read(database)

    assert count == 1
    assert first is not second
    with pytest.raises(apsw.ConnectionClosedError):
        first.pragma("user_version")


def test_missing_file_is_not_found_although_a_connection_was_kept(core, database):
    read(database)
    core.close()
    for file in core.database.path.parent.glob("agent.db*"):
        file.unlink()

    with pytest.raises(NotFound):
        read(database)


def test_connection_of_a_failed_reading_is_not_used_again(core, database):
    _, first = read(database)
    with pytest.raises(StorageError), database.reading() as reader:
        reader.fetch_value("SELECT * FROM no_table")

    assert read(database)[1] is not first


def test_limit_of_time_ends_with_its_reading(core, database):
    forever = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n"
    with database.reading(within=0.05) as reader:
        reader.fetch_value(COUNT)
    long = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 2000000) SELECT max(x) FROM n"
    with database.reading() as reader:
        assert reader.fetch_value(long) == 2_000_000

    with pytest.raises(StorageError, match=r"longer than 0\.05 s"), database.reading(within=0.05) as reader:
        reader.fetch_value(forever)
