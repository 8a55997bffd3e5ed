"""The ended turns of live tasks: their waits, activities and questions. Rows that the current turn reads stay. And
the streams of all ended turns, which are bodies.

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

DUE_STREAMS = """
SELECT turn_streams.seq,
       tasks.id AS task_id,
       turn_streams.turn,
       EXISTS (SELECT 1
                 FROM turn_streams AS newer
                WHERE newer.task_seq = turn_streams.task_seq
                  AND newer.name = turn_streams.name
                  AND newer.turn > turn_streams.turn) AS has_newer
  FROM turn_streams
  JOIN tasks ON tasks.seq = turn_streams.task_seq
 WHERE turn_streams.seq > :after
   AND turn_streams.seq <= :last
   AND coalesce(tasks.ended_at,
                (SELECT at FROM stream_chunks WHERE stream_seq = turn_streams.seq ORDER BY last DESC LIMIT 1),
                turn_streams.created_at) <= :bodies
 ORDER BY turn_streams.seq
 LIMIT :most
"""
"""The newest stream of a name stays as long as its task goes on, for its numbers."""


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

OLD_STREAMS = OldRows(
    table="turn_streams",
    since=lambda old: old.bodies,
    due=DUE_STREAMS,
    at_rest=InUse.can_remove_stream,
    remove=build_removal(
        stream_chunks="DELETE FROM stream_chunks WHERE stream_seq = :seq",
        turn_streams="DELETE FROM turn_streams WHERE seq = :seq",
    ),
)
