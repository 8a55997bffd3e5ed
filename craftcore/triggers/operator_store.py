"""The only SQL of what people, and the tasks above, do to a trigger: cancel, requeue, discard, run now, set aside, …

Each move names the states it starts from; False: the trigger was in none of them, and nothing was written.
"""

from __future__ import annotations

from craftcore.storage.transaction import Transaction
from craftcore.triggers.model import HELD_UNTIL, Claim


class OperatorStore:
    """The writes of operator commands to `triggers`. Holds nothing; every method runs on the transaction it is
    given."""

    def cancel_unstarted(self, tx: Transaction, trigger_id: str, reason: str) -> bool:
        """Settle a trigger that is not running. False when it is running or settled."""
        return tx.run_one(
            """
            UPDATE triggers
               SET status              = 'DONE',
                   reason              = :reason,
                   error_code          = 'WORKFLOW_ABORTED',
                   cancel_requested_at = :now,
                   claimed_epoch       = NULL,
                   lease_token         = NULL,
                   lease_until         = NULL,
                   settled_at          = :now,
                   updated_at          = :now
             WHERE id = :id
               AND status IN ('PENDING', 'CLAIMED')
               AND started_at IS NULL
            """,
            id=trigger_id,
            reason=reason,
        )

    def request_cancel(self, tx: Transaction, trigger_id: str, reason: str) -> bool:
        """Ask the engine to cancel a running trigger; the reason of the first request stays. False when it is not
        running."""
        return tx.run_one(
            """
            UPDATE triggers
               SET reason              = CASE WHEN cancel_requested_at IS NULL THEN :reason ELSE reason END,
                   cancel_requested_at = :now,
                   updated_at          = :now
             WHERE id = :id
               AND status = 'CLAIMED'
               AND started_at IS NOT NULL
            """,
            id=trigger_id,
            reason=reason,
        )

    def requeue(self, tx: Transaction, trigger_id: str) -> bool:
        """Give a DEAD or FAILED trigger another life, due now. False when it is neither, or stripped."""
        return tx.run_one(
            """
            UPDATE triggers
               SET status              = 'PENDING',
                   reason              = 'requeued',
                   attempts            = 0,
                   crash_count         = 0,
                   machine_restarts    = 0,
                   not_before          = :now,
                   due_at              = max(fire_at, :now),
                   expires_at          = NULL,
                   error_code          = NULL,
                   error_message       = NULL,
                   cancel_requested_at = NULL,
                   started_at          = NULL,
                   started_alone       = 0,
                   settled_at          = NULL,
                   updated_at          = :now
             WHERE id = :id
               AND status IN ('DEAD', 'FAILED')
               AND stripped_at IS NULL
            """,
            id=trigger_id,
        )

    def discard(self, tx: Transaction, trigger_id: str, reason: str) -> bool:
        """Take a dead letter off the list, DEAD -> FAILED, visibly. A FAILED trigger is not reported any more. False
        when it is neither, or was discarded before."""
        return tx.run_one(
            "UPDATE triggers SET status = 'FAILED', reason = :reason, updated_at = :now "
            "WHERE id = :id AND (status = 'DEAD' OR (status = 'FAILED' AND reason = error_code))",
            id=trigger_id,
            reason=reason,
        )

    def pull_forward(self, tx: Transaction, trigger_id: str) -> bool:
        """Let a live trigger that waits for its time be due now. False when it is settled, or gone."""
        return tx.run_one(
            """
            UPDATE triggers
               SET fire_at    = min(fire_at, :now),
                   due_at     = max(min(fire_at, :now), coalesce(not_before, min(fire_at, :now))),
                   updated_at = :now
             WHERE id = :id
               AND status IN ('PENDING', 'CLAIMED')
               AND started_at IS NULL
            """,
            id=trigger_id,
        )

    def run_now(self, tx: Transaction, trigger_id: str, reason: str) -> bool:
        """Let a trigger that is PENDING be due now, whatever it waits for. False when it is not."""
        return tx.run_one(
            """
            UPDATE triggers
               SET fire_at    = min(fire_at, :now),
                   not_before = min(not_before, :now),
                   due_at     = min(due_at, :now),
                   expires_at = NULL,
                   reason     = :reason,
                   updated_at = :now
             WHERE id = :id
               AND status = 'PENDING'
            """,
            id=trigger_id,
            reason=reason,
        )

    def put_off(self, tx: Transaction, claim: Claim, reason: str) -> tuple[str | None] | None:
        """Let an unstarted claim wait for a person, out of every window. Return the reason that its row had; None when
        the claim has lost its lease, and nothing was written."""
        row = tx.fetch_one(
            "SELECT reason FROM triggers WHERE seq = :seq AND lease_token = :token AND started_at IS NULL",
            seq=claim.seq,
            token=claim.lease_token,
        )
        if row is None:
            return None
        tx.run(
            """
            UPDATE triggers
               SET status        = 'PENDING',
                   reason        = :reason,
                   not_before    = :until,
                   due_at        = max(fire_at, :until),
                   claimed_epoch = NULL,
                   lease_token   = NULL,
                   lease_until   = NULL,
                   updated_at    = :now
             WHERE seq = :seq
               AND status = 'CLAIMED'
            """,
            seq=claim.seq,
            until=HELD_UNTIL,
            reason=reason,
        )
        return (row["reason"],)

    def put_back(self, tx: Transaction, trigger_id: str, reason: str | None) -> bool:
        """Let a trigger that was put off for a person be due now. False when it is not waiting for that."""
        return tx.run_one(
            """
            UPDATE triggers
               SET reason     = :reason,
                   not_before = :now,
                   due_at     = max(fire_at, :now),
                   updated_at = :now
             WHERE id = :id
               AND status = 'PENDING'
               AND not_before = :until
            """,
            id=trigger_id,
            reason=reason,
            until=HELD_UNTIL,
        )

    def settle_unstarted(self, tx: Transaction, seq: int, reason: str) -> None:
        """Settle an unstarted trigger that is not to run."""
        tx.run(
            """
            UPDATE triggers
               SET status     = 'DONE',
                   reason     = :reason,
                   settled_at = :now,
                   updated_at = :now
             WHERE seq = :seq
               AND status = 'PENDING'
            """,
            seq=seq,
            reason=reason,
        )

    def mark_undelivered(self, tx: Transaction, trigger_id: str, message: str) -> bool:
        """Move DONE -> DEAD a message that was delivered. Return False when it was not."""
        return tx.run_one(
            """
            UPDATE triggers
               SET status        = 'DEAD',
                   reason        = 'corrupt row',
                   error_message = :message,
                   updated_at    = :now
             WHERE id = :id
               AND status = 'DONE'
               AND reason = 'delivered'
               AND stripped_at IS NULL
            """,
            id=trigger_id,
            message=message,
        )

    def bury(self, tx: Transaction, trigger_id: str, message: str) -> bool:
        """Settle a live trigger as DEAD. False when it is not live."""
        return tx.run_one(
            """
            UPDATE triggers
               SET status        = 'DEAD',
                   reason        = 'corrupt row',
                   error_message = :message,
                   claimed_epoch = NULL,
                   lease_token   = NULL,
                   lease_until   = NULL,
                   settled_at    = :now,
                   updated_at    = :now
             WHERE id = :id
               AND status IN ('PENDING', 'CLAIMED')
            """,
            id=trigger_id,
            message=message,
        )
