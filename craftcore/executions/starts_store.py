"""Which workflow was started when, read off the records: what a rate has to know after a restart."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

from craftcore.serialization.canonical import canonicalize
from craftcore.storage.transaction import Reader

READ_MAX = 200_000
"""More records than these are not read: a boot must not wait for them."""

NEWEST_FIRST = """
SELECT CASE WHEN workflow IN (SELECT value FROM json_each(?1)) THEN workflow END, created_at
  FROM executions
 ORDER BY seq DESC
"""
"""By `seq`, because nothing else is indexed; what is not asked for stays unread, and may be no text at all."""


class StartsStore:
    """The beginnings of records."""

    def list_since(
        self, tx: Reader, workflows: Collection[str], moment: float, now: float
    ) -> tuple[list[tuple[str, float]], bool]:
        """Return (workflow, moment) of their starts since that moment, and whether these are all.

        Starts in the future come from a wrong clock, and are left out: they would count for too long.
        """
        starts: list[tuple[str, float]] = []
        read = 0
        for workflow, at in islice(tx.fetch_tuples(NEWEST_FIRST, (canonicalize(sorted(workflows)),)), READ_MAX):
            if at <= moment:
                return starts, True
            if workflow is not None and at <= now:
                starts.append((workflow, at))
            read += 1
        return starts, read < READ_MAX
