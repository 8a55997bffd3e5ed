"""The SQL of the search: ranges on the unique indexes of ids, and exact names in what is live or new."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from craftcore.storage.damaged_rows import readable_text
from craftcore.storage.transaction import Reader

SHOWN = 20
"""Ids of each kind that are returned."""

LOOKED = 20_000
"""The newest tasks and triggers in which a session is looked for."""

HIGH = "\U0010ffff"
"""A character that sorts after all others."""

RANGE = """
SELECT CAST({key} AS BLOB), CAST({about} AS BLOB)
  FROM {table}
 WHERE {key} >= ?1
   AND {key} < ?2
 ORDER BY {key} {order}
 LIMIT ?3
"""
RANGES = (
    ("task", "", RANGE.format(key="id", about="workflow", table="tasks", order="DESC")),
    ("trigger", "", RANGE.format(key="id", about="coalesce(workflow, source)", table="triggers", order="DESC")),
    ("question", "", RANGE.format(key="id", about="kind", table="questions", order="DESC")),
    ("schedule", "", RANGE.format(key="id", about="expression", table="schedules", order="ASC")),
    ("record", "exec-", RANGE.format(key="id", about="workflow", table="executions", order="DESC")),
    ("activity", "activity:", RANGE.format(key="idem_key", about="action", table="activity_log", order="DESC")),
)
"""The kinds of things: how all ids of a kind begin, and the statement that finds a prefix. It returns bytes, which can
be read also when the text is damaged."""

WORKFLOW = "SELECT name FROM workflows WHERE name = :given"
NEWEST = """
SELECT count(*) FILTER (WHERE workflow = :given)   AS by_workflow,
       count(*) FILTER (WHERE session_id = :given) AS by_session,
       min(created_at) AS oldest_at
  FROM (SELECT workflow, session_id, created_at FROM {table} ORDER BY seq DESC LIMIT :looked)
"""
OLDEST = """
SELECT (SELECT created_at FROM tasks ORDER BY seq LIMIT 1)      AS task,
       (SELECT created_at FROM triggers ORDER BY seq LIMIT 1)   AS trigger,
       (SELECT created_at FROM executions ORDER BY seq LIMIT 1) AS record
"""


class Found(NamedTuple):
    """One thing whose id begins with what was typed, and a word about it."""

    kind: str
    id: str
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NameUse:
    """How many of the newest tasks, or triggers, have an exact workflow or session, back to a moment."""

    by_workflow: int
    by_session: int
    oldest_at: float | None


class FindStore:
    """Reads for the search. Holds nothing."""

    def list_ids(self, tx: Reader, given: str) -> list[Found]:
        """Return what has an id that begins with the text, some of each kind."""
        found = []
        for kind, begin, sql in RANGES:
            low = given if given.startswith(begin) else begin + given
            rows = tx.fetch_tuples(sql, (low, low + HIGH, SHOWN))
            found += [Found(kind, _read_text(id), _read_text(about)) for id, about in rows]
        return found

    def is_workflow(self, tx: Reader, given: str) -> bool:
        """Return whether the last daemon declared a workflow of this name."""
        return tx.fetch_value(WORKFLOW, given=given) is not None

    def count_uses(self, tx: Reader, given: str) -> tuple[NameUse, NameUse]:
        """Return how many of the newest tasks and of the newest triggers have this workflow, or this session."""
        statements = (NEWEST.format(table=table) for table in ("tasks", "triggers"))
        tasks, triggers = (NameUse(**tx.fetch_one(sql, given=given, looked=LOOKED) or {}) for sql in statements)
        return tasks, triggers

    def list_oldest(self, tx: Reader) -> Mapping[str, float | None]:
        """Return when the oldest task, trigger and record was made: there is nothing from before."""
        return tx.fetch_one(OLDEST) or {}


def _read_text(value: bytes | None) -> str:
    return readable_text(value) or ""
