"""Schema triggers that refuse changes to closed records, each with a refused and a permitted change."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from craftcore.errors import RowInvalid
from craftcore.storage.migrations import list_migrations
from craftcore.storage.repeated_reads import RepeatedReads
from tests.support.damage import unguarded
from tests.support.event_rows import move_events_to_rows
from tests.support.fakes import VirtualClock, VirtualCore

CLOSED = "(SELECT max(seq) FROM executions WHERE chain_seq IS NOT NULL AND stripped_at IS NULL)"
CLOSED_0 = "(SELECT seq FROM executions WHERE id = 'exec-closed-0.1')"
STRIPPED = "(SELECT seq FROM executions WHERE stripped_at IS NOT NULL)"
OPEN = "(SELECT max(seq) FROM executions WHERE ended_at IS NULL)"
LARGE = "(SELECT max(execution_seq) FROM blobs WHERE part = 'response')"
LARGE_OPEN = "(SELECT max(execution_seq) FROM blobs WHERE part = 'envelope')"
OLDEST = "(SELECT min(chain_seq) FROM executions)"
MOVE_ANCHOR = f"UPDATE record_chain SET anchor_seq = {OLDEST}"
MOVE_OPEN_ANCHOR = f"UPDATE record_chain SET anchor_record = {OPEN}"
OLDEST_EVENTS = f"execution_seq = (SELECT seq FROM executions WHERE chain_seq = {OLDEST})"
ADD_EVENT = "INSERT INTO event_rows (execution_seq, seq, type, at, payload_json)"
STRIP = "UPDATE executions SET stripped_at = 1.0, envelope_json = '', response_json = ''"
INVALIDATED = "INSERT INTO audit_log VALUES (99, 1.0, 1, 'ada', 'invalidate', 'exec-x', 'why', '{}', '', 'sha256:')"

REFUSED: dict[str, list[str]] = {
    "executions_are_closed": [
        f"{STRIP} WHERE seq = {OPEN}; UPDATE executions SET stripped_at = NULL WHERE seq = {STRIPPED}",
        f"{STRIP}, status = 'error' WHERE seq = {CLOSED}",
        f"{STRIP}, record_hash = 'sha256:' WHERE seq = {CLOSED}",
        f"UPDATE executions SET envelope_json = '', response_json = '' WHERE seq = {CLOSED}",
        f"UPDATE executions SET stripped_at = 1.0, envelope_json = '{{}}' WHERE seq = {CLOSED}",
        f"UPDATE executions SET stripped_at = 1.0, response_json = '{{}}' WHERE seq = {CLOSED}",
        f"UPDATE executions SET stripped_at = 1.0, response_json = NULL WHERE seq = {CLOSED_0}",
        "UPDATE executions SET routing_json = NULL WHERE id = 'exec-before.1'",
        f"UPDATE executions SET ended_at = NULL WHERE seq = {CLOSED}",
    ],
    "executions_are_kept": [
        f"DELETE FROM executions WHERE seq = {CLOSED}",
        f"DELETE FROM executions WHERE seq = {OPEN}",
        "DELETE FROM executions WHERE id = 'exec-before.1'",
        f"{MOVE_ANCHOR}; DELETE FROM executions WHERE chain_seq = {OLDEST} + 1",
        f"INSERT OR REPLACE INTO executions SELECT * FROM executions WHERE seq = {CLOSED}",
    ],
    "events_are_complete": [
        f"{ADD_EVENT} VALUES ({CLOSED}, 99, 'NOTE', 1.0, '{{}}')",
        f"INSERT OR REPLACE INTO event_rows SELECT * FROM event_rows WHERE execution_seq = {CLOSED} AND seq = 1",
        f"{ADD_EVENT} SELECT seq, 99, 'NOTE', 1.0, '{{}}' FROM executions WHERE id = 'exec-before.1'",
    ],
    "events_are_final": [
        f"UPDATE event_rows SET {change} WHERE execution_seq = {seq}"
        for seq in (CLOSED, OPEN)
        for change in (
            *("execution_seq = execution_seq + 1000", "seq = seq + 100", "type = 'NOTE'", "at = at + 1"),
            *("payload_json = '{}'", "payload_json = ''", "task_seq = 7", "turn = 7", "memo = 'x'", "activity_seq = 7"),
        )
    ]
    + [
        "UPDATE event_rows SET memo = NULL, at = at + 1 WHERE memo IS NOT NULL",
        "UPDATE event_rows SET memo = 'another' WHERE type = 'STEP_COMPLETED' AND turn = 1",
        f"UPDATE event_rows SET payload_json = '{{}}' WHERE execution_seq = {STRIPPED}",
        f"UPDATE event_rows SET payload_json = '', memo = 'x' WHERE execution_seq = {STRIPPED}",
    ],
    "events_are_kept": [
        f"DELETE FROM event_rows WHERE execution_seq = {CLOSED}",
        f"DELETE FROM event_rows WHERE execution_seq = {OPEN} AND seq = 1",
        f"DELETE FROM event_rows WHERE execution_seq = {STRIPPED}",
        f"{MOVE_ANCHOR}; DELETE FROM event_rows WHERE execution_seq = {CLOSED}",
        f"INSERT OR REPLACE INTO event_rows SELECT * FROM event_rows WHERE execution_seq = {OPEN} AND seq = 1",
    ],
    "blobs_are_final": ["UPDATE blobs SET body = '{}'", "UPDATE blobs SET part = 'envelope' WHERE part = 'response'"],
    "blobs_are_kept": [
        f"DELETE FROM blobs WHERE execution_seq = {LARGE}",
        f"DELETE FROM blobs WHERE execution_seq = {LARGE_OPEN}",
        "INSERT OR REPLACE INTO blobs SELECT * FROM blobs",
    ],
    "audit_log_is_final": [
        f"UPDATE audit_log SET {change}" for change in ("reason = 'another'", "uid = 0", "hash = ''", "at = 0.0")
    ],
    "audit_log_is_kept": [
        "DELETE FROM audit_log WHERE seq = (SELECT max(seq) FROM audit_log)",
        "DELETE FROM audit_log",
        "INSERT OR REPLACE INTO audit_log SELECT * FROM audit_log",
    ],
}
"""Guard -> statements that it refuses. If an entry has several statements, the last is refused."""

PERMITTED: dict[str, list[str]] = {
    "executions_are_closed": [
        f"{STRIP} WHERE seq = {CLOSED}",
        f"UPDATE executions SET stripped_at = 1.0, response_json = '' WHERE seq = {CLOSED}",
        f"UPDATE executions SET routing_json = '{{}}', workflow = 'other', task_id = 't', turn = 1 WHERE seq = {OPEN}",
        f"UPDATE executions SET ended_at = 1.0, status = 'success', chain_seq = 99 WHERE seq = {OPEN}",
    ],
    "executions_are_kept": [
        f"{MOVE_ANCHOR}; DELETE FROM event_rows WHERE {OLDEST_EVENTS}; "
        f"DELETE FROM executions WHERE chain_seq = {OLDEST}",
        f"DROP TRIGGER events_are_kept; {MOVE_OPEN_ANCHOR}; DELETE FROM event_rows WHERE execution_seq = {OPEN}; "
        f"DELETE FROM executions WHERE seq = {OPEN}",
    ],
    "events_are_complete": [f"{ADD_EVENT} VALUES ({OPEN}, 99, 'NOTE', 1.0, '{{}}')"],
    "events_are_final": [
        "UPDATE event_rows SET memo = NULL WHERE memo IS NOT NULL",
        "UPDATE event_rows SET memo = NULL, payload_json = '\"readable\"' WHERE memo IS NOT NULL",
        f"{STRIP} WHERE seq = {CLOSED_0}; UPDATE event_rows SET payload_json = '' WHERE execution_seq = {CLOSED_0}",
    ],
    "events_are_kept": [
        f"{MOVE_ANCHOR}; DELETE FROM event_rows WHERE {OLDEST_EVENTS}",
        f"{MOVE_OPEN_ANCHOR}; DELETE FROM event_rows WHERE execution_seq = {OPEN}",
    ],
    "blobs_are_final": [f"INSERT INTO blobs (execution_seq, part, body) VALUES ({OPEN}, 'response', '{{}}')"],
    "blobs_are_kept": [
        f"{STRIP} WHERE seq = {LARGE}; DELETE FROM blobs WHERE execution_seq = {LARGE}",
        f"UPDATE record_chain SET anchor_seq = head_seq; DELETE FROM blobs WHERE execution_seq = {LARGE}",
        f"{MOVE_OPEN_ANCHOR}; DELETE FROM blobs WHERE execution_seq = {LARGE_OPEN}",
    ],
    "audit_log_is_final": [INVALIDATED],
    "audit_log_is_kept": [
        "UPDATE record_chain SET audit_anchor_seq = 2; DELETE FROM audit_log WHERE seq <= 2",
    ],
}
"""Guard -> statements that it permits, as run by the engine, by retention or by an operator. Each changes a row."""


STRIPPED_TEXT = """
(SELECT group_concat(json_replace(value, '$[3]', '')) FROM json_each('[' || {} || ']'))
"""
REFUSED_TEXTS: dict[str, list[str]] = {
    "executions_are_closed": [
        f"UPDATE executions SET {change} WHERE seq = {CLOSED_0}"
        for column in ("first_events", "last_events")
        for change in (
            f"{column} = NULL",
            f"{column} = {column} || ',[9]'",
            f"{column} = {STRIPPED_TEXT.format(column)}",
            f"stripped_at = 1.0, {column} = NULL",
            f"stripped_at = 1.0, {column} = ''",
            f"stripped_at = 1.0, {column} = replace({column}, 'latency', 'lateness') || ',[9]'",
        )
    ],
    "first_events_are_final": [
        f"UPDATE executions SET {change} WHERE seq = {OPEN}"
        for change in (
            "first_events = NULL",
            "first_events = first_events || ',[9]'",
            "stripped_at = 1.0, first_events = ''",
            f"first_events = {STRIPPED_TEXT.format('first_events')}",
        )
    ],
}
PERMITTED_TEXTS: dict[str, list[str]] = {
    "executions_are_closed": [
        f"{STRIP}, {column} = {STRIPPED_TEXT.format(column)} WHERE seq = {CLOSED_0}"
        for column in ("first_events", "last_events")
    ]
    + [f"UPDATE executions SET ended_at = 1.0, last_events = '[3]' WHERE seq = {OPEN}"],
    "first_events_are_final": [f"{STRIP}, first_events = {STRIPPED_TEXT.format('first_events')} WHERE seq = {OPEN}"],
}
"""Guard -> permitted changes to records with events as texts."""


@pytest.fixture(scope="module")
def rows(sound: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a database with all events as rows, as earlier versions did."""
    path = tmp_path_factory.mktemp("rows") / "agent.db"
    path.write_bytes(sound.read_bytes())
    connection = apsw.Connection(str(path))
    with unguarded(connection):
        move_events_to_rows(connection.execute)
    connection.close()
    return path


@pytest.fixture
def core(rows: Path, tmp_path: Path) -> Iterator[VirtualCore]:
    """Yield a database with all events as rows."""
    yield from open_copy(rows, tmp_path)


@pytest.fixture
def new(sound: Path, tmp_path: Path) -> Iterator[VirtualCore]:
    """Yield a database in the current format."""
    yield from open_copy(sound, tmp_path)


@pytest.fixture(scope="module")
def shared(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualCore]:
    """Yield a shared database with all events as rows, for tests that change nothing."""
    yield from open_copy(rows, tmp_path_factory.mktemp("kept"))


@pytest.fixture(scope="module")
def shared_new(sound: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualCore]:
    """Yield a shared database in the current format, for tests that change nothing."""
    yield from open_copy(sound, tmp_path_factory.mktemp("new-kept"))


@pytest.fixture(scope="module")
def before(sound: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualCore]:
    """Yield an unchanged database, to compare with."""
    yield from open_copy(sound, tmp_path_factory.mktemp("before"))


def open_copy(file: Path, folder: Path) -> Iterator[VirtualCore]:
    path = folder / "agent.db"
    path.write_bytes(file.read_bytes())
    core = VirtualCore(path, VirtualClock(), database=RepeatedReads)
    yield core
    core.close()


def run_statements(core: VirtualCore, statements: str) -> int:
    """Run statements in one transaction, and return the number of rows that the last one changed."""
    changed = 0
    with core.transaction() as tx:
        for statement in statements.split(";"):
            changed = tx.run(statement)
    return changed


def cases(table: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(guard, statement) for guard, statements in table.items() for statement in statements]


def guard_message(guard: str) -> str:
    """Return the message of a guard from the newest migration that creates it."""
    sql = [migration.sql for migration in list_migrations() if f"CREATE TRIGGER {guard}" in migration.sql][-1]
    found = re.search(rf"CREATE TRIGGER {guard}\n.*?RAISE\(ABORT, '([^']*)'\)", sql, re.DOTALL)
    assert found, guard
    return found.group(1)


GUARDS_ONLY = " AND sql LIKE '%RAISE(%'"
"""The other schema triggers write events or delete obsolete rows."""


def test_schema_guards_are_all_exercised(shared):
    guards = {row["name"] for row in shared.rows("SELECT name FROM sqlite_schema WHERE type = 'trigger'" + GUARDS_ONLY)}

    assert guards == {*REFUSED, *REFUSED_TEXTS} == {*PERMITTED, *PERMITTED_TEXTS}


@pytest.mark.parametrize(("guard", "statement"), cases(REFUSED))
def test_change_of_a_closed_record_is_refused_by_its_guard_and_changes_nothing(shared, before, guard, statement):
    with pytest.raises(RowInvalid, match=guard_message(guard)):
        run_statements(shared, statement)

    assert_same(shared, before, "events ORDER BY execution_seq, seq", "blobs", "record_chain", "audit_log")
    assert_same(shared, before, "executions", without=("first_events", "last_events"))


@pytest.mark.parametrize(("guard", "statement"), cases(REFUSED_TEXTS))
def test_change_of_the_texts_of_events_is_refused_by_its_guard(shared_new, before, guard, statement):
    with pytest.raises(RowInvalid, match=guard_message(guard)):
        run_statements(shared_new, statement)

    assert_same(shared_new, before, "executions")


@pytest.mark.parametrize(("guard", "statement"), cases(PERMITTED_TEXTS))
def test_permitted_changes_of_the_texts_of_events_pass(new, guard, statement):
    assert run_statements(new, statement) > 0, guard


def test_open_record_with_last_events_is_refused(new):
    with pytest.raises(RowInvalid, match="CHECK"):
        run_statements(new, f"UPDATE executions SET last_events = '[3]' WHERE seq = {OPEN}")


def test_damaged_text_of_events_is_emptied_by_stripping(new):
    connection = new.database.connect()
    with unguarded(connection):
        connection.execute(f"UPDATE executions SET first_events = '[1,' WHERE seq = {CLOSED_0}")
    connection.close()

    assert run_statements(new, f"{STRIP}, first_events = '' WHERE seq = {CLOSED_0}") == 1


def assert_same(core: VirtualCore, before: VirtualCore, *tables: str, without: tuple[str, ...] = ()) -> None:
    for table in tables:
        rows, others = core.rows(f"SELECT * FROM {table}"), before.rows(f"SELECT * FROM {table}")
        for row in (*rows, *others):
            for name in without:
                del row[name]
        assert rows == others, table


COLUMNS = [
    *("seq", "id", "trigger_id", "task_id", "turn", "attempt", "epoch", "workflow", "created_at", "ended_at", "status"),
    *("replayable", "replayable_reason", "envelope_json", "envelope_hash", "routing_json", "response_json"),
    *("error_code", "latency_ms", "chain_seq", "events_hash", "response_hash", "prev_hash", "record_hash"),
    *("first_events", "last_events"),
]


def test_columns_of_a_closed_record_are_all_listed(shared):
    [*columns] = shared.rows("SELECT name FROM pragma_table_info('executions')")

    assert {row["name"] for row in columns} == {*COLUMNS, "stripped_at"}


@pytest.mark.parametrize("strip", ["", ", stripped_at = 1.0"], ids=["without stripping", "as a stripped record"])
@pytest.mark.parametrize("column", COLUMNS)
def test_closed_record_has_no_changeable_column(shared, column, strip):
    other = "'error'" if column == "status" else f"coalesce({column}, 0) + 1"
    other = f"coalesce({column}, '') || ',[9]'" if column.endswith("_events") else other
    other = "1 - replayable" if column == "replayable" else other

    with pytest.raises(RowInvalid, match=guard_message("executions_are_closed")):
        run_statements(shared, f"UPDATE executions SET {column} = {other}{strip} WHERE seq = {CLOSED}")


@pytest.mark.parametrize(("guard", "statement"), cases(PERMITTED))
def test_permitted_changes_by_engine_retention_and_operators_pass(core, guard, statement):
    assert run_statements(core, statement) > 0, guard


def test_guards_refuse_changes_by_another_program(core):
    """The guards are schema triggers, so they apply to each program that opens the file."""
    code = (
        "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute("
        f"\"UPDATE executions SET status = 'error' WHERE seq = {CLOSED}\")"
    )
    ended = subprocess.run(  # in another process, because closing the file in this one would drop its POSIX locks
        [sys.executable, "-c", code, str(core.database.path)], capture_output=True, text=True, check=False
    )
    assert "sqlite3.IntegrityError" in ended.stderr
    assert re.search(guard_message("executions_are_closed"), ended.stderr)
