"""The invariants: each finds its planted violation, and a busy database has no violation."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import apsw
import pytest

from craftcore.diagnostics.finding import Level
from craftcore.diagnostics.invariants import FILE, invariant_findings, list_invariants, violations
from craftcore.storage.transaction import Reader
from tests.support.damage import drop_guards
from tests.support.event_rows import prepare
from tests.support.populated_database import a_world

RUNNING = "status = 'CLAIMED', claimed_epoch = 7, lease_token = 'token', started_at = 1"
MAIL = "INSERT INTO mailbox (task_seq, event, payload_json, trigger_id, status, wait_seq, created_at)"
CLAIMED = "UPDATE triggers SET status = 'CLAIMED', lease_token = 'token', claimed_epoch = "
RESOLVED = "UPDATE waits SET status = 'RESOLVED', resolved_by = 'signal', resolved_at = 1 WHERE seq = "
ENDED = "UPDATE tasks SET status = 'DONE', ended_at = 1 WHERE seq = "
ANSWERED = "UPDATE questions SET status = 'ANSWERED', answer = 'yes', answered_by = 'ada', closed_at = 1 WHERE seq = "

VIOLATIONS = [
    ("settled-trigger-has-record", "DELETE FROM executions WHERE seq = 1"),
    ("settled-trigger-has-record", "UPDATE triggers SET starts = 2 WHERE seq = 1"),
    ("running-trigger-has-open-record", f"UPDATE triggers SET {RUNNING} WHERE seq = 1"),
    ("record-is-of-a-start", "UPDATE triggers SET starts = 0, attempts = 0 WHERE seq = 1"),
    ("record-is-of-a-start", "UPDATE executions SET id = 'exec-' || trigger_id || '.0' WHERE seq = 1"),
    (
        "trigger-succeeds-once",
        "UPDATE triggers SET starts = 2 WHERE seq = 1; "
        "UPDATE executions SET id = (SELECT 'exec-' || id || '.2' FROM triggers WHERE seq = 1) WHERE seq = 6",
    ),
    ("attempts-are-starts", "UPDATE triggers SET attempts = 9 WHERE seq = 1"),
    ("attempts-are-starts", "UPDATE triggers SET crash_count = 9 WHERE seq = 1"),
    ("attempts-have-a-limit", "UPDATE triggers SET max_attempts = 1, attempts = 3, crash_count = 1 WHERE seq = 1"),
    ("superseded-trigger-is-done", "UPDATE triggers SET superseded_by = 'another' WHERE seq = 1"),
    ("stripped-trigger-is-settled", "UPDATE triggers SET stripped_at = 1 WHERE seq = 10"),
    ("lane-runs-one", f"UPDATE triggers SET {RUNNING}, lane = 'lobby' WHERE seq IN (10, 11)"),
    ("claim-is-of-the-last-epoch", f"{CLAIMED} 7 WHERE seq = 10"),
    ("claim-is-of-the-last-epoch", f"UPDATE epochs SET ended_at = NULL; {CLAIMED} 6 WHERE seq = 10"),
    ("limit-wait-is-put-off", "INSERT INTO limit_waits VALUES (10, 'nap', 'who', '1', 1, 1, NULL)"),
    ("limit-wait-is-put-off", "INSERT INTO limit_waits VALUES (99, 'nap', 'who', '1', 1, 1, NULL)"),
    ("put-off-trigger-waits", "UPDATE triggers SET not_before = 253402214400.0 WHERE seq = 10"),
    ("active-key-has-one-task", "UPDATE tasks SET dedup_key = 'key' WHERE seq IN (4, 5)"),
    (
        "active-key-has-one-work",
        "UPDATE tasks SET dedup_key = 'key' WHERE seq = 5; "
        "UPDATE triggers SET dedup_key = 'key', dedup_scope = 'active' WHERE seq = 10",
    ),
    ("running-task-has-trigger", "UPDATE tasks SET status = 'RUNNING' WHERE seq = 5"),
    (
        "running-task-has-trigger",
        "UPDATE tasks SET status = 'RUNNING', trigger_id = (SELECT id FROM triggers WHERE seq = 10) WHERE seq = 5",
    ),
    ("ended-task-has-no-trigger", f"{ENDED} 4"),
    ("turn-trigger-is-the-last", "UPDATE tasks SET trigger_id = NULL WHERE seq = 4"),
    ("turn-trigger-is-the-last", f"{ENDED} 4"),
    (
        "task-runs-once",
        "UPDATE executions SET status = 'incomplete', ended_at = NULL, chain_seq = NULL WHERE seq IN (6, 7)",
    ),
    ("turn-settles-once", "UPDATE event_rows SET type = 'TURN_CONTINUED' WHERE execution_seq = 6 AND seq = 2"),
    ("settled-turns-are-over", "UPDATE tasks SET turn = 1 WHERE seq = 6"),
    (
        "child-ends-with-parent",
        "UPDATE tasks SET ends_with_parent = 1, parent_id = (SELECT id FROM tasks WHERE seq = 1) WHERE seq = 4",
    ),
    ("waiting-task-waits", f"{RESOLVED} 3"),
    ("open-wait-has-waiting-task", "UPDATE tasks SET turn = 2 WHERE seq = 5"),
    ("timed-wait-has-trigger", "DELETE FROM triggers WHERE seq = 5"),
    ("timed-wait-has-trigger", "UPDATE triggers SET fire_at = fire_at + 1 WHERE seq = 5"),
    (
        "child-wait-has-live-child",
        "UPDATE waits SET kind = 'child', event = (SELECT id FROM tasks WHERE seq = 1) WHERE seq = 3",
    ),
    ("open-question-has-open-wait", f"{RESOLVED} 4"),
    ("question-wait-has-question", "DELETE FROM questions WHERE seq = 2"),
    ("answer-ends-its-wait", f"{ANSWERED} 2"),
    ("answer-ends-its-wait", f"{RESOLVED} 4; {ANSWERED} 2"),
    ("ended-task-asks-nothing", f"{ENDED} 7"),
    ("read-mail-ended-its-wait", f"{MAIL} VALUES (5, 'event', '{{}}', NULL, 'READ', 3, 1)"),
    ("mail-of-ended-task-is-handled", f"{MAIL} VALUES (1, 'event', '{{}}', NULL, 'UNREAD', NULL, 1)"),
    ("awaited-mail-is-read", f"{MAIL} SELECT 5, event, '{{}}', NULL, 'UNREAD', NULL, 1 FROM waits WHERE seq = 3"),
    (
        "delivered-message-is-settled",
        f"{MAIL} SELECT 5, 'message', '{{}}', id, 'UNREAD', NULL, 1 FROM triggers WHERE seq = 10",
    ),
    (
        "early-signal-is-delivered",
        "INSERT INTO early_mail (trigger_id, event, payload_json, created_at) "
        "SELECT id, 'event', '{}', 1 FROM tasks WHERE seq = 5",
    ),
    ("intent-is-of-a-running-attempt", "UPDATE activity_log SET status = 'INTENT' WHERE seq = 3"),
    ("intent-is-of-a-live-task", "UPDATE activity_log SET status = 'INTENT' WHERE seq = 1"),
    ("doubt-is-asked-about", f"{ENDED} 3; DELETE FROM questions WHERE seq = 1"),
    ("asked-action-is-in-doubt", "UPDATE activity_log SET status = 'DONE' WHERE seq = 3"),
    ("asked-action-is-in-doubt", "UPDATE activity_log SET decision = 'give up' WHERE seq = 3"),
    ("intent-comes-before-the-call", "DELETE FROM event_rows WHERE execution_seq = 1 AND seq = 3"),
    ("intent-comes-before-the-call", "UPDATE event_rows SET seq = 13 WHERE execution_seq = 1 AND seq = 3"),
    ("done-action-has-one-outcome", "DELETE FROM event_rows WHERE execution_seq = 1 AND seq = 4"),
    (
        "done-action-has-one-outcome",
        "UPDATE event_rows SET type = 'ACTIVITY_DONE', activity_seq = 1 WHERE execution_seq = 1 AND seq = 5",
    ),
    ("done-action-has-one-outcome", "UPDATE activity_log SET decision = 'happened' WHERE seq = 1"),
    ("decision-is-on-record", "UPDATE activity_log SET decision = 'resend' WHERE seq = 3"),
    ("action-key-is-of-its-task", "UPDATE activity_log SET idem_key = 'activity:another:1.1' WHERE seq = 1"),
    ("action-key-is-of-its-task", "UPDATE activity_log SET task_seq = 2 WHERE seq = 1"),
    ("next-occurrence-is-ahead", "UPDATE schedules SET next_at = high_water_at WHERE id = 'nightly'"),
    ("next-occurrence-is-ahead", "UPDATE schedule_occurrences SET last_at = 1795273200 WHERE seq = 2"),
    ("active-schedule-has-next", "UPDATE schedules SET next_at = NULL WHERE id = 'nightly'"),
    ("occurrence-is-accounted-once", "UPDATE schedule_occurrences SET last_at = 1795269600 WHERE seq = 1"),
    (
        "occurrence-has-its-own-trigger",
        "UPDATE schedule_occurrences SET trigger_id = (SELECT id FROM triggers WHERE seq = 11) WHERE seq = 1",
    ),
    ("fired-occurrence-fits-its-trigger", "UPDATE schedule_occurrences SET nominal_at = 1 WHERE seq = 2"),
    ("fired-occurrence-fits-its-trigger", "UPDATE triggers SET schedule_id = 'nightly' WHERE seq = 11"),
    ("scheduled-trigger-is-accounted", "DELETE FROM schedule_occurrences WHERE seq = 2"),
    (
        "stopped-schedule-has-nothing-buffered",
        "UPDATE schedules SET status = 'PAUSED', next_at = NULL WHERE id = 'ahead'; "
        "UPDATE schedule_occurrences SET outcome = 'buffered' WHERE seq = 2",
    ),
    ("record-is-there-or-removed", "DELETE FROM executions WHERE seq = 4"),
    ("chain-is-complete", "DELETE FROM executions WHERE seq = 4"),
    ("chain-is-complete", "UPDATE executions SET chain_seq = 9 WHERE seq = 8"),
    ("closed-record-is-chained", "UPDATE executions SET chain_seq = NULL WHERE seq = 4"),
    ("closed-record-is-chained", "UPDATE executions SET ended_at = NULL WHERE seq = 4"),
    (
        "open-record-is-of-a-running-trigger",
        "UPDATE epochs SET ended_at = NULL WHERE epoch = 7; "
        "UPDATE executions SET status = 'incomplete', ended_at = NULL, chain_seq = NULL WHERE seq = 8",
    ),
    ("events-are-numbered", "DELETE FROM event_rows WHERE execution_seq = 1 AND seq = 5"),
    ("record-has-events", "DELETE FROM event_rows WHERE execution_seq = 1"),
    ("body-is-kept", "UPDATE executions SET envelope_json = '' WHERE seq = 1"),
    ("body-is-kept", "UPDATE executions SET response_json = '' WHERE seq = 1"),
    ("retained-record-is-there", "INSERT INTO retained_records VALUES (99, 99, 'hash')"),
    (
        "retained-record-is-there",
        "UPDATE record_chain SET anchor_seq = 4; INSERT INTO retained_records VALUES (4, 4, 'another hash')",
    ),
    ("record-is-of-a-begun-epoch", "UPDATE executions SET epoch = 8 WHERE seq = 8"),
    ("action-is-of-a-begun-epoch", "UPDATE activity_log SET epoch = 8 WHERE seq = 3"),
    ("messages-are-in-order", "UPDATE session_messages SET number = 9 WHERE number = 1"),
    ("message-is-of-a-begun-turn", "UPDATE session_messages SET turn = 9 WHERE number = 1"),
    ("message-is-json", "UPDATE session_messages SET message_json = 'no json' WHERE number = 1"),
    ("seen-notices-were-written", "INSERT INTO facts VALUES ('notices_seen', '1')"),
]
"""Pairs of an invariant's name and the statements that break the invariant in the world."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("world") / "agent.db"
    a_world(path)
    return path


@pytest.fixture
def plant_in_copy(world, tmp_path):
    """Return a function that runs statements in a copy of the world, and returns a reader of the copy."""
    path = tmp_path / "agent.db"
    shutil.copy(world, path)
    connection = apsw.Connection(str(path))

    def plant(statements: str) -> Reader:
        drop_guards(connection)
        connection.pragma("foreign_keys", False)
        connection.pragma("ignore_check_constraints", True)
        prepare(connection, statements)
        for statement in statements.split("; "):
            before = connection.total_changes()
            connection.execute(statement)
            assert connection.total_changes() > before, statement
        return Reader(connection)

    yield plant
    connection.close()


@pytest.mark.parametrize(("name", "statements"), VIOLATIONS)
def test_invariant_finds_a_planted_violation(plant_in_copy, name, statements):
    found = {finding.code: finding for finding in violations(plant_in_copy(statements))}

    assert name in found, sorted(found)
    promise = next(one.promise for one in list_invariants() if one.name == name)
    assert found[name].level is Level.FAIL
    assert re.fullmatch(rf"\S.*: \S.*\. {re.escape(promise)}", found[name].text), found[name].text


def test_planted_violations_cover_all_invariants():
    assert {name for name, _ in VIOLATIONS} == {one.name for one in list_invariants()}


def test_busy_database_keeps_every_promise(world):
    connection = apsw.Connection(str(world), flags=apsw.SQLITE_OPEN_READONLY)

    found = list(invariant_findings(Reader(connection)))

    connection.close()
    assert [(finding.level, finding.text) for finding in found] == [(Level.OK, f"all {len(list_invariants())} hold")]


def test_query_of_a_violation_returns_the_row(plant_in_copy):
    reader = plant_in_copy("UPDATE triggers SET attempts = 9 WHERE seq = 1")

    [finding] = violations(reader)

    assert finding.query is not None
    [row] = reader.fetch_all(finding.query)
    assert finding.text.startswith(f"{row['id']}: {row['text']}. ")


def test_listed_violations_have_a_limit_and_the_others_are_counted(plant_in_copy):
    reader = plant_in_copy("UPDATE triggers SET attempts = 9")

    found = violations(reader, listed=4)

    assert [finding.code for finding in found] == ["attempts-are-starts"] * 5
    assert found[-1].text == "and 7 others like that"


def test_damaged_row_is_a_finding_and_stops_no_other_invariant(plant_in_copy):
    reader = plant_in_copy(
        "UPDATE triggers SET attempts = 9, id = CAST(x'ff' AS TEXT) WHERE seq = 1; "
        "UPDATE schedules SET next_at = NULL WHERE id = 'nightly'"
    )

    found = {finding.code: finding.text for finding in violations(reader)}

    assert "a damaged row cannot be read" in found["attempts-are-starts"]
    assert "active-schedule-has-next" in found


def test_file_has_a_name_and_a_promise_for_all_queries():
    queries = re.sub(r"^--.*$", "", FILE.read_text(), flags=re.MULTILINE).split(";")

    named = [" ".join(one.query.split()) for one in list_invariants()]

    assert named == [" ".join(query.split()) for query in queries if query.strip()]
    assert len({one.name for one in list_invariants()}) == len(named) >= 25
