"""The snapshot of `craftcore top`, at one moment. Every statement stops when it has enough to show, or goes by an
index of what is live."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any, TypeVar

from craftcore.diagnostics.status import Status, read_status
from craftcore.serialization.time_text import add_iso_times
from craftcore.services import Services
from craftcore.storage.damaged_rows import Damaged, list_damaged, map_rows, omit_damaged, read_rows, row_document
from craftcore.storage.transaction import Reader
from craftcore.tasks.model import Question
from craftcore.tasks.question_store import QuestionStore
from craftcore.triggers.claim_candidate_store import PRIORITIES
from craftcore.triggers.listing_store import LATELY
from craftcore.triggers.model import LIMITED_UNTIL

T = TypeVar("T")

SHOWN = 50
"""Rows of a section that are read: more than a screen holds."""

RUNNING = """
SELECT coalesce(executions.workflow, triggers.workflow) AS workflow, triggers.id, triggers.source, triggers.started_at,
       triggers.attempts AS attempt, triggers.schedule_id
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
   AND priority = :priority
   AND due_at < :held_until
 ORDER BY due_at, seq
 LIMIT :limit
"""
NEXT_SCHEDULES = """
SELECT next_at AS due_at, 'schedule' AS kind, id, workflow, source
  FROM schedules
 WHERE next_at IS NOT NULL
 ORDER BY next_at, id
 LIMIT :limit
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
FAILED = """
SELECT error_code AS error, count(*) AS count, max(settled_at) AS newest_at
  FROM triggers INDEXED BY triggers_failed
 WHERE status = 'FAILED'
   AND settled_at > :since
   AND reason = error_code
 GROUP BY 1
 ORDER BY 2 DESC, 1
 LIMIT :limit
"""
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
class Snapshot:
    """One look. `ended`: the number of records that were ever closed. `failed`: how many of those since the look before
    ended as an error; 0 at the first. `damaged`: rows of the document that cannot be decoded."""

    status: Status
    document: dict[str, Any]
    damaged: list[Damaged]
    ended: int
    failed: int


def read_top(core: Services, before: Snapshot | None = None) -> Snapshot:
    """Read the snapshot. Raises NotFound when there is no database."""
    looked = read_status(core)
    status = looked.document
    with core.reading() as reader:
        found = {
            "running": list_claimed(reader),
            "due_next": list_due_next(reader),
            "inbox": _inbox(reader),
            "failed": read_rows(reader, FAILED, add_iso_times, key="error", since=status["now"] - LATELY, limit=SHOWN),
            "dead_letters": read_rows(reader, DEAD, add_iso_times, key="error", dead_max=DEAD_MAX, limit=SHOWN),
        }
        queue = {name: [row_document(one, dict) for one in rows] for name, rows in found.items()}
        queue |= split_claimed(queue["running"], status)
        ended = reader.fetch_value(ENDED) or 0
        since = ended if before is None else before.ended
        return Snapshot(
            status=looked,
            document={
                **{name: status[name] for name in ("verdict", "ok", "reasons", "now", "now_iso", "database", "counts")},
                **{name: status[name] for name in ("oldest_due_seconds", "bytes", "wal_bytes", "in_doubt")},
                "failed_lately": status["failed_lately"],
                **{name: queue[name] for name in ("running", "cut_off", "due_next", "inbox")},
                "questions": status["tasks"]["questions"],
                "failed": queue["failed"],
                "dead_letters": queue["dead_letters"],
            },
            damaged=list_damaged(chain.from_iterable(found.values())),
            ended=ended,
            failed=reader.fetch_value(FAILED_SINCE, failed_max=FAILED_MAX, ended=since) or 0,
        )


def list_claimed(reader: Reader) -> list[dict[str, Any] | Damaged]:
    """Return the triggers whose attempt has begun, the longest first."""
    return read_rows(reader, RUNNING, add_iso_times, limit=SHOWN)


def split_claimed(rows: list[T], status: Mapping[str, Any]) -> dict[str, list[T]]:
    """Return what is at work as `running`, or as `cut_off` where the daemon that began it is gone."""
    claims_live = status["daemon"]["running"] and not status["daemon"]["booting"]
    return {"running": rows if claims_live else [], "cut_off": [] if claims_live else rows}


def list_due_next(reader: Reader) -> list[dict[str, Any] | Damaged]:
    """Return waiting triggers and schedules, the first due first: of each priority as many as may be shown. Damaged
    rows, whose time is unknown, come before them."""
    lines = [
        read_rows(reader, NEXT_TRIGGERS, add_iso_times, priority=priority, held_until=LIMITED_UNTIL, limit=SHOWN)
        for (priority,) in list(reader.fetch_tuples(PRIORITIES))
    ]
    lines.append(read_rows(reader, NEXT_SCHEDULES, add_iso_times, limit=SHOWN))
    whole = heapq.merge(*map(omit_damaged, lines), key=itemgetter("due_at"))
    found: list[dict[str, Any] | Damaged] = [*list_damaged(chain.from_iterable(lines)), *whole]
    return found[:SHOWN]


def _inbox(reader: Reader) -> list[dict[str, Any] | Damaged]:
    names = ("id", "task_id", "workflow", "kind", "question", "created_at", "expires_at")

    def to_document(question: Question) -> dict[str, Any]:
        return add_iso_times({name: getattr(question, name) for name in names})

    return map_rows(QuestionStore().open_ones(reader, SHOWN), to_document)
