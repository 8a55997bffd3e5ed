"""`craftcore db restore --no-manifest`: a complete copy without a manifest, and the copies that it refuses."""

from __future__ import annotations

import os
import shutil
from hashlib import sha256
from pathlib import Path

import apsw
import pytest

from craftcore.storage.migrations import list_migrations
from tests.cli.conftest import NOON, Cli
from tests.support.backups import ask, change
from tests.support.fake_payments import LOST, Bank
from tests.support.populated_database import WorldCopy


@pytest.fixture
def copy(cli: Cli, here: WorldCopy, tmp_path: Path) -> Path:
    """Return a copy of the database as Litestream restores it: a single file. Its latest moment is from a daemon whose
    clock was two hours ahead.
    """
    assert cli("release").code == 0
    assert cli("db", "backup", "-o", "copy.db").code == 0
    (tmp_path / "copy.db.manifest.json").unlink()
    here.core.close()
    return tmp_path / "copy.db"


def restore(cli: Cli, file: str = "copy.db"):
    return cli("db", "restore", file, "--no-manifest", "--yes")


def test_restored_copy_is_held_and_the_last_known_moment_is_printed(cli, here, database, copy, clock):
    clock.advance(3600)
    assert cli("trigger", "cancel", here.world.waiting).code == 0

    done = restore(cli)

    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"{database} is a copy that goes up to 2026-11-21T14:00:00.000Z",
        f"the one before is kept: {database}.before-restore-20261121T130000Z",
        "everything is held. Look at what was done since, then:",
        "  craftcore release",
        "where nothing ran since the backup, this also ends all doubts:",
        "  craftcore release --complete",
    ]
    assert cli("--json", "trigger", "show", here.world.waiting).json["status"] == "PENDING"
    document = cli("--json", "status").json
    assert document["held"] == "it was restored from a copy that goes up to 2026-11-21T14:00:00.000Z"
    [row] = [row for row in cli("--json", "audit").json if row["action"] == "db restore"]
    assert row["details"]["file"] == str(copy)
    assert row["details"]["sha256"] == sha256(copy.read_bytes()).hexdigest()
    assert cli("verify").code == cli("db", "check").code == 0


def test_restore_with_json_prints_the_last_known_moment(cli, database, copy):
    document = cli("--json", "db", "restore", "copy.db", "--no-manifest", "--yes").json

    assert (document["database"], document["restored_from"]) == (str(database), str(copy))
    assert (document["taken_at"], document["taken_at_iso"]) == (NOON + 7200, "2026-11-21T14:00:00.000Z")


def test_activity_with_an_open_call_in_the_copy_becomes_in_doubt(cli, database, clock, tmp_path):
    bank = Bank(database, clock)
    bank.pay(LOST)
    assert cli("db", "backup", "-o", "copy.db").code == 0
    (tmp_path / "copy.db.manifest.json").unlink()
    change(tmp_path / "copy.db", "UPDATE activity_log SET status = 'INTENT', in_doubt = 0, settled_at = NULL")

    assert cli("--json", "db", "restore", "copy.db", "--no-manifest", "--yes").json["in_doubt"] == 1
    assert ask(database, "SELECT status FROM activity_log") == [("UNKNOWN",)]
    assert ask(database, "SELECT count(*) FROM facts WHERE name IN ('held', 'restored_at')") == [(2,)]


def test_copy_without_any_activity_has_no_last_known_moment(cli, database):
    assert cli("--db", "copy.db", "schedule", "add", "nightly", "@daily", "--workflow", "nap").code == 0

    assert restore(cli).out.splitlines()[0] == f"{database} is a copy that goes up to an unknown time"


def test_restore_of_a_copy_over_another_database_warns_first(cli, here, database, copy):
    change(copy, "UPDATE facts SET value = 'another-one' WHERE name = 'database_id'")
    before = database.read_bytes()

    refused = cli("db", "restore", "copy.db", "--no-manifest")

    assert refused.code == 64
    assert "which is ANOTHER database than the one that the copy is of, by a copy that goes up to" in refused.err
    assert database.read_bytes() == before


def test_restore_without_manifest_requires_the_option(cli, copy):
    refused = cli("db", "restore", "copy.db", "--yes")

    assert (refused.code, "has no manifest beside it" in refused.err) == (65, True)


def test_backup_with_a_manifest_rejects_the_no_manifest_option(cli, here, database, tmp_path):
    """The option cannot bypass a hash that does not match."""
    assert cli("db", "backup", "-o", "backup.db").code == 0
    here.core.close()

    refused = restore(cli, "backup.db")

    assert (refused.code, "Leave out --no-manifest" in refused.err) == (64, True)


def write_garbage(file: Path) -> None:
    file.write_text("a text, and long enough for a page" * 1000)


def write_empty_file(file: Path) -> None:
    file.write_bytes(b"")


def write_database_without_tables(file: Path) -> None:
    file.unlink()
    connection = apsw.Connection(str(file))
    connection.execute("PRAGMA user_version = 1")
    connection.close()


def write_foreign_database(file: Path) -> None:
    file.unlink()
    connection = apsw.Connection(str(file))
    connection.execute("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)")
    connection.close()


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def zero_a_page(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.seek(4096 * 3)
        opened.write(bytes(4096))


def change_a_row(file: Path) -> None:
    change(file, "UPDATE triggers SET priority = 1000")


def drop_a_guard(file: Path) -> None:
    change(file, "DROP TRIGGER executions_are_closed")


def set_newer_version(file: Path) -> None:
    change(file, "INSERT INTO schema_migrations VALUES ('9999_later', 'x', 1.0)")


def add_wal(file: Path) -> None:
    file.with_name(f"{file.name}-wal").write_bytes(b"what was written last")


def add_journal(file: Path) -> None:
    file.with_name(f"{file.name}-journal").write_bytes(b"what was there before")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (write_garbage, "not an SQLite database"),
        (write_empty_file, "is empty, and not a database of craftcore"),
        (write_database_without_tables, "is empty, and not a database of craftcore"),
        (write_foreign_database, "another program's database"),
        (truncate, "corrupt"),
        (zero_a_page, "corrupt"),
        (change_a_row, "CHECK constraint failed"),
        (drop_a_guard, "executions_are_closed is missing"),
        (set_newer_version, "written by a newer craftcore"),
        (add_wal, "copy.db-wal beside it is not empty"),
        (add_journal, "copy.db-journal beside it is not empty"),
    ],
)
def test_incomplete_or_foreign_copy_is_refused(cli, database, copy, tmp_path, spoil, message):
    before = database.read_bytes()
    spoil(copy)
    there = set(os.listdir(tmp_path))

    refused = restore(cli)

    assert (refused.code, message in refused.err) == (65, True), refused.err
    assert refused.err.count(str(copy)) >= 1, "the message does not name the given file"
    assert "draft" not in refused.err
    assert database.read_bytes() == before
    assert set(os.listdir(tmp_path)) - {"agent.db.lock"} == there - {"agent.db.lock"}


def test_restore_of_a_missing_file_or_of_the_same_file_is_refused(cli, database, copy):
    assert restore(cli, "nowhere.db").code == 64
    assert restore(cli, "agent.db").code == 64
    database.unlink()
    assert restore(cli, "nowhere.db").code == 64
    assert not database.exists()


def test_copy_with_an_older_schema_is_migrated(cli, database, tmp_path, clock):
    from craftcore.storage.database import Database
    from craftcore.storage.migrate import migrate

    old = Database(tmp_path / "old.db", clock)
    migrate(old, clock, list_migrations()[:-1])
    shutil.copy(old.path, tmp_path / "copy.db")

    document = cli("--json", "db", "restore", "copy.db", "--no-manifest", "--yes").json

    assert document["migrated"] == [list_migrations()[-1].name]
    assert cli("db", "check").code == 0
