"""The rules of a claim's life: lease, start, settle, hand back, reclaim; each over a transaction it is given."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from craftcore.errors import LeaseLost, StateRefused
from craftcore.storage.damaged_rows import readable_value
from craftcore.storage.transaction import Reader, Transaction, get_single_result
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.claim_candidate_store import Budget, CandidateStore
from craftcore.triggers.claim_store import ClaimStore
from craftcore.triggers.listener import NullListener, TriggerListener
from craftcore.triggers.model import Claim, TriggerStatus
from craftcore.triggers.quarantine_store import TRIGGERS
from craftcore.triggers.settlement import (
    INTERRUPTED,
    SHUT_DOWN,
    UNSTARTED,
    Cancelled,
    Continued,
    Failed,
    Outcome,
    Rerouted,
    Settlement,
    Suspended,
    cancel_settlement,
    counts_as_crash,
    is_poison,
    make_poison,
    settle,
)
from craftcore.triggers.start_holds import NOTHING_HELD, StartHolds

PolicyOf = Callable[[Claim], RetryPolicy]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimResult:
    """The result of a claim: leased triggers, whether more may be due, and when the next one becomes due (or None)."""

    claims: list[Claim]
    more: bool
    next_due: float | None


class Started(NamedTuple):
    """A claim whose attempt has begun."""

    claim: Claim
    started_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaimed:
    """The claims of earlier epochs that a boot found."""

    unstarted: int
    crashed: int
    poisoned: list[str]


class ClaimService:
    """Claim, start, ack, release, reclaim.

    `lease_seconds` is a claim's length, `priority_weight` is how many seconds of waiting one priority point is worth.
    """

    def __init__(self, *, lease_seconds: float = 60.0, priority_weight: float = 60.0) -> None:
        self._priority_weight = priority_weight
        self.lease_seconds = lease_seconds
        self._candidates = CandidateStore()
        self._claims = ClaimStore()
        self._tokens = 0
        self.follower: TriggerListener = NullListener()

    def claim(
        self,
        tx: Transaction,
        *,
        epoch: int,
        limit: int,
        busy_lanes: Collection[str] = (),
        before_rank: float | None = None,
        holds: StartHolds = NOTHING_HELD,
        budget: Budget | None = None,
    ) -> ClaimResult:
        """Lease due triggers, best rank first: at most `limit`, one of each lane, none of a busy lane, and of limited
        workflows no more than the budget. Held work is left out; the budget has no place for held workflows.
        """
        seqs, more = self._candidates.due(
            tx,
            tx.now,
            weight=self._priority_weight,
            busy_lanes=busy_lanes,
            limit=limit if holds.everything is None else 0,
            before=before_rank,
            held_sources=holds.sources,
            held_schedules=holds.schedules,
            budget=budget,
        )
        claims: list[Claim] = []
        if seqs:
            self._tokens += 1
            token = f"{epoch}-{self._tokens}"
            until = tx.now + self.lease_seconds
            claims = self._claims.claim(tx, seqs, epoch=epoch, token=token, lease_until=until)
        return ClaimResult(claims=claims, more=more, next_due=self._candidates.next_due(tx, tx.now))

    def rank(self, claim: Claim) -> tuple[float, int, int]:
        """Return what sorts claims: a priority point is worth `priority_weight` seconds of waiting; ties by priority,
        age."""
        return (claim.due_at + self._priority_weight * claim.priority, claim.priority, claim.seq)

    def start_all(self, tx: Transaction, claims: Sequence[Claim], *, alone: bool = False) -> list[Started | Exception]:
        """Count the attempt of each claim. LeaseLost for one that was cancelled, superseded or replaced meanwhile;
        StateRefused for one that is too late to be of use, which settles as stale."""
        answers: dict[tuple[int, str], Exception] = {}  # by token, too: a replaced trigger may be there twice
        fresh: list[Claim] = []
        for claim in claims:
            if claim.expires_at is not None and claim.expires_at <= tx.now:
                stale = Settlement(TriggerStatus.DONE, "stale")
                self._claims.settle_all(tx, [(claim, stale)])
                self.follower.on_settled_unrun(tx, [claim.id])
                answers[claim.seq, claim.lease_token] = StateRefused(
                    f"trigger {claim.id} expired before it could start"
                )
            else:
                fresh.append(claim)
        counts = self._claims.start_all(tx, fresh, alone=alone)
        return [
            answers.get((claim.seq, claim.lease_token))
            or (
                Started(claim._replace(attempts=count[0], starts=count[1]), tx.now)
                if (count := counts.get((claim.seq, claim.lease_token)))
                else _lease_lost(claim)
            )
            for claim in claims
        ]

    def note_joined(self, tx: Transaction, claim: Claim) -> None:
        """Note that another attempt is started beside a trigger that ran alone: a crash from now on proves nothing
        against it."""
        self._claims.note_joined(tx, claim.seq, claim.lease_token)

    def settle(self, tx: Transaction, claim: Claim, outcome: Outcome, policy: RetryPolicy) -> Settlement:
        """Settle a started trigger by what its attempt came to.

        Raises LeaseLost, and writes nothing, when the trigger now belongs to a later attempt or was settled.
        """
        return get_single_result(self.settle_all(tx, [(claim, outcome)], lambda _: policy))

    def settle_all(
        self, tx: Transaction, ends: Sequence[tuple[Claim, Outcome]], policy_of: PolicyOf
    ) -> list[Settlement | Exception]:
        """Settle many; an answer each. A trigger that was cancelled while it ran gets no other attempt, and its task
        does not continue."""
        for claim, outcome in ends:
            if isinstance(outcome, Rerouted):
                self._claims.join_lane(tx, claim, outcome.session_id)
        moves = [(claim, settle(claim, outcome, policy_of(claim), tx.now)) for claim, outcome in ends]
        asked = [
            claim
            for (claim, outcome), (_, move) in zip(ends, moves, strict=True)
            if move.status is TriggerStatus.PENDING or isinstance(outcome, (Cancelled, Continued, Suspended))
        ]
        if asked:
            unwanted = self._claims.list_cancel_requested(tx, asked)
            moves = [
                (claim, cancel_settlement(unwanted[claim.seq]) if claim.seq in unwanted else move)
                for claim, move in moves
            ]
        settled = self._claims.settle_all(tx, moves)
        return [move if claim.seq in settled else _lease_lost(claim) for claim, move in moves]

    def fail(self, tx: Transaction, claim: Claim, failed: Failed) -> Settlement:
        """Settle a claim as FAILED, started or not, by the fewest statements: for one that nothing else can be done
        with. Its task ends with it. Raises LeaseLost."""
        move = Settlement(TriggerStatus.FAILED, failed.code, error_code=failed.code, error_message=failed.message)
        if claim.seq not in self._claims.settle_all(tx, [(claim, move)]):
            raise _lease_lost(claim)
        self.follower.on_settled_unrun(tx, [claim.id])
        return move

    def join_lane(self, tx: Transaction, claim: Claim, session_id: str) -> None:
        """Note that a router put this started trigger into the lane of a session. The request of the producer stays as
        it was.

        Raises LeaseLost.
        """
        if not self._claims.join_lane(tx, claim, session_id):
            raise _lease_lost(claim)

    def release_unstarted(self, tx: Transaction, claims: Sequence[Claim]) -> int:
        """Release claims that were not started. Return how many still held their lease."""
        return sum(
            self._claims.give_back(tx, claim.seq, claim.lease_token, crashed=False, reason="released")
            for claim in claims
        )

    def release_epoch(self, tx: Transaction, epoch: int) -> int:
        """End an epoch in order: hand back every claim that it holds, started or not. Return how many.

        A trigger that was to be cancelled settles instead.
        """
        for seq in self._claims.cancel_requests(tx, epoch):
            self._cancel(tx, seq, crashed=False)
        return self._claims.release_epoch(tx, epoch, SHUT_DOWN)

    def require_held(self, tx: Reader, claim: Claim) -> None:
        """Raise LeaseLost for a claim that another holds now, or none."""
        if not self._claims.has_lease(tx, claim.seq, claim.lease_token):
            raise _lease_lost(claim)

    def extend_leases(self, tx: Transaction, epoch: int) -> int:
        """Extend every claim of this epoch by another lease. Return their number."""
        return self._claims.extend_leases(tx, epoch, tx.now + self.lease_seconds)

    def cancel_requests(self, tx: Transaction, epoch: int) -> list[int]:
        """Return the seqs of running triggers whose cancellation was requested."""
        return self._claims.cancel_requests(tx, epoch)

    def reclaim(self, tx: Transaction, epoch: int, *, machine_restarted: bool = False) -> Reclaimed:
        """Boot: return every claim of earlier epochs, whatever its lease says, because its holder is dead.

        A started one was in a crash; the one that was running alone in its third is poison and DEAD. Crashes count in a
        row: one after its turn has completed something, such as a step, forgives all. Only every second restart of the
        machine counts as a crash. A trigger that was to be cancelled settles and does not come back.
        """
        unstarted = crashed = 0
        poisoned: list[str] = []
        for row in self._claims.list_orphans(tx, epoch):
            was_running = row["started_at"] is not None
            restarts = row["machine_restarts"] + 1 if was_running and machine_restarted else None
            blamed = was_running and counts_as_crash(restarts)
            if row["cancel_requested_at"] is not None:
                self._cancel(tx, row["seq"], crashed=blamed)
                continue
            forgiven = was_running and bool(row["has_progress"])
            if blamed and not forgiven and is_poison(row["crash_count"] + 1, bool(row["started_alone"])):
                poison = make_poison(row["crash_count"] + 1, row["machine_restarts"] + machine_restarted)
                self._end(tx, row["seq"], poison, crashed=True)
                poisoned.append(row["id"])
                continue
            reason = INTERRUPTED if was_running else UNSTARTED
            self._claims.give_back(
                tx,
                row["seq"],
                row["lease_token"],
                crashed=blamed and not forgiven,
                reason=reason,
                restarted=restarts is not None,
                forgiven=forgiven,
            )
            crashed += was_running
            unstarted += not was_running
        return Reclaimed(unstarted=unstarted, crashed=crashed, poisoned=poisoned)

    def reclaim_strays(self, tx: Transaction, epoch: int, held: Collection[tuple[int, str]]) -> int:
        """Return claims of this epoch whose token the engine does not hold (an answer that got lost)."""
        strays = [stray for stray in self._claims.list_claims_of_epoch(tx, epoch) if stray not in held]
        if strays:
            unwanted = set(self._claims.cancel_requests(tx, epoch))
            for seq, _ in strays:
                if seq in unwanted:
                    self._cancel(tx, seq, crashed=False)
        return sum(
            self._claims.give_back(tx, seq, token, crashed=False, reason="reclaimed: its lease had no holder")
            for seq, token in strays
        )

    def set_aside_corrupt(self, tx: Transaction) -> list[str]:
        """Bury the live rows that nothing can be done with, so that the others go on; what was wrong with each.

        For when a statement over many rows failed with RowInvalid or UnicodeDecodeError.
        """
        found = TRIGGERS.repair_all(tx)
        for one in found:
            self.follower.on_settled_unrun(tx, [readable_value(one.row["id"])])
        return [one.message for one in found]

    def _cancel(self, tx: Transaction, seq: int, *, crashed: bool) -> None:
        """Settle a live trigger that was to be cancelled and will not be run to its end."""
        self._end(tx, seq, cancel_settlement(self._claims.cancel_reason(tx, seq)), crashed=crashed)

    def _end(self, tx: Transaction, seq: int, settlement: Settlement, *, crashed: bool) -> None:
        """Settle a live trigger that is not run to its end, and let its task follow."""
        self.follower.on_settled_unrun(tx, [self._claims.settle_orphan(tx, seq, settlement, crashed=crashed)])


def _lease_lost(claim: Claim) -> LeaseLost:
    return LeaseLost(f"trigger {claim.id}: the lease {claim.lease_token} is not the one held; nothing was written")
