"""The schema itself refuses to have a record changed once it is closed, whoever asks: each guard is met once by what it
is there for, and once by what it must let pass."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from craftcore.errors import RowInvalid
from craftcore.storage.migrations import list_migrations
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
OF_OLDEST = f"execution_seq = (SELECT seq FROM executions WHERE chain_seq = {OLDEST})"
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
        f"INSERT INTO events (execution_seq, seq, type, at, payload_json) VALUES ({CLOSED}, 99, 'NOTE', 1.0, '{{}}')",
        f"INSERT OR REPLACE INTO events SELECT * FROM events WHERE execution_seq = {CLOSED} AND seq = 1",
        "INSERT INTO events (execution_seq, seq, type, at, payload_json) "
        "SELECT seq, 99, 'NOTE', 1.0, '{}' FROM executions WHERE id = 'exec-before.1'",
    ],
    "events_are_final": [
        f"UPDATE events SET {change} WHERE execution_seq = {seq}"
        for seq in (CLOSED, OPEN)
        for change in (
            *("execution_seq = execution_seq + 1000", "seq = seq + 100", "type = 'NOTE'", "at = at + 1"),
            *("payload_json = '{}'", "payload_json = ''", "task_seq = 7", "turn = 7", "memo = 'x'", "activity_seq = 7"),
        )
    ]
    + [
        "UPDATE events SET memo = NULL, at = at + 1 WHERE memo IS NOT NULL",
        "UPDATE events SET memo = 'another' WHERE type = 'STEP_COMPLETED' AND turn = 1",
        f"UPDATE events SET payload_json = '{{}}' WHERE execution_seq = {STRIPPED}",
        f"UPDATE events SET payload_json = '', memo = 'x' WHERE execution_seq = {STRIPPED}",
    ],
    "events_are_kept": [
        f"DELETE FROM events WHERE execution_seq = {CLOSED}",
        f"DELETE FROM events WHERE execution_seq = {OPEN} AND seq = 1",
        f"DELETE FROM events WHERE execution_seq = {STRIPPED}",
        f"{MOVE_ANCHOR}; DELETE FROM events WHERE execution_seq = {CLOSED}",
        f"INSERT OR REPLACE INTO events SELECT * FROM events WHERE execution_seq = {OPEN} AND seq = 1",
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
"""Guard -> what it refuses. Of several statements it is the last."""

PASSES: dict[str, list[str]] = {
    "executions_are_closed": [
        f"{STRIP} WHERE seq = {CLOSED}",
        f"UPDATE executions SET stripped_at = 1.0, response_json = '' WHERE seq = {CLOSED}",
        f"UPDATE executions SET routing_json = '{{}}', workflow = 'other', task_id = 't', turn = 1 WHERE seq = {OPEN}",
        f"UPDATE executions SET ended_at = 1.0, status = 'success', chain_seq = 99 WHERE seq = {OPEN}",
    ],
    "executions_are_kept": [
        f"{MOVE_ANCHOR}; DELETE FROM events WHERE {OF_OLDEST}; DELETE FROM executions WHERE chain_seq = {OLDEST}",
        f"DROP TRIGGER events_are_kept; {MOVE_OPEN_ANCHOR}; DELETE FROM events WHERE execution_seq = {OPEN}; "
        f"DELETE FROM executions WHERE seq = {OPEN}",
    ],
    "events_are_complete": [
        f"INSERT INTO events (execution_seq, seq, type, at, payload_json) VALUES ({OPEN}, 99, 'NOTE', 1.0, '{{}}')"
    ],
    "events_are_final": [
        "UPDATE events SET memo = NULL WHERE memo IS NOT NULL",
        "UPDATE events SET memo = NULL, payload_json = '\"readable\"' WHERE memo IS NOT NULL",
        f"{STRIP} WHERE id = 'exec-closed-0.1'; UPDATE events SET payload_json = '' WHERE execution_seq = {CLOSED_0}",
    ],
    "events_are_kept": [
        f"{MOVE_ANCHOR}; DELETE FROM events WHERE {OF_OLDEST}",
        f"{MOVE_OPEN_ANCHOR}; DELETE FROM events WHERE execution_seq = {OPEN}",
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
"""Guard -> what it must let pass, each changing something: what the engine, retention and an operator do."""


@pytest.fixture
def core(sound: Path, tmp_path: Path) -> Iterator[VirtualCore]:
    (tmp_path / "agent.db").write_bytes(sound.read_bytes())
    core = VirtualCore(tmp_path / "agent.db", VirtualClock())
    yield core
    core.close()


def do(core: VirtualCore, statements: str) -> int:
    """How many rows the last one changed."""
    changed = 0
    with core.transaction() as tx:
        for statement in statements.split(";"):
            changed = tx.run(statement)
    return changed


def cases(table: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(guard, statement) for guard, statements in table.items() for statement in statements]


def message_of(guard: str) -> str:
    """What the newest migration that makes it has it say."""
    sql = [migration.sql for migration in list_migrations() if f"CREATE TRIGGER {guard}" in migration.sql][-1]
    found = re.search(rf"CREATE TRIGGER {guard}\n.*?RAISE\(ABORT, '([^']*)'\)", sql, re.DOTALL)
    assert found, guard
    return found.group(1)


REFUSES = " AND sql LIKE '%RAISE(%'"
"""The others note events, or delete a row that means nothing any more."""


def test_schema_guards_are_all_exercised(core):
    guards = {row["name"] for row in core.rows("SELECT name FROM sqlite_schema WHERE type = 'trigger'" + REFUSES)}

    assert guards == set(REFUSED) == set(PASSES)


@pytest.mark.parametrize(("guard", "statement"), cases(REFUSED))
def test_change_of_a_closed_record_is_refused_by_its_guard_and_changes_nothing(core, sound, guard, statement):
    with pytest.raises(RowInvalid, match=message_of(guard)):
        do(core, statement)

    for table in ("executions", "events", "blobs", "record_chain", "audit_log"):
        before = VirtualCore(sound, VirtualClock())
        assert core.rows(f"SELECT * FROM {table}") == before.rows(f"SELECT * FROM {table}")
        before.close()


COLUMNS = [
    *("seq", "id", "trigger_id", "task_id", "turn", "attempt", "epoch", "workflow", "created_at", "ended_at", "status"),
    *("replayable", "replayable_reason", "envelope_json", "envelope_hash", "routing_json", "response_json"),
    *("error_code", "latency_ms", "chain_seq", "events_hash", "response_hash", "prev_hash", "record_hash"),
]


def test_those_are_all_columns_that_a_closed_record_has(core):
    [*columns] = core.rows("SELECT name FROM pragma_table_info('executions')")

    assert {row["name"] for row in columns} == {*COLUMNS, "stripped_at"}


@pytest.mark.parametrize("stripping", ["", ", stripped_at = 1.0"], ids=["plainly", "as if retention did it"])
@pytest.mark.parametrize("column", COLUMNS)
def test_closed_record_has_no_changeable_column(core, column, stripping):
    other = "'error'" if column == "status" else f"coalesce({column}, 0) + 1"
    other = "1 - replayable" if column == "replayable" else other

    with pytest.raises(RowInvalid, match=message_of("executions_are_closed")):
        do(core, f"UPDATE executions SET {column} = {other}{stripping} WHERE seq = {CLOSED}")


@pytest.mark.parametrize(("guard", "statement"), cases(PASSES))
def test_permitted_changes_by_engine_retention_and_operators_pass(core, guard, statement):
    assert do(core, statement) > 0, guard


def test_guards_refuse_changes_by_another_program(core):
    """The guards lie in the file, not in ours."""
    code = (
        "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute("
        f"\"UPDATE executions SET status = 'error' WHERE seq = {CLOSED}\")"
    )
    ended = subprocess.run(  # in a process of its own: to close the file in this one would drop our locks
        [sys.executable, "-c", code, str(core.database.path)], capture_output=True, text=True, check=False
    )
    assert "sqlite3.IntegrityError" in ended.stderr
    assert re.search(message_of("executions_are_closed"), ended.stderr)
