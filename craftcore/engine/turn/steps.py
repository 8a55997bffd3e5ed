"""A step: a function of user code that runs once in a turn, and whose result is on disk before it is returned.

Other writes of a turn are recorded as steps, too (`commit_once`): a re-entry writes nothing again.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any, Literal, get_args

import anyio

from craftcore.engine.failure import decisive_error, error_text, is_hopeless, wait_asked
from craftcore.engine.turn.argument_difference import describe_difference, remember
from craftcore.engine.turn.completed_step import decode_completed, find_alike
from craftcore.engine.turn.part import Part, run_part
from craftcore.engine.turn.turn import Turn
from craftcore.engine.turn.turn_state import SAVE_SECONDS
from craftcore.engine.user_code import run_in_thread, run_inline
from craftcore.engine.workers.encoded import Encoded, call_step
from craftcore.errors import InvalidInput, StepConflict
from craftcore.executions.model import EventType
from craftcore.failpoints import Failpoint, hit
from craftcore.log import get_logger
from craftcore.outcome_exceptions import LONGEST_WAIT, Retry, Snooze
from craftcore.registry.executor import Executor, find_executor_mistake
from craftcore.serialization.annotations import is_async, may_return_awaitable, return_type
from craftcore.serialization.arguments import Duration, seconds, show_value
from craftcore.serialization.canonical import canonicalize
from craftcore.serialization.decode import decode
from craftcore.serialization.encode import encode
from craftcore.serialization.roundtrip import encode_roundtrip
from craftcore.serialization.untrusted import is_awaitable, safe_isinstance
from craftcore.tasks.turn_event_store import FAILURE_MARK, NewEvent
from craftcore.triggers.backoff import RetryPolicy

log = get_logger(__name__)

OnChange = Literal["error", "rerun", "keep"]
"""A completed step that a re-entry calls with other arguments raises StepConflict, runs again, or returns the recorded
result."""

EventOf = Callable[[Any], tuple[NewEvent, tuple[str, str, Any]]]
"""The event of a result, and the event's text, the text of the result and the result."""


class Step:
    """One step of one turn: known by its name and key, and by what it was called with."""

    def __init__(self, turn: Turn, name: str, key: str | None, fn: Callable[..., Any], args: Sequence[Any]) -> None:
        self.turn = turn
        self.name = name
        self.key = key
        self.identity = turn.claim_identity("step", name, key)
        try:
            self._type = return_type(fn)
        except TypeError as error:
            raise InvalidInput(f"step {name} was not run: {error}") from error
        self._digest = digest_of(args)
        self._revision = 0

    def find_result(self, on_change: OnChange) -> tuple[bool, Any]:
        """Return whether it is completed, and its result then.

        Raises StepConflict when it was called with other arguments, unless `on_change` says otherwise.
        """
        memo = self.turn.memo
        if self.identity not in memo:
            return False, None
        while f"{self.identity}~{self._revision + 1}" in memo:
            self._revision += 1
        done = decode_completed(memo[self.memo])
        if done.args == self._digest or on_change == "keep":
            return True, decode(bytes(done.result).decode(), self._type, f"the result of step {self.name}")
        if on_change != "rerun":
            raise StepConflict(
                f"step {self.name} is completed with other arguments in this turn"
                f"{describe_difference(done.args, self._digest)}. Give it another name or a key, "
                'or on_change="rerun" or "keep"'
            )
        self._revision += 1
        return False, None

    def warn_when_moved(self) -> None:
        """Log that this step runs although one that may be the same is completed, under another name or key."""
        turn = self.turn
        if not turn.is_entered_again or not turn.is_in_order:
            return
        if (left := find_alike(turn.left_steps, self.name, self._digest, turn.is_taken)) is not None:
            log.warning("step.run_again", task=turn.task.id, step=self.identity, completed_as=left)

    def store(self, result: Any, latency_ms: float) -> tuple[str, Any]:
        """Return the text of its event, and the result as a re-entry will find it. Raises InvalidInput or
        PayloadTooLarge."""
        what = f"the result of step {self.name}"
        if type(result) is Encoded:
            text, value = result.text, decode(result.text, self._type, what)
        else:
            text, value = encode_roundtrip(result, self._type, what)
        self.turn.require_small(text, what)
        return make_completed_event(self._digest, self.key, latency_ms, self.name, text), value

    def failure_memo(self, number: int) -> str:
        """Return the identity of the event of a failure. It names the record, which tells the attempts apart."""
        return f"{self.memo}{FAILURE_MARK}{self.turn.attempt.record.seq}.{number}"

    def count_failures(self) -> int:
        """Return how often it has failed in this attempt, before a crash or a shutdown too."""
        return self.turn.failures.get(self.memo, 0)

    @property
    def memo(self) -> str:
        """The identity of its event."""
        return f"{self.identity}~{self._revision}" if self._revision else self.identity


async def run_step(
    turn: Turn,
    name: str,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    *,
    key: str | None,
    retry: RetryPolicy | None,
    timeout: Duration | None,
    on_change: OnChange,
    executor: Executor = "thread",
) -> Any:
    """Run a function once per name and key in a turn; its result, as it is on record.

    It may run again when the process dies between its end and the commit of its result.
    """
    _check(name, fn, on_change, retry)
    if executor != "thread" and (mistake := find_executor_mistake(executor, fn)):
        raise InvalidInput(f"step {show_value(name)}: {mistake}")
    step = Step(turn, name, key, fn, args)
    is_there, result = step.find_result(on_change)
    if is_there:
        return result
    step.warn_when_moved()
    turn.charge_budget()
    returned: list[Any] = []
    limit = None if timeout is None else _timeout_seconds(name, fn, timeout, executor)
    if executor == "process":
        call = _call_in_process(turn, name, partial(fn, *args), limit)
    else:
        call = _to_awaitable(turn, fn, args, executor, returned.append)
        if limit is not None:
            call = partial(_call_within, name, limit, call)
    attempt = step.count_failures()
    while True:
        attempt += 1
        turn.services.journal.require_lease()
        began = time.monotonic()
        hit(Failpoint.STEP_ENTERED, name)
        try:
            with run_part(step.identity) as part:
                result = await call()
            break
        except anyio.get_cancelled_exc_class():
            with suppress(InvalidInput):
                if returned and await _save_part(turn, part):  # its thread could not be cancelled: it has run
                    text, _ = step.store(returned[0], milliseconds_since(began))
                    await turn.record(EventType.STEP_COMPLETED, text, step.memo)
            raise
        except Exception as error:
            wait = _wait_before_next(turn, step, retry, attempt, error)
            if wait is None:
                raise
            failed = {"attempt": attempt, "error": error_text(error), "key": key, "name": name, "retry_in": wait}
            await turn.record(EventType.STEP_FAILED, canonicalize(failed), step.failure_memo(attempt))
            await turn.services.clock.sleep(wait)
    text, result = step.store(result, milliseconds_since(began))
    hit(Failpoint.STEP_RAN, name)
    if turn.has_streams:
        await turn.streams.end_part(part)
    await turn.record(EventType.STEP_COMPLETED, text, step.memo)
    hit(Failpoint.STEP_COMMITTED, name)
    return result


async def run_transaction(
    turn: Turn, name: str, fn: Callable[..., Any], args: tuple[Any, ...], *, key: str | None, on_change: OnChange
) -> Any:
    """Return the result of a step whose function writes the user's own tables, in the commit that records it."""
    _check(name, fn, on_change, None)
    step = Step(turn, name, key, fn, args)
    is_there, result = step.find_result(on_change)
    if is_there:
        return result
    turn.charge_budget()
    began = time.monotonic()

    def event_of(result: Any) -> tuple[NewEvent, tuple[str, Any]]:
        text, value = step.store(result, milliseconds_since(began))
        return turn.event(EventType.STEP_COMPLETED, text, step.memo), (text, value)

    with turn.running_call():
        text, value = await turn.services.tables.write_user(fn, args, event_of)
    turn.add_completed(step.memo, text)
    return value


async def commit_once(
    turn: Turn,
    identity: str,
    name: str,
    args: tuple[Any, ...],
    to_text: Callable[[Any], str],
    write: Callable[[EventOf], Awaitable[tuple[str, str, Any]]],
) -> tuple[str, Any]:
    """Write, and record what was written at once. Return the text of its result and the result; None for the result of
    an earlier entry, which is on record.

    Raises StepConflict when the record has another call in this place, and what `write` raises: nothing is written
    then.
    """
    digest = digest_of([name, *args])
    if (done := turn.memo.get(identity)) is not None:
        completed = decode_completed(done)
        if completed.args != digest:
            raise StepConflict(
                f"{identity} was another call in this turn than {name} with these arguments"
                f"{describe_difference(completed.args, digest, ('the call',))}"
            )
        return bytes(completed.result).decode(), None
    turn.charge_budget()
    began = time.monotonic()

    def event_of(result: Any) -> tuple[NewEvent, tuple[str, str, Any]]:
        text = to_text(result)
        latency_ms = milliseconds_since(began)
        event = make_completed_event(digest, None, latency_ms, name, text)
        return turn.event(EventType.STEP_COMPLETED, event, identity), (event, text, result)

    with turn.running_call():
        event, text, result = await write(event_of)
    hit(Failpoint.STEP_COMMITTED, name)
    turn.add_completed(identity, event)
    return text, result


async def record_note(turn: Turn, name: str, data: Any, key: str | None) -> None:
    """Record something that the turn tells, once per name and key."""
    identity = turn.claim_identity("note", name, key)
    if identity in turn.memo:
        return
    text = encode(data, f"note {name}")
    turn.require_small(text, f"note {name}")
    turn.charge_budget()
    keyed = "null" if key is None else f'"{key}"'
    with turn.running_call():
        await turn.record(EventType.NOTE, f'{{"data":{text},"key":{keyed},"name":"{name}"}}', identity)


async def _save_part(turn: Turn, part: Part) -> bool:
    """Return whether the chunks of a step whose caller was cancelled are on disk: only then it may be on record."""
    if not turn.has_streams:
        return True
    with anyio.move_on_after(SAVE_SECONDS, shield=True):
        await turn.streams.end_part(part)
        return True
    return False


def _check(name: object, fn: object, on_change: object, retry: object) -> None:
    if not callable(fn):
        advice = "pass the function and its arguments, not what a call of it returned"
        raise InvalidInput(f"step {show_value(name)}: fn {show_value(fn)} must be a function: {advice}")
    if on_change not in (choices := get_args(OnChange)):
        raise InvalidInput(
            f"step {show_value(name)}: on_change {show_value(on_change)} must be one of {', '.join(choices)}"
        )
    if retry is not None and not isinstance(retry, RetryPolicy):
        policy = "must be a RetryPolicy, as in RetryPolicy(max_attempts=3)"
        raise InvalidInput(f"step {show_value(name)}: retry {show_value(retry)} {policy}")


def _timeout_seconds(name: str, fn: Callable[..., Any], timeout: Duration, executor: Executor) -> float:
    """Return the timeout in seconds. Raises InvalidInput."""
    if executor != "process" and not may_return_awaitable(fn):
        raise InvalidInput(
            f"step {name}: timeout needs an async function; nothing interrupts a plain function in a thread or on the "
            'loop: give it executor="process"'
        )
    return seconds(f"step {name}: timeout", timeout, InvalidInput, most=LONGEST_WAIT, above=True)


async def _call_within(name: str, limit: float, call: Callable[[], Awaitable[Any]]) -> Any:
    """Return what `call` returns. Raises TimeoutError when it has not ended in time."""
    try:
        with anyio.fail_after(limit) as scope:
            return await call()
    except TimeoutError as error:
        if not scope.cancelled_caught:
            raise
        raise TimeoutError(f"step {name} did not end within {limit:g} seconds") from error


def _call_in_process(
    turn: Turn, name: str, call: Callable[[], Any], limit: float | None
) -> Callable[[], Awaitable[Encoded]]:
    """Return an awaitable of a call in a worker process. Its time begins when a process is free for it."""
    what = f"step {name}"
    coded = partial(call_step, what, turn.services.settings.result_max_bytes, call, turn.attempt.home)
    return partial(turn.services.workers.call, what, coded, limit)


def _to_awaitable(
    turn: Turn, fn: Callable[..., Any], args: tuple[Any, ...], executor: Executor, on_return: Callable[[Any], None]
) -> Callable[[], Awaitable[Any]]:
    """Return an awaitable of the function. A thread reports its result also when the caller has gone."""
    if is_async(fn):
        return partial(fn, *args)
    if executor == "inline":
        return partial(run_inline, partial(fn, *args))

    def call_and_tell() -> Any:
        result = fn(*args)
        if not is_awaitable(result):
            on_return(result)
        return result

    return partial(run_in_thread, turn.attempt, call_and_tell, turn.services.threads)


def _wait_before_next(
    turn: Turn, step: Step, retry: RetryPolicy | None, attempt: int, error: Exception
) -> float | None:
    """Return the seconds until a step is tried again; None: its failure is the turn's."""
    decided = decisive_error(error)
    if retry is None or attempt >= retry.max_attempts or safe_isinstance(decided, Snooze) or is_hopeless(decided):
        return None
    asked = wait_asked(decided, "after") if safe_isinstance(decided, Retry) else None
    return max(retry.backoff(f"{turn.task.id}:{step.identity}", attempt), asked or 0.0)


def make_completed_event(digest: str, key: str | None, latency_ms: float, name: str, result_json: str) -> str:
    """Return the text of the event of a completed step. Written by hand, for speed: names and keys need no escaping."""
    quoted = "null" if key is None else f'"{key}"'
    return f'{{"args":"{digest}","key":{quoted},"latency_ms":{latency_ms!r},"name":"{name}","result":{result_json}}}'


def milliseconds_since(began: float) -> float:
    return round((time.monotonic() - began) * 1000, 3)


def digest_of(args: Sequence[Any], *, with_pydantic: bool = False) -> str:
    """Return what tells one call of a step from another: the arguments as JSON; of one that is not JSON, its type.

    A value that only pydantic writes counts by its type, so that the digest of a step is the same before pydantic is
    installed and after. `with_pydantic` True: for calls that refuse such a value where it is not installed.
    """
    if not args:
        return ""
    try:
        text = encode(list(args), "args", with_pydantic=with_pydantic)
    except InvalidInput:
        text = canonicalize([_json_argument(arg) for arg in args])
    digest = sha256(text.encode()).hexdigest()[:32]
    remember(digest, text)
    return digest


def _json_argument(arg: Any) -> str:
    try:
        return encode(arg, "arg", with_pydantic=False)
    except InvalidInput:
        return f"<{type(arg).__module__}.{type(arg).__qualname__}>"
