"""The border to user code: whatever a workflow does ends as an Outcome, and never as an exception of the engine."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import msgspec

from craftcore.clock import Clock
from craftcore.config import Config
from craftcore.engine.attempt import Attempt
from craftcore.engine.failure import failure_of, is_only, outcome_of
from craftcore.engine.limits.shortages import ReleaseCounts, Shortages
from craftcore.engine.loop.keyboard_interrupt import is_ctrl_c
from craftcore.engine.turn.context import TaskContext
from craftcore.engine.turn.continuation import document, move_of_continue, refuse_large_state
from craftcore.engine.turn.provider_call import CallCancelled
from craftcore.engine.turn.turn import Turn, TurnServices
from craftcore.engine.turn.turn_state import RetryActLater, Suspend, TurnState
from craftcore.engine.user_code import await_result, call_in_thread, run_in_own_context, run_inline
from craftcore.engine.workers.encoded import Encoded, call_workflow, encode_result, refuse_continue
from craftcore.engine.workers.thread_pool import ThreadPool
from craftcore.errors import ErrorCode, InvalidInput
from craftcore.executions.recorder import Record
from craftcore.executions.trigger_view import Creator, TriggerView
from craftcore.failpoints import Failpoint, hit
from craftcore.log import get_logger
from craftcore.registry.registry import Registry
from craftcore.registry.router import unroutable_failure
from craftcore.registry.workflow import Workflow
from craftcore.serialization.decode import decode
from craftcore.serialization.plurals import format_count
from craftcore.serialization.untrusted import MESSAGE_LIMIT, is_awaitable, message_of, safe_isinstance, truncate_text
from craftcore.storage.event_loop import get_current_loop
from craftcore.tasks.model import Entry
from craftcore.tasks.outcomes import Continue, Done, Returned, Suspends
from craftcore.triggers.settlement import (
    RELEASED,
    Cancelled,
    Continued,
    Corrupt,
    Failed,
    Outcome,
    Released,
    Succeeded,
    Suspended,
)
from craftcore.triggers.sources import DEFAULTS

PLACES_MAX = 10
"""How many calls that were not awaited a message names."""

CANCELLED_FROM_OUTSIDE = "its asyncio task was cancelled, and not by craftcore"
STRAY_CANCELS_MAX = 3
"""How often a trigger is handed back for that. Code that cancels its own task each time fails then."""

log = get_logger(__name__)


NoteFallback = Callable[[Attempt, Failed, str], Awaitable[Record | None]]
"""Notes durably that the agent of an attempt has failed, and that this one is tried next. None: it may not be."""


class Runner:
    """Runs the workflow of one started trigger. `home`: the database, or the task queue, whose engine it belongs to."""

    def __init__(
        self,
        app: Registry,
        services: TurnServices,
        threads: ThreadPool,
        config: Config,
        home: str,
        shortages: Shortages,
        *,
        has_own_task: bool = False,
    ) -> None:
        """Set up a runner. `has_own_task`: each run has an asyncio task of its own, and a cancel of it means that
        run."""
        self.shortages = shortages
        self._app = app
        self._home = home
        self._services = services
        self._overdue_after = config.triggers.overdue_after
        self._response_max_bytes = config.records.response_max_bytes
        self._threads = threads
        self._has_own_task = has_own_task
        self._stray_cancels = ReleaseCounts()
        self._loop = get_current_loop()
        self._make_scope = type(anyio.CancelScope())  # of this event loop: anyio looks for it at each scope

    async def run(self, attempt: Attempt) -> Outcome:
        """Run the workflow to its end, its timeout, its suspension or its cancellation. Ctrl-C is raised."""
        assert attempt.routed is not None, attempt.claim
        if attempt.claim.source not in DEFAULTS:
            return Corrupt(message=f"source {attempt.claim.source!r:.80} is unknown")
        workflow = self._app.workflows.get(attempt.routed.workflow)
        if workflow is None:
            return unroutable_failure(attempt.claim, attempt.routed.workflow, self._app.workflows)
        payload = _payload(attempt)
        try:
            arguments = workflow.arguments(payload)
        except msgspec.ValidationError as error:
            message = truncate_text(f"the payload does not fit {workflow.name}: {error}", MESSAGE_LIMIT)
            return Failed(code=ErrorCode.VALIDATION_ERROR, message=message, retryable=False)
        except msgspec.DecodeError as error:
            return Corrupt(message=f"the payload is not JSON: {error}")
        except BaseException as error:  # the author's own types convert themselves, and raise what they like
            if is_ctrl_c(error):
                raise
            message = truncate_text(f"the payload does not fit {workflow.name}: {message_of(error)}", MESSAGE_LIMIT)
            return Failed(code=ErrorCode.VALIDATION_ERROR, message=message, retryable=False)
        if attempt.deadline_at is not None and attempt.deadline_at <= self._services.clock.now():
            return _timeout_failure(workflow)
        ends_at = self._deadline(attempt, workflow)
        call = partial(workflow.fn, **arguments)
        try:
            if workflow.takes_trigger is not None:
                call = partial(call, **{workflow.takes_trigger: self._view(attempt, None)})
            if workflow.takes_context:
                entry = attempt.entry if workflow.is_task(payload) else None
                assert entry is not None or workflow.task_when is not None, attempt.claim
                call = partial(call, None if entry is None else self._context(attempt, entry, workflow, ends_at))
        except (OverflowError, ValueError, OSError) as error:
            return Corrupt(message=f"due_at {attempt.claim.due_at!r} is not a valid moment: {error}")
        except InvalidInput as error:
            return Failed(code=error.code, message=error.message, retryable=False)
        try:
            return await self._call(attempt, workflow, call, ends_at)
        finally:
            if attempt.turn is not None:
                await attempt.turn.end()

    def _context(self, attempt: Attempt, entry: Entry, workflow: Workflow, ends_at: float | None) -> TaskContext[Any]:
        trigger = self._view(attempt, entry.creator)
        text = entry.task.state_json
        state = None if text == "null" else decode(text, workflow.state_type, "state")
        turn = Turn(attempt, entry, self._services, ends_at)
        if not turn.is_entered_again:
            refuse_large_state(entry.task, self._services.settings)
        attempt.turn = turn
        return TaskContext(
            attempt, turn, trigger, state=state, received_type=workflow.received_type, deadline_at=ends_at
        )

    def _view(self, attempt: Attempt, creator: Creator | None) -> TriggerView:
        return TriggerView.of(attempt.claim, creator, attempt.record.created_at, self._overdue_after)

    def _deadline(self, attempt: Attempt, workflow: Workflow) -> float | None:
        """Return when this attempt ends at the latest: by the timeout of the workflow, or by the deadline of the
        task."""
        ends = [] if workflow.timeout is None else [self._services.clock.now() + workflow.timeout]
        if attempt.deadline_at is not None:
            ends.append(attempt.deadline_at)
        return min(ends, default=None)

    async def _call(
        self, attempt: Attempt, workflow: Workflow, call: Callable[[], Any], ends_at: float | None
    ) -> Outcome:
        deadline = math.inf if ends_at is None else self._loop.time() + ends_at - self._services.clock.now()
        with self._make_scope(deadline=deadline) as scope:
            attempt.home = self._home
            attempt.enter(scope)
            hit(Failpoint.TURN_ENTERED)
            try:
                if workflow.is_async or workflow.is_inline:
                    coroutine = call() if workflow.is_async else run_inline(call)
                    result = await run_in_own_context(coroutine, attempt, scope.deadline)
                elif workflow.in_process:
                    result = await self._run_in_process(workflow, call)
                else:
                    result = await call_in_thread(attempt, call, self._threads)
                    if is_awaitable(result):
                        result = await run_in_own_context(await_result(result), attempt, scope.deadline)
                if attempt.turn is not None:
                    await attempt.turn.close_streams()
                hit(Failpoint.HANDLER_RETURNED)
                if attempt.holds_loop:
                    attempt.judge_block(self._loop.time())
                went_on = attempt.cancels_ignored or attempt.blocked_loop  # although its time was over
                if not went_on or attempt.stopped_by is not None:
                    return self._result_outcome(attempt, workflow, result)
            except anyio.get_cancelled_exc_class():
                await anyio.lowlevel.checkpoint_if_cancelled()  # raises, if it was we who cancelled
                return self._judge_stray_cancel(attempt)
            except BaseException as error:
                if is_ctrl_c(error):
                    raise
                if not (scope.cancel_called and is_only(error, anyio.get_cancelled_exc_class())):
                    return self._failure_of(attempt, error)
        match attempt.stopped_by:
            case "cancelled":
                return Cancelled()
            case "shutdown":
                return Released(reason=RELEASED)
            case "parked":
                return suspension(attempt)
            case None:
                if attempt.deadline_at == ends_at is not None:
                    return _timeout_failure(workflow)
                blocked = ": it blocked the event loop" if attempt.blocked_loop else ""
                message = f"{workflow.name} did not end within {workflow.timeout} s{blocked}"
                return failure_of(ErrorCode.AGENT_TIMEOUT, message, timeout_ms=int((workflow.timeout or 0) * 1000))

    async def _run_in_process(self, workflow: Workflow, call: Callable[[], Any]) -> Encoded:
        coded = partial(call_workflow, workflow.name, self._response_max_bytes, call, self._home)
        return await self._services.workers.call(workflow.name, coded)

    def _result_outcome(self, attempt: Attempt, workflow: Workflow, result: Any) -> Outcome:
        if attempt.turn is not None and attempt.turn.wait is not None:
            return _unreported_cancel(attempt.turn)
        if attempt.turn is not None and attempt.turn.again is not None:
            return _retry_later(attempt.turn.again)
        if attempt.turn is not None and (left := attempt.turn.calls_made.close()):
            return failure_of(
                ErrorCode.INTERNAL_AGENT_ERROR, left[0].describe, where=[one.place for one in left[:PLACES_MAX]]
            )
        if isinstance(result, Continue):
            return self._continue(attempt, workflow, result)
        succeeded = _success(workflow, result.result if isinstance(result, Done) else result)
        if attempt.entry is not None:
            attempt.move = Returned(result_json=self._services.bounded(succeeded.result_json))
        return succeeded

    def _failure_of(self, attempt: Attempt, error: BaseException) -> Outcome:
        cancelled = anyio.get_cancelled_exc_class()
        if attempt.turn is not None and attempt.turn.wait is not None:
            if safe_isinstance(error, Suspend) or is_only(error, (Suspend, cancelled, CallCancelled)):
                return suspension(attempt)
            return _unreported_cancel(attempt.turn)
        if attempt.turn is not None and attempt.turn.again is not None:
            return _retry_later(attempt.turn.again)
        if safe_isinstance(error, CallCancelled) or (
            is_only(error, (CallCancelled, cancelled)) and not is_only(error, cancelled)
        ):
            if attempt.interrupted_by is None:
                return self._judge_stray_cancel(attempt)
            return Released(reason=RELEASED) if attempt.interrupted_by == "shutdown" else Cancelled()
        return self.shortages.judge(attempt.claim.id, error, outcome_of(error, self._services.clock.now()))

    def _judge_stray_cancel(self, attempt: Attempt) -> Outcome:
        """Return the outcome of a cancel that craftcore did not ask for. Runs share a few asyncio tasks: code that kept
        the task of an ended run and cancels it later meets another one. So it is handed back, a few times at most."""
        if self._has_own_task or not self._loop.is_cancelled_from_outside():
            return failure_of(ErrorCode.INTERNAL_AGENT_ERROR, "the workflow cancelled itself")
        times = self._stray_cancels.count(attempt.claim.id)
        if times > STRAY_CANCELS_MAX:
            counted = format_count(times, "time")
            message = f"its asyncio task was cancelled {counted}, and not by craftcore"
            return failure_of(ErrorCode.INTERNAL_AGENT_ERROR, message)
        log.warning("run.cancelled_from_outside", trigger=attempt.claim.id, times=times)
        return Released(reason=CANCELLED_FROM_OUTSIDE)

    def _continue(self, attempt: Attempt, workflow: Workflow, result: Continue[Any]) -> Outcome:
        """Return what `return Continue(…)` comes to. A state that cannot be carried to the next turn fails this one."""
        turn = attempt.turn
        if turn is None:
            message = refuse_continue(workflow.name)
            return Failed(code=ErrorCode.VALIDATION_ERROR, message=message, retryable=False)
        try:
            attempt.move = move_of_continue(
                turn.task, self._services.settings, self._services.clock.now(), result, workflow.state_type
            )
        except InvalidInput as error:
            return Failed(code=error.code, message=error.message, retryable=False)
        return (
            Continued()
            if attempt.move.wait is None
            else Suspended(reason="continues later", event=document(attempt.move.wait))
        )


class Fallback:
    """The agents of attempts: the first is run, and each that fails is followed by the next, at once.

    Not once an irreversible action of its task has begun: what another agent would do instead might be done twice.
    """

    def __init__(self, runner: Runner, note: NoteFallback, clock: Clock) -> None:
        self._runner = runner
        self._note = note
        self._clock = clock

    async def run(self, attempt: Attempt) -> Outcome:
        """Return what the attempt comes to: as its agent ends, or the last one that was tried. Raises LeaseLost."""
        outcome = await self._runner.run(attempt)
        while isinstance(outcome, Failed) and (agent := self._next_agent(attempt)) is not None:
            if attempt.stopped_by == "shutdown":
                return Released(reason=RELEASED)  # the next attempt has the time to try them all
            record = await self._note(attempt, outcome, agent)
            if record is None:
                break
            hit(Failpoint.FELL_BACK)
            log.warning(
                "agent.fell_back",
                trigger=attempt.claim.id,
                from_agent=attempt.routed.workflow if attempt.routed else None,
                to_agent=agent,
                error=outcome.message,
            )
            _switch_agent(attempt, record, agent)
            outcome = _stopped_outcome(attempt) or await self._runner.run(attempt)
        return outcome

    def _next_agent(self, attempt: Attempt) -> str | None:
        """Return the agent that is tried next; None: there is none, or none may be."""
        routed = attempt.routed
        if routed is None or routed.workflow not in routed.agents or attempt.stopped_by not in (None, "shutdown"):
            return None
        if attempt.turn is not None and attempt.turn.again is not None:
            return None  # it is to come to its own act again
        if attempt.deadline_at is not None and attempt.deadline_at <= self._clock.now():
            return None  # of the whole task
        place = routed.agents.index(routed.workflow) + 1
        return routed.agents[place] if place < len(routed.agents) else None


def _stopped_outcome(attempt: Attempt) -> Outcome | None:
    """Return what it comes to when it was stopped while it was handed over; None: it was not."""
    match attempt.stopped_by:
        case "cancelled":
            return Cancelled()
        case "shutdown":
            return Released(reason=RELEASED)
        case _:
            return None


def _switch_agent(attempt: Attempt, record: Record, agent: str) -> None:
    """Continue the turn with the next agent, which has its own identities in the turn."""
    attempt.record, attempt.routed, attempt.move = record, record.routed, None
    if attempt.entry is not None:
        turn = attempt.turn
        memo, streams = attempt.entry.memo, attempt.entry.streams
        if turn is not None:
            memo, streams = turn.memo, turn.list_streams()
        task = replace(attempt.entry.task, agent=agent)
        attempt.entry = replace(attempt.entry, task=task, memo=memo, streams=streams)
    attempt.was_stalled = attempt.was_stalled or (attempt.turn is not None and attempt.turn.asked_at > 0)
    attempt.turn = None


def _payload(attempt: Attempt) -> str:
    """Return the payload of the turn: that of the trigger which created the task."""
    if attempt.entry is not None and attempt.entry.creator is not None:
        return attempt.entry.creator.payload_json
    return attempt.claim.payload_json


def suspension(attempt: Attempt) -> Suspended:
    """Return the outcome of a turn that waits."""
    assert attempt.turn is not None, attempt.claim
    assert attempt.turn.wait is not None, attempt.claim
    attempt.move = Suspends(wait=attempt.turn.wait)
    hit(Failpoint.TURN_SUSPENDED)
    return Suspended(reason=attempt.turn.wait.identity, event=document(attempt.turn.wait))


def _unreported_cancel(turn: TurnState) -> Failed:
    assert turn.wait is not None
    message = f"the workflow went on after {turn.wait.identity} had suspended it: let BaseException pass"
    return failure_of(ErrorCode.INTERNAL_AGENT_ERROR, message)


def _retry_later(again: RetryActLater) -> Failed:
    code = ErrorCode.ACTIVITY_UNKNOWN
    return Failed(code=code, message=again.message, retryable=True, retry_after=again.after)


def _timeout_failure(workflow: Workflow) -> Failed:
    message = f"{workflow.name}: the task did not end before its deadline"
    return Failed(code=ErrorCode.AGENT_TIMEOUT, message=message, retryable=False)


def _success(workflow: Workflow, result: Any) -> Succeeded:
    if result is None:
        return Succeeded()
    encoded = result if type(result) is Encoded else encode_result(result, workflow.result_type)
    return Succeeded(result_json=encoded.text, is_stored=encoded.is_stored)
