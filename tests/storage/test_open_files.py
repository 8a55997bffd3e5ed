"""Connections whose database, WAL or shared memory was deleted or replaced: every write is refused."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from craftcore import Producer
from craftcore.errors import DatabaseInvalid, OutcomeUnknown, StorageError
from craftcore.storage.database import Database
from craftcore.storage.files.open_files import OpenFiles
from craftcore.storage.migrate import migrate
from craftcore.storage.migrations import Migration
from craftcore.storage.writer import Writer
from tests.support.fakes import VirtualClock

SIDES = ["", "-wal", "-shm"]
TABLES = Migration(name="0001_tables", sql="CREATE TABLE t (x INTEGER) STRICT;")


def delete(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copy(path, copy)
    copy.rename(path)


def code_of(side: str) -> int:
    return 74 if side else 65


@pytest.fixture
def database(tmp_path: Path, clock: VirtualClock) -> Database:
    """Return a database that each test closes itself."""
    database = Database(tmp_path / "agent.db", clock)
    migrate(database, clock, [TABLES])
    return database


@pytest.mark.parametrize("change", [delete, replace])
@pytest.mark.parametrize("side", SIDES)
def test_write_to_a_file_without_its_name_is_refused(database, side, change):
    with database.transaction() as tx:
        tx.run("INSERT INTO t VALUES (1)")
    name = Path(f"{database.path}{side}")
    change(name)
    ran = []

    with pytest.raises(StorageError) as refused:
        with database.transaction():
            ran.append(1)

    assert (ran, refused.value.exit_code) == ([], code_of(side))
    assert isinstance(refused.value, DatabaseInvalid) is (side == "")
    assert refused.value.message.startswith(f"{database.path}: {name} was deleted or replaced while it was in use")
    with database.transaction() as tx:
        assert tx.fetch_value("PRAGMA quick_check") == "ok"
    database.close()


@pytest.mark.parametrize("change", [delete, replace])
@pytest.mark.parametrize("side", SIDES)
def test_commit_into_a_file_without_its_name_is_not_accepted(database, side, change):
    with pytest.raises(OutcomeUnknown) as unknown:
        with database.transaction() as tx:
            tx.run("INSERT INTO t VALUES (1)")
            change(Path(f"{database.path}{side}"))

    assert unknown.value.exit_code == code_of(side)
    assert "was deleted or replaced during the commit: the write may be lost" in unknown.value.message
    database.close()


@pytest.mark.anyio
@pytest.mark.parametrize("change", [delete, replace])
@pytest.mark.parametrize("side", SIDES)
async def test_writer_whose_file_lost_its_name_ends_with_that_error(database, side, change):
    fatal: list[StorageError] = []
    async with Writer(database, on_fatal=fatal.append) as writer:
        await writer.commit(lambda tx: tx.run("INSERT INTO t VALUES (1)"))
        with pytest.raises(OutcomeUnknown):
            await writer.commit(insert_and_change(change, Path(f"{database.path}{side}")))
        with pytest.raises(StorageError):
            await writer.commit(lambda tx: tx.run("INSERT INTO t VALUES (3)"))
    assert [error.exit_code for error in fatal] == [code_of(side)]


def insert_and_change(change: Callable[[Path], None], path: Path) -> Callable[..., None]:
    def work(tx: object) -> None:
        tx.run("INSERT INTO t VALUES (2)")  # type: ignore[attr-defined]
        change(path)

    return work


def test_wal_without_its_name_is_not_moved_at_close(tmp_path, database):
    """The name may belong to the WAL of another database by then."""
    with database.transaction() as tx:
        tx.run("INSERT INTO t VALUES (1)")
    before = database.path.read_bytes()
    Path(f"{database.path}-wal").unlink()

    database.close()

    assert database.path.read_bytes() == before


def test_link_that_leads_elsewhere_is_another_database(tmp_path, clock):
    for name in ("one.db", "two.db"):
        migrate(Database(tmp_path / name, clock), clock, [TABLES])
    link = tmp_path / "link.db"
    link.symlink_to("one.db")
    database = Database(link, clock)
    with database.transaction() as tx:
        tx.run("INSERT INTO t VALUES (1)")

    link.unlink()
    link.symlink_to("two.db")

    with pytest.raises(DatabaseInvalid, match="deleted or replaced"):
        with database.transaction():
            pass


def test_inaccessible_folder_proves_nothing_about_a_file(database, monkeypatch):
    with database.transaction():
        files = OpenFiles.from_connection(database.path)

        def refused(name: str) -> None:
            raise PermissionError(13, "permission denied", name)

        monkeypatch.setattr(os, "stat", refused)
        assert files.find_replaced() is None
        monkeypatch.undo()
    database.close()


def test_file_replaced_between_open_and_first_check_is_detected(database):
    with database.transaction():
        pass
    replace(Path(f"{database.path}-wal"))

    with pytest.raises(StorageError, match="was deleted or replaced while it was opened"):
        OpenFiles.from_connection(database.path)


def test_producer_continues_with_the_new_file_after_a_single_error(tmp_path):
    with Producer(tmp_path / "agent.db") as producer:
        producer.emit("greets")
        for side in SIDES:
            os.unlink(f"{tmp_path / 'agent.db'}{side}")

        with pytest.raises(DatabaseInvalid, match="while it was in use"):
            producer.emit("greets")
