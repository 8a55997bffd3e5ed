"""The only SQL by which people look at the ledger: lists, and all that is known of one activity."""

from __future__ import annotations

from craftcore.activities.model import Activity, ActivityStatus
from craftcore.activities.store import activity_of
from craftcore.storage.damaged_rows import Damaged, read_rows
from craftcore.storage.transaction import Reader, Row

_NEWEST = """
SELECT *
  FROM activity_log
 WHERE {those}
   AND coalesce(status = :status, 1)
   AND coalesce(action = :action, 1)
   AND coalesce(task_id = :task_id, 1)
 ORDER BY seq DESC
 LIMIT :limit
"""
NEWEST = _NEWEST.format(those="1")
NEWEST_OPEN = _NEWEST.format(those="status IN ('INTENT', 'UNKNOWN') AND status = :status")
NEWEST_OF_TASK = _NEWEST.format(those="idem_key >= :low AND idem_key < :high")
"""Each by the index that has the fewest rows to look at."""


class ActivityListStore:
    """Reads `activity_log`, what was decided of its rows, and their events. Holds nothing."""

    def list_newest(
        self,
        tx: Reader,
        limit: int,
        *,
        status: ActivityStatus | None = None,
        task_id: str | None = None,
        action: str | None = None,
    ) -> list[Activity | Damaged]:
        """Return the newest activities, newest first; of one status, task, action; None: of any."""
        is_open = status in (ActivityStatus.INTENT, ActivityStatus.UNKNOWN)
        return read_rows(
            tx,
            NEWEST_OF_TASK if task_id is not None else NEWEST_OPEN if is_open else NEWEST,
            activity_of,
            key="idem_key",
            status=status,
            task_id=task_id,
            action=action,
            **({} if task_id is None else {"low": f"activity:{task_id}:", "high": f"activity:{task_id};"}),
            limit=limit,
        )

    def count_in_doubt(self, tx: Reader) -> tuple[int, Activity | Damaged | None]:
        """Return how many are in doubt and undecided, and the one that has been so for longest."""
        row = tx.fetch_one(
            """
            SELECT count(*) AS count,
                   min(seq) AS oldest
              FROM activity_log
             WHERE status = 'UNKNOWN'
               AND decision IS NULL
            """
        )
        assert row is not None
        found = read_rows(
            tx, "SELECT * FROM activity_log WHERE seq = :seq", activity_of, key="idem_key", seq=row["oldest"]
        )
        return row["count"], found[0] if found else None

    def decisions(self, tx: Reader, seq: int) -> list[Row]:
        """Return what was decided of an activity, the first first."""
        return tx.fetch_all(
            """
            SELECT decision, reference, note, decided_by, decided_at
              FROM activity_decisions
             WHERE activity_seq = :seq
             ORDER BY activity_decisions.seq
            """,
            seq=seq,
        )

    def list_history(self, tx: Reader, activity: Activity) -> list[Row]:
        """Return the events of an activity, over all its records, the first first."""
        return tx.fetch_all(
            """
            SELECT executions.id AS execution_id, event_rows.type, event_rows.at, event_rows.payload_json
              FROM executions
              JOIN event_rows ON event_rows.execution_seq = executions.seq
             WHERE executions.task_id = :task_id
               AND executions.task_id IS NOT NULL
               AND activity_seq = :seq
             ORDER BY event_rows.execution_seq, event_rows.seq
            """,
            task_id=activity.task_id,
            seq=activity.seq,
        )
