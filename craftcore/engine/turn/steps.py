"""A step: a function of user code that runs once in a turn, and whose result is on disk before anybody has it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any, Literal, get_args

import anyio
import msgspec

from craftcore.engine.failure import decisive, is_hopeless, said, wait_asked
from craftcore.engine.turn.turn import Turn, in_step
from craftcore.engine.user_code import in_thread
from craftcore.errors import InvalidInput, Retry, Snooze, StepConflict
from craftcore.executions.model import EventType
from craftcore.failpoints import CutPoint, reach
from craftcore.serialization.arguments import given
from craftcore.serialization.canonical import canonical
from craftcore.serialization.decode import as_stored, from_json, is_async, return_type
from craftcore.serialization.encode import json_text
from craftcore.serialization.untrusted import is_a
from craftcore.storage.transaction import Transaction
from craftcore.triggers.backoff import RetryPolicy

OnChange = Literal["error", "rerun"]


class Completed(msgspec.Struct):
    """What the event of a completed step says."""

    args: str
    result: msgspec.Raw


def recorded_text(memo: Mapping[str, str], identity: str) -> str | None:
    """The newest event of a completed step; None when it is not completed."""
    text, revision = memo.get(identity), 0
    while (later := memo.get(f"{identity}~{revision + 1}")) is not None:
        text, revision = later, revision + 1
    return text


class Step:
    """One step of one turn: known by its name and key, and by what it was called with."""

    def __init__(self, turn: Turn, name: str, key: str | None, fn: Callable[..., Any], args: Sequence[Any]) -> None:
        self.turn = turn
        self.name = name
        self.key = key
        self.identity = turn.take("step", name, key)
        self._type = return_type(fn)
        self._digest = digest_of(args)
        self._revision = 0

    def recorded(self, on_change: OnChange) -> tuple[bool, Any]:
        """Whether it is completed, and its result then.

        Raises StepConflict when it was called with other arguments, unless those are to run it again.
        """
        memo = self.turn.memo
        if self.identity not in memo:
            return False, None
        while f"{self.identity}~{self._revision + 1}" in memo:
            self._revision += 1
        done = msgspec.json.decode(memo[self.memo], type=Completed)
        if done.args == self._digest:
            return True, from_json(bytes(done.result).decode(), self._type, f"the result of step {self.name}")
        if on_change != "rerun":
            raise StepConflict(
                f"step {self.name} is completed with other arguments in this turn. Give it another name or a key, "
                'or on_change="rerun"'
            )
        self._revision += 1
        return False, None

    def store(self, result: Any, latency_ms: float) -> tuple[str, Any]:
        """The text of its event, and the result as a re-entry will find it. Raises InvalidInput or PayloadTooLarge."""
        text, value = as_stored(result, self._type, f"the result of step {self.name}")
        self.turn.require_small(text, f"the result of step {self.name}")
        key = "null" if self.key is None else f'"{self.key}"'
        return (
            f'{{"args":"{self._digest}","key":{key},"latency_ms":{latency_ms!r},"name":"{self.name}","result":{text}}}',
            value,
        )

    @property
    def memo(self) -> str:
        """What its event is known by."""
        return f"{self.identity}~{self._revision}" if self._revision else self.identity


async def run_step(
    turn: Turn,
    name: str,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    *,
    key: str | None,
    retry: RetryPolicy | None,
    on_change: OnChange,
) -> Any:
    """Run a function once per name and key in a turn; its result, as it is on record.

    It may run again when the process dies between its end and the commit of its result.
    """
    _check(name, fn, on_change, retry)
    step = Step(turn, name, key, fn, args)
    is_there, result = step.recorded(on_change)
    if is_there:
        return result
    turn.spend()
    returned: list[Any] = []
    call = _calling(turn, fn, args, returned.append)
    attempt = 0
    while True:
        attempt += 1
        began = time.monotonic()
        try:
            with in_step():
                result = await call()
            break
        except anyio.get_cancelled_exc_class():
            with suppress(InvalidInput):
                if returned:  # its thread could not be cancelled: it has run
                    text, _ = step.store(returned[0], round((time.monotonic() - began) * 1000, 3))
                    await turn.record(EventType.STEP_COMPLETED, text, step.memo)
            raise
        except Exception as error:
            wait = _wait_before_next(turn, step, retry, attempt, error)
            if wait is None:
                raise
            failed = {"attempt": attempt, "error": said(error), "key": key, "name": name, "retry_in": wait}
            await turn.record(EventType.STEP_FAILED, canonical(failed), None)
            await anyio.sleep(wait)
    text, result = step.store(result, round((time.monotonic() - began) * 1000, 3))
    reach(CutPoint.STEP_RAN)
    await turn.record(EventType.STEP_COMPLETED, text, step.memo)
    reach(CutPoint.STEP_COMMITTED)
    return result


async def run_transaction(
    turn: Turn, name: str, fn: Callable[..., Any], args: tuple[Any, ...], *, key: str | None, on_change: OnChange
) -> Any:
    """A step whose function writes the user's own tables, in the commit that records it."""
    _check(name, fn, on_change, None)
    step = Step(turn, name, key, fn, args)
    is_there, result = step.recorded(on_change)
    if is_there:
        return result
    turn.spend()
    began = time.monotonic()

    def record(tx: Transaction, result: Any) -> tuple[str, Any]:
        text, value = step.store(result, round((time.monotonic() - began) * 1000, 3))
        turn.doors.recording.record(tx, turn.event(EventType.STEP_COMPLETED, text, step.memo))
        return text, value

    text, value = await turn.doors.writer.commit_apart(fn, args, record)
    turn.completed(step.memo, text)
    return value


def _check(name: object, fn: object, on_change: object, retry: object) -> None:
    """Raises InvalidInput."""
    if not callable(fn):
        said = "pass the function and its arguments, not what a call of it returned"
        raise InvalidInput(f"step {given(name)}: fn {given(fn)} must be a function: {said}")
    if on_change not in (choices := get_args(OnChange)):
        raise InvalidInput(f"step {given(name)}: on_change {given(on_change)} must be one of {', '.join(choices)}")
    if retry is not None and not isinstance(retry, RetryPolicy):
        policy = "must be a RetryPolicy, as in RetryPolicy(max_attempts=3)"
        raise InvalidInput(f"step {given(name)}: retry {given(retry)} {policy}")


def _calling(
    turn: Turn, fn: Callable[..., Any], args: tuple[Any, ...], on_return: Callable[[Any], None]
) -> Callable[[], Awaitable[Any]]:
    """The function as something to await: on the loop when it is a coroutine function, else in a thread, which tells
    what it returned also when nobody awaits it any more."""
    if is_async(fn):
        return partial(fn, *args)

    def call_and_tell() -> Any:
        result = fn(*args)
        on_return(result)
        return result

    return partial(in_thread, turn.run, call_and_tell, turn.doors.threads)


def _wait_before_next(
    turn: Turn, step: Step, retry: RetryPolicy | None, attempt: int, error: Exception
) -> float | None:
    """Seconds until a step is tried again; None: its failure is the turn's."""
    decided = decisive(error)
    if retry is None or attempt >= retry.max_attempts or is_a(decided, Snooze) or is_hopeless(decided):
        return None
    asked = wait_asked(decided, "after") if is_a(decided, Retry) else None
    return max(retry.backoff(f"{turn.task.id}:{step.identity}", attempt), asked or 0.0)


def digest_of(args: Sequence[Any]) -> str:
    """What tells one call of a step from another: the arguments as JSON; of one that is not JSON, its type."""
    if not args:
        return ""
    try:
        text = json_text(list(args), "args")
    except InvalidInput:
        text = canonical([_digestible(arg) for arg in args])
    return sha256(text.encode()).hexdigest()[:32]


def _digestible(arg: Any) -> str:
    try:
        return json_text(arg, "arg")
    except InvalidInput:
        return f"<{type(arg).__module__}.{type(arg).__qualname__}>"
