"""One call of an irreversible action: INTENT on disk, the provider called, what it came to on disk.

begin    the intent, or the activity that is on record already
call     `provider_call.py`: the provider, and what its answer means
settle   the outcome, also when the turn is cancelled meanwhile
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any

import anyio
import anyio.lowlevel

from craftcore.activities.ledger_rules import conflict
from craftcore.activities.model import (
    ActionTerms,
    Activity,
    ActivityStatus,
    CallOutcome,
    NewIntent,
    StartedCall,
    outcome_after,
)
from craftcore.engine.turn.pending_calls import PendingCall
from craftcore.engine.turn.provider_call import NOT_CALLED, TOO_LATE, Answer, call_provider, deadline_of
from craftcore.engine.turn.turn import Turn
from craftcore.errors import ErrorCode, IdempotencyConflict, StorageFull
from craftcore.executions.model import EventType
from craftcore.failpoints import Failpoint, hit
from craftcore.log import get_logger
from craftcore.outcome_exceptions import NoEffect
from craftcore.registry.action import Action
from craftcore.registry.call import Call
from craftcore.serialization.canonical import canonicalize
from craftcore.serialization.untrusted import safe_repr
from craftcore.tasks.activity_events import EVENTS, ActEnd, NewAct
from craftcore.triggers.validation import is_name

log = get_logger(__name__)

REQUEST_MAX = 65_536
"""Characters of the arguments that the ledger keeps for people."""


NOT_MARKED = "nothing was called: its mark could not be written beside the file"


class LedgeredCall:
    """Calls of one irreversible action under one key, as far as the ledger allows them."""

    def __init__(
        self, turn: Turn, action: Action, terms: ActionTerms, key: str, arguments: Mapping[str, Any], text: str
    ) -> None:
        self._turn = turn
        self._action = action
        self._terms = terms
        self._key = key
        self._arguments = arguments
        self._hash = sha256(text.encode()).hexdigest()
        self.resend_until = math.inf
        """When a call of what is in doubt is not made any more."""
        self._ends_at: datetime
        """When the call is over at the latest, or not made any more. Taken before its intent is written."""
        self.retry_after: float | None = None
        """How long the provider of what is in doubt wants to be left alone."""
        self._intent = NewIntent(
            key,
            turn.task.id,
            turn.task.seq,
            turn.task.turn,
            action.name,
            terms.on_unknown,
            self._hash,
            text if len(text) <= REQUEST_MAX else None,
            turn.run.record.seq,
            turn.doors.epoch,
            action.result_shape,
        )

    async def run_once(self, again: Activity | None = None) -> Answer | Activity:
        """Call the provider, unless the ledger says otherwise: begin, call, settle. Only a person, a shutdown or its
        time interrupts that. Another call under the same key is waited for first. `again`: what is in doubt."""
        flights = self._turn.doors.flights
        while (other := flights.get(self._key)) is not None:
            if other.args_hash != self._hash:
                raise conflict(self._key, self._action.name, self._action.name)
            await other.wait_until_recorded()
            self._turn.refuse_when_over()
        flight = flights[self._key] = PendingCall(self._hash)
        self._turn.flights.add(flight)
        try:
            begun = await self._begin(again)
            if not isinstance(begun, StartedCall):
                if begun.status is not ActivityStatus.FAILED:
                    self._turn.run.acted.add(self._key)
                return begun
            self._turn.run.acted.add(self._key)
            hit(Failpoint.INTENT_COMMITTED, self._action.name)
            answer = await self._call(begun)
            end = await self._settle(begun, answer.end)
            hit(Failpoint.ACTIVITY_SETTLED, self._action.name)
            return await self._result(answer, end)
        finally:
            self._turn.flights.discard(flight)
            del flights[self._key]
            flight.finish()

    async def _begin(self, again: Activity | None) -> StartedCall | Activity:
        """Raise IdempotencyConflict, LeaseLost, or a StorageError: nothing was written, and nothing is called."""
        journal = self._turn.doors.journal
        self._ends_at = deadline_of(self._turn, self._terms.timeout)
        event = self._turn.event(EventType.ACTIVITY_INTENT, "", None)
        try:
            return await journal.begin(NewAct(self._intent, event, again, self._ends_at.timestamp()))
        except IdempotencyConflict:  # what the key was used for may have had its effect
            self._turn.run.acted.add(self._key)
            raise
        except BaseException as error:
            if not isinstance(error, Exception):  # cancelled: the intent may be on record, and nobody goes by it
                with anyio.CancelScope(shield=True):
                    if (begun := await journal.find_intent(self._intent)) is not None:
                        await self._settle(begun, NOT_CALLED.end)
            raise

    async def _call(self, begun: StartedCall) -> Answer:
        """Call the provider of what has begun, unless it is too late for that."""
        turn = self._turn
        if (unmarked := await self._mark_refusal(begun)) is not None:
            return unmarked
        if turn.run.interrupted_by is not None:  # in a scope that shields it from that
            return NOT_CALLED
        if begun.in_doubt and turn.doors.clock.now() > self.resend_until:
            return TOO_LATE  # its intent was long on its way to disk, or the machine slept
        hit(Failpoint.CALL_MARKED, self._action.name)
        call = Call(key=self._key, attempt=begun.calls, deadline=self._ends_at)
        answer = await call_provider(turn, self._action, self._terms, call, self._arguments)
        hit(Failpoint.PROVIDER_ANSWERED, self._action.name)
        return answer

    async def _result(self, answer: Answer, end: CallOutcome) -> Answer | Activity:
        """Return the answer, or the activity when it is in doubt. Raises what the action raised or what interrupts."""
        if answer.interrupts is not None:
            raise answer.interrupts
        if end.status is ActivityStatus.UNKNOWN:
            self.retry_after = answer.retry_after
            return await self.look()
        if answer.error is not None:
            await anyio.lowlevel.checkpoint_if_cancelled()  # a turn that is unwound already need not hear of it
            raise answer.error
        return answer

    async def _mark_refusal(self, begun: StartedCall) -> Answer | None:
        """Return why nothing is called: the mark of this call is not on disk beside the file. None: it is."""
        try:
            await self._turn.doors.journal.wait_until_marked(begun)
        except Exception as error:
            code = ErrorCode.STORAGE_FULL if isinstance(error, StorageFull) else ErrorCode.AGENT_UNAVAILABLE
            end = CallOutcome(
                ActivityStatus.FAILED, NOT_MARKED, error_code=code, error_message=safe_repr(error), may_retry=True
            )
            return Answer(end, error=NoEffect(f"{self._action.name}: {NOT_MARKED} ({safe_repr(error)})", code=code))
        except BaseException as error:  # a task of asyncio that somebody cancelled by itself
            return NOT_CALLED._replace(interrupts=error)
        return None

    async def _settle(self, begun: StartedCall, end: CallOutcome) -> CallOutcome:
        """Write what the call came to, whatever becomes of the turn meanwhile; with what is in doubt of those before
        it."""
        end = outcome_after(end, in_doubt=begun.in_doubt)
        if end.status is ActivityStatus.FAILED:
            self._turn.run.acted.discard(self._key)
        # By hand: names need no escaping, and this is written for every act.
        error = "null" if end.error_message is None else canonicalize(end.error_message)
        reference = "null" if end.provider_ref is None else _quote(end.provider_ref)
        payload = (
            f'{{"action":"{self._action.name}","attempt":{begun.calls},"error":{error},"key":"{self._key}",'
            f'"provider_ref":{reference},"reason":"{end.reason}"}}'
        )
        event = self._turn.event(EVENTS[end.status], payload, None, activity_seq=begun.seq)
        run = self._turn.run
        await self._turn.doors.journal.settle(ActEnd(begun, end, event), lambda: run.is_left_behind)
        self._turn.add_completed(None, "")
        if end.status is ActivityStatus.UNKNOWN:
            log.warning(
                "activity.in_doubt",
                action=self._action.name,
                key=self._key,
                reason=end.reason,
                error=end.error_message,
                policy=self._terms.on_unknown,
            )
        return end

    async def look(self) -> Activity:
        """Read the activity, which was begun, from the ledger."""
        found = await self._turn.doors.journal.look(self._key)
        assert found is not None, self._key
        return found


def _quote(text: str) -> str:
    return f'"{text}"' if is_name(text) else canonicalize(text)
