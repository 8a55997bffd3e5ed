"""The only SQL of triggers as people see them: lists, counts and prefixes of ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from craftcore.storage.damaged_rows import Damaged, read_rows, readable_text
from craftcore.storage.transaction import Reader
from craftcore.triggers.model import HELD_UNTIL, LIMITED_UNTIL, Trigger
from craftcore.triggers.store import trigger_of

LATELY = 86_400.0
"""Seconds for which a failure is news."""


WELL = """
well AS MATERIALIZED (
    SELECT failing.schedule_id,
           (SELECT newest.nominal_at
              FROM (SELECT seq, nominal_at, trigger_id
                      FROM schedule_occurrences
                     WHERE schedule_occurrences.schedule_id = failing.schedule_id
                     ORDER BY seq DESC
                     LIMIT 100) AS newest
              JOIN triggers ON triggers.id = newest.trigger_id
              LEFT JOIN tasks ON tasks.id = newest.trigger_id
             WHERE coalesce(tasks.status = 'DONE', triggers.status = 'DONE' AND triggers.reason = 'succeeded')
             ORDER BY newest.seq DESC
             LIMIT 1) AS succeeded_at
      FROM (SELECT DISTINCT schedule_id FROM ended WHERE schedule_id IS NOT NULL) AS failing
)"""
"""The schedules of what `ended` badly, each with the newest occurrence that succeeded."""

FAILED_SINCE = """
WITH ended AS MATERIALIZED (
    SELECT schedule_id, nominal_at, settled_at, error_code
      FROM triggers INDEXED BY triggers_failed
     WHERE status = 'FAILED'
       AND settled_at > :since
       AND reason = error_code
),{well}
SELECT count(*) AS count, CAST(max(printf('%020.6f', settled_at) || coalesce(error_code, '')) AS BLOB) AS newest
  FROM ended
  LEFT JOIN well ON well.schedule_id = ended.schedule_id
 WHERE well.succeeded_at IS NULL
    OR well.succeeded_at <= ended.nominal_at
"""
"""The failures since a moment, without those of a schedule that has succeeded after them."""

DEAD_SINCE = """
WITH ended AS MATERIALIZED (
    SELECT schedule_id, nominal_at
      FROM (SELECT schedule_id, nominal_at
              FROM triggers INDEXED BY triggers_dead
             WHERE status = 'DEAD'
               AND settled_at > :since
             ORDER BY settled_at DESC
             LIMIT :looked)
     WHERE schedule_id IS NOT NULL
),{well}
SELECT (SELECT count(*) FROM triggers INDEXED BY triggers_dead WHERE status = 'DEAD' AND settled_at > :since)
     - (SELECT count(*)
          FROM ended
          JOIN well ON well.schedule_id = ended.schedule_id
         WHERE well.succeeded_at > ended.nominal_at)
"""
"""The same of dead letters: all are counted by the index alone, and of the newest those of such a schedule left out."""

LOOKED = 1_000
"""Dead letters that are looked at for their schedules."""

OLDEST_READY = """
SELECT min(due_at)
  FROM (SELECT min(due_at) AS due_at FROM triggers WHERE status = 'PENDING' AND due_at <= :now
        UNION ALL
        SELECT min(due_at) FROM triggers WHERE status = 'CLAIMED' AND (started_at IS NULL OR NOT :claims_live))
"""
"""Claims that are not live were left by a dead daemon and count as due."""

FAILED, DEAD = FAILED_SINCE.format(well=WELL), DEAD_SINCE.format(well=WELL)


@dataclass(frozen=True, slots=True)
class FailedLately:
    """How many, and the error of the last one; None when there is none."""

    count: int
    newest_code: str | None


@dataclass(frozen=True, slots=True)
class Backoffs:
    """How many triggers have failed and wait for their next attempt, and when the first one is due; None: none."""

    count: int
    next_at: float | None


def counts_document(counts: Mapping[str, int], *, claims_live: bool) -> dict[str, int]:
    """Return the counts of `live_counts` once it is known whether any daemon works on the claims.

    Before a daemon has booted, and while none runs, nothing is claimed and nothing runs. The claims that a dead daemon
    left are due: the next boot takes them back. `cut_off`: how many of those due were running when their daemon ended.
    """
    if claims_live:
        return {**counts, "cut_off": 0}
    due = counts["due"] + counts["claimed"] + counts["running"]
    return {**counts, "due": due, "claimed": 0, "running": 0, "cut_off": counts["running"]}


class TriggerLists:
    """Rows of `triggers` for people. Each method runs on the reader it is given."""

    def list_newest(
        self,
        tx: Reader,
        *,
        status: str | None = None,
        source: str | None = None,
        workflow: str | None = None,
        session_id: str | None = None,
        limit: int = 50,
    ) -> list[Trigger | Damaged]:
        """Return the newest triggers that match, newest first."""
        return read_rows(
            tx,
            """
            SELECT *
              FROM triggers
             WHERE (:status IS NULL OR status = :status)
               AND (:source IS NULL OR source = :source)
               AND (:workflow IS NULL OR workflow = :workflow)
               AND (:session_id IS NULL OR session_id = :session_id)
             ORDER BY seq DESC
             LIMIT :limit
            """,
            trigger_of,
            status=status,
            source=source,
            workflow=workflow,
            session_id=session_id,
            limit=limit,
        )

    def list_dead(self, tx: Reader, limit: int) -> list[Trigger | Damaged]:
        """Return the dead letters, last buried first."""
        dead = "SELECT * FROM triggers WHERE status = 'DEAD' ORDER BY settled_at DESC LIMIT :limit"
        return read_rows(tx, dead, trigger_of, limit=limit)

    def live_counts(self, tx: Reader, now: float) -> dict[str, int]:
        """Return how many are due, put off because their key is at a limit, scheduled for later, put off because their
        task is held, claimed, running, dead. Reads the partial indexes only."""
        row = tx.fetch_one(
            """
            SELECT count(*) FILTER (WHERE due_at <= :now) AS due,
                   (SELECT count(*) FROM limit_waits) AS limited,
                   count(*) FILTER (WHERE due_at > :now AND due_at < :limited) AS later,
                   count(*) FILTER (WHERE due_at >= :held) AS held,
                   (SELECT count(*) FROM triggers WHERE status = 'CLAIMED' AND started_at IS NULL) AS claimed,
                   (SELECT count(*) FROM triggers WHERE status = 'CLAIMED' AND started_at IS NOT NULL) AS running,
                   (SELECT count(*) FROM triggers WHERE status = 'DEAD') AS dead
              FROM triggers INDEXED BY triggers_pending
             WHERE status = 'PENDING'
            """,
            now=now,
            held=HELD_UNTIL,
            limited=LIMITED_UNTIL,
        )
        assert row is not None
        return row

    def find_backoffs(self, tx: Reader) -> Backoffs:
        """Return what waits for its next attempt after a failure. Reads every PENDING row."""
        row = tx.fetch_one(
            """
            SELECT count(*) AS count, min(due_at) AS next_at
              FROM triggers
             WHERE status = 'PENDING'
               AND error_code IS NOT NULL
               AND reason = error_code
            """
        )
        assert row is not None
        return Backoffs(**row)

    def count_failed_since(self, tx: Reader, since: float) -> FailedLately:
        """Return what became FAILED since then. Discarded and expected ones do not count: their reason is not the
        error. Nor do those of a schedule that has succeeded after them."""
        row = tx.fetch_one(FAILED, since=since)
        assert row is not None
        newest = readable_text(row["newest"])
        return FailedLately(row["count"], None if newest is None else newest[20:])

    def count_dead_since(self, tx: Reader, since: float) -> int:
        """Return how many became DEAD since then, without those of a schedule that has succeeded after them."""
        return int(tx.fetch_value(DEAD, since=since, looked=LOOKED))
