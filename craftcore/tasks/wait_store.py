"""The only SQL of waits: each is resolved once, by whatever comes first."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from craftcore.serialization.canonical import canonicalize
from craftcore.storage.damaged_rows import Damaged, model_of, model_reader, read_rows
from craftcore.storage.transaction import Reader, Row, Transaction
from craftcore.tasks.model import BESIDE, NewWait, ResolvedBy, Wait

OPEN = "SELECT * FROM waits WHERE task_seq = :seq AND status = 'WAITING' ORDER BY seq"

_GIVEN = ("kind", "event", "due_at", "at_given")
_AGAIN = ("id", *_GIVEN, "any_of", "created_at")

BEGIN = f"""
INSERT INTO waits (task_seq, turn, name, {", ".join(_AGAIN)})
VALUES (:task_seq, :turn, :name, :{", :".join(_AGAIN)})
ON CONFLICT (task_seq, turn, name) DO UPDATE
   SET status = 'WAITING', resolved_by = NULL, value_json = NULL, resolved_at = NULL,
       {", ".join(f"{name} = excluded.{name}" for name in _AGAIN)}
 WHERE resolved_by = 'end'
RETURNING *
"""  # noqa: S608 - the columns of the model


class WaitStore:
    """Rows of `waits`. Holds nothing."""

    def open(self, tx: Transaction, wait_id: str, task_seq: int, turn: int, wait: NewWait, any_of: str | None) -> Wait:
        """Begin a wait, again where it ended without a value. One that is open stays as it is."""
        given = {name: getattr(wait, name) for name in _GIVEN}
        key: dict[str, Any] = {"task_seq": task_seq, "turn": turn, "name": wait.name}
        row = tx.fetch_one(BEGIN, id=wait_id, **key, **given, any_of=any_of, created_at=tx.now)
        if row is None:
            row = tx.fetch_one(
                """
                SELECT *
                  FROM waits
                 WHERE task_seq = :task_seq
                   AND turn = :turn
                   AND name = :name
                   AND status = 'WAITING'
                """,
                **key,
            )
        assert row is not None, wait
        return wait_of(row)

    def resolve(self, tx: Transaction, seq: int, cause: ResolvedBy, value_json: str) -> bool:
        """End a wait. False when something else did before, and nothing was written."""
        return tx.run_one(
            """
            UPDATE waits
               SET status      = 'RESOLVED',
                   resolved_by = :cause,
                   value_json  = :value,
                   resolved_at = :now
             WHERE seq = :seq
               AND status = 'WAITING'
            """,
            seq=seq,
            cause=cause,
            value=value_json,
        )

    def end_open(self, tx: Transaction, task_seq: int, any_of: str | None = None) -> list[int]:
        """End what a task still waits for, without a value: all, or these alternatives. Return the waits."""
        rows = tx.fetch_all(
            """
            UPDATE waits
               SET status      = 'RESOLVED',
                   resolved_by = 'end',
                   value_json  = 'null',
                   resolved_at = :now
             WHERE task_seq = :task_seq
               AND status = 'WAITING'
               AND (:any_of IS NULL OR any_of = :any_of)
            RETURNING seq
            """,
            task_seq=task_seq,
            any_of=any_of,
            now=tx.now,
        )
        return [row["seq"] for row in rows]

    def end_about(self, tx: Transaction, activity_seqs: Sequence[int]) -> None:
        """End the open waits for answers about these activities, without a value: no answer is needed."""
        tx.run(
            """
            UPDATE waits
               SET status      = 'RESOLVED',
                   resolved_by = 'end',
                   value_json  = 'null',
                   resolved_at = :now
             WHERE status = 'WAITING'
               AND seq IN (SELECT wait_seq
                             FROM questions
                            WHERE activity_seq IN (SELECT value FROM json_each(:seqs))
                              AND activity_seq IS NOT NULL
                              AND status = 'OPEN')
            """,
            seqs=canonicalize(list(activity_seqs)),
        )

    def list_open(self, tx: Reader, task_seq: int) -> list[Wait]:
        """Return what a task waits for, in the order in which it was named: the first that comes ends all."""
        return [wait_of(row) for row in tx.fetch_all(OPEN, seq=task_seq)]

    def find_open(self, tx: Reader, task_seq: int, seq: int) -> Wait | None:
        """Return one of them; None when the task does not wait for it."""
        return next((wait for wait in self.list_open(tx, task_seq) if wait.seq == seq), None)

    def find_first(self, tx: Reader, wait: Wait) -> Wait:
        """Return the first of a wait and its alternatives: its id is in the dedup key of the trigger that goes on."""
        if wait.any_of in (None, BESIDE):
            return wait
        row = tx.fetch_one(
            """
            SELECT *
              FROM waits
             WHERE task_seq = :task_seq
               AND turn = :turn
               AND any_of = :any_of
             ORDER BY seq
             LIMIT 1
            """,
            task_seq=wait.task_seq,
            turn=wait.turn,
            any_of=wait.any_of,
        )
        assert row is not None, wait
        return wait_of(row)

    def look(self, tx: Reader, task_seq: int) -> list[Wait | Damaged]:
        """Return what a task waits for, or what is wrong with its row."""
        return read_rows(tx, OPEN, wait_of, seq=task_seq)

    def list_of_turn(self, tx: Reader, task_seq: int, turn: int) -> list[Wait]:
        """Return the waits of one turn, the first first; without those that ended without a value."""
        rows = tx.fetch_all(
            "SELECT * FROM waits WHERE task_seq = :task_seq AND turn = :turn AND resolved_by IS NOT 'end' ORDER BY seq",
            task_seq=task_seq,
            turn=turn,
        )
        return [wait_of(row) for row in rows]

    def find_come(self, tx: Reader, task_seq: int, turn: int, names: Collection[str]) -> Wait | None:
        """Return one of these waits of a turn that something has come for; None: nothing has."""
        return next(
            (one for one in self.list_of_turn(tx, task_seq, turn) if one.name in names and not one.is_open), None
        )

    def list_for_child(self, tx: Reader, child_id: str) -> list[Wait]:
        """Return the waits for the end of this task."""
        rows = tx.fetch_all(
            "SELECT * FROM waits WHERE event = :child_id AND kind = 'child' AND status = 'WAITING'", child_id=child_id
        )
        return [wait_of(row) for row in rows]


@model_reader
def wait_of(row: Row) -> Wait:
    """Return the model of a full row. Raises ValueError for an invalid row."""
    if row["status"] not in ("WAITING", "RESOLVED"):
        raise ValueError(f"status {row['status']!r:.80} is unknown")
    return model_of(Wait, row)
