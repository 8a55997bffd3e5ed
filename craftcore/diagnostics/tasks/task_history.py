"""The history of a task: its newest events, with the waits, questions, decisions, records and starts around them.

Every statement reads by an index and has a limit, however long the task has lived.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from craftcore.storage.transaction import Reader
from craftcore.tasks.model import Question, Task, Wait
from craftcore.tasks.question_store import QuestionStore
from craftcore.tasks.turn_event_store import MemoStore, StreamRow
from craftcore.tasks.wait_store import wait_of

HEADS = """
SELECT id, turn, attempt, epoch, status, error_code, created_at, ended_at
  FROM executions
 WHERE task_id = ?1
   AND task_id IS NOT NULL
   AND seq >= (SELECT seq FROM executions WHERE id = ?2)
 ORDER BY seq DESC
 LIMIT ?3
"""
WAITS = """
SELECT *
  FROM waits
 WHERE task_seq = :task
   AND turn >= :turn
 ORDER BY turn DESC, name DESC
 LIMIT :limit
"""
DECISIONS = """
SELECT activity_log.idem_key, activity_log.seq, activity_log.turn, activity_log.action, decision.decision, reference,
       decided_by, decided_at
  FROM activity_log
  JOIN activity_decisions AS decision ON decision.activity_seq = activity_log.seq
 WHERE activity_log.task_seq = ?1
   AND decided_at >= ?2
 ORDER BY activity_log.seq DESC
 LIMIT ?3
"""
STARTS = """
SELECT epoch, started_at, ended_at
  FROM epochs
 WHERE epoch >= ?1
   AND epoch <= coalesce(?2, epoch)
 ORDER BY epoch DESC
 LIMIT ?3
"""
STARTS_MAX = 1_000
"""How many starts of the daemon are read."""


class Head(NamedTuple):
    """The header of a record of a turn. `ended_at` None: it runs, or its process is gone."""

    id: str
    turn: int | None
    attempt: int
    epoch: int
    status: str
    error_code: str | None
    created_at: float
    ended_at: float | None


class Start(NamedTuple):
    """A start of the daemon. `ended_at` None: it runs, or has died."""

    epoch: int
    started_at: float
    ended_at: float | None


class Decided(NamedTuple):
    """A decision about an irreversible action that was in doubt."""

    key: str
    activity_seq: int
    turn: int
    action: str
    decision: str
    reference: str | None
    decided_by: str
    decided_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHistory:
    """The rows that a picture is made of, each kind in its own order, the oldest first.

    has_more     there are older events than these
    daemon_runs  a daemon has the file: the newest start is alive
    """

    task: Task
    heads: tuple[Head, ...]
    events: tuple[StreamRow, ...]
    waits: tuple[Wait, ...]
    questions: tuple[Question, ...]
    decisions: tuple[Decided, ...]
    starts: tuple[Start, ...]
    has_more: bool
    daemon_runs: bool
    now: float


def read_task_history(reader: Reader, task: Task, now: float, *, daemon_runs: bool, limit: int) -> TaskHistory:
    """Return the newest events of a task, at most `limit`, and the rows of their time: at most as many of each kind."""
    events, has_more = MemoStore().list_newest(reader, task.id, limit)
    heads: tuple[Head, ...] = ()
    if events:
        rows = reader.fetch_tuples(HEADS, (task.id, events[0].execution_id, limit))
        heads = tuple(map(Head._make, rows))[::-1]
    turn = heads[0].turn if has_more and heads and heads[0].turn is not None else 0
    since = heads[0].created_at if has_more and heads else task.created_at
    waits = [wait_of(row) for row in reader.fetch_all(WAITS, task=task.seq, turn=turn, limit=limit)]
    questions = QuestionStore().list_newest_of_task(reader, task.seq, limit)
    return TaskHistory(
        task=task,
        heads=heads,
        events=tuple(events),
        waits=tuple(sorted(waits, key=lambda wait: (wait.created_at, wait.seq))),
        questions=tuple(one for one in questions if one.created_at >= since),
        decisions=tuple(map(Decided._make, reader.fetch_tuples(DECISIONS, (task.seq, since, limit))))[::-1],
        starts=_read_starts(reader, task, heads),
        has_more=has_more,
        daemon_runs=daemon_runs,
        now=now,
    )


def _read_starts(reader: Reader, task: Task, heads: tuple[Head, ...]) -> tuple[Start, ...]:
    """Return the starts from the first record on: up to the one after the last record when the task has ended."""
    if not heads:
        return ()
    last = None if task.status.is_live else max(head.epoch for head in heads) + 1
    rows = reader.fetch_tuples(STARTS, (min(head.epoch for head in heads), last, STARTS_MAX))
    return tuple(map(Start._make, rows))[::-1]
