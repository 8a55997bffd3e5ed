"""Migrations: each applied once, checked by its digest, and without a trace if it fails."""

from __future__ import annotations

import stat
import subprocess
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from craftcore.errors import DatabaseInvalid, StorageError
from craftcore.storage.database import Database
from craftcore.storage.migrate import migrate, require_current
from craftcore.storage.migrations import Migration, list_migrations, load, object_names_of
from tests.support.processes import PATIENCE
from tests.support.warm_parent import start

ROOT = Path(__file__).parents[2]

FIRST = Migration(name="0001_first", sql="CREATE TABLE first (x INTEGER) STRICT; INSERT INTO first VALUES (1);")
SECOND = Migration(name="0002_second", sql="CREATE TABLE second (x INTEGER) STRICT; UPDATE first SET x = 2;")
BROKEN = Migration(name="0002_broken", sql="CREATE TABLE half (x INTEGER) STRICT; UPDATE first SET x = 2; no sql;")

CREATE = """
import sys
from pathlib import Path
from typing import Any
from craftcore.clock import SystemClock
from craftcore.storage.database import Database
from craftcore.storage.migrate import migrate
database = Database(Path(sys.argv[1]), SystemClock())
print("ready", flush=True)
sys.stdin.readline()
print(migrate(database, SystemClock()))
"""


@pytest.fixture
def database(tmp_path, clock):
    return Database(tmp_path / "agent.db", clock)


def ask(path: Path, sql: str) -> list[tuple[Any, ...]]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def tables(path: Path) -> set[str]:
    return {name for (name,) in ask(path, "SELECT name FROM sqlite_schema WHERE type = 'table'")}


def test_migration_history_has_every_remaining_name():
    later = Migration(
        name="0002_later",
        sql="""
        DROP TABLE first;
        CREATE TABLE Parts (id TEXT PRIMARY KEY, size REAL) STRICT;
        CREATE INDEX parts_size ON Parts (size);
        CREATE VIEW v_parts AS SELECT id FROM Parts;
        CREATE TRIGGER parts_gone AFTER DELETE ON Parts BEGIN SELECT 1; END;
        """,
    )

    assert object_names_of([FIRST, later]) == {
        "schema_migrations",
        "sqlite_autoindex_schema_migrations_1",
        "parts",
        "sqlite_autoindex_parts_1",
        "parts_size",
        "v_parts",
        "parts_gone",
    }


def test_migration_is_applied_once_and_recorded_with_its_digest(database, clock):
    first = migrate(database, clock, [FIRST, SECOND])
    again = migrate(database, clock, [FIRST, SECOND])

    assert (first, again) == (["0001_first", "0002_second"], [])
    assert ask(database.path, "SELECT * FROM schema_migrations") == [
        ("0001_first", FIRST.sha256, clock.now()),
        ("0002_second", SECOND.sha256, clock.now()),
    ]


VARIED = Migration(
    name="0003_varied",
    sql="""
    CREATE TABLE noted (n INTEGER PRIMARY KEY, x TEXT DEFAULT 'it''s') STRICT;
    CREATE TRIGGER twice AFTER INSERT ON noted WHEN NEW.n < 9 BEGIN INSERT INTO noted VALUES (NEW.n + 9, 'b'); END;
    INSERT INTO noted (x) VALUES ('a "b"; ''c'' --'), (NULL);
    ALTER TABLE second ADD COLUMN y BLOB;
    INSERT INTO second VALUES (7, x'00ff');
    CREATE INDEX "of second" ON second (y);
    CREATE VIEW v AS SELECT x FROM noted;
    """,
)


@pytest.mark.parametrize("migrations", [list_migrations(), [FIRST, SECOND, VARIED]], ids=["own", "varied"])
def test_second_new_file_of_a_process_has_the_schema_and_rows_of_the_first(tmp_path, clock, migrations):
    """The second file is copied from the first one in a single step."""
    one, other = (Database(tmp_path / name, clock) for name in ("one.db", "other.db"))
    migrate(one, clock, migrations)

    assert migrate(other, clock, migrations) == [migration.name for migration in migrations]
    schema = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"
    assert ask(one.path, schema) == ask(other.path, schema)
    for table in tables(one.path):
        assert ask(one.path, f'SELECT * FROM "{table}"') == ask(other.path, f'SELECT * FROM "{table}"'), table
    for pragma in ("application_id", "user_version", "page_size", "journal_mode", "auto_vacuum"):
        assert ask(one.path, f"PRAGMA {pragma}") == ask(other.path, f"PRAGMA {pragma}")


def test_changed_migration_is_refused(database, clock):
    migrate(database, clock, [FIRST])

    with pytest.raises(DatabaseInvalid, match="0001_first was changed") as refused:
        migrate(database, clock, [replace(FIRST, sql=FIRST.sql + "-- harmless"), SECOND])

    assert refused.value.exit_code == 65
    assert "second" not in tables(database.path)


def test_database_of_a_newer_program_is_refused(database, clock):
    migrate(database, clock, [FIRST, SECOND])
    before = database.path.read_bytes()

    with pytest.raises(DatabaseInvalid, match="newer craftcore") as refused:
        migrate(database, clock, [FIRST])

    assert refused.value.exit_code == 65
    assert database.path.read_bytes() == before


def test_failed_migration_leaves_no_part(database, clock):
    migrate(database, clock, [FIRST])

    with pytest.raises(StorageError):
        migrate(database, clock, [FIRST, BROKEN])

    assert "half" not in tables(database.path)
    assert ask(database.path, "SELECT x FROM first") == [(1,)]
    assert ask(database.path, "SELECT name FROM schema_migrations") == [("0001_first",)]


def test_failed_first_migration_leaves_a_usable_empty_file(database, clock):
    with pytest.raises(StorageError):
        migrate(database, clock, [replace(BROKEN, name="0001_broken")])

    assert tables(database.path) == set()
    assert migrate(database, clock, [FIRST]) == ["0001_first"]


def test_migration_of_a_file_with_data_keeps_a_whole_copy(database, clock):
    migrate(database, clock, [FIRST])

    migrate(database, clock, [FIRST, SECOND])

    copy = database.path.with_name("agent.db.before-0002_second")
    assert ask(copy, "SELECT x FROM first") == [(1,)]
    assert ask(copy, "PRAGMA integrity_check") == [("ok",)]
    assert "second" not in tables(copy)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert ask(database.path, "SELECT x FROM first") == [(2,)]


def test_migration_of_a_new_file_makes_no_copy(database, clock):
    migrate(database, clock, [FIRST, SECOND])

    assert not list(database.path.parent.glob("*.before-*"))


def test_migration_without_its_copy_is_not_begun(database, clock):
    migrate(database, clock, [FIRST])
    database.path.with_name("agent.db.before-0002_second").mkdir()

    with pytest.raises((StorageError, OSError)):
        migrate(database, clock, [FIRST, SECOND])

    assert "second" not in tables(database.path)


def test_eight_processes_creating_a_file_end_with_a_single_schema(database):
    pipe = subprocess.PIPE
    with ExitStack() as stack:
        children = [
            stack.enter_context(start(["-c", CREATE, database.path], stdin=pipe, stdout=pipe, stderr=pipe))
            for _ in range(8)
        ]
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"

        for child in children:
            assert child.stdin is not None
            child.stdin.write(b"\n")
            child.stdin.flush()
        answers = [child.communicate(timeout=PATIENCE) for child in children]

    outputs = sorted(out.decode().strip() for out, _ in answers)
    names = [migration.name for migration in list_migrations()]
    assert [child.returncode for child in children] == [0] * 8, answers
    assert outputs == sorted(["[]"] * 7 + [str(names)])
    assert [name for (name,) in ask(database.path, "SELECT name FROM schema_migrations")] == names


def test_outdated_database_is_refused_with_the_migrate_command(database, clock):
    migrate(database, clock, [])

    with database.reading() as reader, pytest.raises(DatabaseInvalid, match=r"craftcore --db .* db migrate"):
        require_current(reader, database.path)


def test_migrations_of_a_checkout_are_at_its_top():
    assert list_migrations() == load(ROOT / "migrations")
    assert list_migrations()[0].name == "0001_triggers_and_executions"
