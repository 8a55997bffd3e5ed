"""Quarantine of tasks and of the rows that belong to them: a task that cannot go on without a corrupt row fails.

A corrupt activity stays DONE, or is in doubt. It is never called again unasked.
"""

from __future__ import annotations

import json
from dataclasses import replace

from craftcore.activities.store import activity_of
from craftcore.clock import YEAR_10000
from craftcore.errors import UnreadableRow
from craftcore.storage.quarantine import CorruptRow, Quarantine
from craftcore.storage.transaction import Reader, Row, Transaction
from craftcore.tasks.model import Task
from craftcore.tasks.question_store import question_of
from craftcore.tasks.store import TaskStore, task_of
from craftcore.tasks.wait_store import wait_of

ACTIVITIES = "SELECT *, task_seq AS owner FROM activity_log"

OPEN = """
 WHERE status NOT IN ('DONE', 'FAILED')
    OR task_seq IN (SELECT seq FROM tasks WHERE status NOT IN ('DONE', 'FAILED', 'CANCELLED'))
"""

KEY = """
coalesce(
    CASE WHEN idem_key = :idem_key THEN idem_key END,
    (
        SELECT nullif(payload_json, '') ->> 'key'
          FROM events
         WHERE activity_seq = :seq
           AND type = 'ACTIVITY_INTENT'
           AND NOT EXISTS (SELECT 1 FROM activity_log WHERE idem_key = nullif(payload_json, '') ->> 'key')
         LIMIT 1
    ),
    :idem_key
)
"""
"""A key that is not text is read from the event stream. Under another key the activity would be called again."""

IS_TIMED = f"min(first_call_at, last_call_at) >= 0 AND max(first_call_at, last_call_at) < {YEAR_10000}"


def find_corrupt(tx: Reader) -> list[tuple[Quarantine, CorruptRow]]:
    """Return the corrupt rows of live tasks and open activities. When there are none, inspect all that has ended."""
    live = (OPEN_ACTIVITIES, LIVE_TASKS, WAITS, QUESTIONS, MESSAGES, MEMOS, CREATORS)
    found = [(table, row) for table in live for row in table.find(tx)]
    return found or [
        (table, row) for table in (ALL_ACTIVITIES, ENDED_TASKS, SESSION_MESSAGES) for row in table.find(tx)
    ]


def fail_task(tx: Transaction, task_seq: int, wrong: str) -> Task | None:
    """Fail a live task and make its row readable. Return the new row, or None when the task had ended."""
    [row] = tx.fetch_all_as_bytes("SELECT * FROM tasks WHERE seq = :seq", seq=task_seq)
    if not LIVE_TASKS.repair(tx, CorruptRow(row, task_seq, wrong, wrong)):
        return None
    return TaskStore().get_by_seq(tx, task_seq)


def check_wait(row: Row) -> None:
    """Check that the row is a wait with an open question where it waits for one. Raises ValueError."""
    is_unasked = row.pop("is_unasked")
    wait_of(row)
    if is_unasked:
        raise UnreadableRow("its question is not open")


def check_question(row: Row) -> None:
    """Check that the row is a question. Raises ValueError."""
    question_of({**row, "task_id": "", "workflow": "", "activity_key": None, "request_json": None})


def check_message(row: Row) -> None:
    """Check that the row is an unread message. Raises ValueError."""
    try:
        json.loads(row["payload_json"])
    except ValueError as error:
        raise UnreadableRow(f"payload_json is not JSON: {error}") from error
    if row["status"] != "UNREAD":
        raise UnreadableRow(f"status {row['status']:.80} is unknown")


def check_session_message(row: Row) -> None:
    """Check that the row is a message of a session. Raises ValueError."""
    try:
        json.loads(row["message_json"] or "null")
    except ValueError as error:
        raise UnreadableRow(f"message_json is not JSON: {error}") from error


def check_activity(row: Row) -> None:
    """Check that the row is an activity. Raises ValueError."""
    activity = activity_of(row)
    if not all(0 <= moment < YEAR_10000 for moment in (activity.first_call_at, activity.last_call_at)):
        raise UnreadableRow("it was called at no moment")


LIVE_TASKS = Quarantine(
    table="tasks",
    kind="task",
    rows="SELECT *, seq AS owner FROM tasks WHERE status NOT IN ('DONE', 'FAILED', 'CANCELLED')",
    where="seq = :seq AND status NOT IN ('DONE', 'FAILED', 'CANCELLED')",
    check=task_of,
    becomes={
        "status": "'FAILED'",
        "error_code": "'VALIDATION_ERROR'",
        "error_message": ":message",
        "reason": "'corrupt row'",
        "turn": "max(turn, 1)",
        "max_attempts": "CASE WHEN max_attempts BETWEEN 1 AND 1000 THEN max_attempts END",
        "turns_alone": "0",
        "steps_alone": "0",
        "ended_at": ":now",
        "updated_at": ":now",
    },
    nulls=("agents_json", "agent"),
)

ENDED_TASKS = Quarantine(
    table="tasks",
    kind="task",
    rows="SELECT * FROM tasks WHERE status IN ('DONE', 'FAILED', 'CANCELLED')",
    nulls=("agents_json", "agent"),
    json=("result_json",),
)

WAITS = Quarantine(
    table="waits",
    kind="wait",
    name="name",
    rows="""
    SELECT waits.*,
           waits.task_seq AS owner,
           waits.kind = 'question' AND waits.status = 'WAITING' AND NOT EXISTS (
               SELECT 1
                 FROM questions
                WHERE questions.task_seq = waits.task_seq
                  AND wait_seq = waits.seq
                  AND questions.status = 'OPEN'
           ) AS is_unasked
      FROM waits
      JOIN tasks ON tasks.seq = waits.task_seq
     WHERE tasks.status NOT IN ('DONE', 'FAILED', 'CANCELLED')
       AND (waits.status <> 'RESOLVED' OR waits.turn = tasks.turn)
    """,
    check=check_wait,
    becomes={
        "status": "'RESOLVED'",
        "resolved_by": "'end'",
        "value_json": "'null'",
        "kind": "'timer'",
        "resolved_at": ":now",
    },
    nulls=("event",),
)

QUESTIONS = Quarantine(
    table="questions",
    kind="question",
    rows="""
    SELECT *,
           CASE WHEN wait_seq IS NOT NULL THEN task_seq END AS owner
      FROM questions
     WHERE status NOT IN ('ANSWERED', 'EXPIRED', 'WITHDRAWN')
    """,
    check=check_question,
    becomes={
        "status": "'WITHDRAWN'",
        "kind": "CASE WHEN kind IN ('ask', 'stale', 'budget', 'stalled', 'conflict') THEN kind ELSE 'ask' END",
        "default_json": "'null'",
        "by_message": "0",
        "closed_at": ":now",
    },
    nulls=("activity_seq", "options_json", "answer", "note", "answered_by", "form_json", "addressee"),
)

MESSAGES = Quarantine(
    table="mailbox",
    kind="mail",
    name="seq",
    rows="SELECT * FROM mailbox WHERE status NOT IN ('READ', 'EMITTED', 'LEFT')",
    check=check_message,
    becomes={"status": "'LEFT'"},
    nulls=("wait_seq",),
    json=("payload_json",),
)

SESSION_MESSAGES = Quarantine(
    table="session_messages",
    kind="message of a session",
    name="seq",
    rows="SELECT * FROM session_messages WHERE message_json <> '' OR group_key IS NOT NULL",
    check=check_session_message,
    becomes={"message_json": "''", "begins": "begins <> 0"},
    nulls=("group_key",),
)
"""A conversation goes on without the message."""

MEMOS = Quarantine(
    table="event_rows",
    kind="a completed step",
    name=None,
    rows="""
    SELECT done.execution_seq,
           done.seq,
           done.memo,
           done.payload_json,
           tasks.seq AS owner
      FROM tasks
      JOIN event_rows AS done ON done.task_seq = tasks.seq AND done.turn = tasks.turn AND done.memo IS NOT NULL
     WHERE tasks.status NOT IN ('DONE', 'FAILED', 'CANCELLED')
    """,
    where="execution_seq = :execution_seq AND seq = :seq",
    nulls=("memo",),
    json=("payload_json",),
)

CREATORS = Quarantine(
    table="triggers",
    kind="the trigger that created it",
    name=None,
    rows="""
    SELECT triggers.seq,
           triggers.description,
           triggers.payload_json,
           triggers.schedule_id,
           triggers.reason,
           tasks.seq AS owner
      FROM tasks
      JOIN triggers ON triggers.id = tasks.id
     WHERE tasks.status NOT IN ('DONE', 'FAILED', 'CANCELLED')
       AND triggers.status NOT IN ('PENDING', 'CLAIMED')
    """,
)
"""The settled triggers that created live tasks. No other rule inspects them."""

OPEN_ACTIVITIES = Quarantine(
    table="activity_log",
    kind="activity",
    name="idem_key",
    rows=ACTIVITIES + OPEN,
    check=check_activity,
    becomes={
        "idem_key": KEY,
        "result_unstored": "CASE WHEN status = 'DONE' THEN :message END",
        "error_message": ":message",
        "reason": "'corrupt row'",
        "policy": "'ask'",
        "status": "CASE WHEN status = 'DONE' THEN 'DONE' ELSE 'UNKNOWN' END",
        "may_retry": "0",
        "in_doubt": "status <> 'DONE'",
        "first_call_at": f"CASE WHEN {IS_TIMED} THEN first_call_at ELSE :now END",
        "last_call_at": f"CASE WHEN {IS_TIMED} THEN last_call_at ELSE :now END",
        "updated_at": ":now",
        "settled_at": "CASE WHEN status = 'DONE' THEN :now END",
    },
    nulls=("result_json", "decision"),
)
"""The activities that a turn, a boot or a person will read again."""

ALL_ACTIVITIES = replace(OPEN_ACTIVITIES, rows=ACTIVITIES)
