"""The only SQL of `task_holds`: which live tasks the code that runs does not fit, and what is needed to judge that.

A row of a task that has ended means nothing, and goes at the next start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from craftcore.storage.damaged_rows import readable_text
from craftcore.storage.transaction import BulkStatement, Reader, Transaction

COLUMNS = """
SELECT CAST(tasks.id AS BLOB),
       CAST(tasks.workflow AS BLOB),
       CAST(tasks.agents_json AS BLOB),
       CAST(tasks.agent AS BLOB),
       CAST(tasks.state_json AS BLOB),
       CAST(triggers.payload_json AS BLOB),
       (SELECT CAST(group_concat(DISTINCT action) AS BLOB)
          FROM activity_log
         WHERE activity_log.task_seq = tasks.seq
           AND activity_log.turn = tasks.turn),
       tasks.turn > 1
       OR EXISTS (SELECT 1 FROM waits WHERE waits.task_seq = tasks.seq)
       OR EXISTS (SELECT 1 FROM event_rows AS done
                   WHERE done.task_seq = tasks.seq AND done.turn = tasks.turn AND done.memo IS NOT NULL)
"""
LIVE = f"""
{COLUMNS}
  FROM tasks
  LEFT JOIN triggers ON triggers.id = tasks.id AND triggers.stripped_at IS NULL
 WHERE tasks.status = 'RUNNING'
 UNION ALL
{COLUMNS}
  FROM (SELECT DISTINCT task_seq FROM waits WHERE status = 'WAITING') AS waiting
  JOIN tasks ON tasks.seq = waiting.task_seq AND tasks.status = 'WAITING'
  LEFT JOIN triggers ON triggers.id = tasks.id AND triggers.stripped_at IS NULL
"""  # noqa: S608 - of static statements
ONE = f"""
{COLUMNS}
  FROM tasks
  LEFT JOIN triggers ON triggers.id = tasks.id AND triggers.stripped_at IS NULL
 WHERE tasks.id = ?1
   AND tasks.status IN ('RUNNING', 'WAITING')
"""
"""As bytes: a damaged text does not stop the start."""

PUT = BulkStatement(
    """
    WITH found (task_id, reason, held_at) AS (VALUES {rows})
    INSERT INTO task_holds (task_id, reason, held_at)
    SELECT task_id, reason, held_at FROM found WHERE true
        ON CONFLICT (task_id) DO UPDATE SET reason = excluded.reason
    """,
    width=3,
)

COUNT = """
SELECT count(*)
  FROM task_holds
  JOIN tasks ON tasks.id = task_holds.task_id AND tasks.status IN ('RUNNING', 'WAITING')
"""


class LiveTask(NamedTuple):
    """The data that the code must fit, as bytes of text. `agents`: JSON, None: as its workflow declares. `agent`: the
    one of them that goes on, None: the first. `actions`: those its turn has called, separated by commas, None: none.
    `used_ctx`: a record shows something that needs a ctx."""

    id: bytes
    workflow: bytes
    agents: bytes | None
    agent: bytes | None
    state: bytes
    payload: bytes | None
    actions: bytes | None
    used_ctx: bool


class PutOff(NamedTuple):
    """The trigger that was put off while its task is held, and the reason in its row before."""

    trigger_id: str | None
    trigger_reason: str | None


class HoldStore:
    """Rows of `task_holds`. Holds nothing; every method runs on the transaction it is given."""

    def list_live(self, tx: Reader) -> Iterator[LiveTask]:
        """Return every live task, as the next turn would find it."""
        return map(LiveTask._make, tx.fetch_tuples(LIVE))

    def get_live(self, tx: Reader, task_id: str) -> LiveTask | None:
        """Return one live task; None when there is none."""
        return next(map(LiveTask._make, tx.fetch_tuples(ONE, (task_id,))), None)

    def ids(self, tx: Transaction) -> set[str]:
        """Return the live tasks that are held. Rows of others are deleted first."""
        tx.run(
            """
            DELETE FROM task_holds
             WHERE task_id NOT IN (SELECT id FROM tasks WHERE status IN ('RUNNING', 'WAITING')
                                      AND id IN (SELECT task_id FROM task_holds))
            """
        )
        return {task_id for (task_id,) in tx.fetch_tuples("SELECT task_id FROM task_holds")}

    def is_held(self, tx: Reader, task_id: str) -> bool:
        """Return whether it has a row: a person may have taken it away meanwhile."""
        return tx.fetch_value("SELECT 1 FROM task_holds WHERE task_id = :task", task=task_id) is not None

    def put_all(self, tx: Transaction, reasons: Mapping[str, str]) -> None:
        """Hold these; who is held already stays so since when it was."""
        tx.execute_many(PUT, [(task_id, reason, tx.now) for task_id, reason in reasons.items()])

    def note_put_off(self, tx: Transaction, task_id: str, trigger_id: str, trigger_reason: str | None) -> None:
        """Note that this trigger of a held task was put off."""
        tx.run(
            "UPDATE task_holds SET trigger_id = :trigger, trigger_reason = :reason WHERE task_id = :task",
            task=task_id,
            trigger=trigger_id,
            reason=trigger_reason,
        )

    def remove(self, tx: Transaction, task_id: str) -> PutOff | None:
        """Delete the row; what it said of its trigger. None when there was none."""
        row = tx.fetch_one(
            """
            DELETE FROM task_holds
             WHERE task_id = :task
            RETURNING CAST(trigger_id AS BLOB)     AS trigger_id,
                      CAST(trigger_reason AS BLOB) AS trigger_reason
            """,
            task=task_id,
        )
        return None if row is None else PutOff(readable_text(row["trigger_id"]), readable_text(row["trigger_reason"]))

    def get_reason(self, tx: Reader, task_id: str) -> str | None:
        """Return why this task is held; None when it is not. It means nothing for a task that has ended."""
        reason = "SELECT CAST(reason AS BLOB) FROM task_holds WHERE task_id = :task"
        return readable_text(tx.fetch_value(reason, task=task_id))

    def count(self, tx: Reader) -> int:
        """Return how many live tasks are held."""
        return int(tx.fetch_value(COUNT))
