"""The ended turns of live tasks: their waits, activities and questions. Rows that the current turn reads stay.

An activity with a key of its own stays for as long as its task lives, since any later turn may call it again by that
key. The newest activity of each task stays too: a FALLBACK asks whether a task has ever acted.
"""

from __future__ import annotations

from craftcore.retention.cutoffs import Horizons
from craftcore.retention.in_use_store import InUse
from craftcore.retention.model import BATCH, Found, Taken
from craftcore.retention.scan_store import WindowScan
from craftcore.storage.transaction import Reader, Transaction

FIRST_WAIT = "SELECT created_at FROM waits WHERE seq > :after ORDER BY seq LIMIT 1"
LAST_WAIT = "SELECT max(seq) FROM (SELECT seq FROM waits WHERE seq > :after ORDER BY seq LIMIT :window)"

OLD_WAITS = """
SELECT waits.seq
  FROM waits
  JOIN tasks ON tasks.seq = waits.task_seq
 WHERE waits.seq > :after
   AND waits.seq <= :last
   AND waits.resolved_at <= :history
   AND waits.turn < tasks.turn
   AND tasks.status IN ('RUNNING', 'WAITING')
   AND NOT EXISTS (SELECT 1 FROM questions WHERE questions.wait_seq = waits.seq AND questions.status = 'OPEN')
 ORDER BY waits.seq
 LIMIT :most
"""

OF_A_WAIT = {
    "mailbox": "DELETE FROM mailbox WHERE wait_seq = :seq",
    "questions": "DELETE FROM questions WHERE wait_seq = :seq",
    "waits": "DELETE FROM waits WHERE seq = :seq",
}
"""In the order in which they can go."""

FIRST_ACT = "SELECT created_at FROM activity_log WHERE seq > :after ORDER BY seq LIMIT 1"
LAST_ACT = "SELECT max(seq) FROM (SELECT seq FROM activity_log WHERE seq > :after ORDER BY seq LIMIT :window)"

OLD_ACTS = """
SELECT activity_log.seq,
       activity_log.idem_key,
       activity_log.task_id,
       activity_log.turn
  FROM activity_log
  JOIN tasks ON tasks.seq = activity_log.task_seq
 WHERE activity_log.seq > :after
   AND activity_log.seq <= :last
   AND activity_log.status IN ('DONE', 'FAILED')
   AND coalesce(activity_log.settled_at, activity_log.updated_at) <= :history
   AND activity_log.turn < tasks.turn
   AND tasks.status IN ('RUNNING', 'WAITING')
   AND activity_log.seq < (SELECT max(newer.seq) FROM activity_log AS newer WHERE newer.task_seq = tasks.seq)
   AND NOT EXISTS (SELECT 1 FROM questions WHERE activity_seq = activity_log.seq AND questions.status = 'OPEN')
 ORDER BY activity_log.seq
 LIMIT :most
"""

FIRST_QUESTION = "SELECT created_at FROM questions WHERE seq > :after ORDER BY seq LIMIT 1"
LAST_QUESTION = "SELECT max(seq) FROM (SELECT seq FROM questions WHERE seq > :after ORDER BY seq LIMIT :window)"

OLD_QUESTIONS = """
SELECT questions.seq
  FROM questions
  JOIN tasks ON tasks.seq = questions.task_seq
 WHERE questions.seq > :after
   AND questions.seq <= :last
   AND questions.closed_at <= :history
   AND wait_seq IS NULL
   AND activity_seq IS NULL
   AND tasks.status IN ('RUNNING', 'WAITING')
 ORDER BY questions.seq
 LIMIT :most
"""
"""Those that no turn waited for, like whether one is stalled."""

OF_AN_ACT = {
    "activity_decisions": "DELETE FROM activity_decisions WHERE activity_seq = :seq",
    "questions": "DELETE FROM questions WHERE activity_seq = :seq",
    "activity_log": "DELETE FROM activity_log WHERE seq = :seq",
}

WAITS = WindowScan(
    first=FIRST_WAIT,
    last=LAST_WAIT,
    due=OLD_WAITS,
    since=lambda old: old.history,
    at_rest=lambda rest, row: True,
)

ACTS = WindowScan(
    first=FIRST_ACT,
    last=LAST_ACT,
    due=OLD_ACTS,
    since=lambda old: old.history,
    at_rest=InUse.can_remove_activity,
)


QUESTIONS = WindowScan(
    first=FIRST_QUESTION,
    last=LAST_QUESTION,
    due=OLD_QUESTIONS,
    since=lambda old: old.history,
    at_rest=lambda rest, row: True,
)


class OldTurns:
    """Finds and takes rows of one table, and what hangs on each. `deletes`: by table, children first."""

    def __init__(self, rows: WindowScan, deletes: dict[str, str]) -> None:
        self._rows = rows
        self._deletes = deletes

    def find(self, tx: Reader, old: Horizons, after: int) -> Found:
        return self._rows.find(tx, old, after)

    def take(self, tx: Transaction, old: Horizons, seqs: list[int]) -> Taken:
        """Remove those that are still due, at least one."""
        taken = Taken()
        for row in self._rows.select_due(tx, old, seqs):
            if taken.rows >= BATCH:
                taken.more = True
                break
            for table, delete in self._deletes.items():
                taken.removed[table] += tx.run(delete, seq=row["seq"])
        return taken


OLD_TURNS_WAITS = OldTurns(WAITS, OF_A_WAIT)
OLD_TURNS_ACTS = OldTurns(ACTS, OF_AN_ACT)
OLD_TURNS_QUESTIONS = OldTurns(QUESTIONS, {"questions": "DELETE FROM questions WHERE seq = :seq"})
