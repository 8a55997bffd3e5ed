"""Decisions of people and policies on activities: the row of the activity, and the history of decisions."""

from __future__ import annotations

from craftcore.activities.model import Activity, Decision
from craftcore.serialization.canonical import canonicalize
from craftcore.storage.transaction import Transaction


class DecisionStore:
    """The writes of a decision to `activity_log` and `activity_decisions`. Holds nothing."""

    def decide(
        self,
        tx: Transaction,
        activity: Activity,
        decision: Decision,
        *,
        reference: str | None,
        note: str | None,
        decided_by: str,
    ) -> bool:
        """Settle the doubt of an UNKNOWN one, or let a FAILED one be called again. False when it is neither any more,
        and nothing was written."""
        settled = tx.run_one(
            """
            UPDATE activity_log
               SET status       = CASE WHEN :decision = 'happened' THEN 'DONE' ELSE status END,
                   reason       = :reason,
                   decision     = CASE WHEN status = 'FAILED' THEN NULL ELSE :decision END,
                   may_retry    = CASE WHEN status = 'FAILED' THEN 1 ELSE may_retry END,
                   in_doubt     = CASE WHEN :decision = 'happened' THEN 0 ELSE in_doubt END,
                   provider_ref = coalesce(:reference, provider_ref),
                   result_json  = CASE WHEN :decision = 'happened' THEN :result ELSE result_json END,
                   updated_at   = :now,
                   settled_at   = CASE WHEN :decision = 'resend' THEN NULL ELSE :now END
             WHERE seq = :seq
               AND calls = :calls
               AND (status = 'UNKNOWN' OR (status = 'FAILED' AND :decision = 'resend'))
            """,
            decision=decision,
            reason=f"{decision}: decided by {decided_by}",
            reference=reference,
            result=None if reference is None else canonicalize(reference),
            seq=activity.seq,
            calls=activity.calls,
        )
        if settled:
            self.add(tx, activity, decision, decided_by, reference=reference, note=note)
        return settled

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
