"""Operations of producers and operators on triggers. Each method is a rule over a transaction it is given.

The life of a claim, from lease to settle, is in `claim_service.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from craftcore.clock import Clock
from craftcore.errors import DuplicateTrigger, InvalidInput, NotFound, StateRefused
from craftcore.storage.damaged_rows import Damaged
from craftcore.storage.facts import get_fact
from craftcore.storage.transaction import Row, Transaction, get_single_result
from craftcore.triggers.damaged_store import DamagedTriggerStore
from craftcore.triggers.derived_ids import derive_id
from craftcore.triggers.duplicates import find_foreign_holder, held_name, make_duplicate
from craftcore.triggers.listener import NullListener, TriggerListener
from craftcore.triggers.model import (
    Claim,
    DedupScope,
    Emitted,
    NewTrigger,
    Trigger,
    TriggerSpec,
    TriggerStatus,
)
from craftcore.triggers.operator_store import OperatorStore
from craftcore.triggers.store import TriggerStore
from craftcore.triggers.validation import MOMENT_TEXTS, ReadMoment, accept, show_value, with_moments


class TriggerService:
    """Accept and emit; cancel, requeue and discard. `payload_max_bytes` bounds a payload. `read_moment` reads texts
    such as `tomorrow 9am`."""

    def __init__(self, clock: Clock, read_moment: ReadMoment, *, payload_max_bytes: int = 262_144) -> None:
        self._clock = clock
        self._read_moment = read_moment
        self._payload_max_bytes = payload_max_bytes
        self._store = TriggerStore()
        self._operators = OperatorStore()
        self._damaged = DamagedTriggerStore()
        self._database_id: str | None = None
        self.follower: TriggerListener = NullListener()

    # Emit

    def accept(self, spec: TriggerSpec) -> NewTrigger:
        """Check a spec before anything is written. Raises InvalidInput or PayloadTooLarge."""
        if not isinstance(spec, TriggerSpec):
            raise InvalidInput(
                f"{show_value(spec)} is not a TriggerSpec; give TriggerSpec(workflow=…, payload={{…}}) for each trigger"
            )
        minted_id, now = spec.id or self._clock.new_id(), self._clock.now()
        if isinstance(spec.at, MOMENT_TEXTS) or isinstance(spec.expires_at, MOMENT_TEXTS):
            spec = with_moments(spec, now, self._clock.zone(), self._read_moment)
        return accept(spec, now, minted_id, payload_max_bytes=self._payload_max_bytes)

    def emit(self, tx: Transaction, spec: TriggerSpec) -> Emitted:
        """Accept one trigger: once the transaction is on disk, it survives any crash.

        Raises InvalidInput, PayloadTooLarge, or DuplicateTrigger when the spec asked for it; nothing is written then.
        """
        return get_single_result(self.emit_all(tx, [self.accept(spec)]))

    def emit_all(self, tx: Transaction, rows: Sequence[NewTrigger]) -> list[Emitted | Exception]:
        """Insert accepted triggers; an answer each. A DuplicateTrigger is such an answer, and wrote nothing."""
        answers = self.emit_rows(tx, rows)
        return [_emitted_result(answer) if isinstance(answer, NewTrigger) else answer for answer in answers]

    def emit_rows(self, tx: Transaction, rows: Sequence[NewTrigger]) -> list[NewTrigger | Emitted | Exception]:
        """Insert accepted triggers as `emit_all` does. The answer for an inserted row is the row: a handle takes what
        it needs from that, and bulk emits make nothing else of it."""
        answers: list[NewTrigger | Emitted | Exception] = []
        plain: list[NewTrigger] = []
        for row in rows:
            if row.dedup_key is None and not row.id_given and not row.supersedes:
                plain.append(row)
            elif standing := self._find_existing(tx, row):
                refusal = find_foreign_holder(row, standing["id"], standing["workflow"])
                answers.append(refusal or self._duplicate(tx, row, standing))
                continue
            else:
                self._store.insert_all(tx, [*plain, row])
                plain.clear()
                if row.supersedes:
                    self.follower.on_settled_unrun(tx, self._store.supersede(tx, row))
            answers.append(row)
        if plain:
            self._store.insert_all(tx, plain)
        return answers

    def emit_together(self, tx: Transaction, rows: Sequence[NewTrigger]) -> list[NewTrigger | Emitted]:
        """Insert accepted triggers as `emit_rows` does: all, or none. Raises the first refusal."""
        answers = self.emit_rows(tx, rows)
        if refusals := [answer for answer in answers if isinstance(answer, Exception)]:
            raise refusals[0]
        return cast("list[NewTrigger | Emitted]", answers)

    def emit_scheduled(
        self,
        tx: Transaction,
        spec: TriggerSpec,
        *,
        schedule_id: str,
        nominal_at: float,
        not_before: float | None,
        is_late: bool = False,
    ) -> Emitted:
        """Emit for an occurrence of a schedule. `not_before` paces it, and leaves when it was due as it is. `is_late`:
        so late, perhaps, that its dedup key is not held any more.

        Its id follows from its key: it is the same when a restored file fires it a second time. When the key is held
        the answer says by whom, and nothing is written: also when the schedule had another workflow then, because the
        occurrence was fired.
        """
        if self._database_id is None:
            self._database_id = get_fact(tx, "database_id") or ""
        id = derive_id(self._database_id, spec.dedup_key or "")
        row = self.accept(spec)._replace(id=id, id_given=is_late)
        if standing := self._find_existing(tx, row):
            return get_single_result([self._duplicate(tx, row, standing)])
        row = row._replace(due_at=max(row.fire_at, not_before or row.fire_at), id_given=False)
        self._store.insert_scheduled(tx, row, schedule_id=schedule_id, nominal_at=nominal_at, not_before=not_before)
        return _emitted_result(row)

    def emit_claimed(
        self, tx: Transaction, rows: Sequence[NewTrigger], *, epoch: int, lease_seconds: float
    ) -> list[Claim | Exception]:
        """Insert accepted triggers, each plain and due, as claimed by this epoch: the claim of each, in order.

        For an engine whose window has taken all that is due: it spares the trigger its way through the table.
        The token may be the same for all, because a row is born once.
        """
        until = tx.now + lease_seconds
        return [*self._store.insert_claimed(tx, rows, epoch=epoch, token=f"{epoch}-0", lease_until=until)]

    def is_anybody_waiting(self, tx: Transaction, session_id: str) -> bool:
        """Return whether another trigger of this session is due: then one born claimed would go before it, whatever
        ranks."""
        return self._store.has_due(tx, session_id, tx.now)

    def emit_again(self, tx: Transaction, trigger_id: str, payload_json: str) -> str | None:
        """Accept again a trigger that was settled without being run: as it was emitted, due when it was, and routed
        again. Return its new id; None when its row is gone."""
        new_id = derive_id(trigger_id, "again")
        if self.is_id_used(tx, new_id):  # by what an earlier trigger with this id emitted
            new_id = self._clock.new_id()
        return new_id if self._store.insert_again(tx, trigger_id, new_id, payload_json) else None

    def _find_existing(self, tx: Transaction, row: NewTrigger) -> Row | None:
        """Return the trigger that already holds the id, else the key. An id is held as long as anything of it is on
        record."""
        standing = self._find_holder(tx, row.id) if row.id_given else None
        if standing is None and row.dedup_key is not None:
            standing = self._store.find_key(tx, row.dedup_key)
        return standing

    def _find_holder(self, tx: Transaction, trigger_id: str) -> Row | None:
        return self._store.find_id(tx, trigger_id) or self._store.find_trace(tx, trigger_id)

    def _duplicate(self, tx: Transaction, row: NewTrigger, standing: Row) -> Emitted | Exception:
        if row.on_duplicate == "error":
            return DuplicateTrigger(
                f"the {held_name(row, standing['id'])} is held by trigger {standing['id']} ({standing['status']}); "
                "nothing was written",
                id=standing["id"],
            )
        replaced = (
            row.on_duplicate == "replace"
            and not self.follower.has_task(tx, standing["id"])
            and self._store.replace(tx, standing["id"], row)
        )
        return make_duplicate(row, standing, is_replaced=replaced)

    # Operator commands

    def get(self, tx: Transaction, trigger_id: str) -> Trigger:
        """Return the trigger with this id. Raises NotFound."""
        trigger = self._store.get(tx, trigger_id)
        if trigger is None:
            raise NotFound(f"no trigger {trigger_id}")
        return trigger

    def has_trigger(self, tx: Transaction, trigger_id: str) -> bool:
        """Return whether there is such a trigger, live or settled."""
        return self._store.find_id(tx, trigger_id) is not None

    def is_id_used(self, tx: Transaction, trigger_id: str) -> bool:
        """Return whether a trigger has this id, or had it and a task or record of it is there."""
        return self._find_holder(tx, trigger_id) is not None

    def is_live(self, tx: Transaction, trigger_id: str) -> bool:
        """Return whether there is such a trigger, and it is not settled."""
        trigger = self._store.get(tx, trigger_id)
        return trigger is not None and not trigger.status.is_settled

    def cancel(self, tx: Transaction, trigger_id: str, reason: str = "cancelled") -> Trigger:
        """Cancel a trigger: at once when it is not running, else by asking the engine (ring its bell after). Raises
        NotFound, or StateRefused when it is settled."""
        if self._operators.cancel_unstarted(tx, trigger_id, reason):
            self.follower.on_settled_unrun(tx, [trigger_id])
        elif not self._operators.request_cancel(tx, trigger_id, reason):
            trigger = self.get(tx, trigger_id)
            raise StateRefused(f"trigger {trigger_id} is {trigger.status} ({trigger.reason}) and cannot be cancelled")
        return self.get(tx, trigger_id)

    def requeue(self, tx: Transaction, trigger_id: str) -> Trigger:
        """Give a DEAD or FAILED trigger another life, with all its attempts.

        Raises NotFound, or StateRefused: it is neither, a live trigger holds its dedup key now, or retention took its
        payload.
        """
        trigger = self.get(tx, trigger_id)
        if trigger.status not in (TriggerStatus.DEAD, TriggerStatus.FAILED):
            now = ""
            if trigger.status is TriggerStatus.PENDING and trigger.starts > 0:
                record = f"exec-{trigger_id}.{trigger.starts}"
                now = f". To let it run again now: craftcore execution retry {record} --reason TEXT"
            raise StateRefused(
                f"trigger {trigger_id} is {trigger.status}; only DEAD and FAILED ones can be requeued{now}"
            )
        if trigger.stripped_at is not None:
            raise StateRefused(f"retention took the payload of trigger {trigger_id}: emit it again, with another key")
        self.refuse_held_key(tx, trigger.dedup_key, trigger_id)
        requeued = self._operators.requeue(tx, trigger_id)
        assert requeued, trigger
        self.follower.on_requeued(tx, trigger_id)
        return self.get(tx, trigger_id)

    def refuse_held_key(self, tx: Transaction, dedup_key: str | None, trigger_id: str) -> None:
        """Raise StateRefused when another trigger than this one, or its live task, holds the key."""
        standing = None if dedup_key is None else self._store.find_key(tx, dedup_key)
        if standing is not None and standing["id"] != trigger_id:
            raise StateRefused(f"the dedup key {dedup_key} is held by trigger {standing['id']} now")

    def run_now(self, tx: Transaction, trigger_id: str, reason: str) -> Trigger:
        """Let a PENDING trigger be due now, at the end of no backoff and not too late for its `expires_at`; its
        attempts count on. Raises NotFound or StateRefused."""
        if not self._operators.run_now(tx, trigger_id, reason):
            trigger = self.get(tx, trigger_id)
            raise StateRefused(f"trigger {trigger_id} is {trigger.status}; only a PENDING one can be run now")
        return self.get(tx, trigger_id)

    def discard(self, tx: Transaction, trigger_id: str, reason: str = "discarded") -> Trigger:
        """Take a dead letter off the list; it stays readable as FAILED. A FAILED trigger is not reported any more.
        Raises NotFound or StateRefused."""
        if not self._operators.discard(tx, trigger_id, reason):
            trigger = self.get(tx, trigger_id)
            raise StateRefused(
                f"trigger {trigger_id} is {trigger.status}; only one that is DEAD or FAILED can be discarded, once"
            )
        return self.get(tx, trigger_id)

    def discard_damaged(self, tx: Transaction, trigger_id: str, reason: str = "discarded") -> Damaged | None:
        """Take a dead letter off the list whose row cannot be read. None when it can, and nothing was written. Raises
        StateRefused when it is not DEAD."""
        found = self._damaged.find(tx, trigger_id)
        if found is None:
            return None
        if not self._damaged.discard(tx, found.seq, reason):
            raise StateRefused(
                f"trigger {trigger_id} is damaged, and {found.status}; only a damaged one that is DEAD can be discarded"
            )
        return found.row


def _emitted_result(row: NewTrigger) -> Emitted:
    scope = DedupScope(row.dedup_scope) if row.dedup_scope else None
    return Emitted(id=row.id, created=True, status=TriggerStatus.PENDING, due_at=row.due_at, dedup_scope=scope)
