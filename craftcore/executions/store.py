"""The only SQL of execution records, from their start to their end."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from craftcore.errors import DatabaseInvalid
from craftcore.executions.chain.seal import Header
from craftcore.serialization.canonical import canonicalize
from craftcore.storage.transaction import BulkStatement, Reader, Row, Transaction

OPEN = BulkStatement(
    """
    INSERT INTO executions (
        seq, id, trigger_id, task_id, turn, attempt, epoch, workflow, created_at, envelope_hash, routing_json,
        envelope_json, first_events
    ) VALUES {rows}
    """,
    width=13,
)

CLOSE = BulkStatement(
    """
    WITH closing (
        status, replayable, reason, response, code, now, latency, place, events, digest, before, whole, last, seq
    ) AS (VALUES {rows})
    UPDATE executions
       SET status            = closing.status,
           replayable        = closing.replayable,
           replayable_reason = closing.reason,
           response_json     = closing.response,
           error_code        = closing.code,
           ended_at          = closing.now,
           latency_ms        = closing.latency,
           chain_seq         = closing.place,
           events_hash       = closing.events,
           response_hash     = closing.digest,
           prev_hash         = closing.before,
           record_hash       = closing.whole,
           last_events       = closing.last
      FROM closing
     WHERE executions.seq = closing.seq
       AND ended_at IS NULL
    """,
    width=14,
)

STILL_OPEN = """
SELECT seq, (SELECT max(event_rows.seq) FROM event_rows WHERE execution_seq = executions.seq)
  FROM executions
 WHERE seq IN (SELECT value FROM json_each(?1))
   AND ended_at IS NULL
"""

OPEN_HEADERS = """
SELECT seq, id, trigger_id, task_id, turn, attempt, epoch, workflow, created_at, envelope_hash, routing_json
  FROM executions
 WHERE seq IN (SELECT value FROM json_each(?1))
   AND ended_at IS NULL
"""

KEEP_BODY = BulkStatement("INSERT INTO blobs (execution_seq, part, body) VALUES {rows}", width=3)

OPEN_AND_STARTED = """
SELECT executions.seq
  FROM triggers
  JOIN executions ON executions.id = 'exec-' || triggers.id || '.' || starts
 WHERE triggers.status = 'CLAIMED'
   AND claimed_epoch = ?1
   AND started_at IS NOT NULL
   AND ended_at IS NULL
"""

BODY_MAX = 64 << 10
"""Characters of a body that lies in the row of its record; a larger one is a blob."""


class OpenHeader(NamedTuple):
    """The header of an open record, in the order of the columns."""

    seq: int
    id: str
    trigger_id: str
    task_id: str | None
    turn: int | None
    attempt: int
    epoch: int
    workflow: str | None
    created_at: float
    envelope_hash: str
    routing_json: str | None


class NewRecord(NamedTuple):
    """A record that begins: its header, its envelope, and the text of its first events."""

    header: OpenHeader
    envelope_json: str
    first_events: str


class SealedRecord(NamedTuple):
    """A record that ends: its last header, the hash of that, its response, and the text of its last events."""

    header: Header
    record_hash: str
    response_json: str | None
    last_events: str


class ExecutionStore:
    """Rows of `executions`, and of `blobs`."""

    def next_seq(self, tx: Transaction) -> int:
        """Return the number of the next record: the writer assigns them, because RETURNING promises no order."""
        return int(tx.fetch_value("SELECT coalesce(max(seq), 0) + 1 FROM executions"))

    def open_all(self, tx: Transaction, openings: Sequence[NewRecord]) -> None:
        """Insert records. A body that is large lies beside its row."""
        large: list[tuple[int, str, str]] = []
        tx.execute_many(
            OPEN, [(*header, _row_body(large, header.seq, "envelope", text), first) for header, text, first in openings]
        )
        tx.execute_many(KEEP_BODY, large)

    def list_open(self, tx: Reader, seqs: Sequence[int]) -> dict[int, int | None]:
        """Return those of these records that have no end yet, each with the number of its newest row of an event. None:
        it has none."""
        return dict(tx.fetch_tuples(STILL_OPEN, (canonicalize(list(seqs)),)))

    def open_headers(self, tx: Reader, seqs: Sequence[int]) -> dict[int, OpenHeader]:
        """Return the headers of those that have no end yet, by seq."""
        return {row[0]: OpenHeader._make(row) for row in tx.fetch_tuples(OPEN_HEADERS, (canonicalize(list(seqs)),))}

    def head(self, tx: Reader) -> tuple[int, str]:
        """Place and hash of the record that was closed last; (0, '') when none was. Raises DatabaseInvalid when the
        file has lost them."""
        with suppress(UnicodeDecodeError):
            match list(tx.fetch_tuples("SELECT head_seq, head_hash FROM record_chain LIMIT 2")):
                case [(int() as place, str() as hash_)]:
                    return place, hash_
        raise DatabaseInvalid("the end of the chain of records is damaged: no record can be closed. Restore a backup")

    def close_all(self, tx: Transaction, closings: Sequence[SealedRecord]) -> None:
        """Close records that are open, in the order of the chain. A body that is large lies beside its row."""
        large: list[tuple[int, str, str]] = []
        rows = [
            (
                header.status, header.replayable, header.replayable_reason,
                _row_body(large, header.seq, "response", response), header.error_code, header.ended_at,
                header.latency_ms, header.chain_seq, header.events_hash, header.response_hash, header.prev_hash,
                record_hash, last_events, header.seq,
            )
            for header, record_hash, response, last_events in closings
        ]  # fmt: skip
        tx.execute_many(CLOSE, rows)
        tx.execute_many(KEEP_BODY, large)
        head, head_hash, *_ = closings[-1]
        tx.run("UPDATE record_chain SET head_seq = :seq, head_hash = :hash", seq=head.chain_seq, hash=head_hash)

    def decide(self, tx: Transaction, header: OpenHeader) -> None:
        """Note on an open record what was decided of it since: where it goes, and which turn of which task it is."""
        tx.run(
            """
            UPDATE executions
               SET workflow     = :workflow,
                   routing_json = :routing,
                   task_id      = :task_id,
                   turn         = :turn
             WHERE seq = :seq
               AND ended_at IS NULL
            """,
            workflow=header.workflow,
            routing=header.routing_json,
            task_id=header.task_id,
            turn=header.turn,
            seq=header.seq,
        )

    def list_started(self, tx: Reader, epoch: int) -> list[int]:
        """Return the open records of this epoch's started claims."""
        return [seq for (seq,) in tx.fetch_tuples(OPEN_AND_STARTED, (epoch,))]

    def list_of_trigger(self, tx: Reader, trigger_id: str) -> list[Row]:
        """Return the records of one trigger with their bodies, first attempt first. A body that retention has stripped
        is None."""
        rows = tx.fetch_all(
            """
            SELECT executions.*,
                   (SELECT body FROM blobs WHERE execution_seq = executions.seq AND part = 'envelope') AS envelope_blob,
                   (SELECT body FROM blobs WHERE execution_seq = executions.seq AND part = 'response') AS response_blob
              FROM executions
             WHERE id >= :low
               AND id < :high
               AND trigger_id = :trigger_id
             ORDER BY seq
            """,
            low=f"exec-{trigger_id}.",
            high=f"exec-{trigger_id}/",
            trigger_id=trigger_id,
        )
        for row in rows:
            for part in ("envelope", "response"):
                body = row.pop(f"{part}_blob")
                row[f"{part}_json"] = row[f"{part}_json"] or body
            del row["first_events"], row["last_events"]
        return rows

    def list_of_task(self, tx: Reader, task_id: str, limit: int) -> list[Row]:
        """Return the headers of the newest records of a task, newest first."""
        return tx.fetch_all(
            """
            SELECT id, trigger_id, turn, attempt, status, error_code, created_at, ended_at, latency_ms
              FROM executions
             WHERE task_id = :task_id
               AND task_id IS NOT NULL
             ORDER BY seq DESC
             LIMIT :limit
            """,
            task_id=task_id,
            limit=limit,
        )

    def count_of_task(self, tx: Reader, task_id: str) -> int:
        """Return how many records a task has: one for each time that one of its turns was entered."""
        count: int = tx.fetch_value(
            "SELECT count(*) FROM executions WHERE task_id = :task_id AND task_id IS NOT NULL", task_id=task_id
        )
        return count


def _row_body(large: list[tuple[int, str, str]], seq: int, part: str, body: str | None) -> str | None:
    """Return the body as its row has it: '' for a large one, which is added to `large`."""
    if body is None or len(body) <= BODY_MAX:
        return body
    large.append((seq, part, body))
    return ""
