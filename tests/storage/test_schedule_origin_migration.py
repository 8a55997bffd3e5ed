"""Migrations that rebuild the table of schedules keep every row, damaged rows included."""

from __future__ import annotations

import apsw
import pytest

from craftcore.storage.database import Database
from craftcore.storage.migrate import migrate
from craftcore.storage.migrations import list_migrations

SCHEDULE = """
INSERT INTO schedules (
    id, origin, declared_hash, generation, status, expression, timezone, timezone_given, kind, anchor_at, step_seconds,
    workflow, payload_json, catch_up, catch_up_window, catch_up_max, catch_up_spacing, overlap, jitter, high_water_at,
    created_at, updated_at
) VALUES (?, ?, 'hash', 0, 'ACTIVE', 'every 1h', 'UTC', 0, 'every', 0, 3600, 'greet', '{}', 'latest', 1, 20, 5.0,
          'buffer_one', 0.0, 5.0, 1.0, 2.0)
"""
OCCURRENCE = """
INSERT INTO schedule_occurrences (
    schedule_id, generation, cause, nominal_at, last_at, count, outcome, trigger_id, decided_at
)
VALUES ('nightly', 0, 'time', 3600.0, 3600.0, 1, 'fired', 'trigger', 3600.0)
"""
TABLES = ("schedules", "schedule_occurrences")


@pytest.mark.parametrize("added_by", ["0016", "0024"])
def test_schedules_keep_their_rows_when_their_table_is_replaced(tmp_path, clock, added_by):
    database = Database(tmp_path / "agent.db", clock)
    older = [migration for migration in list_migrations() if migration.name < added_by]
    migrate(database, clock, older)
    connection = apsw.Connection(str(database.path))
    connection.execute(SCHEDULE, ("nightly", "operator"))
    connection.execute(OCCURRENCE)
    connection.pragma("ignore_check_constraints", True)
    connection.execute(SCHEDULE, ("damaged", "nobody"))
    connection.pragma("ignore_check_constraints", False)
    columns = {
        table: ", ".join(row[1] for row in connection.execute(f"PRAGMA table_info({table})")) for table in TABLES
    }
    before = {table: connection.execute(f"SELECT {columns[table]} FROM {table}").fetchall() for table in TABLES}
    connection.close()

    migrate(database, clock, keep_copy=False)

    connection = apsw.Connection(str(database.path))
    connection.pragma("foreign_keys", True)
    assert {table: connection.execute(f"SELECT {columns[table]} FROM {table}").fetchall() for table in TABLES} == before
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    assert connection.execute("SELECT DISTINCT source, deliver FROM schedules").fetchall() == [("SCHEDULED", None)]
    connection.execute(SCHEDULE, ("reminder", "api"))
    with pytest.raises(apsw.ConstraintError, match="CHECK"):
        connection.execute(SCHEDULE, ("wrong", "nobody"))
    with pytest.raises(apsw.ConstraintError, match="FOREIGN KEY"):
        connection.execute("DELETE FROM schedules WHERE id = 'nightly'")
    connection.close()
