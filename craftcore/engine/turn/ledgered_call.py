"""One irreversible action: INTENT on disk, the provider called, what it came to on disk.

begin    the intent, or the activity that is on record already
call     `provider_call.py`: the provider, and what its answer means
settle   the outcome, also when the turn is cancelled meanwhile

`resolution.py` decides what follows an unknown outcome: it is called again, the provider is asked, a person is asked,
or it is taken as done.
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
    REFUSED_AS_EXPECTED,
    ActionTerms,
    Activity,
    ActivityStatus,
    CallOutcome,
    Decision,
    NewIntent,
    StartedCall,
    outcome_after,
)
from craftcore.activities.resolution import Abandoned, Ask, AssumeDone, Reconcile, Resend, ResendLater, resolve
from craftcore.activities.result_shape import is_result_needed
from craftcore.engine.turn.provider_call import (
    NEEDED,
    NOT_CALLED,
    TOO_LATE,
    Answer,
    CallCancelled,
    ReconcileAnswer,
    call_provider,
    deadline_of,
    reconcile,
    unstored_result,
)
from craftcore.engine.turn.turn import Turn
from craftcore.engine.turn.turn_state import PendingCall
from craftcore.error_codes import find_code
from craftcore.errors import ActivityUnknown, ErrorCode, IdempotencyConflict, StateRefused, StorageFull
from craftcore.executions.model import EventType
from craftcore.failpoints import Failpoint, hit
from craftcore.log import get_logger
from craftcore.outcome_exceptions import Fail, NoEffect
from craftcore.registry.action import Action
from craftcore.registry.call import Call
from craftcore.serialization.canonical import canonicalize
from craftcore.serialization.decode import decode
from craftcore.serialization.plurals import format_count
from craftcore.serialization.untrusted import safe_repr
from craftcore.tasks.activity_events import EVENTS, ActEnd, NewAct, question_about
from craftcore.tasks.model import NewWait, WaitKind
from craftcore.triggers.sources import is_delivery_key
from craftcore.triggers.validation import is_name

log = get_logger(__name__)

REQUEST_MAX = 65_536
"""Characters of the arguments that the ledger keeps for people."""

RECONCILED_CALLS_MAX = 10
"""How often what its provider knows nothing of is called before a person is asked."""

NOT_MARKED = "nothing was called: its mark could not be written beside the file"


class LedgeredCall:
    """One irreversible act of one entry of a turn, to its end: called under one key, as far as the ledger allows it."""

    def __init__(
        self, turn: Turn, action: Action, terms: ActionTerms, place: str, arguments: Mapping[str, Any], text: str
    ) -> None:
        self._turn = turn
        self._action = action
        self._terms = terms
        self._place = place
        self._key = f"activity:{turn.task.id}:{place}"
        self._arguments = arguments
        self._hash = sha256(text.encode()).hexdigest()
        self._resend_until = math.inf
        """When a call of what is in doubt is not made any more."""
        self._ends_at: datetime
        """When the call is over at the latest, or not made any more. Taken before its intent is written."""
        self._is_given_up = False
        self._retry_after: float | None = None
        """Seconds for which the provider of what is in doubt wants no call."""
        self._intent = NewIntent(
            self._key,
            turn.task.id,
            turn.task.seq,
            turn.task.turn,
            action.name,
            terms.on_unknown,
            self._hash,
            text if len(text) <= REQUEST_MAX else None,
            turn.attempt.record.seq,
            turn.services.epoch,
            action.result_shape,
        )

    async def run(self) -> Any:
        """Return its result, as it is on record. Raises the exception of the action; Suspend while an operator has to
        find out."""
        outcome = await self._call_once(None)
        while isinstance(outcome, Activity):
            match outcome.status:
                case ActivityStatus.DONE:
                    return self._result_of(outcome)
                case ActivityStatus.FAILED:
                    message = outcome.error_message or outcome.reason
                    if outcome.may_retry:  # another caller has used the same key meanwhile
                        code = find_code(outcome.error_code or "")
                        if code is None or not code.may_be_retried:
                            code = ErrorCode.AGENT_UNAVAILABLE
                        raise NoEffect(message, code=code)
                    is_expected = outcome.reason == REFUSED_AS_EXPECTED
                    raise Fail(outcome.error_code or ErrorCode.AGENT_ERROR, message, expected=is_expected)
            await anyio.lowlevel.checkpoint_if_cancelled()
            if outcome.decision is Decision.RESEND or outcome.status is ActivityStatus.INTENT:
                outcome = await self._call_once(None)  # decided a moment ago; or its end could not be written
            else:
                outcome = await self._resolve(outcome)
        return outcome.value

    # One call

    async def _call_once(self, again: Activity | None) -> Answer | Activity:
        """Call the provider, unless the ledger says otherwise. Only a person, a shutdown or its time interrupts that: a
        task beside the turn's own may be cancelled natively, so the call has another one. `again`: what is in doubt."""
        if self._turn.is_own_task:
            return await self._make_call(again)
        return await self._turn.services.loop.run_alone(lambda: self._make_call_alone(again), self._give_up)

    def _give_up(self) -> None:
        """Note that the caller has ended. A call that was not made yet is not made."""
        self._is_given_up = True

    async def _make_call_alone(self, again: Activity | None) -> Answer | Activity:
        self._turn.refuse_when_over()  # its task begins later
        if self._is_given_up:
            raise CallCancelled(NOT_CALLED.end.reason)
        return await self._make_call(again)

    async def _make_call(self, again: Activity | None) -> Answer | Activity:
        """Begin, call, settle. Another call under the same key is waited for first."""
        in_flight = self._turn.services.in_flight
        while (other := in_flight.get(self._key)) is not None:
            if other.args_hash != self._hash:
                raise conflict(self._key, self._action.name, self._action.name)
            await other.wait_until_recorded()
            self._turn.refuse_when_over()
        pending = in_flight[self._key] = PendingCall(self._hash)
        self._turn.in_flight.add(pending)
        try:
            begun = await self._begin(again)
            if not isinstance(begun, StartedCall):
                if begun.status is not ActivityStatus.FAILED:
                    self._turn.attempt.acted.add(self._key)
                return begun
            self._turn.attempt.acted.add(self._key)
            hit(Failpoint.INTENT_COMMITTED, self._action.name)
            answer = await self._call(begun)
            end = await self._settle(begun, answer.end)
            hit(Failpoint.ACTIVITY_SETTLED, self._action.name)
            return await self._read_outcome(answer, end)
        finally:
            self._turn.in_flight.discard(pending)
            del in_flight[self._key]
            pending.finish()

    async def _begin(self, again: Activity | None) -> StartedCall | Activity:
        """Raise IdempotencyConflict, LeaseLost, or a StorageError: nothing was written, and nothing is called."""
        journal = self._turn.services.journal
        self._ends_at = deadline_of(self._turn, self._terms.timeout)
        event = self._turn.event(EventType.ACTIVITY_INTENT, "", None)
        try:
            return await journal.begin(NewAct(self._intent, event, again, self._ends_at.timestamp()))
        except IdempotencyConflict:  # what the key was used for may have had its effect
            self._turn.attempt.acted.add(self._key)
            raise
        except BaseException as error:
            if not isinstance(error, Exception):  # cancelled: an intent that is on record is not followed by a call
                with anyio.CancelScope(shield=True):
                    if (begun := await journal.find_intent(self._intent)) is not None:
                        await self._settle(begun, NOT_CALLED.end)
            raise

    async def _call(self, begun: StartedCall) -> Answer:
        """Call the provider of what has begun, unless it is too late for that."""
        turn = self._turn
        if (unmarked := await self._mark_refusal(begun)) is not None:
            return unmarked
        if turn.attempt.interrupted_by is not None or self._is_given_up:  # in a scope that shields it from that
            return NOT_CALLED
        if begun.in_doubt and turn.services.clock.now() > self._resend_until:
            return TOO_LATE  # its intent was long on its way to disk, or the machine slept
        hit(Failpoint.CALL_MARKED, self._action.name)
        call = Call(key=self._key, attempt=begun.calls, deadline=self._ends_at)
        answer = await call_provider(turn, self._action, self._terms, call, self._arguments)
        hit(Failpoint.PROVIDER_ANSWERED, self._action.name)
        return answer

    async def _read_outcome(self, answer: Answer, end: CallOutcome) -> Answer | Activity:
        """Return the answer, or the activity when it is in doubt. Raises what the action raised or what interrupts."""
        if answer.interrupts is not None:
            raise answer.interrupts
        if end.status is ActivityStatus.UNKNOWN:
            self._retry_after = answer.retry_after
            return await self._look()
        if answer.error is not None:
            await anyio.lowlevel.checkpoint_if_cancelled()  # a turn that is unwound already needs no second error
            raise answer.error
        return answer

    async def _mark_refusal(self, begun: StartedCall) -> Answer | None:
        """Return why nothing is called: the mark of this call is not on disk beside the file. None: it is."""
        try:
            await self._turn.services.journal.wait_until_marked(begun)
        except Exception as error:
            code = ErrorCode.STORAGE_FULL if isinstance(error, StorageFull) else ErrorCode.AGENT_UNAVAILABLE
            end = CallOutcome(
                ActivityStatus.FAILED, NOT_MARKED, error_code=code, error_message=safe_repr(error), may_retry=True
            )
            return Answer(end, error=NoEffect(f"{self._action.name}: {NOT_MARKED} ({safe_repr(error)})", code=code))
        except BaseException as error:  # user code cancelled its asyncio task
            return NOT_CALLED._replace(interrupts=error)
        return None

    async def _settle(self, begun: StartedCall, end: CallOutcome) -> CallOutcome:
        """Write what the call came to, whatever becomes of the turn meanwhile; with what is in doubt of those before
        it."""
        end = outcome_after(end, in_doubt=begun.in_doubt)
        if end.status is ActivityStatus.FAILED:
            self._turn.attempt.acted.discard(self._key)
        # By hand: names need no escaping, and this is written for every act.
        error = "null" if end.error_message is None else canonicalize(end.error_message)
        reference = "null" if end.provider_ref is None else _quote(end.provider_ref)
        payload = (
            f'{{"action":"{self._action.name}","attempt":{begun.calls},"error":{error},"key":"{self._key}",'
            f'"provider_ref":{reference},"reason":"{end.reason}"}}'
        )
        event = self._turn.event(EVENTS[end.status], payload, None, activity_seq=begun.seq)
        attempt = self._turn.attempt
        await self._turn.services.journal.settle(ActEnd(begun, end, event), lambda: attempt.is_left_behind)
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

    async def _look(self) -> Activity:
        """Read the activity, which was begun, from the ledger."""
        activity = await self._turn.services.journal.look(self._key)
        assert activity is not None, self._key
        return activity

    # Unknown outcomes

    async def _resolve(self, activity: Activity) -> Answer | Activity:
        """Take one step towards resolving the doubt. Raises NoEffect, ActivityUnknown; Suspend or RetryActLater, not to
        be caught."""
        turn = self._turn
        if turn.is_still_open(name := self._wait_name("activity", activity)):  # a person was asked
            question = question_about(activity, None)
            await turn.suspend_for_act(NewWait(name=name, kind=WaitKind.QUESTION, question=question))
        course = resolve(
            activity,
            self._terms,
            can_reconcile=self._action.reconciler is not None,
            is_fresh=self._is_fresh(activity),
            now=turn.services.clock.now(),
        )
        match course:
            case Resend(until=until):
                self._resend_until = until
                return await self._call_once(activity)
            case ResendLater():
                turn.retry_act_later(
                    f"{self._action.name}: {activity.reason} ({activity.error_message}); "
                    "the next attempt calls it again with the same key",
                    self._retry_after,
                )
            case AssumeDone() if is_result_needed(activity.result_shape):
                return await self._ask(activity, f"it is taken as done, and only a person can tell {NEEDED}")
            case AssumeDone():
                return await self._decide(activity, Decision.HAPPENED, "policy assume_done", None)
            case Abandoned():
                raise ActivityUnknown(
                    f"unknown whether {self._action.name} happened ({activity.reason})", key=self._key
                )
            case Reconcile(at=at):
                return await self._reconcile(activity, at)
            case Ask(why=why):
                return await self._ask(activity, why)

    async def _reconcile(self, activity: Activity, at: float) -> Activity:
        """Ask the provider; when it does not know, a person. A yes of the provider counts at once. A no counts when no
        call can be on its way any more."""
        finding = await self._ask_provider(activity)
        if isinstance(finding, ReconcileAnswer) and finding.decision is Decision.HAPPENED:
            return await self._decide(activity, finding.decision, "reconcile", finding.reference)
        if at > self._turn.services.clock.now():
            name = self._wait_name("settle", activity)
            await self._turn.suspend_for_act(NewWait(name=name, kind=WaitKind.TIMER, due_at=at))
        if isinstance(finding, str):
            return await self._put_to_person(activity, finding)
        if activity.calls >= RECONCILED_CALLS_MAX:
            return await self._put_to_person(
                activity, f"it was called {format_count(activity.calls, 'time')}, and the provider knows of none"
            )
        decided = await self._decide(activity, finding.decision, "reconcile", finding.reference)
        if decided.decision is Decision.RESEND and self._is_fresh(activity):
            self._turn.attempt.acted.discard(self._key)
            raise NoEffect(f"{self._action.name}: {activity.reason} ({activity.error_message}); nothing happened")
        return decided

    def _is_fresh(self, activity: Activity) -> bool:
        """Return whether this attempt has seen the action fail: another one calls it again, after the backoff."""
        return activity.execution_seq == self._turn.attempt.record.seq

    async def _ask_provider(self, activity: Activity) -> ReconcileAnswer | str:
        call = Call(key=self._key, attempt=activity.calls, deadline=deadline_of(self._turn, self._terms.timeout))
        shape = activity.result_shape
        return await reconcile(self._turn, self._action, self._terms, call, self._arguments, shape)

    async def _decide(self, activity: Activity, decision: Decision, decided_by: str, reference: str | None) -> Activity:
        payload = {"action": self._action.name, "by": decided_by, "decision": decision, "key": self._key}
        text = canonicalize({**payload, "reference": reference})
        event = self._turn.event(EventType.ACTIVITY_RESOLVED, text, None, activity_seq=activity.seq)
        try:
            return await self._turn.services.journal.decide(activity, decision, decided_by, reference, event)
        except StateRefused:  # it was decided meanwhile
            return await self._look()

    async def _ask(self, activity: Activity, why: str | None) -> Activity:
        """Ask an operator, with the answer of the provider where it has one."""
        finding_text = None
        if self._action.reconciler is not None:
            finding = await self._ask_provider(activity)
            finding_text = finding if isinstance(finding, str) else finding.describe
        return await self._put_to_person(activity, "; ".join(filter(None, (why, finding_text))) or None)

    async def _put_to_person(self, activity: Activity, why: str | None) -> Activity:
        """Ask an operator. A notification is given up instead: the question would not be notified."""
        if is_delivery_key(self._turn.task.dedup_key):
            return await self._decide(activity, Decision.GIVE_UP, "the notification", None)
        name = self._wait_name("activity", activity)
        question = question_about(activity, why)
        await self._turn.suspend_for_act(NewWait(name=name, kind=WaitKind.QUESTION, question=question))

    def _wait_name(self, kind: str, activity: Activity) -> str:
        name = f"{kind}:{self._place}~{activity.calls}"
        while self._turn.resolved_wait(name) is not None:  # it was waited for, and is in doubt as before
            name += "+"
        return name

    def _result_of(self, activity: Activity) -> Any:
        """Return the result of a DONE action, or the reference that an operator gave for it."""
        where = f"the result of {self._action.name}"
        if activity.result_unstored is not None:
            return unstored_result(activity.result_unstored)
        is_reference = activity.decision is Decision.HAPPENED and activity.result_shape is None
        return decode(activity.result_json or "null", Any if is_reference else self._action.result_type, where)


def _quote(text: str) -> str:
    return f'"{text}"' if is_name(text) else canonicalize(text)
