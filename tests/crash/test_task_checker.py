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
from craftcore.tasks.model import ResolvedBy
from craftcore.tasks.wait_store import WaitStore
from tests.crash.crews import run_program
from tests.crash.spoiling import Spoil, copy_files, sql
from tests.crash.task_app import SEEN, lines_of
from tests.crash.task_checker import Verdict, check
from tests.crash.task_child import TaskLife, live
from tests.crash.task_outside import STORIES, Story, a_chat, a_task
from tests.support.cells import cells

EVERYTHING = Story("everything", tuple(spec for story in STORIES for spec in story.specs))


def live_through(folder: Path, number: int, story: Story) -> None:
    live(TaskLife(folder=folder, number=number, story=story))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two lives leave, with nothing wrong in it."""
    folder = tmp_path_factory.mktemp("sound")
    live_through(folder, 1, Story("some", EVERYTHING.specs[:4]))
    live_through(folder, 2, EVERYTHING)
    return folder


def written(change: Callable[[list[list[Any]]], list[list[Any]]]) -> Spoil:
    """Other lines than were written."""

    def spoil(folder: Path) -> None:
        before = list(lines_of(folder / SEEN))
        after = change(list(before))
        assert after != before
        (folder / SEEN).write_text("".join(json.dumps(line) + "\n" for line in after))

    return spoil


def of(what: str, identity: str | None = None) -> Callable[[list[Any]], bool]:
    """A line of that kind, and of that step or wait."""
    return lambda line: line[0] == what and (identity is None or line[5] == identity)


def without(what: str, identity: str | None = None) -> Spoil:
    return written(lambda lines: [line for line in lines if not of(what, identity)(line)])


def once_more(what: str, identity: str | None = None, **other: Any) -> Spoil:
    """The last such line again, at the end, with other words in some of its places."""

    def change(lines: list[list[Any]]) -> list[list[Any]]:
        again = [line for line in lines if of(what, identity)(line)][-1].copy()
        for place, word in other.items():
            again[int(place.removeprefix("at_"))] = word
        return [*lines, again]

    return written(change)


A_STEP = (
    "type = 'STEP_COMPLETED' AND memo = 'step:plain' AND task_seq = (SELECT seq FROM tasks WHERE workflow = 'work')"
)
ASKED = "name = 'ask:send'"
A_NEW_ROW = "UPDATE copied SET seq = 1000000, id = 'copy'"


def copied(table: str, which: str, *changed: str) -> Spoil:
    """One row more, like one that is there."""
    copy = f"CREATE TEMP TABLE copied AS SELECT * FROM {table} WHERE {which} LIMIT 1"
    return sql(copy, *changed, f"INSERT INTO {table} SELECT * FROM copied")


def test_checker_accepts_a_sound_history(sound, tmp_path):
    verdict = check(copy_files(sound, tmp_path))

    assert verdict.wrong == []
    assert (verdict.tasks, verdict.steps, verdict.waits, verdict.answers, verdict.messages) == (13, 26, 23, 2, 3)
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
                f"WHERE {ASKED}"
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
            copied(
                "triggers",
                "dedup_key LIKE 'turn:%'",
                A_NEW_ROW,
                "DROP INDEX triggers_dedup",
                "UPDATE copied SET starts = 0",
            ),
            "has more than one row",
        ),
        (sql(f"DELETE FROM event_rows WHERE {A_STEP}"), "events-are-numbered"),
        (sql("UPDATE triggers SET starts = starts + 1 WHERE workflow = 'work'"), "was not started as often"),
        (sql("UPDATE event_rows SET type = 'NOTE' WHERE type = 'TURN_CONTINUED'"), "another turn than it has settled"),
        (
            sql("UPDATE event_rows SET type = 'TURN_CONTINUED' WHERE type = 'STEP_COMPLETED' AND memo = 'step:add'"),
            "turn-settles-once",
        ),
        (sql("UPDATE waits SET name = 'sleep#7' WHERE name = 'sleep#1'"), "which is no wait"),
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
        # in the end
        (sql("DELETE FROM triggers WHERE dedup_key = 'task:l'"), "was accepted, and is gone"),
        (sql("UPDATE triggers SET status = 'DEAD' WHERE dedup_key = 'task:l'"), "is DEAD"),
        (
            copied(
                "triggers",
                "dedup_key = 'task:l'",
                A_NEW_ROW,
                "UPDATE copied SET source = 'RESUME', dedup_key = NULL,dedup_scope = NULL, starts = 0",
            ),
            "had to be resumed",
        ),
        (sql("UPDATE tasks SET status = 'CANCELLED' WHERE workflow = 'shaky'"), "is CANCELLED"),
        (sql("UPDATE tasks SET result_json = '[]' WHERE workflow = 'shaky'"), "with []"),
        # turns
        (sql("UPDATE tasks SET state_json = '7' WHERE workflow = 'loop'"), "ended with the state 7"),
        (once_more("enter", at_5=7), "had the state 7"),
        (once_more("found", at_4=0), "and in life"),
        (once_more("leave", at_6=7), "returned"),
        (sql("UPDATE executions SET task_id = NULL WHERE turn = 1 AND workflow = 'work'"), "which is no record of it"),
        (once_more("found", at_3="DONE", at_6="7"), "which had ended, is now"),
        # steps
        (once_more("begin", "plain"), "although its result was there"),
        (
            copied(
                "event_rows",
                A_STEP,
                "UPDATE copied SET seq = 1000, memo = 'step:plain'",
                "DROP INDEX events_memo",
            ),
            "is completed twice",
        ),
        (
            sql(f"UPDATE event_rows SET payload_json = json_set(payload_json, '$.result', 7) WHERE {A_STEP}"),
            "on record is 7",
        ),
        (without("end", "plain"), "where its function did not end"),
        (once_more("end", "plain"), "ended 2 times"),
        (
            sql(
                "UPDATE event_rows SET task_seq = NULL, turn = NULL, memo = NULL "
                "WHERE memo = 'step:hard' AND type = 'STEP_COMPLETED'"
            ),
            "on record is None",
        ),
        (
            sql(
                "UPDATE event_rows SET execution_seq = (SELECT min(execution_seq) FROM event_rows AS e "
                "WHERE e.task_seq = event_rows.task_seq), seq = 1000 WHERE memo = 'step:last'"
            ),
            "had completed it",
        ),
        # what is emitted
        (copied("triggers", "workflow = 'effect'", A_NEW_ROW, "UPDATE copied SET starts = 0"), "was emitted 2 times"),
        (copied("triggers", "workflow = 'effect'", A_NEW_ROW, "UPDATE copied SET starts = 0"), "on record as emitted"),
        (sql("UPDATE tasks SET parent_id = NULL WHERE workflow = 'broken'"), "on record as children"),
        (without("effect"), "and never ran"),
        # waits
        (sql(f"UPDATE waits SET value_json = '\"hold\"' WHERE {ASKED}"), "answer-ends-its-wait"),
        (sql("UPDATE questions SET answer = 'hold' WHERE answer = 'send'"), "was taken as the answer"),
        (
            sql(
                f"UPDATE waits SET value_json = '\"hold\"' WHERE {ASKED}",
                "UPDATE questions SET answer = 'hold' WHERE answer = 'send'",
            ),
            "'hold' was answered, and",
        ),
        (once_more("heard", "ask:send", at_6="hold"), "and before send"),
        (without("heard", "sleep#1"), "never heard it"),
        (sql("DELETE FROM triggers WHERE dedup_key LIKE 'wake:%' AND workflow = 'waits'"), "nothing was woken"),
        (
            sql("UPDATE executions SET trigger_id = 'another' WHERE turn = 5"),
            "did not go on",
        ),
        (sql("UPDATE waits SET resolved_at = due_at - 1 WHERE name = 'sleep#1'"), "before it was time"),
        (sql("UPDATE mailbox SET payload_json = '{}' WHERE event = 'go'"), "and its mails are"),
        # messages
        (
            copied(
                "mailbox",
                "event = 'message' AND status = 'READ'",
                "UPDATE copied SET seq = 1000000",
            ),
            "was put into 2 mailboxes",
        ),
        (
            copied(
                "mailbox",
                "event = 'message' AND status = 'READ'",
                "UPDATE copied SET seq = 1000000, trigger_id = NULL",
            ),
            "read 2 mails",
        ),
        (sql("UPDATE mailbox SET trigger_id = NULL WHERE event = 'message'"), "or neither"),
        (sql("UPDATE mailbox SET status = 'EMITTED', wait_seq = NULL WHERE event = 'go'"), "came anew"),
        (
            sql(
                "UPDATE tasks SET result_json = json_set(result_json, '$.said[1]', 's 0', '$.said[#]', 's 0') "
                "WHERE workflow = 'chat' AND status = 'DONE'"
            ),
            "message 's 0' was heard 3 times",
        ),
        (
            sql("UPDATE tasks SET result_json = json_set(result_json, '$.count', 3) WHERE workflow = 'chat'"),
            "counted 3 of 2",
        ),
        # children
        (sql("UPDATE tasks SET result_json = '7' WHERE workflow = 'child'"), "a parent was told"),
    ],
)
def test_checker_finds_each_fault(sound, tmp_path, spoil, found):
    folder = copy_files(sound, tmp_path)

    spoil(folder)

    wrong = check(folder).wrong
    assert any(found in one for one in wrong), wrong


@pytest.mark.parametrize(("status", "is_blamed"), [("DEAD", False), ("DONE", True)])
def test_checker_lets_a_message_of_no_task_die_of_poison_only(sound, tmp_path, status, is_blamed):
    """Kills may meet a message three times before it has reached its task: the operator finds it among the dead."""
    folder = copy_files(sound, tmp_path)
    copied(
        "triggers",
        "source = 'MESSAGE'",
        f"UPDATE copied SET seq = 1000000, id = 'copy', dedup_key = 'copy', task_id = NULL, status = '{status}', "
        "reason = 'poison'",
    )(folder)

    blamed = [one for one in check(folder).wrong if one.startswith("message copy")]

    assert bool(blamed) == is_blamed, blamed


# Broken engines


def lived(folder: Path, story: Story) -> Verdict:
    live_through(folder, 1, story)
    return check(folder)


def test_checker_finds_a_timer_that_ends_an_answered_wait(tmp_path, monkeypatch):
    """Two things end one wait, and the second wins."""
    resolve = WaitStore.resolve

    def twice(self: WaitStore, tx: Transaction, seq: int, by: ResolvedBy, value_json: str) -> bool:
        ended = resolve(self, tx, seq, by, value_json)
        if by is ResolvedBy.ANSWER:
            tx.run("UPDATE waits SET resolved_by = 'timer', value_json = '\"hold\"' WHERE seq = :seq", seq=seq)
        return ended

    monkeypatch.setattr(WaitStore, "resolve", twice)

    wrong = lived(tmp_path, Story("waits", (a_task("waits", "a"),))).wrong

    assert any("'send' was answered, and" in one for one in wrong), wrong


def test_checker_finds_a_message_read_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(MailStore, "read", lambda *_: None)

    wrong = lived(tmp_path, Story("chat", tuple(a_chat("s", 2, 3)))).wrong

    assert any("message 's 1' was heard" in one for one in wrong), wrong


# And broken in a way that only a death shows: each is cut off everywhere

STATE_BEFORE_ITS_TURN_IS_OVER = """
import json
from craftcore.tasks.turn_events import TurnRecorder

def record_all(self, tx, events, *, right=TurnRecorder.record_all):
    for event in events:
        if event.memo == "step:add":
            count = json.dumps(json.loads(event.payload_json)["result"])
            tx.run("UPDATE tasks SET state_json = :count WHERE seq = :seq", count=count, seq=event.task_seq)
    return right(self, tx, events)

TurnRecorder.record_all = record_all
"""

TRIGGER_AND_TASK_IN_TWO_COMMITS = """
from craftcore.tasks.turn_end import TurnService

def settle_all(self, tx, epoch, ends, *, right=TurnService.settle_all):
    commit(tx)
    return right(self, tx, epoch, ends)

TurnService.settle_all = settle_all
"""

EMITTED_BEFORE_IT_IS_ON_RECORD = """
from craftcore.tasks.turn_events import TurnRecorder

def record(self, tx, event, *, right=TurnRecorder.record):
    commit(tx)
    return right(self, tx, event)

TurnRecorder.record = record
"""

A_MESSAGE_TO_ITSELF = """
from craftcore.engine.routing import Routes

def known(self, tx, claim, *, right=Routes.known_route):
    return right(self, tx, claim._replace(starts=1))

Routes.known_route = known
"""

CUT_OFF_EVERYWHERE = """
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
    ("broken", "story", "place", "found"),
    cells(
        [
            (STATE_BEFORE_ITS_TURN_IS_OVER, "loop", Failpoint.STEP_COMMITTED, "the state"),
            (TRIGGER_AND_TASK_IN_TWO_COMMITS, "work", Failpoint.WRITER_FLUSHING, "running-task-has-trigger"),
            (EMITTED_BEFORE_IT_IS_ON_RECORD, "work", Failpoint.WRITER_FLUSHING, "was emitted 2 times"),
            (A_MESSAGE_TO_ITSELF, "chat", Failpoint.TURN_ENTERED, "message 's 0' was heard 0 times"),
        ],
        ["state", "settle", "emit", "route"],
    ),
)
def test_checker_finds_an_engine_broken_by_a_crash(tmp_path, broken, story, place, found):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}

    played = run_program("-c", CUT_OFF_EVERYWHERE, broken, story, place, timeout=600, env=environment)

    assert played.returncode == 0, played.stdout + played.stderr
    assert found in played.stdout, played.stdout + played.stderr
