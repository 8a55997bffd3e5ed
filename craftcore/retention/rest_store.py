"""Whether anything may still go on with a task or a trigger: then nothing of it is stripped or removed."""

from __future__ import annotations

from craftcore.storage.transaction import Reader

BUSY = """
SELECT EXISTS (
           SELECT 1
             FROM tasks
            WHERE tasks.id = :task_id
              AND (
                      status IN ('RUNNING', 'WAITING')
                   OR (status = 'FAILED' AND ended_at > :dead)
                   OR EXISTS (SELECT 1 FROM questions WHERE task_seq = tasks.seq AND status = 'OPEN')
                   OR EXISTS (SELECT 1
                                FROM activity_log
                               WHERE status IN ('INTENT', 'UNKNOWN')
                                 AND +status = 'INTENT'
                                 AND +task_seq = tasks.seq)
                   OR EXISTS (SELECT 1
                                FROM activity_log
                               WHERE task_seq = tasks.seq
                                 AND status = 'UNKNOWN'
                                 AND decision IS NULL)
                  )
       )
    OR EXISTS (SELECT 1 FROM triggers WHERE triggers.id = :trigger_id AND status IN ('PENDING', 'CLAIMED'))
"""
"""A task that failed can be tried again, for as long as a dead letter can. The plus: of calls without
an end there are fewer than of activities of a long task."""


class Rest:
    """Looks at one snapshot, and at each task once. `dead`: the horizon of dead letters."""

    def __init__(self, tx: Reader, dead: float) -> None:
        self._tx = tx
        self._dead = dead
        self._known: dict[tuple[str | None, str | None], bool] = {}

    def has(self, task_id: str | None, trigger_id: str | None) -> bool:
        """Nothing goes on with this task and this trigger, and nobody is asked about them. None: there is none."""
        key = (task_id, trigger_id)
        if key not in self._known:
            busy = self._tx.value(BUSY, task_id=task_id, trigger_id=trigger_id, dead=self._dead)
            self._known[key] = not busy
        return self._known[key]
