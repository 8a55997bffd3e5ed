"""Repeated reads on a shared connection: no old file and no old snapshot."""

from __future__ import annotations

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event

import apsw
import pytest

from craftcore.errors import NotFound, StorageError
from craftcore.storage.repeated_reads import KEPT_MAX, RepeatedReads
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
        assert outer.fetch_value(COUNT) == 0, "the outer snapshot is older"
        assert inner is not connection_of(outer)

        kept = connection_of(outer)

    assert read(database)[1] in (inner, kept)


def test_readings_at_once_have_connections_of_their_own_and_few_are_kept(core, database):
    with ExitStack() as all_at_once:
        readers = [all_at_once.enter_context(database.reading()) for _ in range(KEPT_MAX + 2)]
        connections = {connection_of(one) for one in readers}
    assert len(connections) == KEPT_MAX + 2

    with ExitStack() as all_at_once:
        readers = [all_at_once.enter_context(database.reading()) for _ in range(KEPT_MAX + 2)]
        assert len({connection_of(one) for one in readers} & connections) == KEPT_MAX


def test_threads_never_share_a_snapshot(core, database):
    """Each thread sees the same count twice in a snapshot while triggers are added."""

    def read_twice(_: int) -> bool:
        with database.reading() as reader:
            first = reader.fetch_value(COUNT)
            return bool(first == reader.fetch_value(COUNT))

    with ThreadPoolExecutor(4) as threads:
        results = threads.map(read_twice, range(400))
        for _ in range(20):
            emit(core)
        assert all(results)


def test_closing_the_readers_leaves_the_next_reading_a_new_connection(core, database):
    _, first = read(database)
    database.close_readers()

    with pytest.raises(apsw.ConnectionClosedError):
        first.pragma("user_version")
    assert read(database)[1] is not first


def test_connection_of_a_file_that_was_replaced_meanwhile_is_not_kept(core, database):
    path = core.database.path
    with database.reading() as reader:
        old = connection_of(reader)
        core.close()
        shutil.copy(path, path.with_name("copy.db"))
        path.with_name("copy.db").rename(path)
        read(database)  # finds the new file

    assert read(database)[1] is not old
    with pytest.raises(apsw.ConnectionClosedError):
        old.pragma("user_version")


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


@pytest.fixture
def short_switch_interval():
    """Make the threads switch as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_reading_that_begins_after_a_replacement_never_sees_the_old_file(core, database, short_switch_interval):
    """Other threads read at the same time and return connections to the old file."""
    path, newest, stop = core.database.path, [0], Event()
    core.close()
    files = [path.with_name(f"{number}.db") for number in range(1, 21)]
    for number, file in enumerate(files, 1):
        shutil.copy(path, file)
        connection = apsw.Connection(str(file))
        connection.pragma("user_version", number)
        connection.close()

    def find_stale_reads() -> list[tuple[int, int]]:
        stale = []
        while not stop.is_set():
            known = newest[0]
            with database.reading() as reader:
                seen = reader.fetch_value("PRAGMA user_version")
            if known and seen < known:
                stale.append((known, seen))
        return stale

    with ThreadPoolExecutor(4) as threads:
        results = [threads.submit(find_stale_reads) for _ in range(4)]
        for number, file in enumerate(files, 1):
            file.rename(path)
            newest[0] = number
            for _ in range(20):
                read(database)
        stop.set()

    assert [one.result() for one in results] == [[], [], [], []]


def test_connection_whose_transaction_sqlite_ended_is_not_used_again(core, database):
    """SQLite ends the transaction after a disk error, even if the reading continues."""
    with database.reading() as reader:
        first = connection_of(reader)
        first.execute("ROLLBACK")

    assert read(database)[1] is not first


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


def test_time_limit_applies_only_to_its_reading(core, database):
    forever = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n"
    with database.reading(within=0.05) as reader:
        reader.fetch_value(COUNT)
    long = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 2000000) SELECT max(x) FROM n"
    with database.reading() as reader:
        assert reader.fetch_value(long) == 2_000_000

    with pytest.raises(StorageError, match=r"longer than 0\.05 s"), database.reading(within=0.05) as reader:
        reader.fetch_value(forever)
