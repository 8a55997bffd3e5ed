"""Database files: how they are opened, their permissions, and refused files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import apsw
import pytest

from craftcore.errors import CannotCreate, DatabaseInvalid, NotFound, PermissionRefused, StorageError
from craftcore.storage import connection as connection_module
from craftcore.storage.connection import APPLICATION_ID
from craftcore.storage.database import Database
from craftcore.storage.migrate import migrate
from tests.support.fakes import VirtualClock, VirtualCore, a_trigger
from tests.support.processes import run_python

NOBODY = 65_534

AS_NOBODY = """
import os, sys
from craftcore.clock import SystemClock
from craftcore.errors import CraftcoreError
from craftcore.storage.database import Database
os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})  # after the imports, which that user may not read
database = Database(sys.argv[1], SystemClock())
try:
    with getattr(database, sys.argv[2])():
        print("done")
except CraftcoreError as error:
    print(type(error).__name__, error.exit_code)
"""


@pytest.fixture
def database(tmp_path: Path, clock: VirtualClock) -> Iterator[Database]:
    database = Database(tmp_path / "agent.db", clock)
    yield database
    database.close()


@pytest.fixture
def zero_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def fingerprint(folder: Path) -> dict[str, tuple[str, int]]:
    """Return digest and mode of every file in the folder."""
    return {path.name: (sha256(path.read_bytes()).hexdigest(), mode(path)) for path in folder.iterdir()}


def create_foreign_database(path: Path, *, wal: bool = False) -> None:
    connection = apsw.Connection(str(path))
    if wal:
        connection.pragma("journal_mode", "wal")
    connection.execute("CREATE TABLE foreign_table (x); INSERT INTO foreign_table VALUES (1)")
    connection.close()
    path.chmod(0o644)


# Opening


@pytest.mark.parametrize(
    ("pragma", "promised"),
    [
        ("journal_mode", "wal"),
        ("synchronous", 2),  # FULL
        ("foreign_keys", 1),
        ("trusted_schema", 0),
        ("secure_delete", 1),
        ("auto_vacuum", 2),  # INCREMENTAL
    ],
)
def test_write_connection_has_the_promised_settings(database, pragma, promised):
    connection = database.connect()

    found = connection.pragma(pragma)

    connection.close()
    assert found == promised


def test_synchronous_normal_accepts_the_loss_of_last_commits(tmp_path, clock):
    connection = Database(tmp_path / "agent.db", clock, synchronous="normal").connect()

    found = connection.pragma("synchronous")

    connection.close()
    assert found == 1


def test_database_files_are_private_with_any_umask(tmp_path, clock, zero_umask):
    database = Database(tmp_path / "made" / "for" / "it" / "agent.db", clock)

    with database.transaction() as tx:
        tx.run("CREATE TABLE t (x)")

    files = {path.name: mode(path) for path in database.path.parent.iterdir()}
    folders = [mode(folder) for folder in list(database.path.parents)[:3]]
    database.close()
    assert files == {"agent.db": 0o600, "agent.db-wal": 0o600, "agent.db-shm": 0o600}
    assert folders == [0o700, 0o700, 0o700]


def test_database_file_readable_by_others_is_made_private(database, clock):
    migrate(database, clock)
    with database.transaction() as tx:
        tx.run("DELETE FROM triggers")
    side_files = [database.path.with_name(database.path.name + end) for end in ("-wal", "-shm")]
    for path in (database.path, *side_files):
        path.chmod(0o666)

    database.connect().close()

    assert [mode(path) for path in (database.path, *side_files)] == [0o600] * 3


def test_link_to_the_database_is_the_database(tmp_path, database, clock):
    (tmp_path / "link.db").symlink_to(database.path)
    linked = Database(tmp_path / "link.db", clock)

    migrate(linked, clock)
    with linked.transaction() as tx:
        tx.run("INSERT INTO facts VALUES ('through', 'the link')")
    with database.reading() as reader:
        found = reader.fetch_value("SELECT value FROM facts")

    linked.close()
    assert found == "the link"
    assert not (tmp_path / "link.db-wal").exists()


# Refusals


def test_sqlite_version_that_corrupts_files_is_refused(database, monkeypatch):
    monkeypatch.setattr(connection_module, "OLDEST_SQLITE", apsw.SQLITE_VERSION_NUMBER + 1)

    with pytest.raises(DatabaseInvalid, match="older than") as refused:
        database.connect()
    with pytest.raises(DatabaseInvalid, match="older than"):
        with database.reading():
            pass

    assert refused.value.exit_code == 65
    assert not database.path.exists()


@pytest.mark.parametrize("wal", [False, True])
def test_foreign_database_is_refused_and_left_byte_for_byte(tmp_path, database, wal):
    create_foreign_database(database.path, wal=wal)
    before = fingerprint(tmp_path)

    with pytest.raises(DatabaseInvalid, match="another program's"):
        database.connect()
    with pytest.raises(DatabaseInvalid, match="another program's"):
        with database.reading():
            pass

    assert {name: found for name, found in fingerprint(tmp_path).items() if name in before} == before


def test_unfinished_wal_of_another_program_is_not_moved_into_its_file(tmp_path, database):
    """The other program was killed. The last connection to such a file moves the WAL into it when it closes."""
    create_foreign_database(tmp_path / "foreign.db", wal=True)
    foreign = apsw.Connection(str(tmp_path / "foreign.db"))
    foreign.execute("INSERT INTO foreign_table VALUES (2)")
    for end in ("", "-wal"):
        (tmp_path / f"agent.db{end}").write_bytes((tmp_path / f"foreign.db{end}").read_bytes())
    foreign.close()
    before = fingerprint(tmp_path)

    with pytest.raises(DatabaseInvalid, match="another program's"):
        database.connect()

    after = fingerprint(tmp_path)
    assert after["agent.db"] == before["agent.db"]
    assert after["agent.db-wal"] == before["agent.db-wal"]


def test_file_that_is_not_a_database_is_refused_and_left_alone(tmp_path, database):
    database.path.write_bytes(b"Dear diary, " * 1000)
    database.path.chmod(0o644)
    before = fingerprint(tmp_path)

    with pytest.raises(DatabaseInvalid, match="not an SQLite database") as refused:
        database.connect()
    with pytest.raises(DatabaseInvalid, match="not an SQLite database"):
        with database.reading():
            pass

    assert refused.value.exit_code == 65
    assert fingerprint(tmp_path) == before


def test_directory_in_place_of_the_database_is_refused(database):
    database.path.mkdir()

    with pytest.raises(CannotCreate) as refused:
        database.connect()
    with pytest.raises(StorageError):
        with database.reading():
            pass

    assert refused.value.exit_code == 73


def test_file_in_place_of_the_directory_is_refused(tmp_path, clock):
    (tmp_path / "file").write_text("")

    with pytest.raises(CannotCreate):
        Database(tmp_path / "file" / "agent.db", clock).connect()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(
    ("locked", "method", "result"),
    [
        ("folder", "transaction", "PermissionRefused 77"),
        ("folder", "reading", "PermissionRefused 77"),
        ("file", "transaction", "PermissionRefused 77"),
        ("file", "reading", "PermissionRefused 77"),
        ("nowhere", "transaction", "PermissionRefused 77"),
    ],
)
def test_missing_permission_is_reported(tmp_path, clock, locked, method, result):
    """The folder is closed to others, or only the database is, or a new database is in a folder of another user."""
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    if locked != "nowhere":
        core = VirtualCore(home / "agent.db", clock)
        core.close()
    home.chmod(0o700 if locked == "folder" else 0o755)
    for above in (tmp_path, *tmp_path.parents[:2]):
        above.chmod(above.stat().st_mode | 0o055)

    child = run_python(["-c", AS_NOBODY.format(nobody=NOBODY), home / "agent.db", method], tmp_path)

    assert child.out.strip() == result, child.err


# Reading


def test_reading_a_missing_database_creates_nothing(tmp_path, clock):
    with pytest.raises(NotFound, match=r"no such database\. Is it the one you mean"):
        with Database(tmp_path / "nowhere" / "agent.db", clock).reading():
            pass

    assert list(tmp_path.iterdir()) == []


def test_reader_does_not_wait_for_a_writer_and_sees_a_single_instant(core):
    core.do(core.triggers.emit, a_trigger())
    other = Database(core.database.path, core.clock)

    with core.reading() as reader:
        before = reader.fetch_value("SELECT count(*) FROM triggers")
        with other.transaction() as tx:
            core.triggers.emit(tx, a_trigger())
            during = reader.fetch_value("SELECT count(*) FROM triggers")
        after = reader.fetch_value("SELECT count(*) FROM triggers")

    other.close()
    assert (before, during, after) == (1, 1, 1)


def test_reader_cannot_write(core):
    with pytest.raises(PermissionRefused):
        with core.reading() as reader:
            reader.fetch_all("DELETE FROM triggers")


def test_reading_changes_no_byte_of_the_file(core):
    core.do(core.triggers.emit, a_trigger())
    core.close()
    before = fingerprint(core.database.path.parent)

    with core.reading() as reader:
        reader.fetch_value("SELECT count(*) FROM triggers")

    after = fingerprint(core.database.path.parent)
    assert after["agent.db"] == before["agent.db"]
    assert all(found[1] == 0o600 for found in after.values())


def test_reader_after_a_kill_sees_the_last_commit(tmp_path, core):
    """The WAL was not moved into the file, and no process has the file open."""
    core.do(core.triggers.emit, a_trigger())
    left = tmp_path / "left"
    left.mkdir()
    for end in ("", "-wal"):
        (left / f"agent.db{end}").write_bytes(Path(f"{core.database.path}{end}").read_bytes())

    with Database(left / "agent.db", core.clock).reading() as reader:
        count = reader.fetch_value("SELECT count(*) FROM triggers")

    assert count == 1


def create_partial_database(tmp_path):
    """Create the files of a process that was killed during the first transaction: a rollback journal and no WAL."""
    maker = apsw.Connection(str(tmp_path / "maker.db"))
    maker.execute(f"PRAGMA application_id = {APPLICATION_ID}; CREATE TABLE t (x); PRAGMA cache_size = 1")
    maker.execute("BEGIN")
    maker.executemany("INSERT INTO t VALUES (randomblob(?))", [(100,)] * 20_000)
    for end in ("", "-journal"):
        (tmp_path / f"agent.db{end}").write_bytes((tmp_path / f"maker.db{end}").read_bytes())
    maker.close()


def test_partial_transaction_of_a_killed_process_is_undone_by_the_next_reader(tmp_path, database):
    """The file has a rollback journal before the switch to WAL, which a reader may not roll back by itself."""
    create_partial_database(tmp_path)

    with database.reading() as reader:
        count = reader.fetch_value("SELECT count(*) FROM t")

    assert count == 0
    assert not (tmp_path / "agent.db-journal").exists()


def test_read_only_user_leaves_a_partial_transaction_alone(tmp_path, core):
    create_partial_database(tmp_path)
    before = {end: (tmp_path / f"agent.db{end}").read_bytes() for end in ("", "-journal")}

    with (
        pytest.raises(PermissionRefused, match="is read only here, and this needs to write"),
        Database(tmp_path / "agent.db", core.clock, read_only=True).reading(),
    ):
        pass

    assert {end: (tmp_path / f"agent.db{end}").read_bytes() for end in ("", "-journal")} == before


def test_reader_beyond_its_time_limit_is_interrupted(database):
    with database.transaction():
        pass
    endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"

    with pytest.raises(StorageError, match=r"took longer than 0\.01 s, and was ended"):
        with database.reading(within=0.01) as reader:
            reader.fetch_value(endless)
    with database.reading(within=60) as reader:
        assert reader.fetch_value("SELECT 1") == 1


@pytest.mark.parametrize("method", [Database.reading, Database.transaction, Database.connect])
def test_path_that_is_not_a_file_is_refused_and_left_alone(tmp_path, database, method):
    """A read of a pipe would block, and the mode of a device must not change."""
    (tmp_path / "other").mkdir()
    pipe = tmp_path / "other" / "pipe"
    os.mkfifo(pipe)
    pipe.chmod(0o666)
    database.path.symlink_to(pipe)
    database.create()

    with pytest.raises(CannotCreate, match="it is not a file"):
        opened = method(database)
        if method is not Database.connect:
            with opened:
                pass

    assert stat.S_IMODE(pipe.stat().st_mode) == 0o666
