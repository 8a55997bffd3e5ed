"""What is true of no file with tasks at any moment, so also of none that a killed process left. Plain SQL."""

from __future__ import annotations

import json
from typing import Any

import apsw

NEVER = {
    "task {} is RUNNING, and no live trigger is its own": """
        SELECT tasks.id
          FROM tasks
          LEFT JOIN triggers ON triggers.id = tasks.trigger_id AND triggers.status IN ('PENDING', 'CLAIMED')
         WHERE tasks.status = 'RUNNING' AND triggers.id IS NULL
    """,
    "task {} has ended, and its trigger is live": """
        SELECT tasks.id
          FROM tasks
          JOIN triggers ON triggers.id = tasks.trigger_id AND triggers.status IN ('PENDING', 'CLAIMED')
         WHERE tasks.status IN ('DONE', 'FAILED', 'CANCELLED')
    """,
    "task {} is WAITING, and for nothing": """
        SELECT id
          FROM tasks
         WHERE status = 'WAITING'
           AND NOT EXISTS (SELECT 1 FROM waits WHERE task_seq = tasks.seq AND turn = tasks.turn
                                                 AND waits.status = 'WAITING')
    """,
    "wait {} is open, and its task does not wait": """
        SELECT waits.name
          FROM waits
          JOIN tasks ON tasks.seq = task_seq
         WHERE waits.status = 'WAITING' AND (tasks.status <> 'WAITING' OR tasks.turn <> waits.turn)
    """,
    "wait {} would end by itself, and no live trigger is there for it": """
        SELECT waits.name
          FROM waits
         WHERE status = 'WAITING' AND due_at IS NOT NULL
           AND NOT EXISTS (SELECT 1
                             FROM waits AS first
                             JOIN triggers ON dedup_key = 'wake:' || first.id
                            WHERE first.task_seq = waits.task_seq
                              AND first.turn = waits.turn
                              AND (first.seq = waits.seq OR first.any_of = waits.any_of)
                              AND fire_at <= waits.due_at
                              AND triggers.status IN ('PENDING', 'CLAIMED'))
    """,
    "question {} is open, and its wait is over": """
        SELECT questions.id
          FROM questions
          JOIN waits ON waits.seq = wait_seq
         WHERE questions.status = 'OPEN' AND waits.status <> 'WAITING'
    """,
    "question {} is ANSWERED, and its wait did not end with the answer": """
        SELECT questions.id
          FROM questions
          JOIN waits ON waits.seq = wait_seq
         WHERE questions.status = 'ANSWERED'
           AND (waits.status <> 'RESOLVED'
                OR resolved_by <> 'answer'
                OR coalesce(value_json ->> '$.decision', value_json ->> '$') <> answer)
    """,
    "mail {} was READ, and its wait is not over": """
        SELECT mailbox.seq
          FROM mailbox
          JOIN waits ON waits.seq = wait_seq
         WHERE waits.status <> 'RESOLVED'
    """,
    "mail {} is UNREAD, and its task has ended": """
        SELECT mailbox.seq
          FROM mailbox
          JOIN tasks ON tasks.seq = task_seq
         WHERE mailbox.status = 'UNREAD' AND tasks.status IN ('DONE', 'FAILED', 'CANCELLED')
    """,
    "mail {} is UNREAD, and its task waits for just that": """
        SELECT mailbox.seq
          FROM mailbox
          JOIN waits ON waits.task_seq = mailbox.task_seq AND waits.event = mailbox.event
         WHERE mailbox.status = 'UNREAD' AND waits.status = 'WAITING'
    """,
    "key {} has more than one row": """
        SELECT dedup_key FROM triggers WHERE dedup_scope = 'ever' GROUP BY dedup_key HAVING count(*) > 1
    """,
    "record {} has events that are not numbered from 1": """
        SELECT executions.id
          FROM executions
          LEFT JOIN events ON execution_seq = executions.seq
         GROUP BY executions.seq
        HAVING count(events.seq) = 0 OR min(events.seq) <> 1 OR max(events.seq) <> count(events.seq)
    """,
    "trigger {} was not started as often as it has records": """
        SELECT id
          FROM triggers
         WHERE starts <> (SELECT count(*) FROM executions WHERE trigger_id = triggers.id)
    """,
    "task {} has a turn that was settled more than once": """
        SELECT task_id
          FROM executions
          JOIN events ON execution_seq = executions.seq
         WHERE type = 'TURN_CONTINUED' OR type = 'TURN_SUSPENDED' AND payload_json ->> 'wait' = 'continued'
         GROUP BY task_id, executions.turn
        HAVING count(*) > 1
    """,
    "task {} has another turn than it has settled": """
        SELECT id
          FROM tasks
         WHERE turn <> 1 + (SELECT count(*)
                              FROM executions
                              JOIN events ON execution_seq = executions.seq
                             WHERE task_id = tasks.id
                               AND (type = 'TURN_CONTINUED'
                                    OR type = 'TURN_SUSPENDED' AND payload_json ->> 'wait' = 'continued'))
    """,
    "wait {} was not begun by one turn that was suspended": """
        SELECT waits.name
          FROM waits
          JOIN tasks ON tasks.seq = task_seq
         WHERE 1 <> (SELECT count(*)
                       FROM executions
                       JOIN events ON execution_seq = executions.seq
                      WHERE task_id = tasks.id
                        AND type = 'TURN_SUSPENDED'
                        AND payload_json ->> 'wait' = coalesce(waits.any_of, waits.name)
                        AND executions.turn = waits.turn - (waits.name = 'continued'))
    """,
    "task {} ran twice at once": """
        SELECT one.task_id
          FROM executions AS one
          JOIN executions AS other ON other.task_id = one.task_id AND other.epoch = one.epoch AND other.seq > one.seq
         WHERE one.ended_at IS NULL AND one.turn IS NOT NULL AND other.turn IS NOT NULL
    """,
}
"""What is true of no file at any moment: what to say of it, and whom."""


def impossible(connection: apsw.Connection) -> list[str]:
    """What this file says that cannot be."""
    return [said.format(*row) for said, sql in NEVER.items() for row in connection.execute(sql)]


def standing(connection: apsw.Connection) -> list[list[Any]]:
    """How each task stands: [id, status, turn, state, result, ended_at]."""
    if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'tasks'").get:
        return []
    rows = connection.execute("SELECT id, status, turn, state_json, result_json, ended_at FROM tasks ORDER BY seq")
    return [[id, status, turn, json.loads(state), result, ended] for id, status, turn, state, result, ended in rows]
