"""Which workflow was started when, read off the records: what a rate has to know after a restart."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import islice

from craftcore.serialization.canonical import canonicalize
from craftcore.storage.transaction import Reader
from craftcore.triggers.limit_keys import KeyedLimit, LimitKey, key_text

READ_MAX = 200_000
"""More records than these are not read: a boot must not wait for them."""

NEWEST_FIRST = """
SELECT CASE WHEN workflow IN (SELECT value FROM json_each(?1)) THEN workflow END, created_at
  FROM executions
 ORDER BY seq DESC
"""
"""By `seq`, because nothing else is indexed; what is not asked for stays unread, and may be no text at all."""


KEYED_NEWEST_FIRST = """
WITH records AS (
    SELECT seq, created_at, trigger_id, task_id, envelope_json,
           CASE WHEN workflow IN (SELECT value FROM json_each(?1)) THEN workflow END AS workflow
      FROM executions
)
SELECT workflow,
       created_at,
       CAST(CASE
              WHEN workflow IS NULL THEN NULL
              WHEN json_valid(envelope_json) THEN envelope_json ->> '$.metadata.sessionId'
              ELSE (SELECT session_id FROM triggers WHERE id = records.trigger_id)
            END AS BLOB),
       CAST(CASE
              WHEN workflow IS NULL THEN NULL
              WHEN NOT json_valid(envelope_json)
              THEN (SELECT payload_json FROM triggers WHERE id = records.trigger_id)
              WHEN envelope_json ->> '$.metadata.source' IN ('CONTINUATION', 'RESUME')
              THEN (SELECT payload_json FROM triggers WHERE id = records.task_id)
              ELSE envelope_json -> '$.payload'
            END AS BLOB)
  FROM records
 ORDER BY seq DESC
"""
"""With all that a key may be: the request of the attempt says it. One that goes on with a task has the payload of the
trigger that created the task."""


class StartsStore:
    """The beginnings of records."""

    def list_since(
        self, tx: Reader, workflows: Collection[str], moment: float, now: float
    ) -> tuple[list[tuple[str, float]], bool]:
        """Return (workflow, moment) of their starts since that moment, and whether these are all.

        A start in the future was before the clock was set back. It counts as a start of now, so no rate is exceeded,
        and none waits for longer than its period.
        """
        starts: list[tuple[str, float]] = []
        read = 0
        for workflow, at in islice(tx.fetch_tuples(NEWEST_FIRST, (canonicalize(sorted(workflows)),)), READ_MAX):
            if at <= moment:
                return starts, True
            if workflow is not None:
                starts.append((workflow, min(at, now)))
            read += 1
        return starts, read < READ_MAX

    def list_keyed_since(
        self, tx: Reader, limits: Mapping[str, KeyedLimit], moment: float, now: float
    ) -> tuple[list[tuple[LimitKey, float]], bool]:
        """Return the same as `list_since` for workflows with limits by key: the key of each start, and its moment."""
        starts: list[tuple[LimitKey, float]] = []
        read = 0
        rows = tx.fetch_tuples(KEYED_NEWEST_FIRST, (canonicalize(sorted(limits)),))
        for workflow, at, session, payload in islice(rows, READ_MAX):
            if at <= moment:
                return starts, True
            if workflow is not None:
                session_id = None if session is None else session.decode(errors="replace")
                if (key := key_text(limits[workflow].limit_by, session_id, payload)) is not None:
                    starts.append((LimitKey(workflow, key), min(at, now)))
            read += 1
        return starts, read < READ_MAX
