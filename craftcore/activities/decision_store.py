"""Decisions of people and policies on activities: the row of the activity, and the history of decisions."""

from __future__ import annotations

from craftcore.activities.model import Activity, Decision
from craftcore.storage.transaction import Transaction

CHANGED = (
    "status", "reason", "decision", "may_retry", "in_doubt", "provider_ref", "result_json", "updated_at", "settled_at",
)  # fmt: skip
"""The columns that a decision changes."""

CHANGE = f"""
UPDATE activity_log
   SET {", ".join(f"{name} = :{name}" for name in CHANGED)}
 WHERE seq = :seq
   AND calls = :calls
   AND status = :status_before
"""  # noqa: S608 - the columns of the model


class DecisionStore:
    """The writes of a decision to `activity_log` and `activity_decisions`. Holds nothing."""

    def change(self, tx: Transaction, before: Activity, after: Activity) -> bool:
        """Write what a decision made of an activity. False when it was called or settled meanwhile, and nothing was
        written."""
        return tx.run_one(
            CHANGE,
            **{name: getattr(after, name) for name in CHANGED},
            seq=before.seq,
            calls=before.calls,
            status_before=before.status,
        )

    def add(
        self,
        tx: Transaction,
        activity: Activity,
        decision: Decision,
        decided_by: str,
        *,
        reference: str | None = None,
        note: str | None = None,
    ) -> None:
        """Say who decided what."""
        tx.run(
            """
            INSERT INTO activity_decisions (activity_seq, decision, reference, note, decided_by, decided_at)
            VALUES (:seq, :decision, :reference, :note, :by, :now)
            """,
            seq=activity.seq,
            decision=decision,
            reference=reference,
            note=note,
            by=decided_by,
        )
