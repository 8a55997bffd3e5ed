"""The file check: corrupt pages, broken foreign keys, and objects that differ from the migrations."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from craftcore.errors import PermissionRefused
from craftcore.storage.integrity import FileCheck, check_file
from tests.support.fakes import VirtualCore, a_trigger


def check(core: VirtualCore) -> FileCheck:
    with core.database.reading(with_checks=True) as reader:
        return check_file(reader)


def change(core: VirtualCore, *statements: str) -> None:
    connection = apsw.Connection(str(core.database.path))
    connection.pragma("foreign_keys", False)
    connection.pragma("ignore_check_constraints", True)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def test_new_file_passes_the_check(core):
    assert check(core) == FileCheck(pages=[], keys=[], schema=[])
    assert check(core).is_sound


def test_dropped_guard_is_named(core):
    guards = [row["name"] for row in core.rows("SELECT name FROM sqlite_schema WHERE type = 'trigger'")]
    assert len(guards) > 8

    for guard in guards:
        change(core, f"DROP TRIGGER {guard}")

    found = check(core)
    assert not found.is_damaged
    assert not found.is_sound
    assert {fault.split()[2] for fault in found.schema} == set(guards)
    assert all("is missing" in fault and "craftcore verify" in fault for fault in found.schema)


def test_disabled_guard_is_named(core):
    change(
        core,
        "DROP TRIGGER executions_are_closed",
        "CREATE TRIGGER executions_are_closed BEFORE UPDATE ON executions BEGIN SELECT 1; END",
    )

    assert check(core).schema == ["the trigger executions_are_closed is not as the migrations made it"]


def test_missing_index_is_named(core):
    change(core, "DROP INDEX executions_id")

    [fault] = check(core).schema
    assert fault.startswith("the index executions_id is missing")


def test_missing_or_changed_view_is_named(core):
    change(core, "DROP VIEW v_dead", "DROP VIEW v_inbox", "CREATE VIEW v_inbox AS SELECT 1 AS id")

    missing, changed = sorted(check(core).schema)
    assert missing.startswith("the view v_dead is missing: plain SQL that reads it fails")
    assert changed == "the view v_inbox is not as the migrations made it"


def test_damaged_schema_row_is_named_even_where_sqlite_tolerates_the_damage(core):
    """SQLite recognizes the index of a PRIMARY KEY by its name alone."""
    change(
        core,
        "PRAGMA writable_schema = 1",
        "UPDATE sqlite_schema SET type = 'inddx' WHERE name = 'sqlite_autoindex_schema_migrations_1'",
    )

    assert "the index sqlite_autoindex_schema_migrations_1 is missing" in check(core).schema[0]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "CREATE TRIGGER mine AFTER INSERT ON Triggers BEGIN SELECT 1; END",
            "the trigger mine on triggers does not belong to craftcore: DROP TRIGGER mine",
        ),
        (
            "CREATE TRIGGER mine INSTEAD OF DELETE ON V_Dead BEGIN SELECT 1; END",
            "the trigger mine on v_dead does not belong to craftcore: DROP TRIGGER mine",
        ),
        (
            "CREATE INDEX mine ON event_rows (at)",
            "the index mine on event_rows does not belong to craftcore: DROP INDEX mine",
        ),
    ],
)
def test_foreign_object_on_a_craftcore_table_is_named(core, statement, message):
    change(core, statement)

    assert check(core).schema == [message]


def test_tables_of_the_user_are_not_reported(core):
    change(
        core,
        "CREATE TABLE mine (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE)",
        "CREATE INDEX mine_name ON mine (name)",
        "CREATE TRIGGER mine_too AFTER INSERT ON mine BEGIN SELECT 1; END",
        "CREATE VIEW seen AS SELECT id FROM triggers",
        "INSERT INTO mine (name) VALUES ('a')",
        "ANALYZE",
    )

    assert check(core).is_sound


def test_row_without_its_record_is_named(core):
    change(
        core, "INSERT INTO event_rows (execution_seq, seq, type, at, payload_json) VALUES (77, 1, 'NOTE', 1.0, '{}')"
    )

    found = check(core)

    assert found.is_damaged
    assert found.keys == ["event_rows, row None: what it belongs to in executions is not there"]


def test_value_forbidden_by_its_check_is_named(core):
    core.do(core.triggers.emit, a_trigger())
    change(core, "UPDATE triggers SET priority = 1000")

    found = check(core)

    assert found.is_damaged
    assert "CHECK constraint failed in triggers" in found.pages[0]


def test_overwritten_index_page_is_named(core):
    core.do(core.triggers.emit, a_trigger())
    page = core.rows("SELECT rootpage FROM sqlite_schema WHERE name = 'triggers_id'")[0]["rootpage"]
    core.close()
    overwrite(core.database.path, page)

    found = check(core)

    assert found.is_damaged
    assert found.pages


def overwrite(path: Path, page: int) -> None:
    """Overwrite the cell count of a page."""
    text = bytearray(path.read_bytes())
    text[(page - 1) * 4096 + 3 : (page - 1) * 4096 + 5] = b"\x00\x00"
    path.write_bytes(bytes(text))


def test_reader_with_checks_cannot_write_and_leaves_the_wal_alone(core):
    core.do(core.triggers.emit, a_trigger())
    wal = core.database.path.with_name(core.database.path.name + "-wal")
    before = wal.read_bytes()
    assert before

    with pytest.raises(PermissionRefused):
        with core.database.reading(with_checks=True) as reader:
            reader.fetch_value("DELETE FROM triggers")

    assert wal.read_bytes() == before
    assert core.rows("SELECT count(*) AS n FROM triggers") == [{"n": 1}]
