"""The only SQL of execution records and their events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from craftcore.canonical import canonical
from craftcore.storage.transaction import Many, Reader, Row, Transaction

OPEN = Many(
    """
    INSERT INTO executions (
        seq, id, trigger_id, task_id, turn, attempt, epoch, workflow, created_at, envelope_json, envelope_hash,
        routing_json
    ) VALUES {rows}
    """,
    width=12,
)

CLOSE = Many(
    """
    WITH closing (status, replayable, reason, response, code, now, latency, seq) AS (VALUES {rows})
    UPDATE executions
       SET status            = closing.status,
           replayable        = closing.replayable,
           replayable_reason = closing.reason,
           response_json     = closing.response,
           error_code        = closing.code,
           ended_at          = closing.now,
           latency_ms        = closing.latency
      FROM closing
     WHERE executions.seq = closing.seq
       AND ended_at IS NULL
    """,
    width=8,
)

ADD_EVENT = Many("INSERT INTO events (execution_seq, seq, type, at, payload_json) VALUES {rows}", width=5)


OPEN_AND_STARTED = """
SELECT executions.seq, (SELECT coalesce(max(seq), 0) + 1 FROM events WHERE execution_seq = executions.seq)
  FROM triggers
  JOIN executions ON executions.id = 'exec-' || triggers.id || '.' || starts
 WHERE triggers.status = 'CLAIMED'
   AND claimed_epoch = ?1
   AND started_at IS NOT NULL
   AND ended_at IS NULL
"""

RELEASE = Many(
    """
    WITH released (now, seq) AS (VALUES {rows})
    UPDATE executions SET ended_at = released.now FROM released WHERE executions.seq = released.seq
    """,
    width=2,
)

LAST_EVENTS = """
SELECT value, (SELECT coalesce(max(seq), 0) FROM events WHERE execution_seq = value)
  FROM json_each(?1)
"""

EventRow = tuple[int, int, str, float, str]
"""An event in the order of the columns: execution_seq, seq, type, at, payload_json."""


class Opening(NamedTuple):
    """A new record, in the order of the columns."""

    seq: int
    id: str
    trigger_id: str
    task_id: str | None
    turn: int | None
    attempt: int
    epoch: int
    workflow: str | None
    created_at: float
    envelope_json: str
    envelope_hash: str
    routing_json: str | None


class Closing(NamedTuple):
    """How a record ends, in the order of the statement."""

    status: str
    replayable: int
    replayable_reason: str | None
    response_json: str | None
    error_code: str | None
    ended_at: float
    latency_ms: float
    seq: int


class ExecutionStore:
    """Rows of `executions` and `events`."""

    def next_seq(self, tx: Transaction) -> int:
        """The number of the next record: the writer assigns them, because RETURNING promises no order."""
        return int(tx.value("SELECT coalesce(max(seq), 0) + 1 FROM executions"))

    def open_all(self, tx: Transaction, openings: Sequence[Opening]) -> None:
        """Insert records."""
        tx.many(OPEN, openings)

    def close_all(self, tx: Transaction, closings: Sequence[Closing]) -> None:
        """Close records that are still open; a closed one is never changed."""
        tx.many(CLOSE, closings)

    def decide(self, tx: Transaction, seq: int, workflow: str, routing_json: str) -> None:
        """Note the router's decision on an open record."""
        tx.run(
            "UPDATE executions SET workflow = :workflow, routing_json = :routing WHERE seq = :seq AND ended_at IS NULL",
            workflow=workflow,
            routing=routing_json,
            seq=seq,
        )

    def join_task(self, tx: Transaction, seq: int, task_id: str, turn: int) -> None:
        """Note on an open record which turn of which task it is, when a router told only then."""
        tx.run(
            "UPDATE executions SET task_id = :task_id, turn = :turn WHERE seq = :seq AND ended_at IS NULL",
            task_id=task_id,
            turn=turn,
            seq=seq,
        )

    def still_open(self, tx: Reader, seqs: Sequence[int]) -> set[int]:
        """Those of these records that have no end yet."""
        rows = tx.tuples(
            "SELECT seq FROM executions WHERE seq IN (SELECT value FROM json_each(?1)) AND ended_at IS NULL",
            (canonical(list(seqs)),),
        )
        return {seq for (seq,) in rows}

    def last_events(self, tx: Reader, seqs: Sequence[int]) -> dict[int, int]:
        """The number of the newest event of each of these records."""
        return dict(tx.tuples(LAST_EVENTS, (canonical(list(seqs)),)))

    def add_events(self, tx: Transaction, events: Sequence[EventRow]) -> None:
        """Append to streams."""
        tx.many(ADD_EVENT, events)

    def release_open(self, tx: Transaction, epoch: int, reason: str) -> None:
        """Close the records of this epoch's started claims as released; before the claims are handed back."""
        opened = list(tx.tuples(OPEN_AND_STARTED, (epoch,)))
        payload = canonical({"reason": reason})
        tx.many(ADD_EVENT, [(seq, number, "ATTEMPT_RELEASED", tx.now, payload) for seq, number in opened])
        tx.many(RELEASE, [(tx.now, seq) for seq, _ in opened])

    def of_trigger(self, tx: Reader, trigger_id: str) -> list[Row]:
        """The records of one trigger, first attempt first."""
        return tx.all(
            """
            SELECT *
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

    def of_task(self, tx: Reader, task_id: str, limit: int) -> list[Row]:
        """The headers of the newest records of a task, newest first."""
        return tx.all(
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
        """How many records a task has: one for each time that one of its turns was entered."""
        count: int = tx.value(
            "SELECT count(*) FROM executions WHERE task_id = :task_id AND task_id IS NOT NULL", task_id=task_id
        )
        return count

    def events(self, tx: Reader, execution_seq: int) -> list[Row]:
        """The stream of one record."""
        return tx.all(
            "SELECT seq, type, at, payload_json FROM events WHERE execution_seq = :seq ORDER BY seq", seq=execution_seq
        )
