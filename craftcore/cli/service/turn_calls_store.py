"""The calls that the present turns of live tasks have on record: acts, and completed steps by their identity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from craftcore.storage.transaction import Reader

ACTS = """
SELECT CAST(tasks.id AS BLOB), CAST(tasks.workflow AS BLOB), CAST(action AS BLOB), CAST(idem_key AS BLOB)
  FROM tasks
  JOIN activity_log ON activity_log.task_seq = tasks.seq AND activity_log.turn = tasks.turn
 WHERE tasks.status IN ('RUNNING', 'WAITING')
   AND activity_log.status <> 'FAILED'
"""
STEPS = """
SELECT CAST(tasks.id AS BLOB), CAST(tasks.workflow AS BLOB), NULL, CAST(memo AS BLOB)
  FROM tasks
  JOIN event_rows ON event_rows.task_seq = tasks.seq AND event_rows.turn = tasks.turn
 WHERE tasks.status IN ('RUNNING', 'WAITING')
   AND memo GLOB 'step:*'
"""
"""As bytes: a damaged text does not stop the look."""


class TurnCall(NamedTuple):
    """A call on record. `action` None: a step, whose `identity` is its memo; else the key of the act."""

    task_id: str
    workflow: str
    action: str | None
    identity: str


class TurnCalls:
    """Reads rows of `activity_log` and of events. Holds nothing."""

    def list_live(self, reader: Reader) -> Iterator[TurnCall]:
        """Yield what each live task has done in its turn."""
        for statement in (ACTS, STEPS):
            for row in reader.fetch_tuples(statement):
                task_id, workflow, action, identity = (one and one.decode(errors="replace") for one in row)
                yield TurnCall(task_id, workflow, action, identity)
