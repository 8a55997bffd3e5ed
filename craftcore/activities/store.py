"""The only SQL of the ledger. Every move names the state it leaves, and writes nothing in any other."""

from __future__ import annotations

from collections.abc import Sequence

from craftcore.activities.ledger_rules import ABOUT_TO_BE_CALLED, end_marks
from craftcore.activities.model import Activity, CallOutcome, NewIntent, StartedCall
from craftcore.serialization.canonical import canonicalize
from craftcore.storage.damaged_rows import model_of, model_reader
from craftcore.storage.transaction import BulkStatement, Reader, Row, Transaction

COLUMNS = ("idem_key", *NewIntent._fields[1:], "first_call_at", "last_call_at", "created_at", "updated_at")
"""The columns of a new activity: its intent, and the moment of its call four times."""

INSERT = BulkStatement(
    f"""
    INSERT INTO activity_log ({", ".join(COLUMNS)}, seq, status, reason)
    VALUES {{rows}}
    """,  # noqa: S608 - the columns of the model
    width=len(COLUMNS) + 3,
)

SETTLE = BulkStatement(
    f"""
    WITH ending (seq, calls, {", ".join(CallOutcome._fields)}, in_doubt, updated_at, settled_at) AS (VALUES {{rows}})
    UPDATE activity_log
       SET status          = ending.status,
           reason          = ending.reason,
           result_json     = ending.result_json,
           result_unstored = ending.result_unstored,
           provider_ref    = coalesce(ending.provider_ref, activity_log.provider_ref),
           error_code      = ending.error_code,
           error_message   = ending.error_message,
           may_retry       = ending.may_retry,
           in_doubt        = ending.in_doubt,
           updated_at      = ending.updated_at,
           settled_at      = ending.settled_at
      FROM ending
     WHERE activity_log.seq = ending.seq
       AND activity_log.calls = ending.calls
       AND activity_log.status = 'INTENT'
    RETURNING activity_log.seq
    """,  # noqa: S608 - the fields of the model
    width=len(CallOutcome._fields) + 5,
)

CHANGED = (
    "status", "reason", "policy", "result_json", "error_code", "error_message", "may_retry", "calls", "in_doubt",
    "decision", "execution_seq", "epoch", "last_call_at", "updated_at", "settled_at",
)  # fmt: skip
"""The columns that a move of one that FAILED or is UNKNOWN changes."""

CHANGE = f"""
UPDATE activity_log
   SET {", ".join(f"{name} = :{name}" for name in CHANGED)}
 WHERE seq = :seq
   AND calls = :calls_before
   AND status = :status_before
   AND status IN ('FAILED', 'UNKNOWN')
   AND decision IS :decision_before
"""  # noqa: S608 - the columns of the model

KNOWN = """
SELECT *
  FROM activity_log
 WHERE idem_key IN (SELECT value FROM json_each(:keys))
"""

INTENTS = """
SELECT *
  FROM activity_log
 WHERE status IN ('INTENT', 'UNKNOWN')
   AND status = 'INTENT'
 ORDER BY seq
"""
"""The first condition is that of the index."""

OF_TURN = """
  FROM activity_log
 WHERE task_seq = :task_seq
   AND seq > coalesce((SELECT seq
                         FROM activity_log
                        WHERE task_seq = :task_seq
                          AND turn < :turn
                        ORDER BY seq DESC
                        LIMIT 1), 0)
"""
"""The activities of the current turn of a task have higher numbers than those of earlier turns, which are not read."""

UNDECIDED = """
SELECT *
  FROM activity_log
 WHERE task_seq IN (SELECT value FROM json_each(:seqs))
   AND status = 'UNKNOWN'
   AND decision IS NULL
 ORDER BY seq
"""


class ActivityStore:
    """Rows of `activity_log` and `activity_decisions`. Holds nothing."""

    def find_by_keys(self, tx: Reader, keys: Sequence[str]) -> dict[str, Activity]:
        """Return those of these keys that were used before."""
        return {row["idem_key"]: activity_of(row) for row in tx.fetch_all(KNOWN, keys=canonicalize(list(keys)))}

    def add_intents(self, tx: Transaction, intents: Sequence[NewIntent]) -> list[StartedCall]:
        first = int(tx.fetch_value("SELECT coalesce(max(seq), 0) + 1 FROM activity_log"))
        called_at = (tx.now,) * 4
        tx.execute_many(
            INSERT,
            [(*new, *called_at, seq, "INTENT", ABOUT_TO_BE_CALLED) for seq, new in enumerate(intents, first)],
        )
        return [StartedCall(seq, 1, False) for seq, _ in enumerate(intents, first)]

    def insert_in_doubt(self, tx: Transaction, intent: NewIntent, reason: str) -> Activity:
        """Write one that may have been called before there was a row of it. Its first call was not before its task
        began, or before the end of the restored file."""
        row = tx.fetch_one(
            """
            INSERT INTO activity_log (
                idem_key, task_id, task_seq, turn, action, policy, args_hash, request_json, execution_seq, epoch,
                result_shape, first_call_at, last_call_at, created_at, updated_at, status, reason, in_doubt, may_retry
            )
            SELECT :key, :task_id, :task_seq, :turn, :action, :policy, :args_hash, :request_json, 0, :epoch,
                   :result_shape,
                   min(created_at,
                       :now,
                       coalesce((SELECT CAST(value AS REAL) FROM facts WHERE name = 'restored_until'), 0.0)),
                   :now, :now, :now, 'UNKNOWN', :reason, 1, 1
              FROM tasks
             WHERE seq = :task_seq
            RETURNING *
            """,
            **intent._asdict(),
            now=tx.now,
            reason=reason,
        )
        assert row is not None, intent
        return activity_of(row)

    def change(self, tx: Transaction, before: Activity, after: Activity) -> bool:
        """Write a move of one that FAILED or is UNKNOWN. False when it is not as it was seen any more, and nothing was
        written."""
        return tx.run_one(
            CHANGE,
            **{name: getattr(after, name) for name in CHANGED},
            seq=before.seq,
            calls_before=before.calls,
            status_before=before.status,
            decision_before=before.decision,
        )

    def settle_all(self, tx: Transaction, endings: Sequence[tuple[StartedCall, CallOutcome]]) -> set[int]:
        """Write what calls came to; the seqs of those that still were that call's intent."""
        rows = [(begun.seq, begun.calls, *end, *end_marks(end, tx.now)) for begun, end in endings]
        return {seq for (seq,) in tx.execute_many(SETTLE, rows)}

    def intents(self, tx: Reader) -> list[Activity]:
        """Return every intent that has no end. While nothing runs, those are of processes that died."""
        return [activity_of(row) for row in tx.fetch_all(INTENTS)]

    def get(self, tx: Reader, key: str) -> Activity | None:
        """Return the activity of this key; None when there is none."""
        row = tx.fetch_one("SELECT * FROM activity_log WHERE idem_key = :key", key=key)
        return activity_of(row) if row else None

    def list_of_turn(self, tx: Reader, task_seq: int, turn: int) -> list[Activity]:
        """Return the activities of the newest turn of a task, the oldest first."""
        rows = tx.fetch_all(f"SELECT * {OF_TURN} ORDER BY seq", task_seq=task_seq, turn=turn)
        return [activity_of(row) for row in rows]

    def list_keys_of_turn(self, tx: Reader, task_seq: int, turn: int) -> list[str]:
        """Return the keys of the activities of the newest turn of a task."""
        rows = tx.fetch_all(f"SELECT idem_key {OF_TURN}", task_seq=task_seq, turn=turn)
        return [row["idem_key"] for row in rows]

    def get_by_seq(self, tx: Reader, seq: int) -> Activity:
        """Return the activity of this seq, which there is."""
        row = tx.fetch_one("SELECT * FROM activity_log WHERE seq = :seq", seq=seq)
        assert row is not None, seq
        return activity_of(row)

    def list_undecided(self, tx: Reader, task_seqs: Sequence[int]) -> list[Activity]:
        """Return the activities of these tasks that are in doubt and undecided."""
        return [activity_of(row) for row in tx.fetch_all(UNDECIDED, seqs=canonicalize(list(task_seqs)))]


@model_reader
def activity_of(row: Row) -> Activity:
    """Return the model of a full row. Raises ValueError for a row that another program wrote."""
    return model_of(Activity, row, key=row["idem_key"])
