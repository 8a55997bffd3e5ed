"""The only SQL of a claim's life: claim, start, settle, give back. Every move is guarded by the lease token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from craftcore.serialization.canonical import canonicalize
from craftcore.storage.transaction import BulkStatement, Reader, Transaction
from craftcore.triggers.model import Claim
from craftcore.triggers.settlement import Settlement

CLAIM = """
UPDATE triggers
   SET status        = 'CLAIMED',
       claimed_epoch = ?2,
       lease_token   = ?3,
       lease_until   = ?4,
       updated_at    = ?5
 WHERE seq IN (SELECT value FROM json_each(?1))
   AND status = 'PENDING'
RETURNING seq, id, lease_token, source, workflow, lane, session_id, task_id, priority, fire_at, due_at, expires_at,
          description, payload_json, attempts, starts, crash_count, max_attempts, schedule_id, nominal_at,
          CASE WHEN dedup_scope = 'active' THEN dedup_key END
"""

START = BulkStatement(
    """
    WITH starting (now, alone, seq, token) AS (VALUES {rows})
    UPDATE triggers
       SET attempts      = attempts + 1,
           starts        = starts + 1,
           started_at    = starting.now,
           started_alone = starting.alone,
           updated_at    = starting.now
      FROM starting
     WHERE triggers.seq = starting.seq
       AND lease_token = starting.token
       AND +status = 'CLAIMED'
       AND started_at IS NULL
    RETURNING seq, lease_token, attempts, starts
    """,
    width=4,
)

SETTLE = BulkStatement(
    """
    WITH move (status, reason, not_before, gives_back, code, message, now, seq, token) AS (VALUES {rows})
    UPDATE triggers
       SET status              = move.status,
           reason              = move.reason,
           not_before          = coalesce(move.not_before, triggers.not_before),
           due_at              = max(fire_at, coalesce(move.not_before, triggers.not_before, fire_at)),
           attempts            = attempts - move.gives_back,
           error_code          = move.code,
           error_message       = move.message,
           claimed_epoch       = NULL,
           lease_token         = NULL,
           lease_until         = NULL,
           cancel_requested_at = CASE WHEN move.status = 'PENDING' THEN NULL ELSE cancel_requested_at END,
           started_at          = CASE WHEN move.status = 'PENDING' THEN NULL ELSE started_at END,
           settled_at          = CASE WHEN move.status = 'PENDING' THEN NULL ELSE move.now END,
           updated_at          = move.now
      FROM move
     WHERE triggers.seq = move.seq
       AND lease_token = move.token
       AND +triggers.status = 'CLAIMED'
    """,
    width=9,
)
"""The plus keeps SQLite from walking the index of all claims instead of seeking each row. No RETURNING here: it doubles
the cost of this statement, so who still holds a lease is read just before, under the same lock."""

HELD = """
SELECT seq, lease_token
  FROM triggers
 WHERE seq IN (SELECT value FROM json_each(?1))
   AND +status = 'CLAIMED'
"""


class ClaimStore:
    """Leases on rows of `triggers`. Holds nothing; every method runs on the transaction it is given."""

    def claim(self, tx: Transaction, seqs: Sequence[int], *, epoch: int, token: str, lease_until: float) -> list[Claim]:
        """Lease these PENDING rows; in no order."""
        rows = tx.fetch_tuples(CLAIM, (canonicalize(list(seqs)), epoch, token, lease_until, tx.now))
        return [Claim._make(row) for row in rows]

    def start_all(
        self, tx: Transaction, claims: Sequence[Claim], *, alone: bool
    ) -> dict[tuple[int, str], tuple[int, int]]:
        """Count the attempt of claimed triggers: (seq, token) -> (attempts, starts). A missing one lost its lease."""
        rows = tx.execute_many(START, [(tx.now, int(alone), claim.seq, claim.lease_token) for claim in claims])
        return {(seq, token): (attempts, starts) for seq, token, attempts, starts in rows}

    def note_joined(self, tx: Transaction, seq: int, token: str) -> None:
        """Note that a started trigger is not alone any more. Nothing is written when its token is not the one held."""
        tx.run(
            "UPDATE triggers SET started_alone = 0 WHERE seq = :seq AND lease_token = :token AND status = 'CLAIMED'",
            seq=seq,
            token=token,
        )

    def settle_all(self, tx: Transaction, moves: Sequence[tuple[Claim, Settlement]]) -> set[int]:
        """Write decided moves; the seqs of those that still held their lease. Nothing is written of the others."""
        held = {
            (seq, token) for seq, token in tx.fetch_tuples(HELD, (canonicalize([claim.seq for claim, _ in moves]),))
        }
        kept = [(claim, move) for claim, move in moves if (claim.seq, claim.lease_token) in held]
        tx.execute_many(SETTLE, [(*move, tx.now, claim.seq, claim.lease_token) for claim, move in kept])
        return {claim.seq for claim, _ in kept}

    def extend_leases(self, tx: Transaction, epoch: int, lease_until: float) -> int:
        """Extend every lease of this epoch in one statement."""
        return tx.run(
            "UPDATE triggers SET lease_until = :until WHERE status = 'CLAIMED' AND claimed_epoch = :epoch",
            until=lease_until,
            epoch=epoch,
        )

    def list_orphans(self, tx: Reader, epoch: int) -> list[dict[str, Any]]:
        """Return the claims of earlier epochs, whose daemons are gone. `has_progress`: its last attempt has completed
        something that the next one finds. The intent of a call does not count: the call may be why it died."""
        return tx.fetch_all(
            """
            SELECT seq, id, lease_token, started_at, started_alone, crash_count, machine_restarts, cancel_requested_at,
                   EXISTS (SELECT 1
                             FROM event_rows
                            WHERE execution_seq = (SELECT max(seq)
                                                     FROM executions
                                                    WHERE executions.id >= 'exec-' || triggers.id || '.'
                                                      AND executions.id < 'exec-' || triggers.id || '/')
                              AND type IN ('STEP_COMPLETED', 'EMITTED', 'CHILD_STARTED', 'ACTIVITY_DONE')
                              AND memo IS NOT NULL) AS has_progress
              FROM triggers
             WHERE status = 'CLAIMED'
               AND claimed_epoch <> :epoch
            """,
            epoch=epoch,
        )

    def list_claims_of_epoch(self, tx: Reader, epoch: int) -> list[tuple[int, str]]:
        """Return (seq, token) of the claims of this epoch, for the engine to compare with its own."""
        rows = tx.fetch_tuples(
            "SELECT seq, lease_token FROM triggers WHERE status = 'CLAIMED' AND claimed_epoch = ?1", (epoch,)
        )
        return [(seq, token) for seq, token in rows]

    def list_cancel_requested(self, tx: Reader, claims: Sequence[Claim]) -> dict[int, str]:
        """Return those whose cancellation was asked for while they ran: why, by seq."""
        return self._cancel_reasons(tx, [claim.seq for claim in claims])

    def cancel_reason(self, tx: Reader, seq: int) -> str:
        """Return the reason of the request to cancel this trigger."""
        return self._cancel_reasons(tx, [seq])[seq]

    def _cancel_reasons(self, tx: Reader, seqs: Sequence[int]) -> dict[int, str]:
        rows = tx.fetch_tuples(
            """
            SELECT seq, coalesce(reason, 'cancelled')
              FROM triggers
             WHERE seq IN (SELECT value FROM json_each(?1))
               AND cancel_requested_at IS NOT NULL
            """,
            (canonicalize(list(seqs)),),
        )
        return dict(rows)

    def has_lease(self, tx: Reader, seq: int, token: str) -> bool:
        """Return whether a trigger is claimed under this token."""
        return (seq, token) in set(tx.fetch_tuples(HELD, (canonicalize([seq]),)))

    def give_back(
        self,
        tx: Transaction,
        seq: int,
        token: str,
        *,
        crashed: bool,
        reason: str,
        restarted: bool = False,
        forgiven: bool = False,
    ) -> bool:
        """Return a claim to PENDING without an outcome; an attempt that no crash ended is given back. `restarted`: it
        was running when the machine was restarted. `forgiven`: no crash so far counts any more.

        False when its token is not the one held.
        """
        return tx.run_one(
            """
            UPDATE triggers
               SET status           = 'PENDING',
                   reason           = :reason,
                   attempts         = attempts - (started_at IS NOT NULL AND NOT :crashed) - :forgiven * crash_count,
                   crash_count      = CASE WHEN :forgiven THEN 0 ELSE crash_count + :crashed END,
                   machine_restarts = machine_restarts + :restarted,
                   claimed_epoch    = NULL,
                   lease_token      = NULL,
                   lease_until      = NULL,
                   started_at       = NULL,
                   updated_at       = :now
             WHERE seq = :seq
               AND lease_token = :token
               AND status = 'CLAIMED'
            """,
            seq=seq,
            token=token,
            crashed=int(crashed),
            restarted=int(restarted),
            forgiven=int(forgiven),
            reason=reason,
        )

    def release_epoch(self, tx: Transaction, epoch: int, reason: str) -> int:
        """Return every claim of an epoch that ends in order, attempts given back; how many."""
        return tx.run(
            """
            UPDATE triggers
               SET status        = 'PENDING',
                   reason        = :reason,
                   attempts      = attempts - (started_at IS NOT NULL),
                   claimed_epoch = NULL,
                   lease_token   = NULL,
                   lease_until   = NULL,
                   started_at    = NULL,
                   updated_at    = :now
             WHERE status = 'CLAIMED'
               AND claimed_epoch = :epoch
            """,
            reason=reason,
            epoch=epoch,
        )

    def settle_orphan(self, tx: Transaction, seq: int, settlement: Settlement, *, crashed: bool) -> str:
        """Settle a live row whose holder is gone; its id."""
        trigger_id: str = tx.fetch_value(
            """
            UPDATE triggers
               SET status        = :status,
                   reason        = :reason,
                   error_code    = :code,
                   error_message = :message,
                   crash_count   = crash_count + :crashed,
                   claimed_epoch = NULL,
                   lease_token   = NULL,
                   lease_until   = NULL,
                   settled_at    = :now,
                   updated_at    = :now
             WHERE seq = :seq
               AND status IN ('PENDING', 'CLAIMED')
            RETURNING id
            """,
            seq=seq,
            status=settlement.status,
            reason=settlement.reason,
            code=settlement.error_code,
            message=settlement.error_message,
            crashed=int(crashed),
            now=tx.now,
        )
        return trigger_id

    def join_lane(self, tx: Transaction, claim: Claim, lane: str) -> bool:
        """Put a held claim into a lane. False when its lease was lost."""
        return tx.run_one(
            """
            UPDATE triggers
               SET lane       = :lane,
                   updated_at = :now
             WHERE seq = :seq
               AND lease_token = :token
            """,
            lane=lane,
            seq=claim.seq,
            token=claim.lease_token,
        )

    def cancel_requests(self, tx: Reader, epoch: int) -> list[int]:
        """Return the seqs of running triggers whose cancellation was asked for."""
        rows = tx.fetch_tuples(
            """
            SELECT seq
              FROM triggers
             WHERE status = 'CLAIMED'
               AND claimed_epoch = ?1
               AND cancel_requested_at IS NOT NULL
            """,
            (epoch,),
        )
        return [seq for (seq,) in rows]
