"""The SQL of the clocks: what they did (`clock_events`), and live rows that were written while the wall clock was
ahead. These are found by their own stamps, and set back with the clock.

A row whose stamp lies in the future was written by a clock that was ahead. Moments that follow from a delay (a trigger
without a given time, a backoff, a sleep, a timeout, a deadline) move back as much as the clock did. A moment that a
user gave stays. The stamps move, too, so a second step finds the rows as the first one left them.

A one-time schedule such as `in 17m` needs no stamp: its moment less its delay is when it was read.
"""

from __future__ import annotations

from craftcore.schedules.model import Schedule
from craftcore.schedules.store import ScheduleStore
from craftcore.schedules.transitions import read_at, set_back
from craftcore.storage.transaction import Reader, Row, Transaction
from craftcore.triggers.model import LIMITED_UNTIL

EVENTS_MAX = 1000
"""Rows of `clock_events` that stay: what the clocks of the machine did."""

TOLERANCE = 5.0
"""Seconds that a stamp may lie in the future: a clock that is slewed has written it."""

NEWEST = 1_000
"""Triggers that a start looks at before it reads all that are live."""

LATEST = """
SELECT max(stamp)
  FROM (SELECT max(max(created_at, updated_at)) AS stamp FROM triggers WHERE status IN ('PENDING', 'CLAIMED')
         UNION ALL
        SELECT max(created_at) FROM waits WHERE status = 'WAITING')
"""

AHEAD = """
SELECT count(*)
  FROM triggers
 WHERE status = 'PENDING'
   AND due_at > :now
   AND max(created_at, updated_at) > :now + :tolerance
   AND due_at < :held
   AND NOT (at_given AND not_before IS NULL)
"""
"""How many wait for a time that a clock ahead has set."""

TRIGGERS = """
WITH moved AS (
    SELECT seq,
           CASE
             WHEN created_at > :limit AND NOT at_given THEN fire_at - :step
             WHEN fire_at > :now AND fire_at = updated_at THEN fire_at - :step
             WHEN fire_at > :now AND fire_at < updated_at AND NOT at_given THEN fire_at - :step
             ELSE fire_at
           END AS fire_at,
           CASE
             WHEN not_before <= :now OR not_before >= :held OR reason = 'snoozed' THEN not_before
             ELSE not_before - :step
           END AS not_before,
           CASE WHEN created_at > :limit THEN created_at - :step ELSE created_at END AS created_at,
           CASE WHEN updated_at > :limit THEN updated_at - :step ELSE updated_at END AS updated_at
      FROM triggers
     WHERE status IN ('PENDING', 'CLAIMED')
       AND max(created_at, updated_at) > :limit
)
UPDATE triggers
   SET fire_at    = moved.fire_at,
       not_before = moved.not_before,
       due_at     = max(moved.fire_at, coalesce(moved.not_before, moved.fire_at)),
       created_at = moved.created_at,
       updated_at = moved.updated_at
  FROM moved
 WHERE triggers.seq = moved.seq
"""
"""A fire time equal to the last stamp was made due at that moment. One before it had come by the clock ahead."""

QUESTIONS = """
UPDATE questions
   SET expires_at = expires_at - :step,
       created_at = created_at - :step
 WHERE status = 'OPEN'
   AND created_at > :limit
"""

WAITS = """
UPDATE waits
   SET due_at     = CASE WHEN at_given THEN due_at ELSE due_at - :step END,
       created_at = created_at - :step
 WHERE status = 'WAITING'
   AND created_at > :limit
"""

TASKS = """
UPDATE tasks
   SET deadline_at = CASE WHEN created_at > :limit THEN deadline_at - :step ELSE deadline_at END,
       created_at  = CASE WHEN created_at > :limit THEN created_at - :step ELSE created_at END,
       updated_at  = CASE WHEN updated_at > :limit THEN updated_at - :step ELSE updated_at END
 WHERE status IN ('RUNNING', 'WAITING')
   AND max(created_at, updated_at) > :limit
"""


class ClockStepStore:
    """Rows stamped ahead of the clock. Every method runs on the transaction it is given."""

    def __init__(self) -> None:
        self._schedules = ScheduleStore()

    def may_be_ahead(self, tx: Reader, now: float) -> bool:
        """Return whether one of the newest triggers, or a one-time schedule, was written by a clock that was ahead."""
        latest: float | None = tx.fetch_value(
            "SELECT max(created_at) FROM (SELECT created_at FROM triggers ORDER BY seq DESC LIMIT :most)", most=NEWEST
        )
        return (latest is not None and latest > now + TOLERANCE) or bool(self.list_schedules_ahead(tx, now))

    def latest_stamp(self, tx: Reader, now: float) -> float:
        """Return the latest stamp of a live row, or moment after `now` at which a one-time schedule was read; 0.0:
        none."""
        latest: float | None = tx.fetch_value(LATEST)
        return max([latest or 0.0, *(at for at, _ in self.list_schedules_ahead(tx, now))])

    def list_schedules_ahead(self, tx: Reader, now: float) -> list[tuple[float, Schedule]]:
        """Return the one-time schedules whose delay was counted from a moment ahead of `now`, each with that moment.

        A damaged row is left out: it fires nothing.
        """
        found = [one for one in self._schedules.list_one_time_after(tx, now + TOLERANCE) if isinstance(one, Schedule)]
        return [(at, one) for one in found if (at := read_at(one)) is not None and at > now + TOLERANCE]

    def count_ahead(self, tx: Reader, now: float) -> int:
        """Return how many triggers wait for a time that was set while the clock was ahead."""
        count: int = tx.fetch_value(AHEAD, now=now, held=LIMITED_UNTIL, tolerance=TOLERANCE)
        return count

    def set_back(self, tx: Transaction, step: float) -> int:
        """Move everything that is stamped ahead of now back by `step` seconds; then, what still is, by as much as makes
        the latest of it now. The number of triggers and schedules that changed.

        Without a known step (0), the latest row counts as written now: it comes late, never early.
        """
        changed = self._shift(tx, step) if step > 0 else 0
        if (latest := self.latest_stamp(tx, tx.now)) > tx.now + TOLERANCE:
            changed += self._shift(tx, latest - tx.now)
        return changed

    def _shift(self, tx: Transaction, step: float) -> int:
        limit = tx.now + TOLERANCE
        changed = tx.run(TRIGGERS, step=step, limit=limit, held=LIMITED_UNTIL)
        for statement in (QUESTIONS, WAITS, TASKS):
            tx.run(statement, step=step, limit=limit)
        schedules = self.list_schedules_ahead(tx, tx.now)
        for _, schedule in schedules:
            self._schedules.put(tx, set_back(schedule, step, tx.now))
        return changed + len(schedules)


def record(tx: Transaction, epoch: int | None, kind: str, seconds: float) -> None:
    """Write an event, and delete the oldest ones beyond `EVENTS_MAX`."""
    tx.run(
        "INSERT INTO clock_events (at, kind, seconds, epoch) VALUES (:now, :kind, :seconds, :epoch)",
        kind=kind,
        seconds=seconds,
        epoch=epoch,
    )
    tx.run(
        "DELETE FROM clock_events WHERE seq <= (SELECT max(seq) FROM clock_events) - :most",
        most=EVENTS_MAX,
    )


def last_clock_event(tx: Reader) -> Row | None:
    """Return the newest event. Return None before the first."""
    return tx.fetch_one("SELECT at, kind, seconds FROM clock_events ORDER BY seq DESC LIMIT 1")
