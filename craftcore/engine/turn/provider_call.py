"""Calls to a provider: the end of a call shows whether something happened.

returned             DONE
NoEffect             FAILED   it is certain that nothing happened; another call may help
Fail                 FAILED   nothing happened, and another call would be refused again
anything else        UNKNOWN  a timeout, a cancellation, a lost connection, any other error
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import anyio

from craftcore.activities.model import REFUSED, REFUSED_AS_EXPECTED, ActionTerms, ActivityStatus, CallOutcome, Decision
from craftcore.activities.result_shape import read_result
from craftcore.engine.failure import wait_asked
from craftcore.engine.turn.part import run_part
from craftcore.engine.turn.turn import Turn
from craftcore.engine.user_code import run_in_thread
from craftcore.errors import ErrorCode, InvalidInput
from craftcore.outcome_exceptions import Fail, NoEffect
from craftcore.registry.action import Action
from craftcore.registry.call import Call
from craftcore.serialization.annotations import is_async
from craftcore.serialization.encode import encode
from craftcore.serialization.roundtrip import encode_roundtrip
from craftcore.serialization.untrusted import (
    MESSAGE_LIMIT,
    is_awaitable,
    message_of,
    safe_repr,
    truncate_text,
    type_name,
)
from craftcore.tasks.outcomes import Done

REFERENCE_MAX = 998
"""Characters of a provider's reference that are kept: those of a line of mail."""

NEEDED = "the result that its task needs"

CODE_MAX = 100
"""Characters of an error code that are kept."""

RECONCILE_TRIES = 3
RECONCILE_WAIT_SECONDS = 1.0
"""How often a provider that cannot be asked is asked again, and after how long; twice as long each time."""


class Answer(NamedTuple):
    """The end of a call. `error`: what the workflow gets. `interrupts`: what ended the workflow meanwhile.
    `retry_after`: seconds for which the provider wants no call, None when it did not say."""

    end: CallOutcome
    value: Any = None
    error: Exception | None = None
    interrupts: BaseException | None = None
    retry_after: float | None = None


class ReconcileAnswer(NamedTuple):
    """The answer of a reconcile function."""

    decision: Decision
    reference: str | None

    @property
    def describe(self) -> str:
        """`the provider says that it happened (ref-7)`"""
        reference = f" ({self.reference})" if self.reference else ""
        happened = "it happened" if self.decision is Decision.HAPPENED else "it has not happened so far"
        return f"the provider says that {happened}{reference}"


class CallCancelled(NoEffect):
    """The run was stopped before the call was made. It ends as what stopped it, and not as a failure."""


NOT_CALLED = Answer(
    CallOutcome(ActivityStatus.FAILED, "cancelled before it was called", may_retry=True),
    error=CallCancelled("cancelled before it was called"),
)
TOO_LATE = Answer(
    CallOutcome(ActivityStatus.FAILED, "its time was over before it was called", may_retry=True),
    error=NoEffect("its time was over before it was called", code=ErrorCode.AGENT_TIMEOUT),
)


async def call_provider(
    turn: Turn, action: Action, terms: ActionTerms, call: Call, arguments: Mapping[str, Any]
) -> Answer:
    """Call it, for no longer than its terms and its attempt allow, and say what that came to.

    Only an operator who cancels its task and a shutdown interrupt it. The scopes of the workflow do not: their end
    would only add an unknown outcome.
    """
    attempt = turn.attempt
    left = call.deadline.timestamp() - turn.services.clock.now()
    if left <= 0:
        return TOO_LATE
    calling = ProviderCall(action, call, arguments)
    interrupts: BaseException | None = None
    interruption = ""
    try:
        with (
            anyio.CancelScope(shield=True, deadline=anyio.current_time() + left) as scope,
            run_part(f"{call.key}{turn.scope}"),
        ):
            attempt.calls.add(scope)
            try:
                if action.is_async:
                    await calling.call()
                else:
                    result = await run_in_thread(attempt, calling.call_plainly, turn.services.threads)
                    if not calling.returned:
                        calling.returned.append(result)
            finally:
                attempt.calls.discard(scope)
    except Exception as error:
        return _failure_answer(error)
    except BaseException as error:
        interrupts, interruption = error, safe_repr(error)
    finally:
        await turn.save_streams()  # first: a call that is on record is not made again
    if calling.returned:
        return _done_answer(turn, action, calling.returned[0])._replace(interrupts=interrupts)
    if calling.raised:
        return _failure_answer(calling.raised[0])._replace(interrupts=interrupts)
    if not calling.has_begun:
        return (TOO_LATE if attempt.interrupted_by is None else NOT_CALLED)._replace(interrupts=interrupts)
    if interrupts is not None:
        return Answer(_unknown_outcome("it was interrupted", interruption), interrupts=interrupts)
    if attempt.interrupted_by is not None:
        return Answer(_unknown_outcome("it was cancelled while it was called", attempt.interrupted_by))
    return Answer(_unknown_outcome("it did not answer in time", f"within {terms.timeout:g} s"))


class ProviderCall:
    """The function of an action, and the outcome of a call whose caller does not wait any more."""

    __slots__ = ("_action", "_arguments", "_call", "has_begun", "raised", "returned")

    def __init__(self, action: Action, call: Call, arguments: Mapping[str, Any]) -> None:
        self._action = action
        self._call = call
        self._arguments = arguments
        self.has_begun = False
        self.returned: list[Any] = []
        self.raised: list[Exception] = []

    async def call(self) -> None:
        self.has_begun = True
        self.returned.append(await self._action.fn(self._call, **self._arguments))

    def call_plainly(self) -> Any:
        """Call the function, on a thread. Its result may be something that the caller awaits."""
        self.has_begun = True
        try:
            result = self._action.fn(self._call, **self._arguments)
        except Exception as error:
            self.raised.append(error)
            raise
        if not is_awaitable(result):
            self.returned.append(result)
        return result


def _failure_answer(error: Exception) -> Answer:
    """Return what an exception of an action says."""
    text, wait = message_of(error), wait_asked(error)
    try:
        match error:
            case NoEffect():
                end = CallOutcome(
                    ActivityStatus.FAILED,
                    "nothing happened",
                    error_code=truncate_text(str(error.code), CODE_MAX),
                    error_message=text,
                    may_retry=True,
                )
                return Answer(end, error=error, retry_after=wait)
            case Fail():
                code = truncate_text(str(error.code), CODE_MAX)
                reason = REFUSED_AS_EXPECTED if error.expected is True else REFUSED
                end = CallOutcome(ActivityStatus.FAILED, reason, error_code=code, error_message=text)
                return Answer(end, error=error)
    except BaseException:  # an exception of user code whose attributes raise proves nothing
        pass
    end = _unknown_outcome("it failed after it was called", f"{type_name(error)}: {text}")
    return Answer(end, retry_after=wait)


def deadline_of(turn: Turn, timeout: float) -> datetime:
    """Return when a call that begins now is cancelled: by its own timeout, or by that of the attempt."""
    at = turn.services.clock.now() + timeout
    return datetime.fromtimestamp(at if turn.ends_at is None else min(at, turn.ends_at), UTC)


async def reconcile(
    turn: Turn, action: Action, terms: ActionTerms, call: Call, arguments: Mapping[str, Any], shape: str | None
) -> ReconcileAnswer | str:
    """Return what the provider says became of the calls so far; why it does not know, when a person has to be asked."""
    assert action.reconciler is not None, action.name
    fn = partial(action.reconciler, call, **arguments)
    wait = RECONCILE_WAIT_SECONDS
    for tries_left in reversed(range(RECONCILE_TRIES)):
        try:
            with anyio.fail_after(terms.timeout):
                answer = await (fn() if is_async(fn) else run_in_thread(turn.attempt, fn, turn.services.threads))
                return _finding(answer, action.name, shape)
        except Exception as error:
            error_text = f"{type_name(error)}: {message_of(error)}"
            if not tries_left:
                return truncate_text(f"the provider could not be asked ({error_text})", MESSAGE_LIMIT)
        await turn.services.clock.sleep(wait)
        wait *= 2
    raise AssertionError("unreachable")


def _finding(answer: Any, action: str, shape: str | None) -> ReconcileAnswer | str:
    if isinstance(answer, Done):
        return _done_finding(answer.result, action, shape)
    if isinstance(answer, NoEffect) or answer is NoEffect:
        return ReconcileAnswer(Decision.RESEND, None)
    return "the provider does not know" if answer is None else f"reconcile returned {safe_repr(answer)}"


def _done_finding(result: Any, action: str, shape: str | None) -> ReconcileAnswer | str:
    """Return that it happened, if what the provider tells is the result that its task needs."""
    if result is None or isinstance(result, str):
        reference = truncate_text(result, REFERENCE_MAX) if result else None
    elif shape is None:
        return f"reconcile returned Done({safe_repr(result)}), and a reference is text"
    else:
        try:
            reference = encode(result, f"the value of reconcile of {action}")
        except InvalidInput as error:
            return truncate_text(error.message, MESSAGE_LIMIT)
    try:
        read_result(shape, reference, action)
    except InvalidInput:
        return f"the provider says that it happened ({safe_repr(result)}), and not {NEEDED}"
    return ReconcileAnswer(Decision.HAPPENED, reference)


def unstored_result(why: str) -> dict[str, str]:
    """Return the value that replaces a result that cannot be stored, now and at a re-entry."""
    return {"result_unstored": why}


def _done_answer(turn: Turn, action: Action, value: Any) -> Answer:
    """Return the answer of an action that happened, whatever its result is."""
    end = CallOutcome(ActivityStatus.DONE, "the provider answered", provider_ref=_reference_in(value))
    try:
        text, value = encode_roundtrip(value, action.result_type, f"the result of {action.name}")
        turn.require_small(text, f"the result of {action.name}")
    except InvalidInput as error:
        why = truncate_text(error.message, MESSAGE_LIMIT)
        return Answer(end._replace(result_unstored=why), unstored_result(why))
    return Answer(end._replace(result_json=text), value)


def _unknown_outcome(reason: str, message: str) -> CallOutcome:
    return CallOutcome(
        ActivityStatus.UNKNOWN,
        reason,
        error_code=ErrorCode.ACTIVITY_UNKNOWN,
        error_message=truncate_text(message, MESSAGE_LIMIT),
        may_retry=True,
    )


def _reference_in(value: Any) -> str | None:
    """Return the provider's reference: what was returned, if it is text, or what a mapping says."""
    try:
        given = value if isinstance(value, str) or not isinstance(value, Mapping) else value.get("provider_ref")
        return truncate_text(given, REFERENCE_MAX) if isinstance(given, str) and given else None
    except BaseException:  # a mapping of user code may raise anything
        return None
