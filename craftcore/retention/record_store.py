"""Whole records: removed from the oldest end of the chain on, and the anchor of the chain with them."""

from __future__ import annotations

from typing import NamedTuple

from craftcore.retention.horizons import Horizons
from craftcore.retention.model import BATCH, Found, Taken
from craftcore.retention.rest_store import Rest
from craftcore.storage.transaction import Reader, Row, Transaction

LOOKED_AT = 2_000
"""Records that are looked for the next ones of the chain. Records are numbered as they begin and chained as they end:
those before it in number and behind it in the chain ran while it did, and at most a thousand run at once."""

OLDEST = """
SELECT seq,
       id,
       chain_seq,
       record_hash,
       trigger_id,
       task_id,
       ended_at
  FROM executions
 WHERE chain_seq IS NOT NULL
 ORDER BY seq
 LIMIT :looked_at
"""

ANCHOR = "SELECT anchor_seq FROM record_chain"
NEWEST = "SELECT max(seq) FROM executions"

OPEN = """
SELECT seq,
       trigger_id,
       task_id
  FROM executions
 WHERE status = 'incomplete'
   AND chain_seq IS NULL
   AND seq > :after
   AND coalesce(ended_at, created_at) <= :history
   AND seq < (SELECT max(seq) FROM executions)
 ORDER BY seq
 LIMIT :most
"""

UNCHAINED = """
SELECT seq,
       trigger_id,
       task_id
  FROM executions
 WHERE seq > :after
   AND seq <= (SELECT unchained_to FROM record_chain)
   AND chain_seq IS NULL
   AND status <> 'incomplete'
   AND coalesce(ended_at, created_at) <= :history
   AND seq < (SELECT max(seq) FROM executions)
 ORDER BY seq
 LIMIT :most
"""


OLDEST_ENDED = "SELECT coalesce(ended_at, created_at) FROM executions ORDER BY seq LIMIT 1"

KEPT = """
SELECT count(*)
  FROM (SELECT ended_at FROM executions WHERE chain_seq > :place ORDER BY seq LIMIT :looked_at)
 WHERE ended_at <= :history
"""

KEPT_LOOKED_AT = 10_000
"""Records that are counted at most: more need not be told."""


class Blocker(NamedTuple):
    """The record at the oldest end of the chain that may not go yet, and how many old ones it keeps, counted up to
    KEPT_LOOKED_AT."""

    record_id: str
    task_id: str | None
    trigger_id: str
    kept: int


def blocker(tx: Reader, old: Horizons) -> Blocker | None:
    """What keeps the chain from being shortened; None: nothing that is old."""
    ended: float | None = tx.value(OLDEST_ENDED)
    if ended is None or ended > old.history:
        return None
    anchor: int = tx.value(ANCHOR)
    rows = [row for row in tx.all(OLDEST, looked_at=LOOKED_AT) if row["chain_seq"] == anchor + 1]
    if not rows or rows[0]["ended_at"] > old.history:
        return None
    [row] = rows
    if Rest(tx, old.dead).has(row["task_id"], row["trigger_id"]):
        return None
    kept: int = tx.value(KEPT, place=row["chain_seq"], history=old.history, looked_at=KEPT_LOOKED_AT)
    return Blocker(row["id"], row["task_id"], row["trigger_id"], kept)


class OldRecords:
    """Of the chain, in its order: one that may not go yet keeps all that ended after it."""

    def find(self, tx: Reader, old: Horizons, after: int) -> Found:
        """`after` is a place in the chain: a look that removes nothing goes on from there."""
        due = self._due(tx, old, after)
        return Found([row["seq"] for row in due], due[-1]["chain_seq"] if due else None)

    def take(self, tx: Transaction, old: Horizons, seqs: list[int]) -> Taken:
        """The oldest ones that are due now, at least one of them: a record goes with all its events."""
        taken, last = Taken(), None
        due = self._due(tx, old, 0)
        for row in due:
            if taken.rows >= BATCH:
                taken.more = True
                break
            _move_anchor(tx, row)
            _remove(tx, row["seq"], taken)
            last = row
        taken.more = taken.more or (last is not None and len(due) == BATCH)
        return taken

    def _due(self, tx: Reader, old: Horizons, after: int) -> list[Row]:
        newest = tx.value(NEWEST)
        anchor: int = tx.value(ANCHOR)
        place = max(anchor, after)
        rest = Rest(tx, old.dead)
        due: list[Row] = []
        rows = tx.all(OLDEST, looked_at=LOOKED_AT + place - anchor)
        for row in sorted((row for row in rows if row["chain_seq"] > place), key=lambda row: row["chain_seq"]):
            if row["chain_seq"] != place + 1 or row["seq"] == newest or len(due) == BATCH:
                break
            if row["ended_at"] > old.history or not rest.has(row["task_id"], row["trigger_id"]):
                break
            due.append(row)
            place += 1
        return due


class OldLooseRecords:
    """Of no chain: a crash left them open, or they were closed before there was a chain."""

    def find(self, tx: Reader, old: Horizons, after: int) -> Found:
        rest = Rest(tx, old.dead)
        rows = [row for sql in (OPEN, UNCHAINED) for row in tx.all(sql, after=after, history=old.history, most=BATCH)]
        rows = sorted(rows, key=lambda row: row["seq"])[:BATCH]
        found = [row["seq"] for row in rows if rest.has(row["task_id"], row["trigger_id"])]
        return Found(found, rows[-1]["seq"] if rows else None)

    def take(self, tx: Transaction, old: Horizons, seqs: list[int]) -> Taken:
        """Of these, what is still due now, at least one of it."""
        taken = Taken()
        due = set(self.find(tx, old, seqs[0] - 1).seqs)
        for seq in (seq for seq in seqs if seq in due):
            if taken.rows >= BATCH:
                taken.more = True
                break
            tx.run("UPDATE record_chain SET anchor_record = max(anchor_record, :seq), removed = removed + 1", seq=seq)
            _remove(tx, seq, taken)
        return taken


def _move_anchor(tx: Transaction, row: Row) -> None:
    tx.run(
        "UPDATE record_chain SET anchor_seq = :place, anchor_hash = :hash, removed = removed + 1",
        place=row["chain_seq"],
        hash=row["record_hash"],
    )


def _remove(tx: Transaction, seq: int, taken: Taken) -> None:
    taken.removed["events"] += tx.run("DELETE FROM events WHERE execution_seq = :seq", seq=seq)
    taken.removed["blobs"] += tx.run("DELETE FROM blobs WHERE execution_seq = :seq", seq=seq)
    taken.removed["executions"] += tx.run("DELETE FROM executions WHERE seq = :seq", seq=seq)
