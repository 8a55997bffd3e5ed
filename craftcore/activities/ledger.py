"""The rules of the ledger: an intent before the call, an end after it, and the treatment of an intent without an end.

begin    INTENT is on disk before the provider is called; an activity on record is returned instead
settle   DONE, FAILED or UNKNOWN, once, by the holder of the intent: `ActivityStore.settle_all`
decide   a person or a policy ends a doubt
"""

from __future__ import annotations

from collections.abc import Sequence

from craftcore.activities.decision_store import DecisionStore
from craftcore.activities.ledger_rules import (
    LEFT_BEHIND,
    RESTORED,
    RESTORED_OTHER_KEY,
    Reentry,
    begin_again,
    decide,
    describe_status,
    find_conflict,
    judge_reentry,
    put_in_doubt,
)
from craftcore.activities.model import Activity, ActivityStatus, Decision, NewIntent, StartedCall
from craftcore.activities.store import ActivityStore
from craftcore.errors import StateRefused
from craftcore.storage.facts import number
from craftcore.storage.restored_work import RestoredWork
from craftcore.storage.transaction import Transaction


class Ledger:
    """Begin, settle, decide. Each method is a rule over a transaction it is given."""

    def __init__(self, restored: RestoredWork) -> None:
        self._restored = restored
        self._store = ActivityStore()
        self._decisions = DecisionStore()

    def begin_all(self, tx: Transaction, intents: Sequence[NewIntent]) -> list[StartedCall | Activity | Exception]:
        """Write the intents of what was never begun, or may be called again; an answer each.

        The answer is the activity when it must not be called: DONE, refused for good, or in doubt. In a restored
        database an activity without a row, or one that could be called again, is in doubt as well. The answer is
        IdempotencyConflict, and nothing is written, when the key belongs to another action or other arguments.
        """
        known = self._store.find_by_keys(tx, [intent.key for intent in intents])
        fresh = [intent for intent in intents if intent.key not in known]
        doubtful = self._restored.find_doubtful(tx, {intent.task_id for intent in fresh})
        for intent in [intent for intent in fresh if intent.task_id in doubtful]:
            reason = RESTORED if doubtful[intent.task_id] else RESTORED_OTHER_KEY
            known[intent.key] = self._store.insert_in_doubt(tx, intent, reason)
            fresh.remove(intent)
        begun = dict(zip((intent.key for intent in fresh), self._store.add_intents(tx, fresh), strict=True))
        return [begun.get(intent.key) or self._reenter(tx, known[intent.key], intent) for intent in intents]

    def _reenter(self, tx: Transaction, before: Activity, intent: NewIntent) -> StartedCall | Activity | Exception:
        if (refusal := find_conflict(before, intent)) is not None:
            return refusal
        match judge_reentry(before):
            case Reentry.TAKE:
                return before
            case Reentry.LEAVE_BEHIND:
                self._store.settle_all(tx, [(before.last_call, LEFT_BEHIND)])
                return self._store.get_by_seq(tx, before.seq)
            case Reentry.CALL_AGAIN if self._may_have_gone_further(tx, before, intent.epoch):
                doubt = put_in_doubt(before, epoch=intent.epoch, reason=RESTORED, now=tx.now)
                self._store.change(tx, before, doubt)
                return self._store.get_by_seq(tx, before.seq)
            case Reentry.CALL_AGAIN:
                return self.call_again(tx, before, intent)

    def _may_have_gone_further(self, tx: Transaction, activity: Activity, epoch: int) -> bool:
        """Return whether it was last touched before the restore of the database: it may have been called again.
        `epoch`: of the engine that asks."""
        restored_at = self._restored.find_moment(tx)
        if restored_at is None:
            return False
        restored_epoch = number(tx, "restored_epoch")
        before = epoch if restored_epoch is None else restored_epoch  # a damaged one puts what is older in doubt, once
        return activity.epoch < before and activity.updated_at <= restored_at

    def call_again(self, tx: Transaction, before: Activity, intent: NewIntent) -> StartedCall | Activity:
        """Write the intent of another call of an activity. Return the activity when it has changed meanwhile."""
        if before.status in (ActivityStatus.FAILED, ActivityStatus.UNKNOWN):
            after = begin_again(before, intent, tx.now)
            if self._store.change(tx, before, after):
                return after.last_call
        return self._store.get_by_seq(tx, before.seq)

    def mark_interrupted(self, tx: Transaction) -> list[Activity]:
        """Put every intent without an end in doubt, while nothing runs. Return them as they were."""
        left = self._store.intents(tx)
        self._store.settle_all(tx, [(one.last_call, LEFT_BEHIND) for one in left])
        return left

    def decide(
        self,
        tx: Transaction,
        activity: Activity,
        decision: Decision,
        *,
        decided_by: str,
        reference: str | None = None,
        note: str | None = None,
    ) -> Activity:
        """End a doubt: it happened, it may be called again, or it is given up. Return the activity after that.

        One that the provider refused may be called again, too. Raises StateRefused for any other.
        """
        after = decide(activity, decision, decided_by=decided_by, reference=reference, now=tx.now)
        if after is None or not self._decisions.change(tx, activity, after):
            raise StateRefused(f"{activity.key} {describe_status(activity)}; nothing was written")
        self._decisions.add(tx, activity, decision, decided_by, reference=reference, note=note)
        return self._store.get_by_seq(tx, activity.seq)
