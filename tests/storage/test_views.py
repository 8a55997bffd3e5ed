"""The views: columns, order, supported SQLite versions, and query plans without scans of ended work."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

from craftcore.clock import utc_iso
from craftcore.storage.migrations import list_migrations
from craftcore.triggers.backoff import RetryPolicy
from tests.support.activity_steps import DONE, UNKNOWN, an_activity
from tests.support.fake_payments import LOST, Bank
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.idle_database import a_task
from tests.support.processes import PATIENCE
from tests.support.task_steps import begin
from tests.support.trigger_steps import BROKEN, ack, claim_one, emit, run_one, start_one
from tests.support.warm_parent import start
from tests.triggers.test_claim_plans import steps_of, undone

VIEWS = ("v_overdue", "v_running", "v_dead", "v_unknown", "v_inbox", "v_timeline")

PLAIN = """
import json, sqlite3, sys
connection = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
connection.row_factory = sqlite3.Row
print(json.dumps([dict(row) for row in connection.execute(sys.argv[2], sys.argv[3:])]))
"""


@pytest.fixture
def clock() -> VirtualClock:
    """Return a clock that is an hour behind the machine clock, which the views use."""
    return VirtualClock(now=float(int(time.time()) - 3600))


def read_with_sqlite3(path: Path, sql: str, *arguments: str) -> Any:
    """Return the rows as read by Python's sqlite3, in a process without another SQLite on the file."""
    with start(["-c", PLAIN, path, sql, *arguments], stdout=subprocess.PIPE) as process:
        printed, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    return json.loads(printed)


def has_matching_times(row: dict[str, Any]) -> bool:
    """Return whether each time also appears as text, rounded to milliseconds where utc_iso cuts."""
    names = [name for name in row if f"{name}_iso" in row]
    assert names
    near = {name: {utc_iso(row[name]), utc_iso(row[name] and row[name] + 0.0005)} for name in names}
    return all(row[f"{name}_iso"] in near[name] for name in names)


def test_overdue_view_has_due_unstarted_triggers(core, clock):
    emit(core, workflow="over")
    run_one(core)
    emit(core, workflow="later", delay=7200.0)
    taken = emit(core, workflow="taken").id
    claim_one(core)
    late = emit(core, workflow="late", session_id="s", description="a brief").id

    rows = core.rows("SELECT * FROM v_overdue ORDER BY id")

    assert [(row["id"], row["status"], row["workflow"]) for row in rows] == [
        (taken, "CLAIMED", "taken"),
        (late, "PENDING", "late"),
    ]
    assert all(row["overdue_seconds"] >= 3600 and has_matching_times(row) for row in rows)
    assert (rows[1]["session_id"], rows[1]["description"]) == ("s", "a brief")


def test_running_view_has_started_triggers(core, clock):
    running = begin(core)
    plain = emit(core, workflow="plain").id
    start_one(core)
    core.do(core.triggers.cancel, plain)

    first, second = core.rows("SELECT * FROM v_running ORDER BY id")

    assert core.rows("SELECT * FROM v_overdue") == []
    assert (first["id"], first["task_id"], first["turn"], first["attempts"]) == (
        running.claim.id,
        running.task.id,
        1,
        1,
    )
    assert (second["id"], second["task_id"], second["turn"]) == (plain, None, None)
    assert core.rows("SELECT id FROM executions WHERE trigger_id = :id", id=running.claim.id) == [
        {"id": first["execution_id"]}
    ]
    assert first["running_seconds"] >= 3600
    assert first["cancel_requested_at"] is first["cancel_requested_at_iso"] is None
    assert second["cancel_requested_at"] == clock.now()
    assert has_matching_times(first)
    assert has_matching_times(second)


def test_dead_letter_view_has_the_reason(core):
    emit(core, workflow="fine")
    run_one(core)
    dead = emit(core, workflow="greet", payload={"name": "Ada"}).id
    ack(core, start_one(core), BROKEN, RetryPolicy(max_attempts=1))

    [row] = core.rows("SELECT * FROM v_dead")

    assert (row["id"], row["workflow"], row["error_code"]) == (dead, "greet", BROKEN.code)
    assert (row["error_message"], row["attempts"], row["payload_json"]) == ("it broke", 1, '{"name":"Ada"}')
    assert has_matching_times(row)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


def test_unknown_actions_view_has_undecided_doubts(database, clock):
    bank = Bank(database, clock)
    bank.pay()
    task = bank.pay(LOST)
    core = VirtualCore(database, clock)

    [row] = core.rows("SELECT * FROM v_unknown")
    [asked] = core.rows("SELECT * FROM v_inbox")

    assert (row["key"], row["action"], row["task_id"]) == (f"activity:{task}:1.1", "bank.pay", task)
    assert (row["workflow"], row["task_status"], row["policy"], row["calls"]) == ("pay", "WAITING", "ask", 1)
    assert (row["question_id"], asked["activity_key"], asked["kind"]) == (asked["id"], row["key"], "activity")
    assert has_matching_times(row)

    core.do(core.tasks.answer, asked["id"], "happened", note=None, reference="ref-9", answered_by="ada")
    assert core.rows("SELECT * FROM v_unknown") == core.rows("SELECT * FROM v_inbox") == []
    core.close()


def test_inbox_view_has_open_questions(database, clock):
    task = a_task(database, "ask", clock, question="Send it?\nNow?", timeout=60.0)
    core = VirtualCore(database, clock)

    [row] = core.rows("SELECT * FROM v_inbox")

    assert (row["task_id"], row["workflow"], row["kind"]) == (task, "ask", "ask")
    assert (row["question"], row["options_json"], row["by_message"]) == ("Send it?\nNow?", '["send","hold"]', 0)
    assert row["expires_at"] == clock.now() + 60.0
    assert row["activity_key"] is None
    assert has_matching_times(row)
    core.close()


def test_timeline_view_has_the_events_of_a_task_in_order_over_all_records(database, clock):
    task, other = a_task(database, "count", clock), Bank(database, clock).pay()
    core = VirtualCore(database, clock)

    rows = core.rows("SELECT * FROM v_timeline WHERE task_id = :task", task=task)
    written = core.rows(
        """
        SELECT executions.id AS execution_id, events.seq, events.type
          FROM events JOIN executions ON executions.seq = execution_seq
         WHERE executions.task_id = :task
         ORDER BY execution_seq, events.seq
        """,
        task=task,
    )

    assert [{name: row[name] for name in ("execution_id", "seq", "type")} for row in rows] == written
    assert {row["turn"] for row in rows} == {1, 2, 3}
    assert all(map(has_matching_times, rows))
    acted = core.rows("SELECT * FROM v_timeline WHERE trigger_id = :id AND activity_key IS NOT NULL", id=other)
    assert [row["type"] for row in acted] == ["ACTIVITY_INTENT", "ACTIVITY_DONE"]
    everything = core.rows("SELECT count(*) AS n FROM v_timeline")
    assert everything == core.rows("SELECT count(*) AS n FROM events"), "every record belongs to the timeline"
    core.close()


def test_timeline_of_a_trigger_excludes_similar_ids(core):
    for name in ("a", "a.1", "a.", "b"):
        emit(core, id=name)
        running = start_one(core)
        ack(core, running, BROKEN, RetryPolicy(max_attempts=1))
    with core.transaction() as tx:
        for name in ("a", "a.1", "a.", "b"):
            tx.run(
                """
                INSERT INTO executions (id, trigger_id, attempt, epoch, created_at, envelope_json, envelope_hash)
                VALUES ('exec-' || :name || '.1', :name, 1, 1, :now, '{}', '')
                """,
                name=name,
                now=tx.now,
            )
            tx.run(
                """
                INSERT INTO event_rows (execution_seq, seq, type, at, payload_json)
                SELECT max(seq), 1, 'NOTE', :now, '{}' FROM executions
                """,
                now=tx.now,
            )

    for name in ("a", "a.1", "a.", "b"):
        rows = core.rows("SELECT * FROM v_timeline WHERE trigger_id = :name", name=name)
        assert [row["execution_id"] for row in rows] == [f"exec-{name}.1"]


# Readers


def test_pythons_own_sqlite_reads_the_same(database, clock):
    Bank(database, clock).pay(LOST)
    task = a_task(database, "ask", clock)
    core = VirtualCore(database, clock)
    emit(core)
    for view in VIEWS:
        expected = core.rows(f"SELECT * FROM {view}")
        found = read_with_sqlite3(database, f"SELECT * FROM {view}")
        for row in [*expected, *found]:
            row.pop("overdue_seconds", None)
        assert found == expected, view
        assert expected or view in ("v_running", "v_dead"), "the view has rows to compare"
    assert read_with_sqlite3(database, "SELECT type FROM v_timeline WHERE task_id = ? LIMIT 1", task)
    core.close()


@pytest.mark.parametrize("view", VIEWS)
def test_view_columns_are_all_explained(core, view):
    """`.schema v_dead` shows the comments, since SQLite keeps the text of a view as it was written."""
    [row] = core.rows("SELECT sql FROM sqlite_schema WHERE type = 'view' AND name = :view", view=view)
    columns = [row["name"] for row in core.rows("SELECT name FROM pragma_table_info(:view)", view=view)]
    selected = row["sql"].partition("\n  FROM")[0].splitlines()[1:]

    assert len(selected) == len(columns)
    for line, name in zip(selected, columns, strict=True):
        assert re.search(rf"\b{name},? +-- \S", line), line


def test_views_cannot_be_written(core):
    for view in VIEWS:
        with undone(core) as tx, pytest.raises(apsw.SQLError, match="cannot modify"):
            tx.run(f"DELETE FROM {view}")


# Costs

QUERIES = {
    "SELECT * FROM v_overdue": ["triggers_pending", "triggers_claimed"],
    "SELECT count(*) FROM v_overdue WHERE overdue_seconds > 120": ["triggers_pending", "triggers_claimed"],
    "SELECT * FROM v_running": ["triggers_claimed"],
    "SELECT * FROM v_dead ORDER BY settled_at DESC LIMIT 10": ["triggers_dead"],
    "SELECT * FROM v_unknown": ["activity_log_in_doubt"],
    "SELECT * FROM v_inbox ORDER BY created_at": ["questions_open"],
    "SELECT * FROM v_timeline WHERE task_id = ?": [],
    "SELECT * FROM v_timeline WHERE trigger_id = ?": [],
    "SELECT * FROM v_timeline WHERE execution_id = ?": [],
    "SELECT at_iso, type FROM v_timeline WHERE task_id = ? AND type = 'NOTE'": [],
}
"""Each query with the indexes that it may scan. These contain only live, dead, open or doubtful rows."""


EVENTS_OF_ONE = ("SCAN event VIRTUAL TABLE",)
"""A scan of the events of one record, which are stored in its texts."""


def plan(connection: apsw.Connection, sql: str) -> list[str]:
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", ("x",) * sql.count("?"))]


@pytest.fixture
def empty_database() -> Iterator[apsw.Connection]:
    connection = apsw.Connection(":memory:")
    for migration in list_migrations():
        connection.execute(migration.sql)
    yield connection
    connection.close()


@pytest.mark.parametrize("sql", QUERIES)
def test_views_never_scan_a_table(empty_database, sql):
    lines = plan(empty_database, sql)

    walked = [line for line in lines if line.startswith("SCAN ") and not line.startswith(("SCAN v_", *EVENTS_OF_ONE))]
    assert [line.rpartition(" ")[2] for line in walked] == QUERIES[sql]
    assert all(" USING INDEX " in line for line in walked), lines


def test_plan_check_detects_a_scan_of_views(empty_database):
    assert "SCAN executions" in plan(empty_database, "SELECT * FROM v_timeline WHERE workflow = ?")


def test_timeline_of_a_task_sorts_only_the_events_of_a_record(empty_database):
    for sql in ("SELECT * FROM v_timeline WHERE task_id = ?", "SELECT * FROM v_timeline LIMIT 10"):
        sorts = [line for line in plan(empty_database, sql) if "TEMP B-TREE" in line]
        assert sorts == ["USE TEMP B-TREE FOR LAST TERM OF ORDER BY"]


def test_events_of_a_joined_record_are_found_by_its_key(empty_database):
    """SQLite merges the view into the statement. A union would read the events of all records first."""
    joined = "SELECT type FROM executions JOIN events ON execution_seq = executions.seq WHERE task_id = ?"
    for sql in ("SELECT type FROM events WHERE execution_seq = ?", joined):
        lines = plan(empty_database, sql)
        assert not [line for line in lines if line.startswith("SCAN ") and not line.startswith(EVENTS_OF_ONE)], lines


SETTLED = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 10000)
INSERT INTO triggers (
    id, source, workflow, fire_at, due_at, priority, payload_json, status, reason, created_at, updated_at, settled_at
)
SELECT 'over-' || n, 'IMMEDIATE', 'greet', 1, 1, 10, '{}', 'DONE', 'succeeded', 1, 1, 1 FROM numbers
"""
RECORDED = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 10000)
INSERT INTO executions (id, trigger_id, task_id, attempt, epoch, created_at, envelope_json, envelope_hash)
SELECT 'exec-over-' || n || '.1', 'over-' || n, 'over-' || n, 1, 1, 1, '{}', '' FROM numbers
"""


def test_ten_thousand_ended_triggers_add_no_steps(core):
    running = begin(core)
    an_activity(core, running, DONE, "1.1")
    an_activity(core, running, UNKNOWN, "1.2")
    emit(core)

    def steps() -> dict[str, int]:
        with undone(core) as tx:
            return {
                sql: steps_of(tx, partial(tx.fetch_tuples, sql, (running.claim.id,) * sql.count("?")))
                for sql in QUERIES
            }

    before = steps()
    with core.transaction() as tx:
        tx.run(SETTLED)
        tx.run(RECORDED)
    after = steps()

    assert all(after[sql] <= before[sql] + 20 for sql in QUERIES), (before, after)
