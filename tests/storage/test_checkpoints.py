"""Failing checkpoints of a database whose WAL is still writable: log, wait, and end of the engine."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import apsw
import pytest

from craftcore.clock import SystemClock
from craftcore.errors import StorageError
from craftcore.storage import checkpoints
from craftcore.storage import checkpoints as writing
from craftcore.storage.connection import CHECKPOINT_PAGES
from craftcore.storage.database import Database
from craftcore.storage.migrate import migrate
from craftcore.storage.migrations import Migration
from craftcore.storage.transaction import Transaction
from craftcore.storage.writer import Writer
from craftcore.testing.faulty_disk import FaultyDisk
from tests.support.log_capture import capture_logs
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio

TABLES = Migration(name="0001_tables", sql="CREATE TABLE t (x INTEGER PRIMARY KEY, body TEXT) STRICT;")


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    with FaultyDisk() as disk:
        yield disk


@pytest.fixture
def database(tmp_path: Path, disk: FaultyDisk) -> Iterator[Database]:
    database = Database(tmp_path / "agent.db", SystemClock())
    migrate(database, SystemClock(), [TABLES])
    yield database
    disk.free()
    database.close()


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the idle time and the retry interval of the writer."""
    monkeypatch.setattr(writing, "IDLE_SECONDS", 0.01)
    monkeypatch.setattr(checkpoints, "RETRY_SECONDS", 0.01)


def write(tx: Transaction, kibibytes: int) -> None:
    tx.run("INSERT INTO t (body) VALUES (:body)", body="x" * (kibibytes << 10))


async def until(condition: Callable[[], Any]) -> None:
    with anyio.fail_after(PATIENCE):
        while not condition():  # noqa: ASYNC110 - it has no event to wait on
            await anyio.sleep(0.002)


def logged(logs: list[Any], event: str) -> list[Any]:
    return [(line["log_level"], line["event"]) for line in logs if line["event"] == event]


async def test_failed_checkpoint_is_logged_as_an_error_and_commits_continue(database, disk):
    with capture_logs() as logs:
        async with Writer(database) as writer:
            disk.refuse_checkpoints()
            await writer.commit(write, 1)
            await until(lambda: disk.refused_checkpoints > 3)
            during = writer.checkpoints.failed
            await writer.commit(write, 1)
            disk.free()
            await until(lambda: writer.checkpoints.failed is None)

    assert during is not None
    assert "Input/output error" in during
    assert logged(logs, "checkpoint.failed") == [("error", "checkpoint.failed")], "logged once, and not at each try"
    assert logged(logs, "checkpoint.recovered") == [("warning", "checkpoint.recovered")]
    with database.reading() as reader:
        assert reader.fetch_value("SELECT count(*) FROM t") == 2


async def test_failed_checkpoint_of_a_busy_writer_is_logged_too(database, disk, monkeypatch):
    """SQLite's automatic checkpoint discards its error, which a writer under load must still report."""
    monkeypatch.setattr(writing, "IDLE_SECONDS", PATIENCE)
    async with Writer(database) as writer:
        disk.refuse_checkpoints()
        await writer.commit(write, CHECKPOINT_PAGES * 4 + 100)

        await until(lambda: writer.checkpoints.failed is not None)

        disk.free()


async def test_checkpoints_that_keep_failing_end_the_writer_with_74_and_lose_nothing(database, disk, monkeypatch):
    monkeypatch.setattr(checkpoints, "FAILS_SECONDS", 0.1)
    fatal: list[StorageError] = []
    async with Writer(database, on_fatal=fatal.append) as writer:
        disk.refuse_checkpoints()
        await writer.commit(write, 1)

        await until(lambda: fatal)

        with pytest.raises(StorageError, match="Checkpoints have failed"):
            await writer.commit(write, 1)

    assert [error.exit_code for error in fatal] == [74]
    assert f"{database.path}-wal: keep both files together" in str(fatal[0])
    disk.free()
    with database.reading() as reader:
        assert reader.fetch_value("SELECT count(*) FROM t") == 1


@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
async def test_checkpoint_without_space_is_retried_for_any_time(database, disk, monkeypatch, error_number):
    monkeypatch.setattr(checkpoints, "FAILS_SECONDS", 0.0)
    fatal: list[StorageError] = []
    async with Writer(database, on_fatal=fatal.append) as writer:
        disk.refuse_checkpoints(error_number)
        await writer.commit(write, 1)
        await until(lambda: disk.refused_checkpoints > 3)
        disk.free()
        await writer.commit(write, 1)

    assert fatal == []


async def test_checkpoint_delayed_by_a_reader_is_not_a_failure(database):
    async with Writer(database) as writer:
        with database.reading() as reader:
            reader.fetch_value("SELECT count(*) FROM t")
            await writer.commit(write, 40)
            await anyio.sleep(0.05)
            assert writer.checkpoints.failed is None


async def test_checkpoint_of_a_user_transaction_reports_errors_too(database, disk, monkeypatch):
    """A user transaction has its own connection, and the writer moves its pages from the WAL."""
    monkeypatch.setattr(writing, "IDLE_SECONDS", PATIENCE)

    def fill(tx: Transaction, kibibytes: int) -> None:
        tx.run("CREATE TABLE user_rows (body TEXT)")
        tx.run("INSERT INTO user_rows (body) VALUES (:body)", body="x" * (kibibytes << 10))

    async with Writer(database) as writer:
        disk.refuse_checkpoints()
        await writer.commit_user_sql(fill, (CHECKPOINT_PAGES * 4 + 100,), lambda _tx, result: result)

        await until(lambda: writer.checkpoints.failed is not None)

        disk.free()


async def test_slow_disk_is_measured_and_a_stop_leaves_the_wal_to_the_next_start(database, disk, monkeypatch):
    monkeypatch.setattr("craftcore.storage.group_commit.SLOW_SECONDS", 0.1)
    monkeypatch.setattr(writing, "IDLE_SECONDS", PATIENCE)  # the checkpoint of the stop is the only one
    async with Writer(database) as writer:
        quick = writer.group_commit.flushes.is_slow
        disk.slow_syncs(0.2)
        await writer.commit(write, 1)
        assert (quick, writer.group_commit.flushes.is_slow) == (False, True)
        assert writer.group_commit.flushes.longest >= 0.2
        disk.refuse_checkpoints()
        refused = disk.refused_checkpoints

    assert disk.refused_checkpoints == refused, "no checkpoint was tried"
    disk.free()
    assert apsw.Connection(str(database.path), vfs="unix").execute("SELECT count(*) FROM t").get == 1


async def test_slow_flush_is_forgotten_after_a_minute(database, disk, monkeypatch):
    monkeypatch.setattr("craftcore.storage.group_commit.RECENT_SECONDS", 0.0)
    async with Writer(database) as writer:
        disk.slow_syncs(0.05)
        await writer.commit(write, 1)
        disk.free()
        await writer.commit(write, 1)

        assert writer.group_commit.flushes.longest == 0.0
