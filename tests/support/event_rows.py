"""Events as rows, the format of earlier versions, in which a test can change each event."""

from __future__ import annotations

from collections.abc import Callable

import apsw

INSERT = """
INSERT INTO event_rows (execution_seq, seq, type, at, payload_json)
SELECT execution_seq, events.seq, type, at, payload_json
  FROM events
  JOIN executions ON executions.seq = execution_seq
 WHERE coalesce(first_events, last_events) IS NOT NULL
   AND NOT EXISTS (SELECT 1
                     FROM event_rows
                    WHERE event_rows.execution_seq = events.execution_seq
                      AND event_rows.seq = events.seq)
"""
FORGET = """
UPDATE executions
   SET first_events = NULL,
       last_events  = NULL
 WHERE coalesce(first_events, last_events) IS NOT NULL
"""


def move_events_to_rows(run: Callable[[str], object]) -> None:
    """Store each event of the texts as a row, and remove the texts. The guards of the schema must be off."""
    run(INSERT)
    run(FORGET)


def needs_rows(*statements: str) -> bool:
    """Return whether statements change rows of events."""
    return any("event_rows" in statement for statement in statements)


def prepare(connection: apsw.Connection, *statements: str) -> None:
    """Create the rows that the statements change."""
    if needs_rows(*statements):
        move_events_to_rows(connection.execute)
