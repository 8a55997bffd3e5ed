"""The path of `ctx.act`: an irreversible action is called once, whatever becomes of its turn.

`ledgered_call.py` is one call of it. Here is what comes before: which act this is, and with what it is called. It also
resolves an unknown outcome. `resolution.py` decides: it is called again, the provider is asked, a person is asked, or
it is taken as done.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping
from typing import Any

import anyio
import anyio.lowlevel

from craftcore.activities.model import REFUSED_AS_EXPECTED, ActionTerms, Activity, ActivityStatus, Decision
from craftcore.activities.resolution import Abandoned, Ask, AssumeDone, Reconcile, Resend, ResendLater, resolve
from craftcore.activities.result_shape import is_result_needed
from craftcore.engine.turn.ledgered_call import LedgeredCall
from craftcore.engine.turn.moved_acts import find_place
from craftcore.engine.turn.provider_call import (
    NEEDED,
    Answer,
    ReconcileAnswer,
    deadline_of,
    reconcile,
    unstored_result,
)
from craftcore.engine.turn.redeclared_actions import find_step_result, is_ledgered
from craftcore.engine.turn.steps import run_step
from craftcore.engine.turn.turn import Turn, check_name
from craftcore.error_codes import find_code
from craftcore.errors import ActivityUnknown, ErrorCode, InvalidInput, StateRefused
from craftcore.executions.model import EventType
from craftcore.outcome_exceptions import Fail, NoEffect
from craftcore.registry.action import Action
from craftcore.registry.call import Call
from craftcore.serialization.canonical import canonicalize
from craftcore.serialization.decode import decode
from craftcore.serialization.encode import encode
from craftcore.serialization.plurals import format_count
from craftcore.serialization.untrusted import is_awaitable, safe_repr
from craftcore.tasks.activity_events import question_about
from craftcore.tasks.model import NewWait, WaitKind
from craftcore.triggers.sources import is_delivery_key

_NUMBERED = re.compile(r"\d+\.\d+(@.*)?")

RECONCILED_CALLS_MAX = 10
"""How often what its provider knows nothing of is called before a person is asked."""


async def act(turn: Turn, action: Action | str, key: str | None, arguments: Mapping[str, Any]) -> Any:
    """Do something to the world, once: what the action returned, also when it was at an earlier entry."""
    action = _find_action(turn, action)
    action.check(arguments)
    terms = action.terms_for(arguments)
    place = _place(turn, key)
    activity_key = f"activity:{turn.task.id}:{place}"
    if not terms.irreversible and not await is_ledgered(turn, action, key, place, activity_key):
        return await _act_plainly(turn, action, activity_key, place, terms, arguments)
    text = encode(dict(arguments), f"the arguments of {action.name}")
    is_done, result = await find_step_result(turn, action, key, place, activity_key, arguments)
    if is_done:
        return result
    place = await find_place(turn, action, place, text, is_counted=key is None)
    one = _Act(turn, action, terms, f"activity:{turn.task.id}:{place}", place, arguments, text)
    if place not in turn.acts:
        turn.charge_budget()
        turn.acts.add(place)
    return await one.run()


def _find_action(turn: Turn, action: Action | str) -> Action:
    if isinstance(action, Action):
        if turn.doors.actions.get(action.name) is not action:  # a restart looks for it by its name, on this App
            raise InvalidInput(
                f"action {action.name} is not declared on the App that runs: declare it there with @app.action"
            )
        return action
    if not isinstance(action, str):
        raise InvalidInput(
            f"ctx.act takes an action that was declared with @app.action, or its name; {safe_repr(action)} is neither"
        )
    declared = turn.doors.actions.get(action)
    if declared is None:
        raise InvalidInput(
            f"no action is named {safe_repr(action)}; declared are {', '.join(turn.doors.actions) or 'none'}"
        )
    return declared


def _place(turn: Turn, key: str | None) -> str:
    """Return the identity of an act within its task: its key, for the whole task; else turn and number, and the agent
    when it is not the first."""
    if key is None:
        number = f"{turn.task.turn}.{turn.next_ordinal('act', None).removeprefix('act#')}"
        return number if turn.later_agent is None else f"{number}@{turn.later_agent}"
    turn.refuse_when_over()
    check_name("act key", key)
    if _NUMBERED.fullmatch(key):
        raise InvalidInput(f"act key {safe_repr(key)} could be taken for the number of a call: begin it with a letter")
    return key


async def _act_plainly(
    turn: Turn, action: Action, activity_key: str, place: str, terms: ActionTerms, arguments: Mapping[str, Any]
) -> Any:
    """Run an action that can be done twice, as a step: it is not in the ledger."""
    fn = action.fn
    call = Call(key=activity_key, attempt=1, deadline=deadline_of(turn, terms.timeout))

    async def run_async(given: Mapping[str, Any]) -> Any:
        with anyio.fail_after(terms.timeout):
            return await fn(call, **given)

    async def await_within(result: Awaitable[Any]) -> Any:
        with anyio.fail_after(terms.timeout):
            return await result

    def run_plain(given: Mapping[str, Any]) -> Any:
        result = fn(call, **given)
        return await_within(result) if is_awaitable(result) else result

    run = run_async if action.is_async else run_plain
    run.__annotations__["return"] = action.result_type
    key = place.partition("@")[0] if _NUMBERED.fullmatch(place) else place  # a step's agent is told apart anyway
    return await run_step(
        turn, action.name, run, (dict(arguments),), key=key, retry=None, timeout=None, on_change="error"
    )


class _Act:
    """One irreversible act of one entry of a turn, to its end."""

    def __init__(
        self,
        turn: Turn,
        action: Action,
        terms: ActionTerms,
        key: str,
        place: str,
        arguments: Mapping[str, Any],
        text: str,
    ) -> None:
        self._turn = turn
        self._action = action
        self._terms = terms
        self._key = key
        self._place = place
        self._arguments = arguments
        self._call = LedgeredCall(turn, action, terms, key, arguments, text)

    async def run(self) -> Any:
        """Return its result, as it is on record. Raises the exception of the action; Suspend while an operator has to
        find out."""
        found = await self._call.run_once()
        while isinstance(found, Activity):
            match found.status:
                case ActivityStatus.DONE:
                    return self._result(found)
                case ActivityStatus.FAILED:
                    message = found.error_message or found.reason
                    if found.may_retry:  # somebody else called it meanwhile, under the same key
                        code = find_code(found.error_code or "")
                        if code is None or not code.may_be_retried:
                            code = ErrorCode.AGENT_UNAVAILABLE
                        raise NoEffect(message, code=code)
                    is_expected = found.reason == REFUSED_AS_EXPECTED
                    raise Fail(found.error_code or ErrorCode.AGENT_ERROR, message, expected=is_expected)
            await anyio.lowlevel.checkpoint_if_cancelled()
            if found.decision is Decision.RESEND or found.status is ActivityStatus.INTENT:
                found = await self._call.run_once()  # decided a moment ago; or its end could not be written
            else:
                found = await self._resolve(found)
        return found.value

    # In doubt

    async def _resolve(self, activity: Activity) -> Answer | Activity:
        """Take one step towards resolving the doubt. Raises NoEffect, ActivityUnknown; Suspend or RetryActLater, not to
        be caught."""
        turn = self._turn
        course = resolve(
            activity,
            self._terms,
            can_reconcile=self._action.reconciler is not None,
            is_fresh=self._is_fresh(activity),
            now=turn.doors.clock.now(),
        )
        match course:
            case Resend(until=until):
                self._call.resend_until = until
                return await self._call.run_once(activity)
            case ResendLater():
                turn.retry_act_later(
                    f"{self._action.name}: {activity.reason} ({activity.error_message}); "
                    "the next attempt calls it again with the same key",
                    self._call.retry_after,
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
        if at > self._turn.doors.clock.now():
            name = self._wait_name("settle", activity)
            self._turn.suspend_with(NewWait(name=name, kind=WaitKind.TIMER, due_at=at))
        if isinstance(finding, str):
            return await self._put_to_person(activity, finding)
        if activity.calls >= RECONCILED_CALLS_MAX:
            return await self._put_to_person(
                activity, f"it was called {format_count(activity.calls, 'time')}, and the provider knows of none"
            )
        decided = await self._decide(activity, finding.decision, "reconcile", finding.reference)
        if decided.decision is Decision.RESEND and self._is_fresh(activity):
            self._turn.run.acted.discard(self._key)
            raise NoEffect(f"{self._action.name}: {activity.reason} ({activity.error_message}); nothing happened")
        return decided

    def _is_fresh(self, activity: Activity) -> bool:
        """End this attempt, which has seen the action fail: another one calls it again, after the backoff."""
        return activity.execution_seq == self._turn.run.record.seq

    async def _ask_provider(self, activity: Activity) -> ReconcileAnswer | str:
        call = Call(key=self._key, attempt=activity.calls, deadline=deadline_of(self._turn, self._terms.timeout))
        shape = activity.result_shape
        return await reconcile(self._turn, self._action, self._terms, call, self._arguments, shape)

    async def _decide(self, activity: Activity, decision: Decision, decided_by: str, reference: str | None) -> Activity:
        payload = {"action": self._action.name, "by": decided_by, "decision": decision, "key": self._key}
        text = canonicalize({**payload, "reference": reference})
        event = self._turn.event(EventType.ACTIVITY_RESOLVED, text, None, activity_seq=activity.seq)
        try:
            return await self._turn.doors.journal.decide(activity, decision, decided_by, reference, event)
        except StateRefused:  # somebody else has decided
            return await self._call.look()

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
        asked = question_about(activity, why)
        self._turn.suspend_with(NewWait(name=name, kind=WaitKind.QUESTION, question=asked))

    def _wait_name(self, kind: str, activity: Activity) -> str:
        name = f"{kind}:{self._place}~{activity.calls}"
        while self._turn.resolved_wait(name) is not None:  # it was waited for, and is in doubt as before
            name += "+"
        return name

    def _result(self, activity: Activity) -> Any:
        """Return the result of a DONE action, or the reference that an operator gave for it."""
        where = f"the result of {self._action.name}"
        if activity.result_unstored is not None:
            return unstored_result(activity.result_unstored)
        is_told = activity.decision is Decision.HAPPENED and activity.result_shape is None
        return decode(activity.result_json or "null", Any if is_told else self._action.result_type, where)
