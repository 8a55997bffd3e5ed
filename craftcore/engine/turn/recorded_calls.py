"""The calls of `ctx` that are done once in a turn: a re-entry takes their results from the record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any, ParamSpec, TypeVar, TypeVarTuple, Unpack, overload

from craftcore.engine.turn.act import act
from craftcore.engine.turn.emit import Child, OnParentEnd, emit_recorded, signal_recorded, start_child
from craftcore.engine.turn.redeclared_actions import refuse_done_act
from craftcore.engine.turn.schedule_calls import TurnSchedules
from craftcore.engine.turn.steps import OnChange, record_note, run_step, run_transaction
from craftcore.engine.turn.turn import Turn
from craftcore.engine.turn.unawaited_calls import CallsMade, track_await
from craftcore.errors import InvalidInput
from craftcore.registry.action import Action
from craftcore.registry.executor import Executor
from craftcore.schedules.calls import Schedules
from craftcore.serialization.arguments import Duration
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.model import EmitOptions, Emitted
from craftcore.triggers.validation import is_name

T = TypeVar("T")
P = ParamSpec("P")
Arguments = TypeVarTuple("Arguments")


class RecordedCalls:
    """The calls of a turn that take effect once, however often it is entered."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    @property
    def _calls_made(self) -> CallsMade:
        return self._turn.calls_made

    @cached_property
    def schedules(self) -> Schedules:
        """The calls of `app.schedules`. Each change is made once in this turn, in the commit that records it.

        A re-entry takes its result from there. Raises StepConflict when a re-entry makes other calls.
        """
        return TurnSchedules(self._turn)

    @overload
    async def step(
        self,
        name: str,
        fn: Callable[[Unpack[Arguments]], Awaitable[T]],
        *args: *Arguments,
        key: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        on_change: OnChange = "error",
        executor: Executor = "thread",
    ) -> T: ...

    @overload
    async def step(
        self,
        name: str,
        fn: Callable[[Unpack[Arguments]], T],
        *args: *Arguments,
        key: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        on_change: OnChange = "error",
        executor: Executor = "thread",
    ) -> T: ...

    @track_await("ctx.step")  # type: ignore[misc] # mypy does not match `*Arguments` with `*args`
    async def step(
        self,
        name: str,
        fn: Callable[..., Any],
        *args: Any,
        key: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        on_change: OnChange = "error",
        executor: Executor = "thread",
    ) -> Any:
        """Run `fn(*args)` once per name (and key) in this turn; its result is on disk when this returns.

        The result comes as its return annotation says, the first time as at a re-entry. A plain function runs in a
        thread, with `executor="process"` in a worker process, which is killed when the step is cancelled. With
        `executor="inline"` it runs on the event loop: for a function that returns at once. `retry`: tried again in
        this attempt, with that policy's waits, and a crash keeps the count; without one, its failure is the turn's.
        `timeout`: of each try of an async function or a process; after it, TimeoutError.
        `on_change="rerun"`: other arguments than those on record run it again.
        Raises StepConflict; InvalidInput for a result that is not JSON, naming the field; PayloadTooLarge; WorkerDied;
        what `fn` raises. A crash between the function's end and the commit of its result runs it again.
        """
        turn = self._turn
        is_new = turn.is_entered_again and turn.identity("step", name, key) not in turn.memo
        if is_new and (key is None or is_name(key)):
            turn.refuse_when_over()
            await refuse_done_act(turn, name, key)
        return await run_step(
            turn, name, fn, args, key=key, retry=retry, timeout=timeout, on_change=on_change, executor=executor
        )

    @track_await("ctx.note")
    async def note(self, name: str, data: Any = None, *, key: str | None = None) -> None:
        """Put something into the task's stream, once. Raises StepConflict, InvalidInput for what is not JSON, or
        PayloadTooLarge."""
        await record_note(self._turn, name, data, key)

    @track_await("ctx.transaction")
    async def transaction(
        self,
        name: str,
        fn: Callable[..., T],
        *args: Any,
        key: str | None = None,
        on_change: OnChange = "error",
    ) -> T:
        """Run a step whose plain `fn(tx, *args)` writes tables of your own in this file, in the commit that records
        it.

        Its SQL may not touch our tables, begin or end transactions, or use PRAGMA or ATTACH, and has one second.
        Raises what `fn` raises, and nothing of it is written then; InvalidInput for SQL that is not allowed.
        """
        result: T = await run_transaction(self._turn, name, fn, args, key=key, on_change=on_change)
        return result

    @track_await("ctx.emit")
    async def emit(
        self, workflow: str | None, payload: Mapping[str, Any] | None = None, *, key: str | None = None,
        **options: Unpack[EmitOptions],
    ) -> Emitted:  # fmt: skip
        """Accept a trigger, once in this turn. Options and errors are those of App.emit, and StepConflict."""
        return await emit_recorded(self._turn, workflow, payload, key, options)

    @track_await("ctx.signal")
    async def signal(self, task_id: str, event: str, payload: Any = None, *, key: str | None = None) -> bool:
        """Tell another live task that something happened, once in this turn. True when it waited for just that.

        Errors are those of App.signal, and StepConflict.
        """
        return await signal_recorded(self._turn, task_id, event, payload, key)

    @track_await("ctx.start_child")
    async def start_child(
        self,
        workflow: str,
        payload: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        on_parent_end: OnParentEnd = "abandon",
        **options: Unpack[EmitOptions],
    ) -> Child:
        """Start a task of another workflow, once in this turn.

        `on_parent_end`: "abandon" lets it go on by itself, whatever becomes of this task; "cancel" cancels it in the
        commit in which this task ends, however it ends. Wait for it with `await child.result()`. Options and errors are
        those of App.emit, and StepConflict.
        """
        return await start_child(self._turn, workflow, payload, key, on_parent_end, options)

    @overload
    async def act(self, action: Action[T, P], /, *args: P.args, **arguments: P.kwargs) -> T: ...

    @overload
    async def act(self, action: Action[T, ...], /, *, key: str | None, **arguments: Any) -> T: ...

    @overload
    async def act(self, action: str, /, *, key: str | None = None, **arguments: Any) -> Any: ...

    @track_await("ctx.act")  # type: ignore[misc] # no argument of an action is called key
    async def act(self, action: Action[Any, ...] | str, /, *args: Any, key: str | None = None, **arguments: Any) -> Any:
        """Call an action, or the declared action of that name, and return its result.

        An irreversible one goes through the ledger: its intent is on disk before it is called, its result when this
        returns, and at a re-entry the result comes from there. Its identity is its key, for the whole task; without a
        key its turn and its number among the acts of that turn. Only the task's cancellation, a shutdown or its timeout
        interrupts the call, not a cancel scope of the workflow.

        When the outcome is unknown, the `on_unknown` of the action applies: the turn may be suspended until an operator
        has answered. Raises what the action raised (NoEffect: the attempt is tried again; Fail: the provider refused).
        Raises IdempotencyConflict when the key was used with other arguments, ActivityUnknown once a person gave it up,
        and KeyRequired. Raises InvalidInput for arguments that it does not take or that are not JSON. After a
        StorageError the intent was not written, and nothing was called.
        """
        if args:
            raise InvalidInput("ctx.act takes the arguments of an action by name, as in ctx.act(pay, amount=3)")
        return await act(self._turn, action, key, arguments)
