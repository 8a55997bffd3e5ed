"""The checker of tasks: it accepts a sound database and finds each planted fault and broken engine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from craftcore.failpoints import Failpoint
from craftcore.storage.transaction import Transaction
from craftcore.tasks.mailbox_store import MailStore
from craftcore.tasks.message_store import MessageStore
from craftcore.tasks.model import ResolvedBy
from craftcore.tasks.wait_store import WaitStore
from tests.crash.crews import run_program
from tests.crash.spoiling import Spoil, copy_files, sql
from tests.crash.task_app import EVENT_LOG, read_events
from tests.crash.task_checker import Verdict, check
from tests.crash.task_child import TaskLife, live
from tests.crash.task_outside import SCENARIOS, Scenario, a_chat, a_task
from tests.support.cells import cells

EVERYTHING = Scenario("everything", tuple(spec for scenario in SCENARIOS for spec in scenario.specs))


def run_scenario(folder: Path, number: int, scenario: Scenario) -> None:
    live(TaskLife(folder=folder, number=number, scenario=scenario))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of two lives, in which nothing is wrong."""
    folder = tmp_path_factory.mktemp("sound")
    run_scenario(folder, 1, Scenario("some", EVERYTHING.specs[:4]))
    run_scenario(folder, 2, EVERYTHING)
    return folder


def change_log(change: Callable[[list[list[Any]]], list[list[Any]]]) -> Spoil:
    """Return a function that changes the lines of the event log."""

    def spoil(folder: Path) -> None:
        before = list(read_events(folder / EVENT_LOG))
        after = change(list(before))
        assert after != before
        (folder / EVENT_LOG).write_text("".join(json.dumps(line) + "\n" for line in after))

    return spoil


def matches(kind: str, identity: str | None = None) -> Callable[[list[Any]], bool]:
    """Return a predicate for the lines of this kind, and of this step or wait."""
    return lambda line: line[0] == kind and (identity is None or line[5] == identity)


def without(kind: str, identity: str | None = None) -> Spoil:
    return change_log(lambda lines: [line for line in lines if not matches(kind, identity)(line)])


def once_more(kind: str, identity: str | None = None, **other: Any) -> Spoil:
    """Return a function that appends a copy of the last such line. `at_5=7` sets the value at index 5 to 7."""

    def change(lines: list[list[Any]]) -> list[list[Any]]:
        again = [line for line in lines if matches(kind, identity)(line)][-1].copy()
        for index, value in other.items():
            again[int(index.removeprefix("at_"))] = value
        return [*lines, again]

    return change_log(change)


PLAIN_STEP = (
    "type = 'STEP_COMPLETED' AND memo = 'step:plain' AND task_seq = (SELECT seq FROM tasks WHERE workflow = 'work')"
)
ASK_WAIT = "name = 'ask:send'"
NEW_IDENTITY = "UPDATE copied SET seq = 1000000, id = 'copy'"


def insert_copy(table: str, which: str, *changed: str) -> Spoil:
    """Return a function that inserts a changed copy of one row."""
    copy = f"CREATE TEMP TABLE copied AS SELECT * FROM {table} WHERE {which} LIMIT 1"
    return sql(copy, *changed, f"INSERT INTO {table} SELECT * FROM copied")


def test_checker_accepts_a_sound_history(sound, tmp_path):
    verdict = check(copy_files(sound, tmp_path))

    assert verdict.wrong == []
    assert (verdict.tasks, verdict.steps, verdict.waits, verdict.answers, verdict.messages) == (14, 29, 30, 5, 3)
    assert (verdict.cut_off, verdict.run_again, verdict.poisoned) == (0, 0, 0)


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        # at any moment
        (
            sql("UPDATE tasks SET status = 'RUNNING', ended_at = NULL WHERE workflow = 'work'"),
            "running-task-has-trigger",
        ),
        (
            sql(
                "UPDATE waits SET status = 'WAITING', resolved_by = NULL, resolved_at = NULL, value_json = NULL "
                f"WHERE {ASK_WAIT}"
            ),
            "open-wait-has-waiting-task",
        ),
        (sql("UPDATE tasks SET status = 'WAITING', ended_at = NULL WHERE workflow = 'work'"), "waiting-task-waits"),
        (
            sql(
                "UPDATE triggers SET status = 'PENDING', settled_at = NULL, started_at = NULL "
                "WHERE id = (SELECT trigger_id FROM tasks WHERE workflow = 'loop')"
            ),
            "ended-task-has-no-trigger",
        ),
        (
            sql(
                "UPDATE questions SET status = 'OPEN', closed_at = NULL, answer = NULL, answered_by = NULL "
                "WHERE question = 'Send it?'"
            ),
            "open-question-has-open-wait",
        ),
        (
            sql("UPDATE mailbox SET status = 'UNREAD', wait_seq = NULL WHERE event = 'go'"),
            "mail-of-ended-task-is-handled",
        ),
        (
            insert_copy(
                "triggers",
                "dedup_key LIKE 'turn:%'",
                NEW_IDENTITY,
                "DROP INDEX triggers_dedup",
                "UPDATE copied SET starts = 0",
            ),
            "has more than one row",
        ),
        (sql(f"DELETE FROM event_rows WHERE {PLAIN_STEP}"), "events-are-numbered"),
        (sql("UPDATE triggers SET starts = starts + 1 WHERE workflow = 'work'"), "do not match its records"),
        (sql("UPDATE event_rows SET type = 'NOTE' WHERE type = 'TURN_CONTINUED'"), "does not match its settled turns"),
        (
            sql("UPDATE event_rows SET type = 'TURN_CONTINUED' WHERE type = 'STEP_COMPLETED' AND memo = 'step:add'"),
            "turn-settles-once",
        ),
        (sql("UPDATE waits SET name = 'sleep#7' WHERE name = 'sleep#1'"), "which is not a wait"),
        (
            sql("UPDATE executions SET turn = turn + 1 WHERE task_id = (SELECT id FROM tasks WHERE workflow = 'loop')"),
            "was not begun by one turn that was suspended",
        ),
        (
            sql(
                "UPDATE executions SET ended_at = NULL, last_events = NULL, status = 'incomplete' "
                "WHERE task_id = (SELECT id FROM tasks WHERE workflow = 'waits')"
            ),
            "task-runs-once",
        ),
        # at the end
        (sql("DELETE FROM triggers WHERE dedup_key = 'task:l'"), "was accepted, but is missing"),
        (sql("UPDATE triggers SET status = 'DEAD' WHERE dedup_key = 'task:l'"), "is DEAD"),
        (
            insert_copy(
                "triggers",
                "dedup_key = 'task:l'",
                NEW_IDENTITY,
                "UPDATE copied SET source = 'RESUME', dedup_key = NULL,dedup_scope = NULL, starts = 0",
            ),
            "had to be resumed",
        ),
        (sql("UPDATE tasks SET status = 'CANCELLED' WHERE workflow = 'shaky'"), "is CANCELLED"),
        (sql("UPDATE tasks SET result_json = '[]' WHERE workflow = 'shaky'"), "with []"),
        # turns
        (sql("UPDATE tasks SET state_json = '7' WHERE workflow = 'loop'"), "ended with the state 7"),
        (once_more("enter", at_5=7), "had the state 7"),
        (once_more("found", at_4=0), "and then in life"),
        (once_more("leave", at_6=7), "returned ['done', 7]"),
        (
            sql("UPDATE executions SET task_id = NULL WHERE turn = 1 AND workflow = 'work'"),
            "which is not a record of it",
        ),
        (once_more("found", at_3="DONE", at_6="7"), "which had ended, is now"),
        # steps
        (once_more("begin", "plain"), "again after it had returned its result"),
        (
            insert_copy(
                "event_rows",
                PLAIN_STEP,
                "UPDATE copied SET seq = 1000, memo = 'step:plain'",
                "DROP INDEX events_memo",
            ),
            "is completed twice",
        ),
        (
            sql(f"UPDATE event_rows SET payload_json = json_set(payload_json, '$.result', 7) WHERE {PLAIN_STEP}"),
            "but the record has 7",
        ),
        (without("end", "plain"), "where its function did not end"),
        (once_more("end", "plain"), "ended 2 times"),
        (
            sql(
                "UPDATE event_rows SET task_seq = NULL, turn = NULL, memo = NULL "
                "WHERE memo = 'step:hard' AND type = 'STEP_COMPLETED'"
            ),
            "but the record has None",
        ),
        (
            sql(
                "UPDATE event_rows SET execution_seq = (SELECT min(execution_seq) FROM event_rows AS e "
                "WHERE e.task_seq = event_rows.task_seq), seq = 1000 WHERE memo = 'step:last'"
            ),
            " completed it",
        ),
        # emitted triggers
        (
            insert_copy("triggers", "workflow = 'effect'", NEW_IDENTITY, "UPDATE copied SET starts = 0"),
            "was emitted 2 times",
        ),
        (
            insert_copy("triggers", "workflow = 'effect'", NEW_IDENTITY, "UPDATE copied SET starts = 0"),
            "recorded as emitted",
        ),
        (sql("UPDATE tasks SET parent_id = NULL WHERE workflow = 'broken'"), "recorded as children"),
        (without("effect"), "but never ran"),
        # waits
        (sql(f"UPDATE waits SET value_json = '\"hold\"' WHERE {ASK_WAIT}"), "answer-ends-its-wait"),
        (sql("UPDATE questions SET answer = 'hold' WHERE answer = 'send'"), "accepted the answer"),
        (
            sql(
                f"UPDATE waits SET value_json = '\"hold\"' WHERE {ASK_WAIT}",
                "UPDATE questions SET answer = 'hold' WHERE answer = 'send'",
            ),
            "'hold' was answered, but",
        ),
        (once_more("received", "ask:send", at_6="hold"), "hold after send"),
        (without("received", "sleep#1"), "never received it"),
        (sql("DELETE FROM triggers WHERE dedup_key LIKE 'wake:%' AND workflow = 'waits'"), "was not woken"),
        (
            sql("UPDATE executions SET trigger_id = 'another' WHERE turn = 5"),
            "did not continue",
        ),
        (sql("UPDATE waits SET resolved_at = due_at - 1 WHERE name = 'sleep#1'"), "before it was due"),
        (sql("UPDATE mailbox SET payload_json = '{}' WHERE event = 'go'"), "but its mails are"),
        # messages
        (
            insert_copy(
                "mailbox",
                "event = 'message' AND status = 'READ'",
                "UPDATE copied SET seq = 1000000",
            ),
            "was put into 2 mailboxes",
        ),
        (
            insert_copy(
                "mailbox",
                "event = 'message' AND status = 'READ'",
                "UPDATE copied SET seq = 1000000, trigger_id = NULL",
            ),
            "read 2 mails",
        ),
        (sql("UPDATE mailbox SET trigger_id = NULL WHERE event = 'message'"), "or neither"),
        (sql("UPDATE mailbox SET status = 'EMITTED', wait_seq = NULL WHERE event = 'go'"), "were emitted again"),
        (
            sql(
                "UPDATE tasks SET result_json = json_set(result_json, '$.texts[1]', 's 0', '$.texts[#]', 's 0') "
                "WHERE workflow = 'chat' AND status = 'DONE'"
            ),
            "message 's 0' was read 3 times",
        ),
        (
            sql("UPDATE tasks SET result_json = json_set(result_json, '$.count', 3) WHERE workflow = 'chat'"),
            "counted 3 of 2",
        ),
        # children
        (sql("UPDATE tasks SET result_json = '7' WHERE workflow = 'child'"), "a parent received"),
    ],
)
def test_checker_finds_each_fault(sound, tmp_path, spoil, found):
    folder = copy_files(sound, tmp_path)

    spoil(folder)

    wrong = check(folder).wrong
    assert any(found in fault for fault in wrong), wrong


@pytest.mark.parametrize(("status", "is_reported"), [("DEAD", False), ("DONE", True)])
def test_checker_lets_a_message_of_no_task_die_of_poison_only(sound, tmp_path, status, is_reported):
    """A message that three kills meet before its task reads it is poison. The operator finds it in the dead letters."""
    folder = copy_files(sound, tmp_path)
    insert_copy(
        "triggers",
        "source = 'MESSAGE'",
        f"UPDATE copied SET seq = 1000000, id = 'copy', dedup_key = 'copy', task_id = NULL, status = '{status}', "
        "reason = 'poison'",
    )(folder)

    reported = [fault for fault in check(folder).wrong if fault.startswith("message copy")]

    assert bool(reported) == is_reported, reported


# Broken engines


def run_and_check(folder: Path, scenario: Scenario) -> Verdict:
    run_scenario(folder, 1, scenario)
    return check(folder)


def test_checker_finds_a_timer_that_ends_an_answered_wait(tmp_path, monkeypatch):
    """The answer ends the wait first, and then the timer."""
    resolve = WaitStore.resolve

    def resolve_twice(self: WaitStore, tx: Transaction, seq: int, by: ResolvedBy, value_json: str) -> bool:
        ended = resolve(self, tx, seq, by, value_json)
        if by is ResolvedBy.ANSWER:
            tx.run("UPDATE waits SET resolved_by = 'timer', value_json = '\"hold\"' WHERE seq = :seq", seq=seq)
        return ended

    monkeypatch.setattr(WaitStore, "resolve", resolve_twice)

    wrong = run_and_check(tmp_path, Scenario("waits", (a_task("waits", "a"),))).wrong

    assert any("'send' was answered, but" in fault for fault in wrong), wrong


def test_checker_finds_a_message_read_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(MailStore, "read", lambda *_: None)
    monkeypatch.setattr(MessageStore, "reply", lambda *_: 1)

    wrong = run_and_check(tmp_path, Scenario("chat", tuple(a_chat("s", 2, 3)))).wrong

    assert any("message 's 1' was read" in fault for fault in wrong), wrong


def test_checker_finds_a_message_without_its_reply(tmp_path, monkeypatch):
    monkeypatch.setattr(MessageStore, "reply", lambda *_: 1)

    wrong = run_and_check(tmp_path, Scenario("chat", tuple(a_chat("s", 2, 3)))).wrong

    assert "message 's 1' has the reply None" in wrong


# Engines that are broken in a way that only a kill shows: the scenario is killed at every pass of a place

STATE_IS_STORED_BEFORE_THE_END_OF_ITS_TURN = """
import json
from craftcore.tasks.turn_events import TurnRecorder

def record_all(self, tx, events, *, original=TurnRecorder.record_all):
    for event in events:
        if event.memo == "step:add":
            count = json.dumps(json.loads(event.payload_json)["result"])
            tx.run("UPDATE tasks SET state_json = :count WHERE seq = :seq", count=count, seq=event.task_seq)
    return original(self, tx, events)

TurnRecorder.record_all = record_all
"""

TRIGGER_AND_TASK_ARE_SETTLED_IN_TWO_COMMITS = """
from craftcore.tasks.turn_end import TurnService

def settle_all(self, tx, epoch, ends, *, original=TurnService.settle_all):
    commit(tx)
    return original(self, tx, epoch, ends)

TurnService.settle_all = settle_all
"""

EMIT_IS_COMMITTED_BEFORE_ITS_RECORD = """
from craftcore.tasks.turn_events import TurnRecorder

def record(self, tx, event, *, original=TurnRecorder.record):
    commit(tx)
    return original(self, tx, event)

TurnRecorder.record = record
"""

TRIGGER_IS_DELIVERED_TO_ITS_OWN_TASK = """
from craftcore.engine.routing import Routes

def known(self, tx, claim, *, original=Routes.known_route):
    return original(self, tx, claim._replace(starts=1))

Routes.known_route = known
"""

RUN_MATRIX = """
import sys
from tests.crash.task_matrix import matrix

def commit(tx):
    for step in ("COMMIT", "BEGIN IMMEDIATE", "SAVEPOINT work_group"):
        tx._connection.execute(step)

exec(sys.argv[1])
result = matrix(thorough=True, pairs=0, seed=1, workers=1, only=sys.argv[2], places=sys.argv[3:])
print("\\n".join(result.wrong))
"""


@pytest.mark.parametrize(
    ("broken", "scenario", "place", "found"),
    cells(
        [
            (STATE_IS_STORED_BEFORE_THE_END_OF_ITS_TURN, "loop", Failpoint.STEP_COMMITTED, "the state"),
            (
                TRIGGER_AND_TASK_ARE_SETTLED_IN_TWO_COMMITS,
                "work",
                Failpoint.WRITER_FLUSHING,
                "running-task-has-trigger",
            ),
            (EMIT_IS_COMMITTED_BEFORE_ITS_RECORD, "work", Failpoint.WRITER_FLUSHING, "was emitted 2 times"),
            (TRIGGER_IS_DELIVERED_TO_ITS_OWN_TASK, "chat", Failpoint.TURN_ENTERED, "message 's 0' was read 0 times"),
        ],
        ["state", "settle", "emit", "route"],
    ),
)
def test_checker_finds_an_engine_broken_by_a_crash(tmp_path, broken, scenario, place, found):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}

    played = run_program("-c", RUN_MATRIX, broken, scenario, place, timeout=600, env=environment)

    assert played.returncode == 0, played.stdout + played.stderr
    assert found in played.stdout, played.stdout + played.stderr
