"""Handles of emitted work: its result, its state, and its cancellation."""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import timedelta
from types import UnionType
from typing import Any, Generic, Protocol, TypeVar, overload

from craftcore.error_codes import ErrorCode, find_code
from craftcore.errors import InvalidInput, NotFound, PayloadTooLarge, WorkFailed
from craftcore.outcome_exceptions import LONGEST_WAIT
from craftcore.serialization.arguments import seconds
from craftcore.serialization.decode import decode, readable_type, return_hint
from craftcore.tasks.model import Task
from craftcore.tasks.outcomes import Continue, Done
from craftcore.tasks.work_store import WorkResult
from craftcore.triggers.model import Emitted, Trigger

T = TypeVar("T")
V = TypeVar("V")


class WorkClient(Protocol):
    """The calls behind a handle, awaitable. `type` None: the return type of the workflow, where it is known."""

    async def result_of(self, id: str, type: Any, timeout: float | timedelta | None) -> Any:
        """Wait for the end of the work, and return its result."""

    async def state_of(self, id: str) -> Task | Trigger:
        """Return the current row."""

    async def cancel_work(self, id: str) -> None:
        """Cancel the work."""


class BlockingWorkClient(Protocol):
    """The same calls, blocking."""

    def result_of(self, id: str, type: Any, timeout: float | timedelta | None) -> Any:
        """Wait for the end of the work, and return its result."""

    def state_of(self, id: str) -> Task | Trigger:
        """Return the current row."""

    def cancel_work(self, id: str) -> None:
        """Cancel the work."""


class Handle(Generic[T]):
    """Emitted work: the task that a trigger creates, over all its turns and waits, or the trigger itself."""

    __slots__ = ()
    id: str
    client: WorkClient

    @overload
    async def result(self, type: None = None, *, timeout: float | timedelta | None = None) -> T: ...

    @overload
    async def result(self, type: type[V], *, timeout: float | timedelta | None = None) -> V: ...

    @overload
    async def result(self, type: UnionType, *, timeout: float | timedelta | None = None) -> Any: ...

    async def result(self, type: Any = None, *, timeout: float | timedelta | None = None) -> Any:
        """Wait for the end, and return the result as `type`; None: the workflow's return type, or plain JSON values
        where the workflow is not declared here. The result of a message that was delivered to a live task is None.

        `timeout` in seconds or as a timedelta; None: no limit. Raises TimeoutError when it is over; the work goes on.
        Raises WorkFailed with the code of the failure; NotFound when no row of it is kept.
        Raises PayloadTooLarge when the result was too large to be kept; InvalidInput when it was not JSON, or does not
        fit `type`.
        """
        return await self.client.result_of(self.id, type, timeout)

    async def state(self) -> Task | Trigger:
        """Return the task as it is now, or the trigger while it has created no task. Raises NotFound."""
        return await self.client.state_of(self.id)

    async def cancel(self) -> None:
        """Cancel the work; running code is cancelled at its next await. Raises NotFound, or StateRefused when it has
        ended."""
        await self.client.cancel_work(self.id)


class BlockingHandle(Generic[T]):
    """Emitted work, as Handle has it, for programs without an event loop. Each method blocks its thread."""

    __slots__ = ()
    id: str
    client: BlockingWorkClient

    @overload
    def result(self, type: None = None, *, timeout: float | timedelta | None = None) -> T: ...

    @overload
    def result(self, type: type[V], *, timeout: float | timedelta | None = None) -> V: ...

    @overload
    def result(self, type: UnionType, *, timeout: float | timedelta | None = None) -> Any: ...

    def result(self, type: Any = None, *, timeout: float | timedelta | None = None) -> Any:
        """Wait for the end, and return the result. Arguments and errors are those of Handle.result."""
        return self.client.result_of(self.id, type, timeout)

    def state(self) -> Task | Trigger:
        """Return the task as it is now, or the trigger while it has created no task. Raises NotFound."""
        return self.client.state_of(self.id)

    def cancel(self) -> None:
        """Cancel the work, as Handle.cancel does."""
        self.client.cancel_work(self.id)


@dataclass(frozen=True, slots=True)
class KnownHandle(Handle[T]):
    """A handle of work of which only the id is known."""

    id: str
    client: WorkClient = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class KnownBlockingHandle(BlockingHandle[T]):
    """A blocking handle of work of which only the id is known."""

    id: str
    client: BlockingWorkClient = field(repr=False, compare=False)


class EmittedHandle(Emitted, Handle[T]):
    """The result of an emit, with the calls of a handle. `asdict` gives the answer without the `client`."""

    __slots__ = ("client",)
    client: WorkClient

    def __init__(self, client: WorkClient, **emitted: Any) -> None:
        super().__init__(**emitted)
        object.__setattr__(self, "client", client)


class EmittedBlockingHandle(Emitted, BlockingHandle[T]):
    """The result of an emit, with the calls of a blocking handle."""

    __slots__ = ("client",)
    client: BlockingWorkClient

    def __init__(self, client: BlockingWorkClient, **emitted: Any) -> None:
        super().__init__(**emitted)
        object.__setattr__(self, "client", client)


_EMITTED = tuple(item.name for item in fields(Emitted))


def copy_emitted(emitted: Emitted) -> dict[str, Any]:
    """Return the fields of an answer, for a handle that is made of it."""
    return {name: getattr(emitted, name) for name in _EMITTED}


def timeout_seconds(timeout: float | timedelta | None) -> float | None:
    """Return the timeout in seconds; None: no limit. Raises InvalidInput."""
    return None if timeout is None else seconds("timeout", timeout, InvalidInput, most=LONGEST_WAIT)


def timeout_error(id: str, timeout: float | None) -> TimeoutError:
    """Return the error of a caller that waited in vain. The work is left alone."""
    return TimeoutError(f"{id} has not ended within {timeout} seconds; it goes on")


def result_type(fn: Callable[..., Any]) -> Any:
    """Return the annotated result of a workflow's function: what it returns, and X of a `Done[X]`, besides Continue.
    Any when it does not say, or says what JSON cannot become."""
    try:
        hint = return_hint(fn)
        members = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, UnionType) else (hint,)
        results = [_result_member(member) for member in members if Continue not in (member, typing.get_origin(member))]
        return readable_type(typing.Union[tuple(results)]) if results else Any  # noqa: UP007 - made at run time
    except Exception:  # an annotation is an expression, and may raise anything
        return Any


def _result_member(member: Any) -> Any:
    if member is Done:
        return Any
    return typing.get_args(member)[0] if typing.get_origin(member) is Done else member


def require_result(end: WorkResult, type: Any) -> Any:
    """Return the result of ended work, as `type`; None: as plain JSON values. Raises as Handle.result does."""
    if end.failure is not None:
        raise _work_failed(end)
    if end.delivered_to is not None:
        return None
    if end.result_json is None:
        raise NotFound(f"the result of {end.id} is not kept any more; it ended {end.status}", id=end.id)
    value = decode(end.result_json)
    if isinstance(value, dict) and value.keys() == {"result_unstored", "bytes", "sha256"}:
        raise PayloadTooLarge(
            f"the result of {end.id} has {value['bytes']} bytes and was not stored: records.response_max_bytes is less",
            id=end.id,
        )
    if isinstance(value, dict) and value.keys() == {"result_unstored"}:
        raise InvalidInput(f"the result of {end.id} was not stored: {value['result_unstored']}", id=end.id)
    return value if type in (None, Any) else decode(end.result_json, readable_type(type), f"the result of {end.id}")


def _work_failed(end: WorkResult) -> WorkFailed:
    assert end.failure is not None, end
    code, message = end.failure
    why = message or end.reason or code or "no error is on record"
    error = WorkFailed(
        f"{end.workflow or 'trigger'} {end.id} ended {end.status}: {why}",
        id=end.id,
        status=end.status,
        reason=end.reason,
        code=code,
    )
    error.code = find_code(code or "") or ErrorCode.AGENT_ERROR
    return error
