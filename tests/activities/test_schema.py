"""Schema constraints on the tables of the ledger."""

from __future__ import annotations

import pytest

from craftcore.activities.listing_store import NEWEST_OPEN
from craftcore.activities.model import Decision
from craftcore.activities.store import INTENTS, UNDECIDED
from craftcore.errors import RowInvalid
from craftcore.storage.database import Database
from craftcore.storage.migrate import migrate
from craftcore.storage.migrations import list_migrations
from tests.support.activity_steps import DONE, NOTHING, REFUSED, UNKNOWN, an_activity, decide
from tests.support.fakes import VirtualCore
from tests.support.task_steps import begin, rows

INTENT_ROW, DONE_ROW, FAILED_ROW, REFUSED_ROW, UNKNOWN_ROW, GIVEN_UP_ROW = range(1, 7)


@pytest.fixture
def six_activities(core: VirtualCore) -> VirtualCore:
    """Build an activity in each state, and questions about the last two."""
    running = begin(core)
    for n, end in enumerate([None, DONE, NOTHING, REFUSED, UNKNOWN, UNKNOWN], 1):
        found = an_activity(core, running, end, f"1.{n}")
    decide(core, found, Decision.GIVE_UP)
    with core.transaction() as tx:
        for n in (UNKNOWN_ROW, GIVEN_UP_ROW):
            tx.run(
                """
                INSERT INTO questions (id, task_seq, activity_seq, kind, question, created_at)
                VALUES (:id, 1, :n, 'activity', 'Did it?', 1)
                """,
                id=f"q{n}",
                n=n,
            )
    return core


PARAMETERS = {"status": "INTENT", "action": None, "task_id": None}

REFUSED_CHANGES = [
    (INTENT_ROW, "status = 'MAYBE'"),
    (INTENT_ROW, "status = NULL"),
    (INTENT_ROW, "policy = 'hope'"),
    (INTENT_ROW, "settled_at = 1"),
    (INTENT_ROW, "decision = 'resend'"),
    (INTENT_ROW, "status = 'DONE'"),
    (INTENT_ROW, "status = 'UNKNOWN'"),
    (INTENT_ROW, "in_doubt = 1, status = 'FAILED'"),
    (INTENT_ROW, "calls = 0"),
    (INTENT_ROW, "may_retry = 2"),
    (INTENT_ROW, "in_doubt = -1"),
    (INTENT_ROW, "idem_key = (SELECT idem_key FROM activity_log WHERE seq = 2)"),
    (INTENT_ROW, "idem_key = NULL"),
    (INTENT_ROW, "task_seq = 99"),
    (INTENT_ROW, "args_hash = NULL"),
    (INTENT_ROW, "first_call_at = 'noon'"),
    (DONE_ROW, "settled_at = NULL"),
    (DONE_ROW, "decision = 'perhaps'"),
    (FAILED_ROW, "in_doubt = 1"),
    (REFUSED_ROW, "in_doubt = 1"),
    (UNKNOWN_ROW, "in_doubt = 0"),
    (UNKNOWN_ROW, "decision = 'sure'"),
    (GIVEN_UP_ROW, "status = 'DONE', settled_at = NULL"),
]


NEEDED = {
    "activity_log": [
        *("idem_key", "task_id", "task_seq", "turn", "action", "status", "reason", "policy", "args_hash", "may_retry"),
        *("calls", "in_doubt", "execution_seq", "epoch", "first_call_at", "last_call_at", "created_at", "updated_at"),
    ],
    "activity_decisions": ["activity_seq", "decision", "decided_by", "decided_at"],
}


@pytest.mark.parametrize(("table", "column"), [(table, name) for table, names in NEEDED.items() for name in names])
def test_required_columns_cannot_be_omitted(six_activities, table, column):
    with pytest.raises(RowInvalid, match=f"NOT NULL.*{column}"), six_activities.transaction() as tx:
        tx.run(f"UPDATE {table} SET {column} = NULL WHERE seq = 1")


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        ("activity_log", "calls = 'two'", "cannot store TEXT value in INTEGER"),
        ("activity_log", "turn = 1.5", "cannot store REAL value in INTEGER"),
        ("activity_log", "request_json = x'00'", "cannot store BLOB value in TEXT"),
        ("activity_decisions", "decided_at = 'noon'", "cannot store TEXT value in REAL"),
        ("activity_decisions", "note = x'00'", "cannot store BLOB value in TEXT"),
        ("activity_decisions", "decision = 'perhaps'", "CHECK"),
        ("activity_decisions", "activity_seq = 99", "FOREIGN KEY"),
    ],
)
def test_invalid_column_value_is_refused_by_the_schema(six_activities, table, change, message):
    with pytest.raises(RowInvalid, match=message), six_activities.transaction() as tx:
        tx.run(f"UPDATE {table} SET {change} WHERE seq = 1")


def test_task_with_activities_cannot_be_deleted_first(six_activities):
    with six_activities.transaction() as tx:
        tx.run("DELETE FROM questions")
    with pytest.raises(RowInvalid, match="FOREIGN KEY"), six_activities.transaction() as tx:
        tx.run("DELETE FROM tasks")


def test_consistent_activity_row_passes_the_schema(six_activities):
    """The rows before each change are valid, so the change causes the refusal."""
    with six_activities.transaction() as tx:
        for table, columns in NEEDED.items():
            for column in columns:
                assert tx.run(f"UPDATE {table} SET {column} = {column} WHERE seq = 1") == 1


@pytest.mark.parametrize(("row", "change"), REFUSED_CHANGES)
def test_contradictory_activity_row_is_refused_by_the_schema(six_activities, row, change):
    before = rows(six_activities, "activity_log")
    with pytest.raises(RowInvalid), six_activities.transaction() as tx:
        tx.run(f"UPDATE activity_log SET {change} WHERE seq = {row}")
    assert rows(six_activities, "activity_log") == before


@pytest.mark.parametrize(
    "change",
    [
        "kind = 'ask'",
        "kind = 'conflict'",
        "activity_seq = NULL",
        "activity_seq = 99",
        f"activity_seq = {GIVEN_UP_ROW}",
    ],
)
def test_question_has_at_most_a_single_activity_and_a_single_open_question(six_activities, change):
    with pytest.raises(RowInvalid), six_activities.transaction() as tx:
        tx.run(f"UPDATE questions SET {change} WHERE activity_seq = {UNKNOWN_ROW}")


def test_activity_can_be_asked_about_again_after_the_question_is_closed(six_activities):
    with six_activities.transaction() as tx:
        tx.run("UPDATE questions SET status = 'WITHDRAWN', closed_at = 2 WHERE id = 'q5'")
        tx.run(f"UPDATE questions SET activity_seq = {UNKNOWN_ROW} WHERE id = 'q6'")


def test_activity_with_a_decision_or_question_cannot_be_deleted(six_activities):
    for seq in (UNKNOWN_ROW, GIVEN_UP_ROW):
        with pytest.raises(RowInvalid), six_activities.transaction() as tx:
            tx.run("DELETE FROM activity_log WHERE seq = :seq", seq=seq)


def test_migration_keeps_questions_and_their_guards(tmp_path, clock):
    """The migration creates a new table, because a CHECK cannot be changed in place."""
    database = Database(tmp_path / "agent.db", clock)
    migrate(database, clock, [one for one in list_migrations() if one.name < "0004"])
    with database.transaction() as tx:
        tx.run(
            "INSERT INTO tasks (seq, id, workflow, status, trigger_id, created_at, updated_at) "
            "VALUES (3, 't', 'w', 'RUNNING', 't', 1, 1)"
        )
        tx.run(
            "INSERT INTO waits (seq, id, task_seq, turn, name, kind, created_at) "
            "VALUES (4, 'w', 3, 1, 'ask#1', 'question', 1)"
        )
        for sql in (
            "(7, 'open', 3, 4, 'ask', 'Send?', '[\"yes\"]', '\"yes\"', 1, 'OPEN', NULL, NULL, NULL, 1, 9, NULL)",
            "(8, 'done', 3, NULL, 'budget', 'On?', NULL, 'null', 0, 'ANSWERED', 'yes', 'a note', 'ada', 1, NULL, 2)",
            "(9, 'over', 3, NULL, 'stale', 'On?', NULL, 'null', 0, 'EXPIRED', NULL, NULL, NULL, 1, 2, 2)",
            "(10, 'gone', 3, NULL, 'stalled', 'On?', NULL, 'null', 0, 'WITHDRAWN', NULL, NULL, NULL, 1, NULL, 2)",
        ):
            tx.run(
                "INSERT INTO questions (seq, id, task_seq, wait_seq, kind, question, options_json, default_json, "
                f"by_message, status, answer, note, answered_by, created_at, expires_at, closed_at) VALUES {sql}"
            )
        before = tx.fetch_all("SELECT * FROM questions ORDER BY seq")
    names = "SELECT name FROM sqlite_schema WHERE tbl_name = 'questions' AND type = 'index' ORDER BY name"
    with database.reading() as reader:
        indexes = [row["name"] for row in reader.fetch_all(names)]

    migrate(database, clock, [one for one in list_migrations() if one.name < "0005"])

    with database.reading() as reader:
        after = reader.fetch_all("SELECT * FROM questions ORDER BY seq")
        assert [{**row, "activity_seq": None} for row in before] == after
        assert [row["name"] for row in reader.fetch_all(names)] == sorted([*indexes, "questions_activity"])
        assert reader.fetch_all("PRAGMA foreign_key_check") == []
        assert reader.fetch_value("PRAGMA integrity_check") == "ok"
        plan = reader.fetch_all("EXPLAIN QUERY PLAN SELECT 1 FROM questions WHERE task_seq = 3 AND status = 'OPEN'")
        assert "questions_open" in plan[0]["detail"]
    database.close()


def test_task_end_and_boot_queries_read_no_settled_activity(six_activities):
    with six_activities.reading() as reader:
        for sql in (INTENTS, UNDECIDED.replace(":seqs", "'[1]'"), NEWEST_OPEN.replace(":limit", "1")):
            [detail] = [
                row["detail"]
                for row in reader.fetch_all(f"EXPLAIN QUERY PLAN {sql}", **PARAMETERS if ":status" in sql else {})
                if row["detail"].startswith(("SEARCH activity_log", "SCAN activity_log"))
            ]
            assert detail.startswith("SEARCH activity_log USING INDEX activity_log_"), detail
