"""The states that a database with tasks never has, even after a kill: queries in plain SQL, and the invariants."""

from __future__ import annotations

import json
from typing import Any

import apsw

from craftcore.diagnostics.invariants import violations
from craftcore.storage.transaction import Reader

NEVER = {
    "key {} has more than one row": """
        SELECT dedup_key FROM triggers WHERE dedup_scope = 'ever' GROUP BY dedup_key HAVING count(*) > 1
    """,
    "the starts of trigger {} do not match its records": """
        SELECT id
          FROM triggers
         WHERE starts <> (SELECT count(*) FROM executions WHERE trigger_id = triggers.id)
    """,
    "the turn of task {} does not match its settled turns": """
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
         WHERE any_of IS NOT 'beside'
           AND NOT EXISTS (SELECT 1
                             FROM waits AS other
                            WHERE other.task_seq = waits.task_seq
                              AND other.turn = waits.turn
                              AND other.any_of = 'beside')
           AND 1 <> (SELECT count(*)
                       FROM executions
                       JOIN events ON execution_seq = executions.seq
                      WHERE task_id = tasks.id
                        AND type = 'TURN_SUSPENDED'
                        AND payload_json ->> 'wait' = coalesce(waits.any_of, waits.name)
                        AND executions.turn = waits.turn - (waits.name = 'continued'))
    """,
    "wait {} beside others was not begun by a turn that was suspended": """
        SELECT waits.name
          FROM waits
          JOIN tasks ON tasks.seq = task_seq
         WHERE any_of = 'beside'
           AND NOT EXISTS (SELECT 1
                             FROM executions
                             JOIN events ON execution_seq = executions.seq
                            WHERE task_id = tasks.id
                              AND type = 'TURN_SUSPENDED'
                              AND executions.turn = waits.turn
                              AND (payload_json ->> 'wait' = waits.name
                                   OR waits.name IN (SELECT value ->> 'wait' FROM json_each(payload_json, '$.waits'))))
    """,
    "wait {} was asked about by {} questions": """
        SELECT waits.name, count(*)
          FROM waits
          JOIN questions ON wait_seq = waits.seq
         WHERE any_of = 'beside'
         GROUP BY waits.seq
        HAVING count(*) > 1
    """,
}
"""A message and a query for each state that is not an invariant. A row of the query is a fault, and fills the message.

The queries are for a database without deleted old rows and without stopped turns.
"""


def impossible_states(connection: apsw.Connection) -> list[str]:
    """Return a message for each impossible state of the database."""
    return [
        *(message.format(*row) for message, sql in NEVER.items() for row in connection.execute(sql)),
        *broken_invariants(Reader(connection)),
    ]


def broken_invariants(reader: Reader) -> list[str]:
    """Return the violations of the invariants, each with its name."""
    return [f"{finding.code}: {finding.text}" for finding in violations(reader)]


def task_states(connection: apsw.Connection) -> list[list[Any]]:
    """Return the state of each task: [id, status, turn, state, result, ended_at]."""
    if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'tasks'").get:
        return []
    rows = connection.execute("SELECT id, status, turn, state_json, result_json, ended_at FROM tasks ORDER BY seq")
    return [[id, status, turn, json.loads(state), result, ended] for id, status, turn, state, result, ended in rows]
