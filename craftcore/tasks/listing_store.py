"""The only SQL of tasks as people see them: lists, counts and prefixes of ids."""

from __future__ import annotations

from typing import NamedTuple

from craftcore.storage.damaged_rows import Damaged, read_rows
from craftcore.storage.row_spans import NO_BOUND, RowPage, find_span
from craftcore.storage.transaction import Reader
from craftcore.tasks.model import Task
from craftcore.tasks.store import task_of

PAGE = """
SELECT *
  FROM tasks NOT INDEXED
 WHERE seq > :after
   AND seq < :before
   AND (:status IS NULL OR status = :status)
   AND (:workflow IS NULL OR workflow = :workflow)
   AND (:session_id IS NULL OR session_id = :session_id)
 ORDER BY seq DESC
 LIMIT :limit
"""


class TaskFilter(NamedTuple):
    """Which tasks; None: whatever it is."""

    status: str | None = None
    workflow: str | None = None
    session_id: str | None = None


class TaskLists:
    """Rows of `tasks` for people. Each method runs on the reader it is given."""

    def list_newest(
        self,
        tx: Reader,
        *,
        status: str | None = None,
        held: bool = False,
        workflow: str | None = None,
        session_id: str | None = None,
        limit: int = 50,
    ) -> list[Task | Damaged]:
        """Return the newest tasks that match, newest first. `held`: only live ones that are."""
        return read_rows(
            tx,
            """
            SELECT *
              FROM tasks
             WHERE (:status IS NULL OR status = :status)
               AND (NOT :held
                    OR (status IN ('RUNNING', 'WAITING')
                        AND EXISTS (SELECT 1 FROM task_holds WHERE task_id = tasks.id)))
               AND (:workflow IS NULL OR workflow = :workflow)
               AND (:session_id IS NULL OR session_id = :session_id)
             ORDER BY seq DESC
             LIMIT :limit
            """,
            task_of,
            status=status,
            held=held,
            workflow=workflow,
            session_id=session_id,
            limit=limit,
        )

    def list_page(self, tx: Reader, those: TaskFilter, limit: int, before: int | None = None) -> RowPage[Task]:
        """Return the newest tasks that match, with a `seq` below `before`. A filter looks at a span of rows only."""
        span = None if those == TaskFilter() else find_span(tx, "tasks", "created_at", before)
        end = NO_BOUND if before is None else before
        after = 0 if span is None else span.after
        rows = read_rows(tx, PAGE, task_of, after=after, before=end, limit=limit, **those._asdict())
        return RowPage(rows, span)

    def children(self, tx: Reader, task: Task, limit: int) -> list[Task]:
        """Return the tasks that this one started, the first first. Older ones than this are not visited."""
        rows = tx.fetch_all(
            "SELECT * FROM tasks WHERE seq > :seq AND parent_id = :id ORDER BY seq LIMIT :limit",
            seq=task.seq,
            id=task.id,
            limit=limit,
        )
        return [task_of(row) for row in rows]

    def live_ids(self, tx: Reader) -> list[str]:
        """Return the ids of all tasks that run or wait."""
        return [
            row["id"]
            for row in tx.fetch_all("SELECT id FROM tasks WHERE status IN ('RUNNING', 'WAITING') ORDER BY seq")
        ]

    def counts(self, tx: Reader) -> dict[str, int]:
        """Return how many run and how many wait, and how many questions are open."""
        row = tx.fetch_one(
            """
            SELECT (SELECT count(*) FROM tasks WHERE status = 'RUNNING') AS running,
                   (SELECT count(*)
                      FROM (SELECT DISTINCT task_seq FROM waits WHERE status = 'WAITING')
                      JOIN tasks ON tasks.seq = task_seq AND tasks.status = 'WAITING') AS waiting,
                   (SELECT count(*) FROM questions WHERE status = 'OPEN') AS questions
            """
        )
        assert row is not None
        return row

    def last_seq(self, tx: Reader) -> int:
        """Return the number of the last row that has an id of its own. It is at least the number of such rows."""
        seq: int = tx.fetch_value(
            """
            SELECT max((SELECT coalesce(max(seq), 0) FROM triggers), (SELECT coalesce(max(seq), 0) FROM questions))
            """
        )
        return seq
