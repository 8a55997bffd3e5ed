"""Backups: a checked copy of one snapshot with its manifest, or no file at all."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import apsw
import pytest

from craftcore.errors import CannotCreate, DatabaseInvalid, NotFound, PermissionRefused, StorageFull
from craftcore.storage.backup.backup import complete, read_manifest
from craftcore.storage.backup.manifest import manifest_path
from craftcore.storage.backup.staging_file import BEGINS, NAME, staging_path
from craftcore.storage.database import Database
from craftcore.storage.migrations import list_migrations
from craftcore.testing.faulty_disk import FaultyDisk
from tests.support.backups import ask, change, emit, files, rotate, set_database_id, take_backup
from tests.support.fakes import VirtualCore

NOT_COUNTED = {"facts", "workflows", "record_chain", "schema_migrations"}
"""Tables with a row for each existing thing, without a history."""


# Content


def test_backup_is_whole_private_and_describes_itself(core, tmp_path, clock):
    ids = emit(core, 3)
    set_database_id(core.database, "this-one")
    target = tmp_path / "backup.db"
    os.umask(before := os.umask(0))
    try:
        manifest = take_backup(core.database, target)
    finally:
        os.umask(before)

    assert {id for (id,) in ask(target, "SELECT id FROM triggers")} == set(ids)
    assert ask(target, "PRAGMA integrity_check") == [("ok",)]
    assert ask(target, "PRAGMA auto_vacuum") == [(2,)]
    body = target.read_bytes()
    assert (manifest.sha256, manifest.bytes) == (sha256(body).hexdigest(), len(body))
    assert (manifest.database_id, manifest.epoch, manifest.version) == ("this-one", 0, "1.2.3")
    assert (manifest.schema, manifest.taken_at) == (list_migrations()[-1].name, clock.now())
    assert manifest.rows["triggers"] == 3
    assert read_manifest(target) == manifest
    for path in (target, manifest_path(target)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    left = {name for name in os.listdir(tmp_path) if not name.startswith("agent.db")}
    assert left == {"backup.db", "backup.db.manifest.json"}


def test_backup_manifest_counts_every_table(core, tmp_path):
    manifest = take_backup(core.database, tmp_path / "backup.db")

    tables = {row["name"] for row in core.rows("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert set(manifest.rows) == {name for name in tables if not name.startswith("sqlite_")} - NOT_COUNTED


def test_backup_does_not_wait_for_a_writer_and_has_no_partial_transaction(core, tmp_path):
    emit(core, 2)
    with core.transaction() as tx:
        tx.run("DELETE FROM triggers")
        manifest = take_backup(Database(core.database.path, core.clock), tmp_path / "backup.db")

    assert manifest.rows["triggers"] == 2
    assert core.rows("SELECT count(*) AS n FROM triggers") == [{"n": 0}]


# Refusals


@pytest.mark.parametrize("name", ["agent.db", "agent.db-wal", "agent.db-shm", "agent.db.lock", "agent.db.bell"])
def test_backup_to_the_database_name_is_refused(core, tmp_path, name):
    emit(core)
    before = files(tmp_path)

    with pytest.raises(CannotCreate, match="belongs to the database itself") as refused:
        take_backup(core.database, tmp_path / name)

    assert refused.value.exit_code == 73
    assert files(tmp_path) == before


def test_backup_recognises_the_database_by_any_name(core, tmp_path):
    (tmp_path / "other").symlink_to(tmp_path, target_is_directory=True)

    with pytest.raises(CannotCreate, match="belongs to the database itself"):
        take_backup(core.database, tmp_path / "other" / "agent.db")


@pytest.mark.parametrize("taken", ["backup.db", "backup.db.manifest.json"])
@pytest.mark.parametrize("kind", ["file", "folder", "link", "dangling link"])
def test_backup_to_a_taken_name_is_refused_and_the_file_stays(core, tmp_path, taken, kind):
    (tmp_path / "original").write_text("original")
    path = tmp_path / taken
    match kind:
        case "file":
            path.write_text("original")
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to(tmp_path / "original")
        case _:
            path.symlink_to(tmp_path / "nowhere")
    before = set(os.listdir(tmp_path))

    with pytest.raises(CannotCreate, match="is there already"):
        take_backup(core.database, tmp_path / "backup.db")

    assert set(os.listdir(tmp_path)) == before
    assert (tmp_path / "original").read_text() == "original"


def test_backup_into_a_missing_folder_is_refused(core, tmp_path):
    with pytest.raises(CannotCreate):
        take_backup(core.database, tmp_path / "nowhere" / "backup.db")


def test_backup_of_a_missing_database_creates_nothing(tmp_path, clock):
    with pytest.raises(NotFound):
        take_backup(Database(tmp_path / "agent.db", clock), tmp_path / "backup.db")

    assert os.listdir(tmp_path) == []


DAMAGES = {
    "a value that its CHECK forbids": ("UPDATE triggers SET priority = 1000", "CHECK constraint failed in triggers"),
    "a guard that is gone": ("DROP TRIGGER executions_are_closed", "executions_are_closed is missing"),
    "a row whose record is gone": (
        "INSERT INTO event_rows (execution_seq, seq, type, at, payload_json) VALUES (77, 1, 'NOTE', 1.0, '{}')",
        "what it belongs to in executions is not there",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_backup_of_a_damaged_copy_is_discarded_and_removes_no_other(core, tmp_path, clock, damage):
    emit(core)
    set_database_id(core.database, "this-one")
    first, _ = rotate(core.database, tmp_path / "kept", 1)
    clock.advance(60)
    statement, message = DAMAGES[damage]
    core.close()
    change(core.database.path, statement)

    with pytest.raises(DatabaseInvalid, match=message) as refused:
        rotate(core.database, tmp_path / "kept", 1)

    assert refused.value.exit_code == 65
    assert set(os.listdir(tmp_path / "kept")) == {first.name, f"{first.name}.manifest.json"}


def test_overwritten_page_is_detected_during_the_copy(core, tmp_path):
    emit(core, 50)
    [(page,)] = ask(core.database.path, "SELECT rootpage FROM sqlite_schema WHERE name = 'triggers'")
    core.close()
    body = bytearray(core.database.path.read_bytes())
    body[(page - 1) * 4096 : page * 4096] = os.urandom(4096)
    core.database.path.write_bytes(bytes(body))

    with pytest.raises(DatabaseInvalid):
        take_backup(core.database, tmp_path / "backup.db")

    assert not (tmp_path / "backup.db").exists()


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    with FaultyDisk() as disk:
        yield disk


@pytest.mark.parametrize("room", [0, 4096, 100_000])
def test_backup_on_a_full_disk_leaves_nothing(tmp_path, clock, disk, room):
    core = VirtualCore(tmp_path / "agent.db", clock)
    emit(core)
    core.close()
    disk.fill(after_bytes=room)

    with pytest.raises(StorageFull) as refused:
        take_backup(core.database, tmp_path / "backup.db")

    assert refused.value.exit_code == 74
    assert [name for name in os.listdir(tmp_path) if not name.startswith("agent.db")] == []
    disk.free()
    assert take_backup(core.database, tmp_path / "backup.db").rows["triggers"] == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_backup_on_a_really_full_disk_leaves_no_part(core, tmp_path):
    emit(core, 300)
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"may not mount a small disk: {mounted.stderr.decode().strip()}")
    try:
        with pytest.raises(StorageFull):
            take_backup(core.database, place / "backup.db")
        assert os.listdir(place) == []
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_backup_without_a_manifest_is_discarded(core, tmp_path, monkeypatch):
    def full(path: Path, body: bytes) -> None:
        raise StorageFull("no room for a manifest")

    monkeypatch.setattr("craftcore.storage.backup.backup.write_whole", full)

    with pytest.raises(StorageFull):
        take_backup(core.database, tmp_path / "backup.db")

    assert [name for name in os.listdir(tmp_path) if not name.startswith("agent.db")] == []


# Rotation


def test_rotation_removes_the_oldest_and_keeps_the_given_number(core, tmp_path, clock):
    set_database_id(core.database, "this-one")
    made = []
    for _ in range(5):
        new, removed = rotate(core.database, tmp_path / "kept", 3)
        made.append(new)
        clock.advance(3600)

    assert removed == [made[1]]
    assert [file for file, _ in complete(tmp_path / "kept")] == made[2:]
    assert len(os.listdir(tmp_path / "kept")) == 6
    assert made[0].name == "agent-20260101T000000Z.db"
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o700


def test_rotation_removes_only_older_whole_backups_of_this_database(core, tmp_path, clock):
    kept = tmp_path / "kept"
    other = VirtualCore(tmp_path / "other.db", clock)
    set_database_id(other.database, "another-one")
    set_database_id(core.database, "this-one")
    untouched = [rotate(other.database, kept, 9)[0]]
    other.close()
    (kept / "agent-20250101T000000Z.db").write_text("foreign, without a manifest")
    no_manifest, _ = rotate(core.database, kept, 9)
    manifest_path(no_manifest).unlink()
    clock.advance(60)
    cut, _ = rotate(core.database, kept, 9)
    os.truncate(cut, 4096)
    clock.advance(60)
    damaged, _ = rotate(core.database, kept, 9)
    manifest_path(damaged).write_text("{}")
    clock.advance(7200)
    future, _ = rotate(core.database, kept, 9)
    untouched += [no_manifest, cut, damaged, future]
    clock.set_back(3600)  # the new backup is older than the last one

    new, removed = rotate(core.database, kept, 1)

    assert removed == []
    clock.advance(60)
    newer, removed = rotate(core.database, kept, 1)
    assert removed == [new]
    assert all(path.exists() for path in (*untouched, newer))
    assert (kept / "agent-20250101T000000Z.db").exists()


def test_rotation_without_a_database_id_removes_nothing(core, tmp_path, clock):
    """An older version gave a file an id only when a daemon ran on it."""
    core.do(lambda tx: tx.run("DELETE FROM facts WHERE name = 'database_id'"))
    first, _ = rotate(core.database, tmp_path / "kept", 1)
    clock.advance(60)

    _, removed = rotate(core.database, tmp_path / "kept", 1)

    assert removed == []
    assert first.exists()


def test_rotation_leaves_backups_with_a_custom_name(core, tmp_path, clock):
    set_database_id(core.database, "this-one")
    first, _ = rotate(core.database, tmp_path / "kept", 1)
    take_backup(core.database, tmp_path / "kept" / "before-upgrade.db")
    clock.advance(60)

    _, removed = rotate(core.database, tmp_path / "kept", 1)

    assert removed == [first]
    assert (tmp_path / "kept" / "before-upgrade.db").exists()


def test_rotation_is_not_affected_by_foreign_files(core, tmp_path, clock):
    """A pipe without a writer is not read, and a link does not lend its manifest to another file."""
    set_database_id(core.database, "this-one")
    kept = tmp_path / "kept"
    first, _ = rotate(core.database, kept, 1)
    for name in ("agent-20250101T000000Z.db", "agent-20250102T000000Z.db", "agent-20250103T000000Z.db"):
        (kept / name).write_bytes(first.read_bytes())
    os.mkfifo(manifest_path(kept / "agent-20250101T000000Z.db"))
    manifest_path(kept / "agent-20250102T000000Z.db").symlink_to(manifest_path(first))
    manifest_path(kept / "agent-20250103T000000Z.db").mkdir()
    clock.advance(60)

    _, removed = rotate(core.database, kept, 1)

    assert removed == [first]
    with pytest.raises(DatabaseInvalid, match="is not a regular file"):
        read_manifest(kept / "agent-20250101T000000Z.db")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_rotation_ignores_a_forged_manifest(core, tmp_path, clock):
    set_database_id(core.database, "this-one")
    first, _ = rotate(core.database, tmp_path / "kept", 1)
    os.chown(manifest_path(first), 65_534, 65_534)
    clock.advance(60)

    _, removed = rotate(core.database, tmp_path / "kept", 1)

    assert removed == []
    assert first.exists()


def test_two_backups_in_a_second_have_separate_names(core, tmp_path):
    set_database_id(core.database, "this-one")
    names = [rotate(core.database, tmp_path / "kept", 3)[0].name for _ in range(3)]

    assert names == [f"agent-20260101T000000Z{number}.db" for number in ("", "-2", "-3")]
    assert sorted(file.name for file, _ in complete(tmp_path / "kept")) == sorted(names)
    _, removed = rotate(core.database, tmp_path / "kept", 2)
    assert len(removed) == 2
    assert len(list(complete(tmp_path / "kept"))) == 2


def test_manifest_without_a_backup_is_removed_and_no_other(core, tmp_path, clock):
    """A process was killed between the manifest and the backup. A backup in progress also has its manifest first."""
    from craftcore.storage.backup.staging_file import staging_file

    kept = tmp_path / "kept"
    whole, _ = rotate(core.database, kept, 9)
    text = manifest_path(whole).read_text()
    remaining = ["agent-20250101T000000Z.db", "custom.db", "agent-20250103T000000Z.db"]
    for name in (*remaining, "agent-20250102T000000Z.db"):
        manifest_path(kept / name).write_text(text)
    manifest_path(kept / remaining[2]).write_text("a foreign manifest")
    clock.advance(60)
    with staging_file(kept / remaining[0]):
        new, _ = rotate(core.database, kept, 9)

    left = {path.name for path in kept.glob("*.manifest.json")}
    assert left == {f"{name}.manifest.json" for name in (*remaining, whole.name, new.name)}


def test_drafts_of_killed_processes_are_removed_and_active_drafts_are_not(core, tmp_path):
    from craftcore.storage.backup.staging_file import staging_file

    kept = tmp_path / "kept"
    kept.mkdir()
    left = kept / f"{BEGINS}agent-20250101T000000Z.db"
    left.mkdir(mode=0o700)
    (left / NAME).write_bytes(b"half")
    (left / f"{NAME}-wal").write_bytes(b"half")
    with staging_file(kept / "being-made.db") as draft:
        new, _ = rotate(core.database, kept, 1)
        assert draft.path.exists()

    assert set(os.listdir(kept)) == {new.name, f"{new.name}.manifest.json"}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"craftcore_backup": 1}', '{"craftcore_backup": 2}', "[" * 100_000])
def test_invalid_manifest_is_refused(core, tmp_path, text):
    take_backup(core.database, tmp_path / "backup.db")
    manifest_path(tmp_path / "backup.db").write_text(text)

    with pytest.raises(DatabaseInvalid, match="not the manifest of a backup"):
        read_manifest(tmp_path / "backup.db")


@pytest.mark.parametrize("name", ["sha256", "bytes", "taken_at", "epoch", "schema", "rows", "head", "database_id"])
def test_manifest_with_a_value_of_another_type_is_refused(core, tmp_path, name):
    import json

    take_backup(core.database, tmp_path / "backup.db")
    path = manifest_path(tmp_path / "backup.db")
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: ["?"]}))

    with pytest.raises(DatabaseInvalid, match=rf"not the manifest of a backup: .* - at `\$\.{name}`"):
        read_manifest(tmp_path / "backup.db")


@pytest.mark.parametrize("moment", ["NaN", "Infinity", "-1.0", "1e300"])
def test_manifest_with_an_invalid_moment_is_refused(core, tmp_path, moment):
    """A manifest with an invalid time would keep its backup forever, since no rotation would count it."""
    take_backup(core.database, tmp_path / "backup.db")
    path = manifest_path(tmp_path / "backup.db")
    original_text = path.read_text()
    path.write_text(re.sub('"taken_at": [0-9.]+', f'"taken_at": {moment}', original_text))
    assert path.read_text() != original_text

    with pytest.raises(DatabaseInvalid, match=r"not the manifest of a backup: .*taken_at"):
        read_manifest(tmp_path / "backup.db")


# The copy before a migration


def test_value_forbidden_by_its_check_is_found_before_a_migration(tmp_path, clock):
    from craftcore.storage.migrate import migrate
    from craftcore.storage.migrations import Migration

    first = Migration(name="0001_first", sql="CREATE TABLE first (x INTEGER CHECK (x < 5)) STRICT;")
    second = Migration(name="0002_second", sql="CREATE TABLE second (x INTEGER) STRICT;")
    database = Database(tmp_path / "agent.db", clock)
    migrate(database, clock, [first])
    change(database.path, "INSERT INTO first VALUES (7)")

    with pytest.raises(DatabaseInvalid, match="CHECK constraint failed in first"):
        migrate(database, clock, [first, second])

    assert ask(database.path, "SELECT name FROM sqlite_schema WHERE name = 'second'") == []


# Drafts


def test_concurrent_makers_of_a_file_do_not_share_a_draft(core, tmp_path):
    from craftcore.errors import StorageBusy
    from craftcore.storage.backup.staging_file import staging_file

    with staging_file(tmp_path / "backup.db") as first:
        os.write(first.descriptor, b"original")
        with pytest.raises(StorageBusy) as refused:
            take_backup(core.database, tmp_path / "backup.db")
        assert first.path.read_bytes() == b"original"

    assert refused.value.exit_code == 75
    assert not staging_path(tmp_path / "backup.db").exists()


def test_draft_of_a_killed_maker_is_overwritten(core, tmp_path):
    left = staging_path(tmp_path / "backup.db")
    left.mkdir(mode=0o700)
    (left / NAME).write_bytes(os.urandom(100_000))

    take_backup(core.database, tmp_path / "backup.db")

    assert ask(tmp_path / "backup.db", "PRAGMA integrity_check") == [("ok",)]
    assert not staging_path(tmp_path / "backup.db").exists()


@pytest.mark.parametrize("kind", ["a second name of a file", "a link", "a pipe", "an open folder"])
def test_foreign_file_in_place_of_a_draft_is_left_alone(core, tmp_path, kind):
    """Another user of a shared folder may have put the file there."""
    (tmp_path / "original").write_bytes(b"original")
    path = staging_path(tmp_path / "backup.db")
    match kind:
        case "a second name of a file":
            os.link(tmp_path / "original", path)
        case "a link":
            path.symlink_to(tmp_path / "original")
        case "a pipe":
            os.mkfifo(path)
        case _:
            path.mkdir()
            path.chmod(0o750)

    with pytest.raises(PermissionRefused):
        take_backup(core.database, tmp_path / "backup.db")

    assert (tmp_path / "original").read_bytes() == b"original"
    assert os.path.lexists(path)
    assert not (tmp_path / "backup.db").exists()


def test_backup_of_a_read_only_file_leaves_the_file_unchanged(core, tmp_path):
    emit(core)
    core.close()
    assert not core.database.path.with_name("agent.db-wal").exists()
    before = core.database.path.read_bytes()

    take_backup(Database(core.database.path, core.clock, read_only=True), tmp_path / "backup.db")

    assert core.database.path.read_bytes() == before
    assert apsw.Connection(str(tmp_path / "backup.db")).pragma("journal_mode") == "delete"
