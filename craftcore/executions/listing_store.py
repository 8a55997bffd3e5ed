"""The only SQL by which people look for records: lists, and whose record is the newest."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import NamedTuple

from craftcore.errors import UnreadableRow
from craftcore.executions.model import Status
from craftcore.storage.damaged_rows import Damaged, model_of, model_reader, read_rows, readable_row, readable_value
from craftcore.storage.transaction import Reader, Row

_NEWEST = """
SELECT id, created_at, workflow, status, error_code, latency_ms, trigger_id, attempt,
       CASE
           WHEN response_json IS NULL AND response_hash IS NULL THEN 'execution_incomplete'
           WHEN EXISTS (SELECT 1 FROM audit_log WHERE subject = executions.id AND action = 'invalidate')
               THEN 'manually_invalidated'
           WHEN NOT replayable THEN coalesce(replayable_reason, 'execution_incomplete')
           WHEN stripped_at IS NOT NULL THEN 'body_stripped'
       END AS replayable_reason
  FROM executions {walk}
   AND coalesce(status = :status, 1)
   AND (:error_code IS NULL OR error_code = :error_code)
   AND (:workflow IS NULL OR workflow = :workflow)
   AND coalesce(created_at >= :since, 1)
   AND coalesce(created_at < :until, 1)
   AND coalesce(envelope_hash = :envelope_hash, 1)
 ORDER BY seq DESC
 LIMIT :limit
"""
EARLIER = """
SELECT id
  FROM executions
 WHERE task_id = (SELECT task_id FROM executions WHERE id = :id)
   AND task_id IS NOT NULL
   AND seq < (SELECT seq FROM executions WHERE id = :id)
 ORDER BY seq DESC
 LIMIT 1
"""
NEWEST = _NEWEST.format(walk="NOT INDEXED\n WHERE 1")
NEWEST_FAILED = _NEWEST.format(walk="INDEXED BY executions_error\n WHERE status = 'error'")
NEWEST_INCOMPLETE = _NEWEST.format(walk="INDEXED BY executions_incomplete\n WHERE status = 'incomplete'")
"""Each walks from the newest back, and stops when it has enough: over all records, or over those that its index holds.
None is found by its envelope's hash or its moment: such an index would cost every trigger something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFilter:
    """The filter of a list; None: any value. `since` and before `until` a record was opened."""

    status: Status | None = None
    error_code: str | None = None
    workflow: str | None = None
    since: float | None = None
    until: float | None = None
    envelope_hash: str | None = None


class RecordSummary(NamedTuple):
    """One record of a list. `replayable_reason`: why it cannot be replayed, as far as its header tells; None: it can.
    Its integrity is checked when the whole record is read."""

    id: str
    created_at: float
    workflow: str | None
    status: Status
    error_code: str | None
    latency_ms: float | None
    trigger_id: str
    attempt: int
    replayable_reason: str | None


class ExecutionListStore:
    """Reads `executions`, as people look for them. Holds nothing."""

    def list_newest(self, tx: Reader, limit: int, sought: RecordFilter) -> list[RecordSummary | Damaged]:
        """Return the newest records that were sought, newest first."""
        sql = NEWEST
        if sought.error_code is not None or sought.status is Status.ERROR:
            sql = NEWEST_FAILED
        elif sought.status is Status.INCOMPLETE:
            sql = NEWEST_INCOMPLETE
        return read_rows(tx, sql, _read_summary, limit=limit, **asdict(sought))

    def error_codes(self, tx: Reader) -> set[str]:
        """Return every code that a failed record has."""
        rows = tx.fetch_tuples(
            """
            SELECT DISTINCT CAST(error_code AS BLOB)
              FROM executions
             WHERE status = 'error'
               AND error_code IS NOT NULL
            """
        )
        return {readable_value(code) for (code,) in rows}

    def ids_of(self, tx: Reader, trigger_id: str, limit: int) -> list[str]:
        """Return the ids of a trigger's records, the newest first."""
        rows = tx.fetch_tuples(
            "SELECT id FROM executions WHERE id >= ?1 AND id < ?2 ORDER BY seq DESC LIMIT ?3",
            (f"exec-{trigger_id}.", f"exec-{trigger_id}/", limit),
        )
        return [id_ for (id_,) in rows]

    def find_earlier(self, tx: Reader, id: str) -> str | None:
        """Return the id of the record before this one, of the same task; None when there is none."""
        found: str | None = tx.fetch_value(EARLIER, id=id)
        return found

    def headers_of(self, tx: Reader, trigger_id: str, limit: int) -> list[Row]:
        """Return what is short of a trigger's records, the newest first."""
        rows = tx.fetch_all(
            """
            SELECT id, attempt, turn, CAST(status AS BLOB) AS status, CAST(error_code AS BLOB) AS error_code,
                   created_at, ended_at, latency_ms
              FROM executions
             WHERE id >= :low
               AND id < :high
             ORDER BY seq DESC
             LIMIT :limit
            """,
            low=f"exec-{trigger_id}.",
            high=f"exec-{trigger_id}/",
            limit=limit,
        )
        return [readable_row(row) for row in rows]


@model_reader
def _read_summary(row: Row) -> RecordSummary:
    """Raise ValueError for a damaged one."""
    for name in ("created_at", "latency_ms"):
        if isinstance(row[name], str):
            raise UnreadableRow(f"{name} {row[name]!r:.80} is not a number")
    return model_of(RecordSummary, row)
