"""The only SQL of verifying: every record in the order of the chain, and what belongs to none. Only reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from craftcore.executions.chain.head import Head
from craftcore.executions.chain.verify_rules import ChainState
from craftcore.storage.transaction import Reader

CHAINED = """
SELECT chain_seq, seq, replayable IS 0 OR replayable IS 1
  FROM executions
 WHERE chain_seq IS NOT NULL
   AND seq NOT IN (SELECT execution_seq FROM retained_records)
 ORDER BY chain_seq, seq
"""
"""Sorted by numbers alone: what a record says is read one at a time."""

RETAINED = """
SELECT retained_records.chain_seq,
       retained_records.execution_seq,
       retained_records.record_hash,
       executions.seq IS NULL,
       replayable IS 0 OR replayable IS 1
  FROM retained_records
  LEFT JOIN executions ON executions.seq = execution_seq
 ORDER BY retained_records.chain_seq
"""

ABSENT = """
SELECT number
  FROM (SELECT 1 AS number UNION ALL SELECT seq + 1 FROM executions)
 WHERE number NOT IN (SELECT seq FROM executions)
   AND number <= (SELECT max(seq) FROM executions)
 ORDER BY number
 LIMIT 10
"""
"""The first number of each gap."""

STRAY_EVENTS = """
SELECT execution_seq, count(*)
  FROM event_rows
 WHERE execution_seq NOT IN (SELECT seq FROM executions)
 GROUP BY execution_seq
"""

STRAY_BODIES = """
SELECT blobs.execution_seq, CAST(part AS BLOB), executions.seq IS NULL, chain_seq
  FROM blobs
  LEFT JOIN executions ON executions.seq = blobs.execution_seq
 WHERE executions.seq IS NULL
    OR CASE part WHEN 'envelope' THEN envelope_json WHEN 'response' THEN coalesce(response_json, 'none') END IS NOT ''
 ORDER BY blobs.seq
"""


class Numbers(NamedTuple):
    """How many records there are, and the highest number of one; 0 when there is none."""

    there: int
    newest: int


class VerifyingStore:
    """Reads what is to be verified. Holds nothing."""

    def chain_states(self, tx: Reader) -> list[ChainState]:
        """Return the row of `record_chain`; another number of rows than one is wrong."""
        rows = tx.fetch_tuples(
            """
            SELECT head_seq, head_hash, unchained_to, anchor_seq, anchor_hash, anchor_record, removed, audit_anchor_seq,
                   audit_anchor_hash
              FROM record_chain
            """
        )
        return [ChainState._make(row) for row in rows]

    def list_chained(self, tx: Reader) -> Iterable[tuple[Any, ...]]:
        """(place, seq, whether `replayable` is 0 or 1) of each record of the chain, in its order, without those that
        retention kept behind the anchor."""
        return tx.fetch_tuples(CHAINED)

    def list_retained(self, tx: Reader) -> Iterable[tuple[Any, ...]]:
        """(place, seq, hash, whether the record is missing, whether `replayable` is 0 or 1) of each record that
        retention kept behind the anchor, in the order of the chain."""
        return tx.fetch_tuples(RETAINED)

    def list_unchained(self, tx: Reader) -> Iterable[tuple[Any, ...]]:
        """Yield (seq, whether `replayable` is 0 or 1) of each record outside the chain."""
        return tx.fetch_tuples(
            "SELECT seq, replayable IS 0 OR replayable IS 1 FROM executions WHERE chain_seq IS NULL ORDER BY seq"
        )

    def name(self, tx: Reader, seq: int) -> str:
        """Return the id of a record, also when it is not valid text any more."""
        id: bytes | None = tx.fetch_value("SELECT CAST(id AS BLOB) FROM executions WHERE seq = :seq", seq=seq)
        return (id or b"").decode(errors="backslashreplace")[:200]

    def numbers(self, tx: Reader) -> Numbers:
        """Return how many records there are, and the highest number."""
        [row] = tx.fetch_tuples("SELECT count(*), coalesce(max(seq), 0) FROM executions")
        return Numbers._make(row)

    def head(self, tx: Reader, now: float, ends: ChainState, *, audit_place: int, audit_hash: str) -> Head:
        """Return the heads of the chains, of which the operators' log ends there."""
        return Head(
            at=now,
            place=ends.head_seq,
            hash=ends.head_hash,
            newest=self.numbers(tx).newest,
            unchained_to=ends.unchained_to,
            removed=ends.removed,
            audit_place=audit_place,
            audit_hash=audit_hash,
        )

    def missing_numbers(self, tx: Reader) -> list[int]:
        """Return the first numbers of records that are not there."""
        return [number for (number,) in tx.fetch_tuples(ABSENT)]

    def list_orphan_events(self, tx: Reader) -> Iterable[tuple[Any, ...]]:
        """(number of the record, how many) of events whose record is not there."""
        return tx.fetch_tuples(STRAY_EVENTS)

    def list_orphan_bodies(self, tx: Reader) -> Iterable[tuple[Any, ...]]:
        """(number of the record, part, whether the record is missing, its place) of bodies that no record waits for."""
        return tx.fetch_tuples(STRAY_BODIES)

    def audit_rows(self, tx: Reader) -> Iterable[tuple[Any, ...]]:
        """Yield (seq,) of each row of the audit log, in order."""
        return tx.fetch_tuples("SELECT seq FROM audit_log ORDER BY seq")


def read_head(reader: Reader, now: float) -> Head | None:
    """Return the heads of the chains without a walk over what leads there. None where the file has lost them, or they
    are none: `craftcore verify` says what is wrong."""
    store = VerifyingStore()
    try:
        [ends] = store.chain_states(reader)
        last = reader.fetch_one("SELECT seq, hash FROM audit_log ORDER BY seq DESC LIMIT 1")
        place, hash_ = (last["seq"], last["hash"]) if last else (ends.audit_anchor_seq, ends.audit_anchor_hash)
        return store.head(reader, now, ends, audit_place=place, audit_hash=hash_)
    except ValueError:
        return None
