"""The ended turns of live tasks: their waits, activities and questions. Rows that the current turn reads stay.

An activity with a key of its own stays for as long as its task lives, since any later turn may call it again by that
key. The newest activity of each task stays too: a FALLBACK asks whether a task has ever acted.
"""

from __future__ import annotations

from craftcore.retention.in_use_store import InUse
from craftcore.retention.scan_store import OldRows, build_removal

DUE_WAITS = """
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

DUE_ACTIVITIES = """
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

DUE_QUESTIONS = """
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


OLD_WAITS = OldRows(
    table="waits",
    since=lambda old: old.history,
    due=DUE_WAITS,
    remove=build_removal(
        mailbox="DELETE FROM mailbox WHERE wait_seq = :seq",
        questions="DELETE FROM questions WHERE wait_seq = :seq",
        waits="DELETE FROM waits WHERE seq = :seq",
    ),
)

OLD_ACTIVITIES = OldRows(
    table="activity_log",
    since=lambda old: old.history,
    due=DUE_ACTIVITIES,
    at_rest=InUse.can_remove_activity,
    remove=build_removal(
        activity_decisions="DELETE FROM activity_decisions WHERE activity_seq = :seq",
        questions="DELETE FROM questions WHERE activity_seq = :seq",
        activity_log="DELETE FROM activity_log WHERE seq = :seq",
    ),
)

OLD_QUESTIONS = OldRows(
    table="questions",
    since=lambda old: old.history,
    due=DUE_QUESTIONS,
    remove=build_removal(questions="DELETE FROM questions WHERE seq = :seq"),
)
