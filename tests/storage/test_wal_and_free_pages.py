"""WAL truncation, readers that block it, and rebuilds of the file."""

from __future__ import annotations

import anyio
import apsw
import pytest

from craftcore.storage import checkpoints as writing
from craftcore.storage.checkpoints import WAL_KEPT
from craftcore.storage.database import Database
from craftcore.storage.files.file_size import (
    KEPT_FREE,
    can_shrink,
    count_free_pages,
    give_back,
    rebuild,
    wal_bytes,
    wal_in_use,
)
from craftcore.storage.migrate import migrate
from craftcore.storage.migrations import Migration
from craftcore.storage.transaction import Transaction
from craftcore.storage.writer import Writer
from tests.support.processes import PATIENCE

TABLES = Migration(name="0001_tables", sql="CREATE TABLE t (x INTEGER PRIMARY KEY, body TEXT) STRICT;")


@pytest.fixture
def database(tmp_path, clock) -> Database:
    database = Database(tmp_path / "agent.db", clock)
    migrate(database, clock, [TABLES])
    return database


@pytest.fixture
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the idle time and the truncation interval of the writer."""
    monkeypatch.setattr(writing, "IDLE_SECONDS", 0.01)
    monkeypatch.setattr(writing, "TRUNCATE_SECONDS", 0.02)


def write(tx: Transaction, kibibytes: int) -> None:
    tx.run("INSERT INTO t (body) VALUES (:body)", body="x" * (kibibytes << 10))


async def wait_for_short_wal(database: Database) -> None:
    with anyio.fail_after(PATIENCE):
        while wal_bytes(database.path) > WAL_KEPT:  # noqa: ASYNC110 - a file has no event to wait on
            await anyio.sleep(0.01)


@pytest.mark.anyio
async def test_long_wal_is_truncated_after_the_last_write(database, short_intervals, monkeypatch):
    async with Writer(database) as writer:
        lengths: list[int] = []
        truncate = writer._truncate

        def note() -> None:
            lengths.append(wal_bytes(database.path))
            truncate()

        monkeypatch.setattr(writer, "_truncate", note)
        await writer.commit(write, 8 << 10)

        await wait_for_short_wal(database)

        assert lengths[0] > 8 << 20
        assert wal_bytes(database.path) == 0
        await writer.commit(write, 1)


@pytest.mark.anyio
async def test_long_wal_is_truncated_despite_frequent_polls(database, short_intervals, monkeypatch):
    """The polls of the feeder go through the writer and write nothing."""
    monkeypatch.setattr(writing, "TRUNCATE_SECONDS", 1.0)
    async with Writer(database) as writer:
        await writer.commit(write, 4 << 10)
        with anyio.fail_after(PATIENCE):
            while wal_bytes(database.path) > WAL_KEPT:
                await writer.commit(lambda tx: tx.run("DELETE FROM t WHERE x < 0"))
                await anyio.sleep(0.2)


@pytest.mark.anyio
async def test_reader_keeps_a_long_wal_without_blocking_writers(database, short_intervals):
    async with Writer(database) as writer:
        await writer.commit(write, 1)
        with database.reading() as reader:
            before = reader.fetch_value("SELECT count(*) FROM t")
            for _ in range(4):
                await writer.commit(write, 2 << 10)
                await anyio.sleep(0.1)  # the writer tries to truncate the WAL meanwhile
            assert wal_bytes(database.path) > 8 << 20
            with anyio.fail_after(PATIENCE):
                await writer.commit(write, 1)
            assert reader.fetch_value("SELECT count(*) FROM t") == before

        await wait_for_short_wal(database)


@pytest.mark.anyio
async def test_wal_without_a_reader_stays_within_its_limit(database):
    async with Writer(database) as writer:
        longest = 0
        for _ in range(100):
            await writer.commit(write, 1 << 10)
            longest = max(longest, wal_bytes(database.path))

    assert 8 << 20 < longest <= 64 << 20


@pytest.mark.anyio
async def test_truncation_does_not_wait_for_another_writing_process(database, short_intervals):
    other = apsw.Connection(str(database.path))
    async with Writer(database) as writer:
        await writer.commit(write, 4 << 10)
        other.execute("BEGIN IMMEDIATE")
        await anyio.sleep(0.2)
        other.execute("COMMIT")
        with anyio.fail_after(PATIENCE):
            await writer.commit(write, 1)
        await wait_for_short_wal(database)
    other.close()


def test_restarted_wal_counts_only_writes_since_the_restart(database):
    """Litestream restarts the WAL without truncating it."""
    path = database.path
    assert wal_in_use(path) == wal_bytes(path) == 0
    litestream, writer_connection = apsw.Connection(str(path)), database.connect()
    writer_connection.execute("INSERT INTO t (body) VALUES (hex(zeroblob(4000000 / 2)))")
    long = wal_bytes(path)
    assert wal_in_use(path) == long > 4_000_000

    writer_connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    assert wal_in_use(path) == long, "the pages were moved, and the WAL was not restarted"
    litestream.execute("CREATE TABLE _litestream_lock (id INTEGER)")
    few = wal_in_use(path)
    assert 0 < few < 20 * 4120
    assert wal_bytes(path) == long

    writer_connection.execute("INSERT INTO t (body) VALUES (hex(zeroblob(1000000 / 2)))")
    assert few + 1_000_000 < wal_in_use(path) < few + 1_100_000
    assert wal_bytes(path) == long
    for connection in (litestream, writer_connection):
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.close()


@pytest.mark.parametrize("is_replicated", [False, True])
def test_restarted_wal_of_a_replicated_database_is_truncated(database, is_replicated):
    """Otherwise Litestream may find its last frame at the same place and miss the frames in between."""
    with database.transaction() as tx:
        if is_replicated:
            tx.run("CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)")
        write(tx, 4 << 10)
    database.close()
    connection = database.connect()
    connection.execute("INSERT INTO t (body) VALUES (hex(zeroblob(2000000)))")
    long = wal_bytes(database.path)
    assert long > 4_000_000

    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    connection.execute("INSERT INTO t (body) VALUES ('x')")

    left = wal_bytes(database.path)
    assert left == (wal_in_use(database.path) if is_replicated else long)
    connection.close()


@pytest.mark.anyio
async def test_running_daemon_notices_litestream_when_idle(database, short_intervals):
    async with Writer(database) as writer:
        await writer.commit(write, 1)
        with database.transaction() as tx:
            tx.run("CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)")
        await writer.commit(write, 100)
        with anyio.fail_after(PATIENCE):
            while writer.group_commit.connection.pragma("journal_size_limit") != 0:  # noqa: ASYNC110 - no event reports the change
                await anyio.sleep(0.01)


# Free pages


def fill_and_empty(database: Database) -> None:
    with database.transaction() as tx:
        for _ in range(100):
            write(tx, 64)
    with database.transaction() as tx:
        tx.run("DELETE FROM t")


def test_free_pages_go_back_some_at_a_time(database):
    fill_and_empty(database)
    with database.transaction() as tx:
        before = count_free_pages(tx)
        left = give_back(tx)
        assert left == before - 64 - KEPT_FREE

    while left:
        with database.transaction() as tx:
            left = give_back(tx)
    with database.transaction() as tx:
        assert KEPT_FREE - 64 < count_free_pages(tx) <= KEPT_FREE
        assert give_back(tx) == 0
    database.close()


def test_file_of_an_earlier_version_returns_no_pages_before_a_rebuild(tmp_path, clock):
    path = tmp_path / "agent.db"
    old = apsw.Connection(str(path))
    old.pragma("page_size", 4096)
    old.execute("CREATE TABLE x (y)")
    old.execute("DROP TABLE x")
    old.close()
    database = Database(path, clock)
    migrate(database, clock, [TABLES])
    fill_and_empty(database)
    with database.transaction() as tx:
        assert not can_shrink(tx)
        assert give_back(tx) == 0
    database.close()
    size = path.stat().st_size

    rebuild(database)

    assert path.stat().st_size < size / 10
    with database.reading() as reader:
        assert can_shrink(reader)
        assert reader.fetch_value("PRAGMA integrity_check") == "ok"
