"""Tasks that ended long ago, with all that hangs on them: children before parents."""

from __future__ import annotations

from craftcore.retention.model import BATCH, Taken
from craftcore.retention.scan_store import OldRows
from craftcore.storage.transaction import Row, Transaction

TASKS = 100
"""In one batch: each asks after eight tables, whether it has anything there or not."""

DUE = """
SELECT *
  FROM (SELECT seq,
               id,
               parent_id,
               seq = (SELECT max(seq) FROM tasks)
            OR EXISTS (SELECT 1
                         FROM activity_log
                        WHERE task_seq = tasks.seq
                          AND (status IN ('INTENT', 'UNKNOWN') OR seq = (SELECT max(seq) FROM activity_log)))
               AS is_kept,
               state_json <> 'null'
            OR result_json IS NOT NULL
            OR error_message IS NOT NULL
            OR progress_json IS NOT NULL
            OR reply_json IS NOT NULL
            OR EXISTS (SELECT 1 FROM turn_streams WHERE task_seq = tasks.seq)
            OR EXISTS (SELECT 1 FROM waits WHERE task_seq = tasks.seq)
            OR EXISTS (SELECT 1 FROM questions WHERE task_seq = tasks.seq)
            OR EXISTS (SELECT 1 FROM mailbox WHERE task_seq = tasks.seq) AS has_bodies
          FROM tasks
         WHERE seq > :after
           AND seq <= :last
           AND ended_at <= :history)
 WHERE NOT is_kept
    OR has_bodies
 ORDER BY seq
 LIMIT :most
"""
"""The newest task and the newest activity stay for their numbers, and a doubt for ever: they and their decisions."""

LEDGER = ("activity_decisions", "activity_log", "tasks")
"""The rows that stay of a task that is kept."""

CHILDREN = {
    "activity_decisions": """
        DELETE FROM activity_decisions
         WHERE seq IN (SELECT activity_decisions.seq
                         FROM activity_log
                         JOIN activity_decisions ON activity_decisions.activity_seq = activity_log.seq
                        WHERE activity_log.task_seq = :task
                        LIMIT :most)
        """,
    "questions": "DELETE FROM questions WHERE seq IN (SELECT seq FROM questions WHERE task_seq = :task LIMIT :most)",
    "activity_log": """
        DELETE FROM activity_log WHERE seq IN (SELECT seq FROM activity_log WHERE task_seq = :task LIMIT :most)
        """,
    "mailbox": "DELETE FROM mailbox WHERE seq IN (SELECT seq FROM mailbox WHERE task_seq = :task LIMIT :most)",
    "waits": "DELETE FROM waits WHERE seq IN (SELECT seq FROM waits WHERE task_seq = :task LIMIT :most)",
    "stream_chunks": """
        DELETE FROM stream_chunks
         WHERE (stream_seq, last) IN (SELECT stream_seq, last
                                        FROM turn_streams
                                        JOIN stream_chunks ON stream_seq = turn_streams.seq
                                       WHERE task_seq = :task
                                       LIMIT :most)
        """,
    "turn_streams": """
        DELETE FROM turn_streams WHERE seq IN (SELECT seq FROM turn_streams WHERE task_seq = :task LIMIT :most)
        """,
    "tasks": "DELETE FROM tasks WHERE seq = :task AND :most > 0",
}
"""In the order in which they can go."""

STRIP = """
UPDATE tasks
   SET state_json    = 'null',
       result_json   = NULL,
       error_message = NULL,
       progress_json = NULL,
       reply_json    = NULL
 WHERE seq = :seq
"""


def _remove(tx: Transaction, row: Row, taken: Taken) -> None:
    """Remove or strip a task; of one with many children as many as the batch may hold."""
    for table, delete in CHILDREN.items():
        if row["is_kept"] and table in LEDGER:
            continue
        taken.removed[table] += tx.run(delete, task=row["seq"], most=BATCH - taken.rows)
        if taken.rows >= BATCH and table != "tasks":
            taken.more = True
            return
    if row["is_kept"]:
        taken.stripped["tasks"] += tx.run(STRIP, seq=row["seq"])
    taken.tasks.append(row["id"])


OLD_TASKS = OldRows(
    table="tasks",
    since=lambda old: old.history,
    due=DUE,
    at_rest=lambda rest, row: rest.is_idle(row["id"], row["id"]) and rest.can_remove_child(row["parent_id"], row["id"]),
    remove=_remove,
    most=TASKS,
)
