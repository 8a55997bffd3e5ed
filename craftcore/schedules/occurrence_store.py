"""The only SQL of the account: what became of each occurrence, and what of a schedule is still at work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import NamedTuple

from craftcore.schedules.model import FireCause, Occurrence, Outcome, Schedule
from craftcore.serialization.canonical import canonicalize
from craftcore.storage.damaged_rows import model_of, model_reader
from craftcore.storage.transaction import Reader, Row, Transaction

_INSERTED = [field.name for field in fields(Occurrence) if field.name != "seq"]

INSERT = f"""
INSERT INTO schedule_occurrences ({", ".join(_INSERTED)})
VALUES (:{", :".join(_INSERTED)})
ON CONFLICT (schedule_id, nominal_at, cause, generation) WHERE outcome <> 'skipped' DO NOTHING
"""  # noqa: S608 - the columns of the model

TRIGGER_STATUS = """
SELECT triggers.status AS trigger_status,
       triggers.reason AS trigger_reason,
       tasks.status    AS task_status,
       tasks.reason    AS task_reason
  FROM triggers
  LEFT JOIN tasks ON tasks.id = triggers.id
 WHERE triggers.id = :id
"""
"""The present state of a trigger, and of the task that it created, which goes on after it."""

_OF_SCHEDULE = """
SELECT id
  FROM {table}
 WHERE schedule_id = :id
   AND schedule_id IS NOT NULL
   AND status IN {states}
 LIMIT 1
"""
LIVE_TRIGGER = _OF_SCHEDULE.format(table="triggers", states=("PENDING", "CLAIMED"))
LIVE_TASK = _OF_SCHEDULE.format(table="tasks", states=("RUNNING", "WAITING"))


class RunningOccurrence(NamedTuple):
    """The unfinished part of an earlier occurrence: its task, which has the id of its trigger; or the trigger alone."""

    noun: str
    id: str

    def __str__(self) -> str:
        return f"{self.noun} {self.id}"

    @property
    def is_not_over(self) -> str:
        """`task 0190… has not ended`"""
        return f"{self} has not ended" if self.noun == "task" else f"{self} is not settled"

    @property
    def is_over(self) -> str:
        """`task 0190… has ended`"""
        return f"{self} has ended" if self.noun == "task" else f"{self} is settled"


class AccountStore:
    """Rows of `schedule_occurrences`. Holds nothing."""

    def insert(self, tx: Transaction, line: Occurrence) -> bool:
        """Add a line; its `seq` is assigned here. False when this occurrence fired or is buffered already."""
        return tx.run_one(INSERT, **{name: getattr(line, name) for name in _INSERTED})

    def extend(self, tx: Transaction, schedule: Schedule, nominal_at: float, reason: str) -> bool:
        """Let the newest line say of one occurrence more that it was skipped. False when it says something else: then
        the occurrence needs a line of its own."""
        return tx.run_one(
            """
            UPDATE schedule_occurrences
               SET last_at    = :nominal_at,
                   count      = count + 1,
                   decided_at = :now
             WHERE seq = (SELECT max(seq) FROM schedule_occurrences WHERE schedule_id = :id)
               AND generation = :generation
               AND cause = 'time'
               AND outcome = 'skipped'
               AND reason = :reason
               AND last_at < :nominal_at
            """,
            id=schedule.id,
            generation=schedule.generation,
            nominal_at=nominal_at,
            reason=reason,
        )

    def find_occurrence(
        self, tx: Reader, schedule: Schedule, nominal_at: float, causes: Sequence[FireCause]
    ) -> Occurrence | None:
        """Return the line of this moment that fired or waits, for one of these causes; None when there is none.

        A one-time schedule whose id is used again may come at the same moment again; a slot of a recurring one not.
        """
        row = tx.fetch_one(
            """
            SELECT *
              FROM schedule_occurrences
             WHERE schedule_id = :id
               AND nominal_at = :nominal_at
               AND outcome <> 'skipped'
               AND cause IN (SELECT value FROM json_each(:causes))
               AND (generation = :generation OR NOT :one_time)
             LIMIT 1
            """,
            id=schedule.id,
            nominal_at=nominal_at,
            causes=canonicalize(list(causes)),
            generation=schedule.generation,
            one_time=schedule.is_one_time,
        )
        return occurrence_of(row) if row else None

    def close_buffered(self, tx: Transaction, line: Occurrence, outcome: Outcome, *, of: str) -> bool:
        """Write that a buffered occurrence has fired (`of`: the id of the trigger) or is skipped (`of`: why). False
        when it did."""
        return tx.run_one(
            """
            UPDATE schedule_occurrences
               SET outcome    = :outcome,
                   trigger_id = CASE WHEN :outcome = 'fired' THEN :of END,
                   reason     = CASE WHEN :outcome = 'fired' THEN reason ELSE :of END,
                   decided_at = :now
             WHERE seq = :seq
               AND outcome = 'buffered'
            """,
            seq=line.seq,
            outcome=outcome,
            of=of,
        )

    def list_buffered(self, tx: Reader, schedule_id: str) -> list[Occurrence]:
        """Return what waits for an earlier occurrence of this schedule, oldest first."""
        rows = tx.fetch_all(
            """
            SELECT *
              FROM schedule_occurrences
             WHERE schedule_id = :id
               AND outcome = 'buffered'
             ORDER BY nominal_at
            """,
            id=schedule_id,
        )
        return [occurrence_of(row) for row in rows]

    def ready(self, tx: Reader, limit: int) -> list[Occurrence]:
        """Return the oldest buffered occurrence of each schedule of which nothing is at work any more."""
        rows = tx.fetch_all(
            """
            SELECT *
              FROM schedule_occurrences AS waiting
             WHERE outcome = 'buffered'
               AND seq = (SELECT seq
                            FROM schedule_occurrences
                           WHERE schedule_id = waiting.schedule_id
                             AND outcome = 'buffered'
                           ORDER BY nominal_at, seq
                           LIMIT 1)
               AND NOT EXISTS (SELECT 1
                                 FROM triggers
                                WHERE triggers.schedule_id = waiting.schedule_id
                                  AND triggers.schedule_id IS NOT NULL
                                  AND triggers.status IN ('PENDING', 'CLAIMED'))
               AND NOT EXISTS (SELECT 1
                                 FROM tasks
                                WHERE tasks.schedule_id = waiting.schedule_id
                                  AND tasks.schedule_id IS NOT NULL
                                  AND tasks.status IN ('RUNNING', 'WAITING'))
             LIMIT :limit
            """,
            limit=limit,
        )
        return [occurrence_of(row) for row in rows]

    def list_history(self, tx: Reader, schedule_id: str, limit: int) -> list[Occurrence]:
        """Return the newest lines of the account, newest first."""
        rows = tx.fetch_all(
            "SELECT * FROM schedule_occurrences WHERE schedule_id = :id ORDER BY seq DESC LIMIT :limit",
            id=schedule_id,
            limit=limit,
        )
        return [occurrence_of(row) for row in rows]

    def live_trigger(self, tx: Reader, schedule_id: str) -> str | None:
        """Return a trigger of this schedule that is not settled; None when there is none."""
        found: str | None = tx.fetch_value(LIVE_TRIGGER, id=schedule_id)
        return found

    def live_task(self, tx: Reader, schedule_id: str) -> str | None:
        """Return a task of this schedule that has not ended; None when there is none."""
        found: str | None = tx.fetch_value(LIVE_TASK, id=schedule_id)
        return found

    def running_occurrence(self, tx: Reader, schedule_id: str) -> RunningOccurrence | None:
        """Return what is not over of an earlier occurrence; None when nothing is."""
        if (task_id := self.live_task(tx, schedule_id)) is not None:
            return RunningOccurrence("task", task_id)
        trigger_id = self.live_trigger(tx, schedule_id)
        return None if trigger_id is None else RunningOccurrence("trigger", trigger_id)

    def last_trigger(self, tx: Reader, schedule_id: str) -> Row:
        """Return `last_trigger_id`, `last_trigger_status` and `last_fired_at`: of the newest occurrence that fired, by
        hand or at a start, too; None where none did, or its row is gone."""
        found = tx.fetch_one(
            """
            SELECT triggers.id     AS last_trigger_id,
                   triggers.status AS last_trigger_status,
                   schedule_occurrences.nominal_at AS last_fired_at
              FROM schedule_occurrences
              JOIN triggers ON triggers.id = trigger_id
             WHERE schedule_occurrences.schedule_id = :id
               AND outcome = 'fired'
             ORDER BY schedule_occurrences.seq DESC
             LIMIT 1
            """,
            id=schedule_id,
        )
        return found or {"last_trigger_id": None, "last_trigger_status": None, "last_fired_at": None}

    def list_unstarted_triggers(self, tx: Reader, schedule_id: str, *, after: float = -1.0) -> list[str]:
        """Return the ids of its triggers that are accepted, have not started, and are of a moment after that."""
        rows = tx.fetch_all(
            """
            SELECT id
              FROM triggers
             WHERE schedule_id = :id
               AND schedule_id IS NOT NULL
               AND status IN ('PENDING', 'CLAIMED')
               AND started_at IS NULL
               AND nominal_at > :after
            """,
            id=schedule_id,
            after=after,
        )
        return [row["id"] for row in rows]


@model_reader
def occurrence_of(row: Row) -> Occurrence:
    """Return the model of a line of the account."""
    return model_of(Occurrence, row)
