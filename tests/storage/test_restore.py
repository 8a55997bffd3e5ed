"""Restores of backups: an atomic replacement of the database, which keeps the earlier file."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace as changed
from hashlib import sha256
from pathlib import Path

import apsw
import pytest

from craftcore.errors import CannotCreate, DatabaseInvalid, InvalidInput, StorageBusy, StorageError, StorageFull
from craftcore.storage.backup.backup import read_manifest
from craftcore.storage.backup.manifest import Manifest, manifest_path, manifest_text
from craftcore.storage.backup.restore import bring, make_current, present_id, replace
from craftcore.storage.backup.staging_file import BEGINS, NAME, StagingFile, staging_file, staging_path
from craftcore.storage.database import Database
from craftcore.storage.facts import delete_fact
from craftcore.storage.migrate import migrate
from craftcore.storage.migrations import list_migrations
from tests.support.backups import ask, change, emit, files, set_database_id, take_backup
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.processes import a_program


def restore(database: Database, file: Path, *, patience: float = 0.05) -> Path | None:
    """Restore a backup and return the path of the replaced file."""
    with staging_file(database.path) as draft:
        bring(file, read_manifest(file), draft)
        make_current(draft, file, database)
        return replace(draft, database, patience=patience)


@pytest.fixture
def backup(tmp_path: Path, clock: VirtualClock) -> Path:
    """Create a backup of another file with two triggers."""
    core = VirtualCore(tmp_path / "earlier.db", clock)
    emit(core, 2)
    take_backup(core.database, tmp_path / "backup.db")
    core.close()
    core.database.path.unlink()
    return tmp_path / "backup.db"


def count(path: Path) -> int:
    [(found,)] = ask(path, "SELECT count(*) FROM triggers")
    return int(found)


def renew_manifest(file: Path) -> None:
    """Write a manifest that fits the file in its current state."""
    body = file.read_bytes()
    manifest = changed(read_manifest(file), sha256=sha256(body).hexdigest(), bytes=len(body))
    manifest_path(file).write_text(manifest_text(manifest))


# The copy


def test_flipped_bit_anywhere_in_a_backup_is_refused_and_nothing_changes(core, tmp_path, backup):
    emit(core)
    core.close()
    body, chance = backup.read_bytes(), random.Random(7)
    before = core.database.path.read_bytes()
    places = [0, len(body) * 8 - 1, *(chance.randrange(len(body) * 8) for _ in range(40))]

    for place in places:
        flipped = bytearray(body)
        flipped[place // 8] ^= 1 << place % 8
        backup.write_bytes(bytes(flipped))
        with pytest.raises(DatabaseInvalid, match="is not the backup that its manifest is of") as refused:
            restore(core.database, backup)
        assert refused.value.exit_code == 65

    assert core.database.path.read_bytes() == before
    backup.write_bytes(body)
    restore(core.database, backup)
    assert count(core.database.path) == 2


@pytest.mark.parametrize("spoil", [lambda body: body[:-1], lambda body: body + b"\0", lambda body: b""])
def test_backup_of_another_length_is_refused(core, backup, spoil: Callable[[bytes], bytes]):
    backup.write_bytes(spoil(backup.read_bytes()))

    with pytest.raises(DatabaseInvalid, match="is not the backup"):
        restore(core.database, backup)


def test_backup_without_a_manifest_or_a_missing_file_is_refused(core, tmp_path, backup):
    manifest_path(backup).unlink()

    with pytest.raises(DatabaseInvalid, match="has no manifest beside it"):
        restore(core.database, backup)
    with pytest.raises(InvalidInput, match="there is no such file"):
        restore(core.database, tmp_path / "nowhere.db")


def test_pipe_in_place_of_a_backup_does_not_block(core, backup):
    backup.unlink()
    os.mkfifo(backup)

    with pytest.raises(InvalidInput, match="is not a regular file"):
        restore(core.database, backup)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE triggers SET priority = 1000", "CHECK constraint failed"),
        ("DROP TRIGGER executions_are_closed", "executions_are_closed is missing"),
        ("INSERT INTO schema_migrations VALUES ('9999_later', 'x', 1.0)", "written by a newer craftcore"),
        ("UPDATE schema_migrations SET sha256 = 'x' WHERE name = '0001_triggers_and_executions'", "was changed"),
        ("PRAGMA application_id = 7", "another program's database"),
    ],
)
def test_damaged_backup_with_a_matching_manifest_is_refused(core, backup, statement, message):
    emit(core)
    core.close()
    before = core.database.path.read_bytes()
    change(backup, statement)
    renew_manifest(backup)

    with pytest.raises(DatabaseInvalid, match=message):
        restore(core.database, backup)

    assert core.database.path.read_bytes() == before


def test_backup_of_an_older_program_is_migrated_before_the_replacement(core, tmp_path, clock):
    old = Database(tmp_path / "old.db", clock)
    migrate(old, clock, list_migrations()[:-2])
    body = old.path.read_bytes()
    old.path.with_name("backup.db").write_bytes(body)
    manifest = Manifest(
        sha256=sha256(body).hexdigest(), bytes=len(body), taken_at=1.0, version="0.0.1", database_id=None, epoch=0,
        schema=list_migrations()[-3].name, rows={}, head=None,
    )  # fmt: skip
    manifest_path(tmp_path / "backup.db").write_text(manifest_text(manifest))

    with staging_file(core.database.path) as draft:
        bring(tmp_path / "backup.db", manifest, draft)
        applied = make_current(draft, tmp_path / "backup.db", core.database)
        core.close()
        replace(draft, core.database, patience=0.05)

    assert applied == [one.name for one in list_migrations()[-2:]]
    assert core.rows("SELECT count(*) AS n FROM audit_log") == [{"n": 0}]
    assert not [name for name in os.listdir(tmp_path) if "before-0" in name]


def test_backup_is_only_read_by_a_restore(core, tmp_path, backup):
    """A WAL or journal beside the backup belongs to another process and is not part of the backup."""
    core.close()
    for end in ("-wal", "-journal"):
        backup.with_name(backup.name + end).write_bytes(os.urandom(5000))
    before = files(tmp_path)

    restore(core.database, backup)

    after = files(tmp_path)
    assert {name: after[name] for name in before if name.startswith("backup")} == {
        name: before[name] for name in before if name.startswith("backup")
    }


def test_draft_of_a_killed_restore_is_not_used_by_the_next(core, tmp_path, backup):
    """The draft is longer, with the WAL of another file."""
    emit(core, 5)
    wal = core.database.path.with_name("agent.db-wal").read_bytes()
    core.close()
    draft = staging_path(core.database.path)
    draft.mkdir(mode=0o700)
    (draft / NAME).write_bytes(os.urandom(3_000_000))
    (draft / f"{NAME}-wal").write_bytes(wal)

    restore(core.database, backup)

    assert core.database.path.stat().st_size < 1_000_000
    assert count(core.database.path) == 2
    assert not [name for name in os.listdir(tmp_path) if "draft" in name]


# The earlier file


def test_replaced_database_is_kept_as_a_single_file_with_its_wal_content(core, tmp_path, backup):
    emit(core, 5)
    wal = core.database.path.with_name("agent.db-wal")
    saved = {path.name: path.read_bytes() for path in (core.database.path, wal)}
    assert saved["agent.db-wal"]
    core.close()
    for name, body in saved.items():  # the files that a killed daemon leaves
        (tmp_path / name).write_bytes(body)

    kept = restore(core.database, backup)

    assert kept is not None
    assert kept.name == "agent.db.before-restore-20260101T000000Z"
    assert sorted(os.listdir(tmp_path)) == sorted(["agent.db", kept.name, backup.name, manifest_path(backup).name])
    assert (count(kept), count(core.database.path)) == (5, 2)
    assert ask(kept, "PRAGMA integrity_check") == [("ok",)]


def test_restore_keeps_the_file_of_each_restore(core, backup):
    emit(core, 5)
    core.close()

    first, second, third = (restore(core.database, backup) for _ in range(3))

    assert first is not None
    assert second is not None
    assert third is not None
    assert [count(path) for path in (first, second, third)] == [5, 2, 2]
    assert second.name == f"{first.name}-2"
    assert third.name == f"{first.name}-3"


@pytest.mark.parametrize("damage", ["no database any more", "a page of the schema", "empty"])
def test_damaged_database_is_kept_with_its_wal(core, tmp_path, backup, damage):
    emit(core, 5)
    core.close()
    body = bytearray(core.database.path.read_bytes())
    if damage == "no database any more":
        body[:100] = os.urandom(100)
    elif damage == "a page of the schema":
        body[100:108] = b"\xff" * 8
    else:
        body = bytearray()
    wal = os.urandom(3000)
    core.database.path.write_bytes(bytes(body))
    core.database.path.with_name("agent.db-wal").write_bytes(wal)

    kept = restore(core.database, backup)

    assert kept is not None
    assert kept.read_bytes() == bytes(body)
    if damage != "empty":  # SQLite removes the WAL of an empty file
        assert kept.with_name(f"{kept.name}-wal").read_bytes() == wal
    assert not core.database.path.with_name("agent.db-wal").exists()
    assert count(core.database.path) == 2
    assert ask(core.database.path, "PRAGMA integrity_check") == [("ok",)]


def test_orphaned_wal_is_not_applied_to_the_restored_file(core, tmp_path, backup):
    emit(core, 5)
    wal = core.database.path.with_name("agent.db-wal")
    body = wal.read_bytes()
    core.close()
    core.database.path.unlink()
    wal.write_bytes(body)

    kept = restore(core.database, backup)

    assert kept is not None
    assert not kept.exists()
    assert kept.with_name(f"{kept.name}-wal").read_bytes() == body
    assert count(core.database.path) == 2


def test_restore_without_an_existing_database_keeps_nothing(tmp_path, clock, backup):
    database = Database(tmp_path / "new" / "agent.db", clock)
    database.path.parent.mkdir()

    assert restore(database, backup) is None

    assert os.listdir(database.path.parent) == ["agent.db"]
    assert count(database.path) == 2


def test_foreign_database_is_not_replaced_by_a_restore(tmp_path, clock, backup):
    database = Database(tmp_path / "agent.db", clock)
    other = apsw.Connection(str(database.path))
    other.execute("CREATE TABLE foreign_table (x); INSERT INTO foreign_table VALUES (1)")
    other.close()
    before = database.path.read_bytes()

    with pytest.raises(DatabaseInvalid, match="another program's database"):
        restore(database, backup)

    assert database.path.read_bytes() == before


def test_path_that_is_not_a_file_is_not_replaced_by_a_restore(tmp_path, clock, backup):
    database = Database(tmp_path / "agent.db", clock)
    database.path.mkdir()

    with pytest.raises(CannotCreate):
        restore(database, backup)


HOLDER = """
import time
from craftcore import Producer
with Producer("agent.db") as producer:
    producer.emit("greet", {})
    print("open", flush=True)
    time.sleep(3600)
"""


def test_restore_is_refused_while_another_process_has_the_database_open(core, tmp_path, backup):
    """The process would continue to write to the replaced file."""
    core.close()
    with a_program([sys.executable, "-c", HOLDER], tmp_path, PYTHONPATH=os.pathsep.join(sys.path)) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(StorageBusy, match="another process has it open") as refused:
            restore(core.database, backup)

    assert refused.value.exit_code == 75
    assert count(core.database.path) == 1
    assert not [name for name in os.listdir(tmp_path) if "before-restore" in name]
    restore(core.database, backup)
    assert count(core.database.path) == 2


def test_process_that_opened_the_replaced_file_cannot_write_there(core, tmp_path, backup, monkeypatch):
    emit(core)
    core.close()
    late_connections: list[apsw.Connection] = []

    def publish_while_opened(self: object) -> None:
        late_connections.append(apsw.Connection(str(core.database.path), flags=apsw.SQLITE_OPEN_READWRITE))
        with pytest.raises(apsw.BusyError):
            late_connections[0].execute("SELECT * FROM triggers")
        publish(self)  # type: ignore[arg-type]

    from craftcore.storage.backup.staging_file import StagingFile

    publish = StagingFile.publish
    monkeypatch.setattr(StagingFile, "publish", publish_while_opened)
    restore(core.database, backup)

    for statement in ("PRAGMA journal_mode = wal", "DELETE FROM triggers"):
        with pytest.raises(apsw.ReadOnlyError):
            late_connections[0].execute(statement)
    late_connections[0].close()
    assert count(core.database.path) == 2


def test_second_name_left_by_a_killed_restore_is_removed(core, tmp_path, backup):
    """Two names of one database, opened at the same time, would corrupt it."""
    core.close()
    left = tmp_path / "agent.db.before-restore-20251231T000000Z"
    os.link(core.database.path, left)

    kept = restore(core.database, backup)

    assert not left.exists()
    assert kept is not None
    assert kept.stat().st_nlink == core.database.path.stat().st_nlink == 1


def test_restore_that_cannot_keep_the_old_file_replaces_nothing(core, backup, monkeypatch):
    emit(core)
    core.close()
    monkeypatch.setattr(os, "link", failing_call(errno.EACCES))

    with pytest.raises(StorageError):
        restore(core.database, backup)

    assert count(core.database.path) == 1


# File systems without hard links


def failing_call(number: int) -> Callable[..., None]:
    """Return a function that fails with this error number."""

    def call(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize("error_name", ["EPERM", "EOPNOTSUPP", "ENOSYS", "EXDEV", "EMLINK"])
def test_restore_without_hard_links_keeps_a_copy(core, tmp_path, backup, monkeypatch, error_name):
    emit(core)
    core.close()
    os.chown(core.database.path, 65_534, 65_534)
    monkeypatch.setattr(os, "link", failing_call(getattr(errno, error_name)))

    kept = restore(core.database, backup)

    assert kept is not None
    assert (count(core.database.path), count(kept)) == (2, 1)
    assert (kept.stat().st_mode & 0o777, kept.stat().st_uid, kept.stat().st_nlink) == (0o600, 65_534, 1)
    assert not [name for name in os.listdir(tmp_path) if name.startswith(BEGINS)]


def test_copy_during_a_restore_drops_no_foreign_locks(core, backup, monkeypatch):
    """A process that closes a file loses all its locks on the file, including those of other parts of the process."""
    emit(core)
    core.close()
    publish, errors = StagingFile.publish, []
    program = "import apsw, sys; apsw.Connection(sys.argv[1], flags=2).execute('SELECT * FROM triggers')"

    def publish_while_opened(self: StagingFile) -> None:
        if self.place == core.database.path:
            looked = subprocess.run([sys.executable, "-c", program, core.database.path], capture_output=True, text=True)
            errors.append(looked.stderr.splitlines()[-1])
        publish(self)

    monkeypatch.setattr(StagingFile, "publish", publish_while_opened)
    monkeypatch.setattr(os, "link", failing_call(errno.EPERM))

    restore(core.database, backup)

    assert errors == ["apsw.BusyError: database is locked"]


def test_partial_copy_of_a_killed_restore_is_removed(core, tmp_path, backup, monkeypatch):
    core.close()
    monkeypatch.setattr(os, "link", failing_call(errno.EPERM))
    half = tmp_path / f"{BEGINS}agent.db.before-restore-3"
    half.mkdir(mode=0o700)
    (half / NAME).write_bytes(b"half a copy")

    kept = restore(core.database, backup)

    assert list(tmp_path.glob("*before-restore*")) == [kept]


def test_restore_without_space_for_the_copy_replaces_nothing(core, tmp_path, backup, monkeypatch):
    emit(core)
    core.close()
    monkeypatch.setattr(os, "link", failing_call(errno.EPERM))
    monkeypatch.setattr("craftcore.storage.backup.restore.copyfileobj", failing_call(errno.ENOSPC))

    with pytest.raises(StorageFull):
        restore(core.database, backup)

    assert count(core.database.path) == 1
    assert not [name for name in os.listdir(tmp_path) if "before-restore" in name]


def test_owner_is_reported_for_missing_or_unreadable_files(core, tmp_path, clock):
    assert present_id(Database(tmp_path / "nowhere.db", clock)) == (False, None)
    with core.transaction() as tx:
        delete_fact(tx, "database_id")  # as in a file of an older version on which no daemon has run
    assert present_id(core.database) == (True, None)
    set_database_id(core.database, "this-one")
    assert present_id(core.database) == (True, "this-one")
    core.close()
    core.database.path.write_bytes(b"no database")
    assert present_id(core.database) == (True, None)


def test_full_disk_during_a_restore_is_reported(core, tmp_path, backup):
    emit(core)
    core.close()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"may not mount a small disk: {mounted.stderr.decode().strip()}")
    try:
        (place / "agent.db").write_bytes(core.database.path.read_bytes())
        before = files(place)
        with pytest.raises(StorageError) as refused:
            restore(Database(place / "agent.db", core.clock), backup)
        assert refused.value.exit_code == 74
        assert files(place) == before
    finally:
        subprocess.run(["umount", str(place)], check=True)
