"""The only SQL of `schedules`."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from craftcore.schedules.model import Origin, Schedule
from craftcore.schedules.recurrence.timing import Cron, Every, Once, Startup, Timing
from craftcore.storage.damaged_rows import Damaged, model_of, model_reader, read_rows, readable_value
from craftcore.storage.transaction import Reader, Row, Transaction

_TIMING = ("kind", "at", "anchor_at", "step_seconds", "cron")
_NO_TIMING = dict.fromkeys(_TIMING)
_COLUMNS = (*(field.name for field in fields(Schedule) if field.name != "timing"), *_TIMING)
_CHANGING = [name for name in _COLUMNS if name not in ("id", "created_at")]

UPSERT = f"""
INSERT INTO schedules ({", ".join(_COLUMNS)})
VALUES (:{", :".join(_COLUMNS)})
ON CONFLICT (id) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _CHANGING)}
"""  # noqa: S608 - the columns of the model

_ADVANCED = ("high_water_at", "next_at", "runs", "last_nominal_at", "status", "reason")
"""The columns that a tick changes."""

ADVANCE = f"""
UPDATE schedules
   SET {", ".join(f"{name} = :{name}" for name in _ADVANCED)}, updated_at = :now
 WHERE id = :id
   AND generation = :generation
   AND status = 'ACTIVE'
   AND high_water_at = :before
"""  # noqa: S608 - the columns of the model

AHEAD = """
  FROM schedules
 WHERE status = 'ACTIVE'
   AND kind NOT IN ('once', 'startup')
   AND high_water_at > :now
   AND (start_at IS NULL OR high_water_at >= start_at)
 ORDER BY id
"""

IDS_LIKE = """
SELECT id, status = 'REMOVED' AS removed
  FROM schedules
 WHERE id >= :given
   AND id < :end
   AND (id = :given OR :removed OR status <> 'REMOVED')
 ORDER BY id
 LIMIT 11
"""

AHEAD = """
  FROM schedules
 WHERE status = 'ACTIVE'
   AND kind NOT IN ('once', 'startup')
   AND high_water_at > :now
   AND (start_at IS NULL OR high_water_at >= start_at)
 ORDER BY id
"""


class ScheduleStore:
    """Rows of `schedules`. Holds nothing."""

    def put(self, tx: Transaction, schedule: Schedule) -> None:
        """Write the whole row, over the one with this id. Only declaring and changing do: a tick has `advance`."""
        tx.run(UPSERT, **columns_of(schedule))

    def get(self, tx: Reader, schedule_id: str) -> Schedule | None:
        """Return None when there is none, removed ones included."""
        row = tx.fetch_one("SELECT * FROM schedules WHERE id = :id", id=schedule_id)
        return schedule_of(row) if row else None

    def list_due(self, tx: Reader, now: float, limit: int) -> list[Schedule]:
        """Return those whose next occurrence has come, the longest waiting first."""
        rows = tx.fetch_all(
            """
            SELECT *
              FROM schedules
             WHERE next_at IS NOT NULL
               AND next_at <= :now
             ORDER BY next_at, rowid
             LIMIT :limit
            """,
            now=now,
            limit=limit,
        )
        return [schedule_of(row) for row in rows]

    def next_occurrence_at(self, tx: Reader) -> float | None:
        """Return the time of the next occurrence of all schedules; None when there is none."""
        moment: float | None = tx.fetch_value("SELECT min(next_at) FROM schedules WHERE next_at IS NOT NULL")
        return moment

    def list_all(self, tx: Reader, *, removed: bool = False, limit: int = 1_000_000) -> list[Schedule | Damaged]:
        """Return schedules, by id."""
        return read_rows(
            tx,
            "SELECT * FROM schedules WHERE status <> 'REMOVED' OR :removed ORDER BY id LIMIT :limit",
            schedule_of,
            removed=int(removed),
            limit=limit,
        )

    def list_page(self, tx: Reader, limit: int, *, after: str = "", removed: bool = False) -> list[Schedule | Damaged]:
        """Return the schedules whose id comes after that one, by id."""
        return read_rows(
            tx,
            """
            SELECT *
              FROM schedules
             WHERE id > :after
               AND (status <> 'REMOVED' OR :removed)
             ORDER BY id
             LIMIT :limit
            """,
            schedule_of,
            after=after,
            removed=int(removed),
            limit=limit,
        )

    def list_of_origin(self, tx: Reader, origin: Origin) -> list[Schedule]:
        """Return those that this origin declared and that are not removed."""
        rows = tx.fetch_all("SELECT * FROM schedules WHERE origin = :origin AND status <> 'REMOVED'", origin=origin)
        return [schedule_of(row) for row in rows]

    def list_one_time_after(self, tx: Reader, moment: float) -> list[Schedule | Damaged]:
        """Return those of one moment that have not finished and come later than `moment`, by id."""
        return read_rows(
            tx,
            """
            SELECT *
              FROM schedules
             WHERE kind = 'once'
               AND status IN ('ACTIVE', 'PAUSED', 'DISABLED')
               AND at > :moment
             ORDER BY id
            """,
            schedule_of,
            moment=moment,
        )

    def list_startup(self, tx: Reader) -> list[Schedule]:
        """Return the active ones that fire when a daemon starts."""
        rows = tx.fetch_all("SELECT * FROM schedules WHERE kind = 'startup' AND status = 'ACTIVE' ORDER BY id")
        return [schedule_of(row) for row in rows]

    def list_ahead(self, tx: Reader, now: float) -> list[Schedule]:
        """Return those accounted for beyond `now`: a wrong clock has been here, and they wait until it is right
        again."""
        return [schedule_of(row) for row in tx.fetch_all(f"SELECT * {AHEAD}", now=now)]

    def list_ids_ahead(self, tx: Reader, now: float) -> list[str]:
        """Return the ids of those, whatever else of their rows is damaged."""
        rows = tx.fetch_all(f"SELECT CAST(id AS BLOB) AS id {AHEAD}", now=now)
        return [str(readable_value(row["id"])) for row in rows]

    def advance(self, tx: Transaction, before: Schedule, after: Schedule) -> bool:
        """Move the high-water mark on, and what goes with it. False when it is not where `before` says: nothing is
        written then."""
        return tx.run_one(
            ADVANCE,
            id=before.id,
            generation=before.generation,
            before=before.high_water_at,
            **{name: getattr(after, name) for name in _ADVANCED},
        )

    def disable(self, tx: Transaction, schedule_id: str, reason: str, *, runs: int) -> bool:
        """Stop one that cannot go on, without reading what may be wrong in it. False when it is not active."""
        return tx.run_one(
            """
            UPDATE schedules
               SET status     = 'DISABLED',
                   reason     = :reason,
                   runs       = :runs,
                   next_at    = NULL,
                   updated_at = :now
             WHERE id = :id
               AND status = 'ACTIVE'
            """,
            id=schedule_id,
            reason=reason,
            runs=runs,
        )


@model_reader
def schedule_of(row: Row) -> Schedule:
    """Return the model of a full row."""
    return model_of(Schedule, row, timing=_timing_of(row))


def _timing_of(row: Row) -> Timing:
    match row["kind"]:
        case "once":
            return Once(at=row["at"])
        case "every":
            return Every(anchor_at=row["anchor_at"], step_seconds=row["step_seconds"])
        case "cron":
            return Cron(expression=row["cron"], timezone=row["timezone"])
        case _:
            return Startup()


def columns_of(schedule: Schedule) -> dict[str, Any]:
    """Return the values of its row, by column."""
    columns = asdict(schedule)
    timing = columns.pop("timing")
    timing["cron"] = timing.pop("expression", None)
    return {**_NO_TIMING, **timing, **columns, "kind": schedule.kind}
