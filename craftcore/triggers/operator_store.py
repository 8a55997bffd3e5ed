"""The only SQL of what people, and the tasks above, do to a trigger: cancel, requeue, discard, run now, set aside, …

Each move names the states it starts from; False: the trigger was in none of them, and nothing was written.
"""

from __future__ import annotations

from typing import Any

from craftcore.storage.transaction import Transaction
from craftcore.triggers.model import HELD_UNTIL, Claim

LIVE = "status IN ('PENDING', 'CLAIMED')"
NO_LEASE = "claimed_epoch = NULL, lease_token = NULL, lease_until = NULL"

REQUEUED = """
status = 'PENDING', reason = 'requeued', attempts = 0, crash_count = 0, machine_restarts = 0, not_before = :now,
due_at = max(fire_at, :now), expires_at = NULL, error_code = NULL, error_message = NULL, cancel_requested_at = NULL,
started_at = NULL, started_alone = 0, settled_at = NULL
"""
CANCELLED = f"""
status = 'DONE', reason = :reason, error_code = 'WORKFLOW_ABORTED', cancel_requested_at = :now, settled_at = :now,
{NO_LEASE}
"""
CORRUPT = "status = 'DEAD', reason = 'corrupt row', error_message = :message"


class OperatorStore:
    """The writes of operator commands to `triggers`. Holds nothing; every method runs on the transaction it is
    given."""

    def cancel_unstarted(self, tx: Transaction, trigger_id: str, reason: str) -> bool:
        """Settle a trigger that is not running. False when it is running or settled."""
        return _move(tx, trigger_id, f"{LIVE} AND started_at IS NULL", CANCELLED, reason=reason)

    def request_cancel(self, tx: Transaction, trigger_id: str, reason: str) -> bool:
        """Ask the engine to cancel a running trigger; the reason of the first request stays. False when it is not
        running."""
        first = "CASE WHEN cancel_requested_at IS NULL THEN :reason ELSE reason END"
        asked = f"reason = {first}, cancel_requested_at = :now"
        return _move(tx, trigger_id, "status = 'CLAIMED' AND started_at IS NOT NULL", asked, reason=reason)

    def requeue(self, tx: Transaction, trigger_id: str) -> bool:
        """Give a DEAD or FAILED trigger another life, due now. False when it is neither, or stripped."""
        return _move(tx, trigger_id, "status IN ('DEAD', 'FAILED') AND stripped_at IS NULL", REQUEUED)

    def discard(self, tx: Transaction, trigger_id: str, reason: str) -> bool:
        """Take a dead letter off the list, DEAD -> FAILED, visibly. A FAILED trigger is not reported any more. False
        when it is neither, or was discarded before."""
        shown = "(status = 'DEAD' OR (status = 'FAILED' AND reason = error_code))"
        return _move(tx, trigger_id, shown, "status = 'FAILED', reason = :reason", reason=reason)

    def pull_forward(self, tx: Transaction, trigger_id: str) -> bool:
        """Let a live trigger that waits for its time be due now. False when it is settled, or gone."""
        fire_at = "min(fire_at, :now)"
        due_now = f"fire_at = {fire_at}, due_at = max({fire_at}, coalesce(not_before, {fire_at}))"
        return _move(tx, trigger_id, f"{LIVE} AND started_at IS NULL", due_now)

    def run_now(self, tx: Transaction, trigger_id: str, reason: str) -> bool:
        """Let a trigger that is PENDING be due now, whatever it waits for. False when it is not."""
        times = ", ".join(f"{name} = min({name}, :now)" for name in ("fire_at", "not_before", "due_at"))
        return _move(
            tx, trigger_id, "status = 'PENDING'", f"{times}, expires_at = NULL, reason = :reason", reason=reason
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
        until = "status = 'PENDING', reason = :reason, not_before = :until, due_at = max(fire_at, :until)"
        _move(tx, claim.id, "status = 'CLAIMED'", f"{until}, {NO_LEASE}", until=HELD_UNTIL, reason=reason)
        return (row["reason"],)

    def put_back(self, tx: Transaction, trigger_id: str, reason: str | None) -> bool:
        """Let a trigger that was put off for a person be due now. False when it is not waiting for that."""
        due_now = "reason = :reason, not_before = :now, due_at = max(fire_at, :now)"
        waiting = "status = 'PENDING' AND not_before = :until"
        return _move(tx, trigger_id, waiting, due_now, reason=reason, until=HELD_UNTIL)

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
        delivered = "status = 'DONE' AND reason = 'delivered' AND stripped_at IS NULL"
        return _move(tx, trigger_id, delivered, CORRUPT, message=message)

    def bury(self, tx: Transaction, trigger_id: str, message: str) -> bool:
        """Settle a live trigger as DEAD. False when it is not live."""
        return _move(tx, trigger_id, LIVE, f"{CORRUPT}, settled_at = :now, {NO_LEASE}", message=message)


def _move(tx: Transaction, trigger_id: str, start: str, changes: str, **values: Any) -> bool:
    """Change a trigger that is in a state. Return whether it was."""
    statement = f"UPDATE triggers SET {changes}, updated_at = :now WHERE id = :id AND {start}"  # noqa: S608 - ours
    return tx.run_one(statement, id=trigger_id, **values)
