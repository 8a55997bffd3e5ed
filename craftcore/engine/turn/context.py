"""The context that a workflow receives as `ctx`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, TypeVarTuple, Unpack, cast, overload

from craftcore.engine.attempt import CURRENT, Attempt
from craftcore.engine.turn.act import act
from craftcore.engine.turn.changed_acts import refuse_done_act
from craftcore.engine.turn.emit import Child, OnParentEnd, emit_recorded, signal_recorded, start_child
from craftcore.engine.turn.questions import Asked, check_question, key_of_round
from craftcore.engine.turn.reply import reply
from craftcore.engine.turn.schedule_calls import TurnSchedules
from craftcore.engine.turn.steps import OnChange, record_note, run_step, run_transaction
from craftcore.engine.turn.stopped_turn import StoppedTurn, read_stop
from craftcore.engine.turn.stream import Stream
from craftcore.engine.turn.task_events import TaskEvent, read_task_events
from craftcore.engine.turn.turn import Turn
from craftcore.engine.turn.turn_history import History
from craftcore.engine.turn.unawaited_calls import CallsMade, track_await
from craftcore.engine.turn.wait_any import Alternative, wait_any
from craftcore.errors import InvalidInput, PayloadTooLarge
from craftcore.executions.trigger_view import TriggerView
from craftcore.log import get_logger
from craftcore.registry.action import Action
from craftcore.registry.executor import Executor
from craftcore.schedules.calls import Schedules
from craftcore.schedules.recurrence.moment_text import read_moment
from craftcore.serialization.arguments import Duration, Moment, require_whole_number
from craftcore.serialization.decode import decode
from craftcore.serialization.encode import encode
from craftcore.serialization.readable_types import require_type
from craftcore.tasks.alternatives import First
from craftcore.tasks.model import NewWait, ResolvedBy, Resume, WaitKind
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.model import EmitOptions, Emitted
from craftcore.triggers.validation import is_name, require_name

if TYPE_CHECKING:  # Python 3.13 has TypeVar with a default of its own: a bare TaskContext is TaskContext[Any]
    from typing_extensions import TypeVar as TypeVarWithDefault

    S = TypeVarWithDefault("S", default=Any)
    E = TypeVarWithDefault("E", default=Any)
else:
    S = TypeVar("S")
    E = TypeVar("E")
T = TypeVar("T")
D = TypeVar("D")
P = ParamSpec("P")
Arguments = TypeVarTuple("Arguments")

EVENTS_MAX = 10_000
PROGRESS_MAX_BYTES = 64 << 10


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
        `on_change="rerun"`: other arguments than those on record run it again. "keep": the recorded result is returned.
        Use that for arguments that are never the same twice, such as a moment or an object of a framework.
        Raises StepConflict; InvalidInput for a result that is not JSON, naming the field; PayloadTooLarge; WorkerDied;
        what `fn` raises. A crash between the function's end and the commit of its result runs it again.
        """
        turn = self._turn
        is_new = turn.is_entered_again and turn.identity("step", name, key) not in turn.memo
        with turn.running_call():
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
        self, name: str, fn: Callable[..., T], *args: Any, key: str | None = None, on_change: OnChange = "error"
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

    @track_await("ctx.reply")
    async def reply(self, value: Any = None, *, key: str | None = None) -> None:
        """Answer the message that this turn received: `await handle.result()` of its emitter returns `value`.

        It is on record once, when this returns, however often the turn is entered, and the turn goes on. Several
        messages that the turn has received without a reply get this one. In the first turn it answers what created the
        task, and that handle does not wait for the task's end any more. Without a reply the result of a message is
        None once its turn is over.

        Raises StateRefused when there is nothing left to reply to; StepConflict when a re-entry replies another value;
        InvalidInput for what is not JSON; PayloadTooLarge.
        """
        await reply(self._turn, value, key)

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


class TaskContext(RecordedCalls, Generic[S, E]):
    """First argument of a workflow declared as `async def f(ctx, ...)`: its task, as far as it has come.

    A workflow is entered again after a crash, a wait or a retry, from its top; what the turn completed is not run again
    but returned from the record. Annotate it as `TaskContext[State]` to have `state` as that type, and as
    `TaskContext[State, Payment]` to have `received` as one, too; `Payment | None` where a time may end the wait.

    state     the value that the last turn returned in `Continue(state)`; None in the first
    turn      the number of the turn, from 1
    attempt   the number of the attempt of this turn's trigger, from 1
    resume    why the turn is entered
    received  the value of the event that this turn waited for with `Continue(on=…)`; None when its time came first.
              Raises InvalidInput for one that does not fit its type
    deadline  when this attempt is cancelled at the latest; None: never
    """

    if not TYPE_CHECKING:

        def __class_getitem__(cls, types: Any) -> Any:
            """Return the annotation: of the state alone, or of the state and of what is received."""
            return super().__class_getitem__(types if isinstance(types, tuple) else (types, Any))

    def __init__(
        self,
        run: Attempt,
        turn: Turn,
        trigger: TriggerView,
        *,
        state: S | None,
        received_type: Any = Any,
        deadline_at: float | None,
    ) -> None:
        assert run.entry is not None, run.claim
        super().__init__(turn)
        turn.context = self
        self._entry = run.entry
        self.state: S | None = state
        self._received_type = received_type
        self.trigger = trigger
        self.task_id = run.entry.task.id
        self.turn = run.entry.task.turn
        self.attempt = run.claim.attempts
        self.execution_id = run.record.id
        self.resume: Resume = run.entry.resume
        self.deadline = None if deadline_at is None else datetime.fromtimestamp(deadline_at, UTC)

    @cached_property
    def received(self) -> E:
        wait = self._entry.received
        value: Any = None
        if wait is not None and wait.value_json is not None:
            value = decode(wait.value_json, self._received_type, "ctx.received")
        return cast("E", value)

    @cached_property
    def stopped(self) -> StoppedTurn[E] | None:
        """The turn before this one, if a person stopped it: what it had received, and the names of its steps.

        None: it was not stopped. Raises InvalidInput for a received value that does not fit its type.
        """
        stop = self._entry.stopped
        return None if stop is None else read_stop(stop, self._entry.creator, self._received_type)

    @cached_property
    def history(self) -> History:
        """The conversation of the session of this task, message by message: `append` and `last`.

        Raises InvalidInput on a cluster.
        """
        return History(self._turn)

    @cached_property
    def log(self) -> Any:
        """A structlog logger that knows task, turn and attempt."""
        return get_logger("craftcore.task").bind(task=self.task_id, turn=self.turn, attempt=self.attempt)

    @track_await("ctx.events")
    async def events(self, limit: int = 1_000) -> list[TaskEvent]:
        """Return the newest events of this task, at most `limit` from 1 to 10,000, oldest of them first. Raises
        InvalidInput.

        Those of ended turns age: `data` is {} once retention took what they say, and they go with their records.
        """
        self._turn.refuse_when_over()
        newest = require_whole_number("ctx.events: limit", limit, 1, EVENTS_MAX, InvalidInput)
        return await read_task_events(self._turn.services.journal, self.task_id, newest)

    @track_await("ctx.progress")
    async def progress(self, value: Any) -> None:
        """Store how far the task has come, in place of the value before: `handle.events()` and `task show` have it.

        It is on disk when this returns. Code that is run again stores it again. Raises InvalidInput for
        what is not JSON, PayloadTooLarge over 64 KiB.
        """
        self._turn.refuse_when_over()
        text = encode(value, "progress")
        if len(text) > PROGRESS_MAX_BYTES:
            raise PayloadTooLarge(f"progress has {len(text):,} bytes; the limit is {PROGRESS_MAX_BYTES:,}")
        await self._turn.services.journal.set_progress(self._turn.attempt.claim, self._turn.task, text)

    def stream(self, name: str = "answer") -> Stream:
        """Return a stream of this turn: text that its code writes piece by piece, for readers. Raises InvalidInput for
        an invalid name."""
        return Stream(self._turn, name)

    # What suspends the turn

    @track_await("ctx.gather")
    async def gather(self, children: Sequence[Child], type: Any = Any) -> list[Any]:
        """Suspend the turn until all these children have ended; their results, in this order, each as `type`.

        Raises ChildFailed for the first in this order that FAILED or was CANCELLED. The others go on.
        """
        return [await child.result(type) for child in children]

    @track_await("ctx.sleep")
    async def sleep(self, seconds: Duration, *, key: str | None = None) -> None:
        """Suspend the turn for `seconds`; nothing of it stays in memory."""
        await self._turn.wait_or_suspend(
            "sleep",
            key,
            lambda name: NewWait(
                name=name, kind=WaitKind.TIMER, due_at=self._turn.moment_after("ctx.sleep: seconds", seconds)
            ),
        )

    @track_await("ctx.sleep_until")
    async def sleep_until(self, at: Moment, *, key: str | None = None) -> None:
        """Suspend the turn until that moment: an aware datetime, epoch seconds, or text like "tomorrow 9am".

        A time of day is the next one in the machine's time zone, and refused where that is not known.
        """
        clock = self._turn.services.clock
        moment = read_moment("at", at, clock.now(), clock.zone())
        await self._turn.wait_or_suspend(
            "sleep",
            key,
            lambda name: NewWait(name=name, kind=WaitKind.TIMER, due_at=moment.at, at_given=not moment.is_delay),
        )

    @overload
    async def wait_for(self, event: str, *, type: type[T], key: str | None = None) -> T: ...

    @overload
    async def wait_for(
        self, event: str, *, type: type[T], timeout: Duration | None, key: str | None = None
    ) -> T | None: ...

    @overload
    async def wait_for(
        self, event: str, *, type: type[T], timeout: Duration | None, default: D, key: str | None = None
    ) -> T | D: ...

    @overload
    async def wait_for(
        self,
        event: str,
        *,
        type: Any = ...,
        timeout: Duration | None = None,
        default: Any = None,
        key: str | None = None,
    ) -> Any: ...

    @track_await("ctx.wait_for")
    async def wait_for(
        self,
        event: str,
        *,
        type: Any = Any,
        timeout: Duration | None = None,
        default: Any = None,
        key: str | None = None,
    ) -> Any:
        """Suspend the turn until the event is signalled to this task; what it brought, converted to `type`. `default`
        after `timeout`.

        Events that arrive before the wait are kept, in order. The event "message" is a message to the task.
        Raises InvalidInput for a value that does not fit `type`, and for a type that JSON cannot become: then nothing
        is waited for.
        """
        require_name("event", event)
        what = f"the value of event {event}"
        reader = require_type(type, what)
        wait = await self._turn.wait_or_suspend(
            "wait_for",
            key,
            lambda name: NewWait(
                name=name, kind=WaitKind.EVENT, event=event, due_at=self._moment_after("ctx.wait_for: timeout", timeout)
            ),
        )
        return default if wait.resolved_by is ResolvedBy.TIMER else decode(wait.value_json or "null", reader, what)

    @track_await("ctx.wait_any")
    async def wait_any(self, alternatives: Mapping[str, Alternative], *, key: str | None = None) -> First:
        """Suspend the turn until the first of 1 to 100 alternatives comes; its name, and what it brought.

        An alternative is an Event, an Ask, a Timer, or the Child that ctx.start_child returned. When several are there
        already, the first in this order counts. The others end: a question is withdrawn, an event that comes later is
        kept, a child goes on. Raises ChildFailed when a child came first and FAILED or was CANCELLED.
        """
        return await wait_any(self._turn, alternatives, key)

    @overload
    async def ask(
        self,
        question: str,
        options: Sequence[str] | None = None,
        *,
        timeout: Duration | None = None,
        default: str | None = None,
        by_message: bool = False,
        form: None = None,
        to: str | None = None,
        key: str | None = None,
    ) -> str | None: ...

    @overload
    async def ask(self, question: str, *, form: type[T], to: str | None = None, key: str | None = None) -> T: ...

    @overload
    async def ask(
        self,
        question: str,
        *,
        form: type[T],
        timeout: Duration | None,
        default: T,
        to: str | None = None,
        key: str | None = None,
    ) -> T: ...

    @overload
    async def ask(
        self,
        question: str,
        *,
        form: type[T],
        timeout: Duration | None,
        default: T | None = None,
        to: str | None = None,
        key: str | None = None,
    ) -> T | None: ...

    @track_await("ctx.ask")
    async def ask(
        self,
        question: str,
        options: Sequence[str] | None = None,
        *,
        timeout: Duration | None = None,
        default: Any = None,
        by_message: bool = False,
        form: Any = None,
        to: str | None = None,
        key: str | None = None,
    ) -> Any:
        """Ask a person and suspend the turn until the answer: one of the options, or any text without them.

        `default` after `timeout`. `by_message`: a message to the task whose `text` is an answer is one, too.
        `form`: a dataclass, msgspec Struct or pydantic model of flat fields; the answer is an instance of it. An answer
        that does not fit is refused, with the field and why, and the question stays open. One that only the class
        refuses is asked for once more, with its reason. `to`: the person or group of `[[web.person]]` who is asked.
        Raises InvalidInput for a question that cannot be asked.
        """
        asked, again = check_question(question, options, default, by_message, form, to), 0
        while True:
            wait = await self._turn.wait_or_suspend(
                "ask",
                key_of_round(key, again),
                partial(self._make_ask, asked, timeout),
            )
            try:
                return asked.read(wait.value_json or "null")
            except InvalidInput as refusal:
                asked, again = asked.ask_again(refusal), again + 1

    def _make_ask(self, asked: Asked, timeout: Duration | None, name: str) -> NewWait:
        due_at = self._moment_after("ctx.ask: timeout", timeout)
        return NewWait(name=name, kind=WaitKind.QUESTION, due_at=due_at, question=asked.question)

    def _moment_after(self, what: str, seconds: Duration | None) -> float | None:
        """Return the moment that many seconds from now; None for None."""
        return None if seconds is None else self._turn.moment_after(what, seconds)


def current() -> TaskContext[Any, Any] | None:
    """Return the TaskContext of the running turn, for code that its workflow calls without passing `ctx` on: a tool of
    an agent, a client deep in a library. The functions of steps and actions and the asyncio tasks of a turn have it,
    too.

    None outside of a turn: in a workflow without `ctx`, in a program that only emits, in a worker process, and once the
    turn is over.
    """
    attempt = CURRENT.get()
    turn = attempt.turn if isinstance(attempt, Attempt) else None
    if not isinstance(turn, Turn) or turn.is_over:
        return None
    context: TaskContext[Any, Any] | None = turn.context
    return context
