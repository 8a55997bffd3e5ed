"""The migration that adds the tables of irreversible actions to an earlier database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from craftcore.errors import RowInvalid
from craftcore.storage.database import Database
from craftcore.storage.migrate import migrate
from craftcore.storage.migrations import list_migrations
from craftcore.storage.transaction import Reader
from craftcore.tasks.activity_events import question_about
from tests.support.activity_steps import UNKNOWN, an_activity
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore
from tests.support.task_steps import begin, rows

BEFORE, WITH_ACTIVITIES = list_migrations()[:3], list_migrations()[:4]

OLD_KINDS = ["ask", "stale", "budget", "stalled"]
OLD_ENDS: dict[str, dict[str, Any]] = {
    "OPEN": {},
    "ANSWERED": {"answer": "send", "note": "not before Monday", "answered_by": "ada", "closed_at": NEW_YEAR + 9},
    "EXPIRED": {"closed_at": NEW_YEAR + 9, "expires_at": NEW_YEAR + 8},
    "WITHDRAWN": {"closed_at": NEW_YEAR + 9},
}


@pytest.fixture
def old(tmp_path: Path, clock: VirtualClock) -> Iterator[Database]:
    """Build a database of the earlier schema: two tasks and a question of each kind in each state, with gaps."""
    database = Database(tmp_path / "agent.db", clock)
    migrate(database, clock, BEFORE)
    with database.transaction() as tx:
        for seq in (3, 8):
            tx.run(
                """
                INSERT INTO tasks (seq, id, workflow, status, trigger_id, created_at, updated_at)
                VALUES (:seq, 'task-' || :seq, 'greet', 'RUNNING', 'trigger-' || :seq, :now, :now)
                """,
                seq=seq,
                now=tx.now,
            )
        tx.run(
            """
            INSERT INTO waits (seq, id, task_seq, turn, name, kind, created_at)
            VALUES (5, 'wait', 3, 1, 'ask#1', 'question', :now)
            """,
            now=tx.now,
        )
        each = [(kind, status) for kind in OLD_KINDS for status in OLD_ENDS]
        for number, (kind, status) in enumerate(each, 1):
            row = {
                "seq": number * 7,
                "id": f"question-{number}",
                "task_seq": 3 if number % 2 else 8,
                "wait_seq": 5 if number % 2 else None,
                "kind": kind,
                "question": f'Send it, "now"? {number} \N{SNOWMAN}',
                "options_json": '["send","hold"]' if number % 3 else None,
                "default_json": '"hold"',
                "by_message": number % 2,
                "status": status,
                "created_at": NEW_YEAR + number,
                **OLD_ENDS[status],
            }
            names = ", ".join(row)
            tx.run(f"INSERT INTO questions ({names}) VALUES ({', '.join(f':{name}' for name in row)})", **row)
    yield database
    database.close()


def look(database: Database, sql: str) -> list[dict[str, Any]]:
    with database.reading() as reader:
        return reader.fetch_all(sql)


def test_migration_keeps_every_earlier_question(old, clock):
    before = {table: look(old, f"SELECT * FROM {table} ORDER BY seq") for table in ("questions", "tasks", "waits")}
    assert len(before["questions"]) == 16

    assert migrate(old, clock, WITH_ACTIVITIES) == ["0004_activities"]

    after = look(old, "SELECT * FROM questions ORDER BY seq")
    assert after == [{**row, "activity_seq": None} for row in before["questions"]]
    for table in ("tasks", "waits"):
        assert look(old, f"SELECT * FROM {table} ORDER BY seq") == before[table]
    assert look(old, "PRAGMA foreign_key_check") == []
    assert look(old, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]


def test_migration_copy_keeps_the_earlier_file(old, clock):
    before = look(old, "SELECT * FROM questions ORDER BY seq")

    migrate(old, clock)

    copy = Database(old.path.with_name("agent.db.before-0004_activities"), clock)
    assert look(copy, "SELECT * FROM questions ORDER BY seq") == before
    assert look(copy, "SELECT name FROM sqlite_schema WHERE name = 'activity_log'") == []
    copy.close()


def schema_of(reader: Reader) -> dict[str, Any]:
    """Return the SQL of each table and index by name, and the foreign keys of each table."""
    found: dict[str, Any] = dict(tuple(row) for row in reader.fetch_tuples("SELECT name, sql FROM sqlite_schema"))
    references = reader.fetch_tuples(
        """
        SELECT tables.name, keys."from", keys."table", keys."to"
          FROM sqlite_schema AS tables, pragma_foreign_key_list(tables.name) AS keys
         WHERE tables.type = 'table'
        """
    )
    return {**found, "references": {tuple(row) for row in references}}


def test_migrated_schema_equals_a_new_schema(old, clock, tmp_path):
    new = Database(tmp_path / "new.db", clock)
    migrate(new, clock)
    with new.reading() as reader:
        expected = schema_of(reader)

    migrate(old, clock)

    with old.reading() as reader:
        assert schema_of(reader) == expected
    new.close()


def test_migration_restores_both_question_indexes_and_references(old, clock):
    with old.reading() as reader:
        before = schema_of(reader)

    migrate(old, clock, WITH_ACTIVITIES)

    with old.reading() as reader:
        after = schema_of(reader)
    for index in ("questions_id", "questions_open"):
        assert after[index] == before[index]
    assert before["references"] < after["references"]
    assert after["references"] - before["references"] == {
        ("questions", "activity_seq", "activity_log", "seq"),
        ("activity_log", "task_seq", "tasks", "seq"),
        ("activity_decisions", "activity_seq", "activity_log", "seq"),
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("kind = 'riddle'", "CHECK"),
        ("kind = 'activity'", "CHECK"),
        ("status = 'EXPIRED'", "CHECK"),
        ("answer = 'send'", "CHECK"),
        ("by_message = 2", "CHECK"),
        ("task_seq = 99", "FOREIGN KEY"),
        ("wait_seq = 99", "FOREIGN KEY"),
        ("id = 'question-2'", "UNIQUE"),
        ("created_at = 'now'", "cannot store TEXT value"),
        ("default_json = NULL", "NOT NULL"),
    ],
)
def test_migrated_question_guards_refuse_as_before(old, clock, change, message):
    migrate(old, clock)
    before = look(old, "SELECT * FROM questions ORDER BY seq")

    with pytest.raises(RowInvalid, match=message), old.transaction() as tx:
        tx.run(f"UPDATE questions SET {change} WHERE seq = 7")
    assert look(old, "SELECT * FROM questions ORDER BY seq") == before


def test_next_question_has_the_next_number_and_may_refer_to_an_activity(old, clock):
    migrate(old, clock)
    core = VirtualCore(old.path, clock)
    running = begin(core)
    doubt = an_activity(core, running, UNKNOWN)

    core.do(core.acts._questions.ask, "new", running.task.seq, None, question_about(doubt, None), None)

    [question] = core.rows("SELECT * FROM questions WHERE activity_seq IS NOT NULL")
    assert (question["seq"], question["kind"], question["activity_seq"]) == (16 * 7 + 1, "activity", doubt.seq)
    core.close()


def test_open_question_can_be_answered_after_the_migration(old, clock):
    migrate(old, clock)
    core = VirtualCore(old.path, clock)

    answered = core.do(core.tasks.answer, "question-1", "send", answered_by="ada")

    assert (answered.kind, answered.status, answered.activity_key) == ("ask", "ANSWERED", None)
    assert [(wait["resolved_by"], wait["value_json"]) for wait in rows(core, "waits")] == [("answer", '"send"')]
    core.close()
