"""The only SQL of `schedules`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from craftcore.schedules.model import (
    CatchUp,
    Origin,
    Overlap,
    Schedule,
    ScheduleStatus,
)
from craftcore.schedules.recurrence.timing import Cron, Every, Once, Startup, Timing
from craftcore.storage.damaged_rows import Damaged, model_reader, read_rows
from craftcore.storage.transaction import Reader, Row, Transaction

UPSERT = """
INSERT INTO schedules (
    id, origin, declared_hash, generation, status, reason, expression, timezone, timezone_given, kind, at, anchor_at,
    step_seconds, cron, workflow, payload_json, session_id, priority, description, max_attempts, catch_up,
    catch_up_window, catch_up_max, catch_up_spacing, overlap, jitter, expires_after, start_at, until_at, max_runs,
    high_water_at, skip_to_at, next_at, runs, last_nominal_at, created_at, updated_at
) VALUES (
    :id, :origin, :declared_hash, :generation, :status, :reason, :expression, :timezone, :timezone_given, :kind, :at,
    :anchor_at, :step_seconds, :cron, :workflow, :payload_json, :session_id, :priority, :description, :max_attempts,
    :catch_up, :catch_up_window, :catch_up_max, :catch_up_spacing, :overlap, :jitter, :expires_after, :start_at,
    :until_at, :max_runs, :high_water_at, :skip_to_at, :next_at, :runs, :last_nominal_at, :created_at, :updated_at
)
ON CONFLICT (id) DO UPDATE SET
    origin           = excluded.origin,
    declared_hash    = excluded.declared_hash,
    generation       = excluded.generation,
    status           = excluded.status,
    reason           = excluded.reason,
    expression       = excluded.expression,
    timezone         = excluded.timezone,
    timezone_given   = excluded.timezone_given,
    kind             = excluded.kind,
    at               = excluded.at,
    anchor_at        = excluded.anchor_at,
    step_seconds     = excluded.step_seconds,
    cron             = excluded.cron,
    workflow         = excluded.workflow,
    payload_json     = excluded.payload_json,
    session_id       = excluded.session_id,
    priority         = excluded.priority,
    description      = excluded.description,
    max_attempts     = excluded.max_attempts,
    catch_up         = excluded.catch_up,
    catch_up_window  = excluded.catch_up_window,
    catch_up_max     = excluded.catch_up_max,
    catch_up_spacing = excluded.catch_up_spacing,
    overlap          = excluded.overlap,
    jitter           = excluded.jitter,
    expires_after    = excluded.expires_after,
    start_at         = excluded.start_at,
    until_at         = excluded.until_at,
    max_runs         = excluded.max_runs,
    high_water_at    = excluded.high_water_at,
    skip_to_at       = excluded.skip_to_at,
    next_at          = excluded.next_at,
    runs             = excluded.runs,
    last_nominal_at  = excluded.last_nominal_at,
    updated_at       = excluded.updated_at
"""


class ScheduleStore:
    """Rows of `schedules`. Holds nothing."""

    def put(self, tx: Transaction, schedule: Schedule) -> None:
        """Write the whole row, over the one with this id. Only declaring and changing do: a tick has `advance`."""
        tx.run(UPSERT, **_columns(schedule))

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
        rows = tx.fetch_all(
            """
            SELECT *
              FROM schedules
             WHERE status = 'ACTIVE'
               AND kind NOT IN ('once', 'startup')
               AND high_water_at > :now
               AND (start_at IS NULL OR high_water_at >= start_at)
             ORDER BY id
            """,
            now=now,
        )
        return [schedule_of(row) for row in rows]

    def advance(self, tx: Transaction, before: Schedule, after: Schedule) -> bool:
        """Move the high-water mark on, and what goes with it. False when it is not where `before` says: nothing is
        written then."""
        changed = tx.run(
            """
            UPDATE schedules
               SET high_water_at   = :high_water_at,
                   next_at         = :next_at,
                   runs            = :runs,
                   last_nominal_at = :last_nominal_at,
                   status          = :status,
                   reason          = :reason,
                   updated_at      = :now
             WHERE id = :id
               AND generation = :generation
               AND status = 'ACTIVE'
               AND high_water_at = :before
            """,
            id=before.id,
            generation=before.generation,
            before=before.high_water_at,
            high_water_at=after.high_water_at,
            next_at=after.next_at,
            runs=after.runs,
            last_nominal_at=after.last_nominal_at,
            status=after.status,
            reason=after.reason,
            now=tx.now,
        )
        return changed == 1

    def disable(self, tx: Transaction, schedule_id: str, reason: str, *, runs: int) -> bool:
        """Stop one that cannot go on, without reading what may be wrong in it. False when it is not active."""
        changed = tx.run(
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
            now=tx.now,
        )
        return changed == 1


_TIMING = ("kind", "at", "anchor_at", "step_seconds", "cron")
_NO_TIMING = dict.fromkeys(_TIMING)


@model_reader
def schedule_of(row: Row) -> Schedule:
    """Return the model of a full row."""
    return Schedule(
        **{
            **{name: value for name, value in row.items() if name not in _TIMING},
            "timing": _timing_of(row),
            "timezone_given": bool(row["timezone_given"]),
            "origin": Origin(row["origin"]),
            "status": ScheduleStatus(row["status"]),
            "catch_up": CatchUp(row["catch_up"]),
            "overlap": Overlap(row["overlap"]),
        }
    )


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


def _columns(schedule: Schedule) -> dict[str, Any]:
    columns: dict[str, Any] = {**asdict(schedule), **_NO_TIMING, "kind": schedule.kind}
    del columns["timing"]
    match schedule.timing:
        case Once(at=at):
            columns |= {"at": at}
        case Every(anchor_at=anchor, step_seconds=step):
            columns |= {"anchor_at": anchor, "step_seconds": step}
        case Cron(expression=expression):
            columns |= {"cron": expression}
    return columns
