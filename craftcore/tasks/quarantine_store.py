"""Rows of tasks, and of what hangs on them, that a bad disk or a foreign hand changed: found, and made readable.

Looked for only when a statement over many rows failed: then one row is at fault, and the others must not pay.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from craftcore.serialization.canonical import canonical
from craftcore.storage.damaged_rows import no_model, no_text, readable
from craftcore.storage.transaction import Reader, Row, Transaction
from craftcore.tasks.model import Task
from craftcore.tasks.question_store import question_of
from craftcore.tasks.store import task_of
from craftcore.tasks.wait_store import wait_of

TASKS = """
SELECT seq,
       CAST(id AS BLOB)            AS id,
       CAST(workflow AS BLOB)      AS workflow,
       CAST(agents_json AS BLOB)   AS agents_json,
       CAST(agent AS BLOB)         AS agent,
       CAST(session_id AS BLOB)    AS session_id,
       CAST(schedule_id AS BLOB)   AS schedule_id,
       CAST(parent_id AS BLOB)     AS parent_id,
       CAST(status AS BLOB)        AS status,
       CAST(reason AS BLOB)        AS reason,
       CAST(state_json AS BLOB)    AS state_json,
       CAST(result_json AS BLOB)   AS result_json,
       CAST(error_code AS BLOB)    AS error_code,
       CAST(error_message AS BLOB) AS error_message,
       CAST(trigger_id AS BLOB)    AS trigger_id
  FROM tasks
"""
LIVE_TASKS = TASKS + "WHERE status NOT IN ('DONE', 'FAILED', 'CANCELLED')"
ENDED_TASKS = TASKS + "WHERE status IN ('DONE', 'FAILED', 'CANCELLED')"
ONE_TASK = TASKS + "WHERE seq = :seq"

WAITS = """
SELECT waits.seq,
       waits.task_seq,
       CAST(waits.id AS BLOB)          AS id,
       CAST(waits.name AS BLOB)        AS name,
       CAST(waits.kind AS BLOB)        AS kind,
       CAST(waits.event AS BLOB)       AS event,
       CAST(waits.status AS BLOB)      AS status,
       CAST(waits.resolved_by AS BLOB) AS resolved_by,
       CAST(waits.value_json AS BLOB)  AS value_json,
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
"""

QUESTIONS = """
SELECT seq,
       CASE WHEN wait_seq IS NOT NULL THEN task_seq END AS task_seq,
       CAST(id AS BLOB)           AS id,
       CAST(kind AS BLOB)         AS kind,
       CAST(question AS BLOB)     AS question,
       CAST(options_json AS BLOB) AS options_json,
       CAST(default_json AS BLOB) AS default_json,
       CAST(status AS BLOB)       AS status,
       CAST(answer AS BLOB)       AS answer,
       CAST(note AS BLOB)         AS note,
       CAST(answered_by AS BLOB)  AS answered_by
  FROM questions
 WHERE status NOT IN ('ANSWERED', 'EXPIRED', 'WITHDRAWN')
"""

MAILS = """
SELECT seq,
       CAST(event AS BLOB)        AS event,
       CAST(payload_json AS BLOB) AS payload_json,
       CAST(trigger_id AS BLOB)   AS trigger_id,
       CAST(sent_by AS BLOB)      AS sent_by,
       CAST(status AS BLOB)       AS status
  FROM mailbox
 WHERE status NOT IN ('READ', 'EMITTED', 'LEFT')
"""

MEMOS = """
SELECT events.execution_seq,
       events.seq,
       events.task_seq,
       CAST(events.memo AS BLOB)         AS memo,
       CAST(events.payload_json AS BLOB) AS payload_json
  FROM tasks
  JOIN events ON events.task_seq = tasks.seq AND events.turn = tasks.turn AND events.memo IS NOT NULL
 WHERE tasks.status NOT IN ('DONE', 'FAILED', 'CANCELLED')
"""

CREATORS = """
SELECT triggers.seq,
       tasks.seq                           AS task_seq,
       CAST(triggers.description AS BLOB)  AS description,
       CAST(triggers.payload_json AS BLOB) AS payload_json,
       CAST(triggers.schedule_id AS BLOB)  AS schedule_id,
       CAST(triggers.reason AS BLOB)       AS reason
  FROM tasks
  JOIN triggers ON triggers.id = tasks.id
 WHERE tasks.status NOT IN ('DONE', 'FAILED', 'CANCELLED')
   AND triggers.status NOT IN ('PENDING', 'CLAIMED')
"""
"""The triggers that live tasks were created by: settled ones, which nobody else looks at again."""

BURY = """
UPDATE tasks
   SET status        = 'FAILED',
       error_code    = 'VALIDATION_ERROR',
       error_message = :wrong,
       reason        = 'corrupt row',
       turn          = max(turn, 1),
       id            = :id,
       workflow      = :workflow,
       agents_json   = NULL,
       agent         = NULL,
       session_id    = :session_id,
       schedule_id   = :schedule_id,
       parent_id     = :parent_id,
       state_json    = :state_json,
       result_json   = :result_json,
       trigger_id    = :trigger_id,
       max_attempts  = CASE WHEN max_attempts BETWEEN 1 AND 1000 THEN max_attempts END,
       turns_alone   = 0,
       steps_alone   = 0,
       ended_at      = :now,
       updated_at    = :now
 WHERE seq = :seq
   AND status NOT IN ('DONE', 'FAILED', 'CANCELLED')
"""

MEND_TASK = """
UPDATE tasks
   SET id            = :id,
       workflow      = :workflow,
       agents_json   = NULL,
       agent         = NULL,
       session_id    = :session_id,
       schedule_id   = :schedule_id,
       parent_id     = :parent_id,
       reason        = :reason,
       state_json    = :state_json,
       result_json   = :result_json,
       error_code    = :error_code,
       error_message = :error_message,
       trigger_id    = :trigger_id
 WHERE seq = :seq
"""

END_WAIT = """
UPDATE waits
   SET status      = 'RESOLVED',
       resolved_by = 'end',
       value_json  = 'null',
       id          = :id,
       name        = :name,
       kind        = 'timer',
       event       = NULL,
       resolved_at = :now
 WHERE seq = :seq
"""

WITHDRAW = """
UPDATE questions
   SET status       = 'WITHDRAWN',
       id           = :id,
       activity_seq = NULL,
       kind         = CASE WHEN kind IN ('ask', 'stale', 'budget', 'stalled', 'conflict') THEN kind ELSE 'ask' END,
       question     = :question,
       options_json = NULL,
       default_json = 'null',
       by_message   = 0,
       answer       = NULL,
       note         = NULL,
       answered_by  = NULL,
       closed_at    = :now
 WHERE seq = :seq
"""

LEAVE = """
UPDATE mailbox
   SET status       = 'LEFT',
       event        = :event,
       payload_json = :payload_json,
       trigger_id   = :trigger_id,
       sent_by      = :sent_by,
       wait_seq     = NULL
 WHERE seq = :seq
"""

FORGET_MEMO = """
UPDATE events
   SET memo         = NULL,
       payload_json = :payload_json
 WHERE execution_seq = :execution_seq
   AND seq = :seq
"""

MEND_CREATOR = """
UPDATE triggers
   SET description  = :description,
       payload_json = :payload_json,
       schedule_id  = :schedule_id,
       reason       = :reason
 WHERE seq = :seq
"""


class Corrupt(NamedTuple):
    """A row that nothing can be done with. `task_seq`: of the live task that cannot go on with it; None: it can."""

    table: str
    row: Row
    task_seq: int | None
    wrong: str


class CorruptTaskStore:
    """Rows of tasks, waits, questions, mails and memos as they lie on disk. Holds nothing."""

    def find(self, tx: Reader) -> list[Corrupt]:
        """What cannot be carried on of all that is live; of what has ended, only when all that is live is sound."""
        return [*self._live(tx)] or [
            Corrupt("ended", row, None, f"task {_shown(row['id'])}: {wrong}")
            for row in tx.all(ENDED_TASKS)
            if (wrong := no_text(row))
        ]

    def _live(self, tx: Reader) -> Iterator[Corrupt]:
        for row in tx.all(LIVE_TASKS):
            if wrong := no_text(row) or no_model(tx, "SELECT * FROM tasks WHERE seq = :seq", row, task_of):
                yield Corrupt("tasks", row, row["seq"], f"task {_shown(row['id'])}: {wrong}")
        for row in tx.all(WAITS):
            wrong = no_text(row) or no_model(tx, "SELECT * FROM waits WHERE seq = :seq", row, wait_of)
            if wrong := wrong or ("its question is not open" if row["is_unasked"] else None):
                yield Corrupt("waits", row, row["task_seq"], f"wait {_shown(row['name'])}: {wrong}")
        for row in tx.all(QUESTIONS):
            if wrong := no_text(row) or no_model(tx, ONE_QUESTION, row, question_of):
                yield Corrupt("questions", row, row["task_seq"], f"question {_shown(row['id'])}: {wrong}")
        for row in tx.all(MAILS):
            if wrong := no_text(row) or _no_mail(row):
                yield Corrupt("mailbox", row, None, f"mail {row['seq']}: {wrong}")
        for row in tx.all(MEMOS):
            if wrong := no_text(row):
                yield Corrupt("events", row, row["task_seq"], f"what it completed: {wrong}")
        for row in tx.all(CREATORS):
            if wrong := no_text(row):
                yield Corrupt("creators", row, row["task_seq"], f"the trigger that created it: {wrong}")

    def mend(self, tx: Transaction, found: Corrupt) -> None:
        """Make the row readable, its bad bytes as escapes, and settle it where it is not a task's own."""
        texts = readable(found.row)
        match found.table:
            case "ended":
                texts["result_json"] = _as_json(texts["result_json"])
                tx.run(MEND_TASK, **texts, seq=found.row["seq"])
            case "waits":
                tx.run(END_WAIT, id=texts["id"], name=texts["name"], now=tx.now, seq=found.row["seq"])
            case "questions":
                tx.run(WITHDRAW, id=texts["id"], question=texts["question"], now=tx.now, seq=found.row["seq"])
            case "mailbox":
                texts["payload_json"] = _as_json(texts["payload_json"])
                tx.run(LEAVE, **texts, seq=found.row["seq"])
            case "events":
                keys = {name: found.row[name] for name in ("execution_seq", "seq")}
                tx.run(FORGET_MEMO, payload_json=_as_json(texts["payload_json"]), **keys)
            case "creators":
                tx.run(MEND_CREATOR, **texts, seq=found.row["seq"])

    def bury(self, tx: Transaction, task_seq: int, wrong: str) -> Task | None:
        """A live task becomes FAILED, and all of its row readable; the row then. None when it had ended."""
        [row] = tx.all(ONE_TASK, seq=task_seq)
        if not tx.run(BURY, **readable(row), wrong=wrong, now=tx.now, seq=task_seq):
            return None
        buried = tx.one("SELECT * FROM tasks WHERE seq = :seq", seq=task_seq)
        assert buried is not None, task_seq
        return task_of(buried)


ONE_QUESTION = """
SELECT questions.*, '' AS task_id, '' AS workflow, NULL AS activity_key, NULL AS request_json
  FROM questions
 WHERE seq = :seq
"""


def _no_mail(row: Row) -> str | None:
    try:
        json.loads(row["payload_json"])
    except ValueError as error:
        return f"payload_json is not JSON: {error}"
    return None if row["status"] == b"UNREAD" else f"status {_shown(row['status'])} is unknown"


def _as_json(text: str | None) -> str | None:
    """Text that was to be JSON; what is none becomes a string of it."""
    try:
        if text is not None:
            json.loads(text)
    except ValueError:
        return canonical(text)
    return text


def _shown(value: bytes | None) -> str:
    return "" if value is None else value.decode(errors="backslashreplace")[:80]
