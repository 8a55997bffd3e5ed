"""What `craftcore top` reads, at one moment. Every statement stops when it has enough to show, or goes by an index of
what is live."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import islice
from typing import Any

from craftcore.cli.output import with_iso
from craftcore.cli.session import Session
from craftcore.cli.status import read_status
from craftcore.storage.corrupt import whole
from craftcore.storage.transaction import Reader
from craftcore.tasks.question_store import QuestionStore
from craftcore.triggers.claim_store import PRIORITIES

SHOWN = 50
"""Rows of a section that are read: more than a screen holds."""

RUNNING = """
SELECT coalesce(executions.workflow, triggers.workflow) AS workflow, triggers.id, triggers.source, triggers.started_at,
       triggers.attempts AS attempt
  FROM triggers INDEXED BY triggers_claimed
  LEFT JOIN executions ON executions.id = 'exec-' || triggers.id || '.' || triggers.starts
 WHERE triggers.status = 'CLAIMED'
   AND triggers.started_at IS NOT NULL
 ORDER BY triggers.started_at, triggers.seq
 LIMIT :limit
"""
NEXT_TRIGGERS = """
SELECT due_at, 'trigger' AS kind, id, workflow, source
  FROM triggers INDEXED BY triggers_pending
 WHERE status = 'PENDING'
   AND priority = ?1
 ORDER BY due_at, seq
 LIMIT ?2
"""
NEXT_SCHEDULES = """
SELECT next_at, 'schedule', id, workflow, 'SCHEDULED'
  FROM schedules
 WHERE next_at IS NOT NULL
 ORDER BY next_at, id
 LIMIT ?1
"""
DEAD_MAX = 10_000
DEAD = """
SELECT coalesce(error_code, reason) AS error, count(*) AS count, max(settled_at) AS newest_at
  FROM (SELECT error_code, reason, settled_at
          FROM triggers
         WHERE status = 'DEAD'
         ORDER BY settled_at DESC
         LIMIT :dead_max)
 GROUP BY 1
 ORDER BY 2 DESC, 1
 LIMIT :limit
"""
ENDED = "SELECT head_seq FROM record_chain"
FAILED_MAX = 10_000
FAILED_SINCE = """
SELECT count(*)
  FROM (SELECT chain_seq
          FROM executions INDEXED BY executions_error
         WHERE status = 'error'
         ORDER BY seq DESC
         LIMIT :failed_max)
 WHERE chain_seq > :ended
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One look. `ended`: records that were ever closed, `failed`: of those since the look before this one, how many
    as an error; 0 at the first."""

    document: dict[str, Any]
    ended: int
    failed: int


def read_top(session: Session, before: Reading | None = None) -> Reading:
    """Look. Raises NotFound when there is no database."""
    status = read_status(session)
    with session.core().reading() as reader:
        ended = reader.value(ENDED) or 0
        since = ended if before is None else before.ended
        return Reading(
            document={
                **{name: status[name] for name in ("verdict", "ok", "reasons", "now", "now_iso", "database", "counts")},
                **{name: status[name] for name in ("oldest_due_seconds", "bytes", "wal_bytes", "in_doubt")},
                "running": [with_iso(row) for row in reader.all(RUNNING, limit=SHOWN)],
                "due_next": due_next(reader),
                "inbox": _inbox(reader),
                "questions": status["tasks"]["questions"],
                "dead_letters": [with_iso(row) for row in reader.all(DEAD, dead_max=DEAD_MAX, limit=SHOWN)],
            },
            ended=ended,
            failed=reader.value(FAILED_SINCE, failed_max=FAILED_MAX, ended=since) or 0,
        )


def due_next(reader: Reader) -> list[dict[str, Any]]:
    """Triggers that wait and schedules, the first due first: of each priority as many as may be shown."""
    lines = [reader.tuples(NEXT_TRIGGERS, (priority, SHOWN)) for (priority,) in list(reader.tuples(PRIORITIES))]
    lines.append(reader.tuples(NEXT_SCHEDULES, (SHOWN,)))
    names = ("due_at", "kind", "id", "workflow", "source")
    first = islice(heapq.merge(*lines, key=lambda row: row[0]), SHOWN)
    return [with_iso(dict(zip(names, row, strict=True))) for row in first]


def _inbox(reader: Reader) -> list[dict[str, Any]]:
    names = ("id", "task_id", "workflow", "kind", "question", "created_at", "expires_at")
    return [
        with_iso({name: getattr(question, name) for name in names})
        for question in whole(QuestionStore().open_ones(reader, SHOWN))
    ]
