"""The only SQL of triggers that are put off because their key is at a limit, and of their way back to the queue."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from craftcore.serialization.canonical import canonicalize
from craftcore.storage.transaction import Reader, Transaction
from craftcore.triggers.limit_keys import LimitKey
from craftcore.triggers.model import LANE, LIMITED_UNTIL, Claim

NOTE = """
INSERT OR REPLACE INTO limit_waits (trigger_seq, workflow, limit_by, key, rank, priority, not_before)
SELECT seq, found.value ->> 1, found.value ->> 2, found.value ->> 3, due_at + :weight * priority, priority, not_before
  FROM json_each(:rows) AS found
  JOIN triggers ON seq = found.value ->> 0
 WHERE status = 'CLAIMED'
   AND lease_token = found.value ->> 4
"""

PUT_OFF = """
UPDATE triggers
   SET status        = 'PENDING',
       not_before    = :until,
       due_at        = max(fire_at, :until),
       claimed_epoch = NULL,
       lease_token   = NULL,
       lease_until   = NULL,
       updated_at    = :now
  FROM json_each(:rows) AS found
 WHERE seq = found.value ->> 0
   AND status = 'CLAIMED'
   AND lease_token = found.value ->> 4
   AND started_at IS NULL
"""

FIRST_OF_KEY = """
SELECT trigger_seq
  FROM limit_waits
 WHERE workflow = :workflow
   AND key = :key
   AND limit_by <> :lane
 ORDER BY rank, priority, trigger_seq
 LIMIT :most
"""

UNDECLARED = """
SELECT trigger_seq
  FROM limit_waits
 WHERE (workflow || '/' || limit_by) NOT IN (SELECT value FROM json_each(:declared))
"""

PUT_BACK = """
UPDATE triggers
   SET not_before = min(wait.not_before, :now),
       due_at     = max(fire_at, coalesce(min(wait.not_before, :now), fire_at)),
       updated_at = :now
  FROM (SELECT trigger_seq, not_before
          FROM limit_waits
         WHERE trigger_seq IN (SELECT value FROM json_each(:seqs))) AS wait
 WHERE seq = +wait.trigger_seq
   AND status = 'PENDING'
   AND triggers.not_before = :until
"""
"""A trigger of the schema deletes the rows of `limit_waits`. A backoff was over when its trigger was put off: one that
lies ahead was set before the clock was set back. The plus keeps SQLite from walking all pending triggers instead of the
few that wait."""

IN_LANES = """
SELECT CAST(lane AS BLOB), CAST(wait.workflow AS BLOB), CAST(key AS BLOB), rank, wait.priority, trigger_seq,
       limit_by = '/lane'
  FROM limit_waits AS wait
  JOIN triggers ON triggers.seq = trigger_seq
 WHERE lane IS NOT NULL
"""

KEYS = "SELECT DISTINCT CAST(workflow AS BLOB), CAST(key AS BLOB) FROM limit_waits"


class PutOff(NamedTuple):
    """A trigger of a lane that is put off. `rank`, `priority` and `seq`: its place in the queue. `follows`: only
    because an earlier one of its lane is."""

    rank: float
    priority: int
    seq: int
    key: LimitKey
    follows: bool

    @property
    def place(self) -> tuple[float, int, int]:
        return self.rank, self.priority, self.seq


class LimitWaitStore:
    """Rows of `limit_waits`, and of the triggers that they put off."""

    def put_off(self, tx: Transaction, found: Sequence[tuple[Claim, str, LimitKey]], *, weight: float) -> None:
        """Move CLAIMED and not started -> PENDING until `put_back`. `found` has each claim with the name of its key
        and the key. Nothing is written of a claim that lost its lease."""
        rows = canonicalize(
            [[claim.seq, key.workflow, limit_by, key.key, claim.lease_token] for claim, limit_by, key in found]
        )
        tx.run(NOTE, rows=rows, weight=weight)
        tx.run(PUT_OFF, rows=rows, until=LIMITED_UNTIL)

    def put_back(self, tx: Transaction, key: LimitKey, most: int) -> int:
        """Let the first of this key be due as before, no more than `most`. Return their number."""
        first = tx.fetch_all(FIRST_OF_KEY, workflow=key.workflow, key=key.key, lane=LANE, most=most)
        return self.put_back_these(tx, [row["trigger_seq"] for row in first])

    def put_back_these(self, tx: Transaction, seqs: Collection[int]) -> int:
        """Let these be due as before, where they are put off. Return their number."""
        return tx.run(PUT_BACK, seqs=canonicalize(sorted(seqs)), until=LIMITED_UNTIL)

    def put_back_others(self, tx: Transaction, declared: Collection[tuple[str, str]]) -> int:
        """Let all be due as before whose workflow is not among those declared with the same `limit_by`. Return their
        number."""
        names = canonicalize(sorted(f"{workflow}/{limit_by}" for workflow, limit_by in declared))
        undeclared = tx.fetch_all(UNDECLARED, declared=names)
        return self.put_back_these(tx, [row["trigger_seq"] for row in undeclared])

    def list_in_lanes(self, tx: Reader) -> list[tuple[str, PutOff]]:
        """Return every trigger with a lane that is put off, each with its lane."""
        found: list[tuple[str, PutOff]] = []
        for *texts, rank, priority, seq, follows in tx.fetch_tuples(IN_LANES):
            lane, workflow, key = (text.decode(errors="replace") for text in texts)
            found.append((lane, PutOff(rank, priority, seq, LimitKey(workflow, key), bool(follows))))
        return found

    def select_put_off(self, tx: Reader, seqs: Collection[int]) -> frozenset[int]:
        """Return those of these triggers that are still put off."""
        sql = "SELECT trigger_seq FROM limit_waits WHERE trigger_seq IN (SELECT value FROM json_each(?1))"
        return frozenset(seq for (seq,) in tx.fetch_tuples(sql, (canonicalize(sorted(seqs)),)))

    def list_keys(self, tx: Reader, workflows: Collection[str]) -> frozenset[LimitKey]:
        """Return every key of these workflows that has triggers put off. A damaged row does not hide the others."""
        found = (LimitKey(*(text.decode(errors="replace") for text in row)) for row in tx.fetch_tuples(KEYS))
        return frozenset(key for key in found if key.workflow in workflows)

    def creator_payloads(self, tx: Reader, task_ids: Collection[str]) -> dict[str, bytes]:
        """Return the payloads of the triggers that created these tasks, by task. Retention may have taken some."""
        rows = tx.fetch_tuples(
            """
            SELECT id, CAST(payload_json AS BLOB)
              FROM triggers
             WHERE id IN (SELECT value FROM json_each(?1))
               AND stripped_at IS NULL
            """,
            (canonicalize(sorted(task_ids)),),
        )
        return dict(rows)
