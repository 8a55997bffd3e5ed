"""The border to user code: whatever a workflow does ends as an Outcome, and never as an exception of the engine."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec

from craftcore.app import App
from craftcore.canonical import canonical
from craftcore.clock import Clock
from craftcore.cutpoints import CutPoint, reach
from craftcore.engine.context import TaskContext
from craftcore.engine.isolation import in_own_context
from craftcore.engine.router import unroutable
from craftcore.engine.run import Run
from craftcore.engine.words import MESSAGE_LIMIT, bounded, message_of, shown
from craftcore.errors import CraftcoreError, ErrorCode, Fail, Retry, Snooze
from craftcore.storage.waiters import current_loop
from craftcore.triggers.settlement import Cancelled, Corrupt, Failed, Outcome, Released, Snoozed, Succeeded
from craftcore.triggers.sources import DEFAULTS
from craftcore.workflow import Workflow

CODE_LIMIT = 100
"""Characters of an error code that are kept."""


class Runner:
    """Runs the workflow of one started trigger."""

    def __init__(self, app: App, clock: Clock, *, overdue_after: float, concurrency: int) -> None:
        self._app = app
        self._clock = clock
        self._overdue_after = overdue_after
        self._threads = anyio.CapacityLimiter(concurrency)

    async def run(self, run: Run) -> Outcome:
        """Run the workflow to its end, its timeout or its cancellation."""
        assert run.routed is not None, run.claim
        if run.claim.source not in DEFAULTS:
            return Corrupt(message=f"source {run.claim.source!r:.80} is unknown")
        workflow = self._app.workflows.get(run.routed.workflow)
        if workflow is None:
            return unroutable(run.claim, run.routed.workflow)
        try:
            arguments = workflow.arguments(run.claim.payload_json)
        except msgspec.ValidationError as error:
            message = f"the payload does not fit {workflow.name}: {error}"
            return Failed(code=ErrorCode.VALIDATION_ERROR, message=message, retryable=False)
        except msgspec.DecodeError as error:
            return Corrupt(message=f"the payload is not JSON: {error}")
        except Exception as error:  # the author's own types convert themselves, and raise what they like
            message = bounded(f"the payload does not fit {workflow.name}: {message_of(error)}", MESSAGE_LIMIT)
            return Failed(code=ErrorCode.VALIDATION_ERROR, message=message, retryable=False)
        call = partial(workflow.fn, **arguments)
        if workflow.takes_context:
            claim, record = run.claim, run.record
            try:
                context = TaskContext.of(claim, record.id, record.created_at, self._overdue_after)
            except (OverflowError, ValueError, OSError) as error:
                return Corrupt(message=f"due_at {claim.due_at!r} is no moment: {error}")
            call = partial(call, context)
        return await self._call(run, workflow, call)

    async def _call(self, run: Run, workflow: Workflow, call: Callable[[], Any]) -> Outcome:
        deadline = math.inf if workflow.timeout is None else anyio.current_time() + workflow.timeout
        with anyio.CancelScope(deadline=deadline) as scope:
            run.enter(scope)
            try:
                result = await (in_own_context(call()) if workflow.is_async else self._in_thread(run, call))
                reach(CutPoint.HANDLER_RETURNED)
                return Succeeded(result_json=_result_text(result))
            except anyio.get_cancelled_exc_class():
                await anyio.lowlevel.checkpoint_if_cancelled()  # raises, if it was we who cancelled
                return _failed(ErrorCode.INTERNAL_AGENT_ERROR, "the workflow cancelled itself")
            except BaseException as error:
                if not (scope.cancel_called and _is_only_cancelled(error)):
                    return self._outcome_of(error)
        match run.stopped_by:
            case "cancelled":
                return Cancelled()
            case "shutdown":
                return Released(reason="shutdown")
            case None:
                message = f"{workflow.name} did not end within {workflow.timeout} s"
                return _failed(ErrorCode.AGENT_TIMEOUT, message, timeout_ms=int((workflow.timeout or 0) * 1000))

    def _outcome_of(self, error: BaseException) -> Outcome:
        match error:
            case Retry():
                return Failed(
                    code=ErrorCode.AGENT_ERROR, message=message_of(error), retryable=True, retry_after=error.after
                )
            case Snooze():
                return Snoozed(until=max(error.until, self._clock.now()))
            case Fail():
                code = bounded(error.code, CODE_LIMIT)
                return Failed(code=code, message=message_of(error), retryable=False, details=_plain(error.details))
            case CraftcoreError():
                retryable = error.code.retryable != "no"
                details = _plain(error.details)
                return Failed(code=error.code, message=message_of(error), retryable=retryable, details=details)
            case TimeoutError():
                return _failed(ErrorCode.AGENT_TIMEOUT, message_of(error), exception_type=type(error).__name__)
            case ConnectionError():
                return _failed(ErrorCode.TRANSPORT_ERROR, message_of(error), exception_type=type(error).__name__)
            case _:
                return _failed(ErrorCode.INTERNAL_AGENT_ERROR, message_of(error), exception_type=type(error).__name__)

    async def _in_thread(self, run: Run, call: Callable[[], Any]) -> Any:
        """Run a plain function in a thread. It cannot be cancelled: what holds its place waits until it returns,
        so that it never runs twice at once. Only a shutdown leaves it behind."""
        loop = current_loop()
        returned = loop.waiter()
        begun = False

        def call_and_tell() -> Any:
            nonlocal begun
            begun = True
            try:
                result = call()
                if inspect.iscoroutine(result):
                    result.close()
                    raise Fail(ErrorCode.INTERNAL_AGENT_ERROR, "a plain function returned a coroutine: nothing ran")
                return result
            finally:
                loop.call_soon(lambda: loop.wake(returned))

        try:
            return await anyio.to_thread.run_sync(call_and_tell, abandon_on_cancel=True, limiter=self._threads)
        except anyio.get_cancelled_exc_class():
            if begun and run.stopped_by != "shutdown":
                run.on_shutdown = lambda: loop.wake(returned)
                with anyio.CancelScope(shield=True):
                    await loop.wait(returned)
            raise


def _failed(code: ErrorCode, message: str, **details: Any) -> Failed:
    return Failed(code=code, message=message, retryable=code.retryable != "no", details=details)


def _plain(details: dict[str, Any]) -> dict[str, Any]:
    """The details as they can be recorded: what is not JSON becomes its repr."""
    plain: dict[str, Any] = {}
    for key, value in details.items():
        try:
            canonical(value)
            plain[str(key)] = value
        except (TypeError, ValueError, RecursionError):
            plain[str(key)] = shown(value)
    return plain


def _is_only_cancelled(error: BaseException) -> bool:
    """Whether this is a nursery's group of cancellations and nothing else."""
    return isinstance(error, BaseExceptionGroup) and error.split(anyio.get_cancelled_exc_class())[1] is None


def _result_text(result: Any) -> str:
    """The canonical text of a result. One that cannot be stored is no reason to run the work again: a stub says so."""
    if result is None:
        return "null"
    try:
        return canonical(result)
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        return canonical(msgspec.to_builtins(result))
    except (TypeError, ValueError, RecursionError) as error:
        return canonical({"result_unstored": f"{type(result).__name__} is not JSON: {error}"[:MESSAGE_LIMIT]})
