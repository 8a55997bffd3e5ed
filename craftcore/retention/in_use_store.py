"""Which rows a task or a trigger can still read: retention neither strips nor removes those.

A task is busy while it is live, while it can be retried, while a person is asked about it, and while an activity of it
is in doubt. The last turn of a busy task keeps what a re-entry reads. Its ended turns age like everything else.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from craftcore.storage.transaction import Reader, Row

BUSY = """
SELECT seq,
       turn,
       trigger_id,
       EXISTS (SELECT 1
                 FROM activity_log
                WHERE status IN ('INTENT', 'UNKNOWN')
                  AND +status = 'INTENT'
                  AND +task_seq = tasks.seq)
    OR EXISTS (SELECT 1
                 FROM activity_log
                WHERE task_seq = tasks.seq
                  AND status = 'UNKNOWN'
                  AND decision IS NULL) AS is_in_doubt,
       status IN ('RUNNING', 'WAITING')
    OR (status = 'FAILED' AND ended_at > :dead)
    OR EXISTS (SELECT 1 FROM questions WHERE task_seq = tasks.seq AND status = 'OPEN') AS goes_on
  FROM tasks
 WHERE tasks.id = :task_id
"""
"""A task that failed can be tried again, for as long as a dead letter can. The plus: of calls without
an end there are fewer than of activities of a long task."""

LIVE = "SELECT EXISTS (SELECT 1 FROM triggers WHERE triggers.id = :trigger_id AND status IN ('PENDING', 'CLAIMED'))"
CLAIMED = "SELECT EXISTS (SELECT 1 FROM triggers WHERE triggers.id = :trigger_id AND status = 'CLAIMED')"

HAS_MEMO = "SELECT EXISTS (SELECT 1 FROM event_rows WHERE execution_seq = :seq AND memo IS NOT NULL)"

IS_EVIDENCE = """
SELECT EXISTS (SELECT 1
                 FROM event_rows
                 JOIN activity_log ON activity_log.seq = event_rows.activity_seq
                WHERE event_rows.execution_seq = :seq
                  AND (   activity_log.status = 'INTENT'
                       OR (activity_log.status = 'UNKNOWN' AND activity_log.decision IS NULL)))
"""

CHILDREN = """
SELECT payload_json ->> 'id'
  FROM event_rows
 WHERE task_seq = ?1
   AND turn = ?2
   AND memo IS NOT NULL
   AND type = 'CHILD_STARTED'
   AND json_valid(payload_json)
"""

NUMBERED = re.compile(r"\d+\.\d+(@.*)?")
"""How an act without a key of its own is known: by turn and number. No later turn asks for it."""


class Busy(NamedTuple):
    """A task that something may still go on with. `turn`: its last one; `trigger_id`: of that turn."""

    seq: int
    turn: int
    trigger_id: str | None
    is_in_doubt: bool


class InUse:
    """Answers for one snapshot, and reads each task once. `dead`: the cutoff of dead letters."""

    def __init__(self, tx: Reader, dead: float) -> None:
        self._tx = tx
        self._dead = dead
        self._busy: dict[str | None, Busy | None] = {None: None}
        self._live: dict[str | None, bool] = {None: False}
        self._children: dict[int, frozenset[str]] = {}

    def is_idle(self, task_id: str | None, trigger_id: str | None) -> bool:
        """Return whether this task and this trigger are at rest, without an open question. None: there is none."""
        if self.busy_task(task_id) is not None:
            return False
        if trigger_id not in self._live:
            self._live[trigger_id] = bool(self._tx.fetch_value(LIVE, trigger_id=trigger_id))
        return not self._live[trigger_id]

    def busy_task(self, task_id: str | None) -> Busy | None:
        """Return the task with this id while it is busy; None when it is not, or not there."""
        if task_id not in self._busy:
            row = self._tx.fetch_one(BUSY, task_id=task_id, dead=self._dead)
            is_busy = row is not None and (row.pop("goes_on") or row["is_in_doubt"])
            self._busy[task_id] = Busy(**row) if row is not None and is_busy else None
        return self._busy[task_id]

    def can_remove_record(self, row: Row) -> bool:
        """Return whether no turn reads this record again: no completed step of a last turn, no evidence of a doubt."""
        if row["chain_seq"] is None and self._tx.fetch_value(CLAIMED, trigger_id=row["trigger_id"]):
            return False  # it may be the attempt that runs
        busy = self.busy_task(row["task_id"])
        if busy is None:
            return True
        if row["turn"] == busy.turn and self._tx.fetch_value(HAS_MEMO, seq=row["seq"]):
            return False
        return not (busy.is_in_doubt and self._tx.fetch_value(IS_EVIDENCE, seq=row["seq"]))

    def can_remove_trigger(self, row: Row) -> bool:
        """Return whether the trigger may be removed: it did not begin its task, whose payload it would hold, and is not
        of the last turn."""
        busy = self.busy_task(row["task_id"])
        return busy is None or row["id"] not in (row["task_id"], busy.trigger_id)

    def can_remove_activity(self, row: Row) -> bool:
        """Return whether no later turn can ask for this activity: it has no key of its own, and its turn has ended."""
        busy = self.busy_task(row["task_id"])
        return busy is None or (row["turn"] < busy.turn and is_numbered(row["idem_key"], row["task_id"]))

    def can_remove_stream(self, row: Row) -> bool:
        """Return whether no turn goes on with this stream, nor with its numbers."""
        busy = self.busy_task(row["task_id"])
        return busy is None or (row["turn"] < busy.turn and bool(row["has_newer"]))

    def can_remove_child(self, parent_id: str | None, child_id: str) -> bool:
        """Return whether the last turn of its parent did not start it, so that none can wait for its result."""
        parent = self.busy_task(parent_id)
        if parent is None:
            return True
        if parent.seq not in self._children:
            started = self._tx.fetch_tuples(CHILDREN, (parent.seq, parent.turn))
            self._children[parent.seq] = frozenset(id for (id,) in started)
        return child_id not in self._children[parent.seq]


def is_numbered(key: str, task_id: str) -> bool:
    """Return whether an activity is known by turn and number, not by a key that its author gave.

    >>> is_numbered("activity:t:3.1", "t"), is_numbered("activity:t:order-3.1", "t")
    (True, False)
    """
    return NUMBERED.fullmatch(key.removeprefix(f"activity:{task_id}:")) is not None
