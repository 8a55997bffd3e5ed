"""Which task a trigger belongs to, and which trigger comes after it."""

from __future__ import annotations

from craftcore.storage.transaction import Reader
from craftcore.tasks import store
from craftcore.tasks.model import Task
from craftcore.tasks.store import PARENT_ENDED, TaskStore
from craftcore.triggers.model import Trigger
from craftcore.triggers.settlement import SUSPENDED
from craftcore.triggers.sources import turn_key

DELIVERED_TO = """
SELECT nullif(events.payload_json, '') ->> 'task'
  FROM executions
  JOIN events ON events.execution_seq = executions.seq
 WHERE executions.id >= :low
   AND executions.id < :high
   AND events.type = 'DELIVERED'
"""
TURN = "SELECT max(turn) FROM executions WHERE id >= :low AND id < :high"
WAKE = """
SELECT triggers.dedup_key
  FROM waits
  JOIN triggers ON (   triggers.dedup_key = 'wake:' || waits.id
                    OR triggers.dedup_key > 'wake:' || waits.id || ':'
                   AND triggers.dedup_key < 'wake:' || waits.id || ';')
 WHERE task_seq = :task
   AND turn = :turn
   AND triggers.dedup_key IS NOT NULL
   AND triggers.seq > :trigger
 ORDER BY triggers.seq
 LIMIT 1
"""
"""The key of the first trigger after this one that goes on with a turn: a wait may outlast several."""
ENDED_WITH = """
SELECT *
  FROM tasks
 WHERE EXISTS (SELECT 1
                 FROM executions
                 JOIN event_rows ON event_rows.execution_seq = executions.seq
                WHERE task_id = :id
                  AND task_id IS NOT NULL
                  AND type = 'CHILD_STARTED')
   AND seq > :seq
   AND parent_id = :id
   AND ends_with_parent = 1
   AND +status = 'CANCELLED'
   AND reason = :reason
 ORDER BY seq
"""
"""No index finds these children: the tasks after their parent are read, unless it never started one."""

FIRST_DUE = "SELECT fire_at FROM triggers WHERE id = :id AND starts = 0 AND fire_at > :now"
LATER = "continues later"
"""The wait that begins the next turn, in the reason of a trigger whose turn waits."""


def task_of(reader: Reader, trigger: Trigger) -> Task | None:
    """Return the task that a trigger created, advances, or was delivered to; None when it has to do with none."""
    task_id = task_id_of(reader, trigger)
    return None if task_id is None else TaskStore().get(reader, task_id)


def task_id_of(reader: Reader, trigger: Trigger) -> str | None:
    """Return its id, whose row retention may have taken."""
    if trigger.reason == "delivered":
        delivered: str | None = reader.fetch_value(DELIVERED_TO, **_records(trigger))
        return delivered
    return trigger.id if reader.fetch_value("SELECT 1 FROM tasks WHERE id = :id", id=trigger.id) else trigger.task_id


def next_key(reader: Reader, trigger: Trigger, task: Task) -> str | None:
    """Return the dedup key of the trigger that goes on with the task after this one; None when no turn follows it."""
    turn = reader.fetch_value(TURN, **_records(trigger))
    if turn is None or trigger.reason is None:
        return None
    if trigger.reason == "continued":
        return turn_key(task.id, turn + 1)
    if not trigger.reason.startswith(SUSPENDED):
        return None
    begun = turn + 1 if trigger.reason.removeprefix(SUSPENDED) == LATER else turn
    key: str | None = reader.fetch_value(WAKE, task=task.seq, turn=begun, trigger=trigger.seq)
    return key


def list_ended_with(reader: Reader, parent: Task) -> list[Task]:
    """Return the children that were cancelled because this task ended, in order."""
    found = reader.fetch_all(ENDED_WITH, id=parent.id, seq=parent.seq, reason=PARENT_ENDED)
    return [store.task_of(row) for row in found]


def find_first_due(reader: Reader, task: Task, now: float) -> float | None:
    """Return when a task that never began was to begin; None: it began, or that was before now."""
    moment: float | None = reader.fetch_value(FIRST_DUE, id=task.id, now=now)
    return moment


def _records(trigger: Trigger) -> dict[str, str]:
    """Return the span of the ids of its records."""
    return {"low": f"exec-{trigger.id}.", "high": f"exec-{trigger.id}/"}
