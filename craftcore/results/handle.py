"""Handles of emitted work: its result, its state, and its cancellation."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, overload

from craftcore.blocking_calls import Run, iterate
from craftcore.errors import InvalidInput
from craftcore.outcome_exceptions import LONGEST_WAIT
from craftcore.serialization.arguments import Duration, require_whole_number, seconds
from craftcore.tasks.model import Task
from craftcore.tasks.stream_chunks import StreamChunk
from craftcore.tasks.work_store import WorkUpdate
from craftcore.triggers.model import DedupScope, Emitted, NewTrigger, Trigger, TriggerStatus
from craftcore.triggers.validation import require_name

T = TypeVar("T")
V = TypeVar("V")

PENDING = TriggerStatus.PENDING
"""Read once: an attribute of an enum costs as much as a call."""


class WorkClient(Protocol):
    """The calls behind a handle, awaitable. `type` None: the return type of the workflow, where it is known."""

    async def result_of(self, id: str, type: Any, timeout: Duration | None) -> Any:
        """Wait for the end of the work, and return its result."""

    async def state_of(self, id: str) -> Task | Trigger:
        """Return the current row."""

    async def cancel_work(self, id: str) -> None:
        """Cancel the work."""

    def follow_work(self, id: str) -> AsyncGenerator[WorkUpdate, None]:
        """Yield the work as it is, and after each change, until its end."""

    def follow_stream(self, id: str, name: str, after: int) -> AsyncGenerator[StreamChunk, None]:
        """Yield the chunks of a stream that have a number after `after`, until the end of the work."""


class BlockingClient(NamedTuple):
    """The calls behind a blocking handle: those of `calls`, each run by `run`."""

    calls: WorkClient
    run: Run


class Handle(Generic[T]):
    """Emitted work: the task that a trigger creates, over all its turns and waits, or the trigger itself."""

    __slots__ = ()
    id: str
    client: WorkClient

    @overload
    async def result(self, type: None = None, *, timeout: Duration | None = None) -> T: ...

    @overload
    async def result(self, type: type[V], *, timeout: Duration | None = None) -> V: ...

    @overload
    async def result(self, type: UnionType, *, timeout: Duration | None = None) -> Any: ...

    async def result(self, type: Any = None, *, timeout: Duration | None = None) -> Any:
        """Wait for the end, and return the result as `type`; None: the workflow's return type, or plain JSON values
        where the workflow is not declared here. When a turn replied to it with `ctx.reply`, that value is the result at
        once, as `type` or plain JSON values. The result of a message that a live task received is the reply, or None
        once the turn that received it has ended without one.

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
        ended, or has its reply.

        The task of a delivered message is kept: the turn that received the message is stopped, as by `app.stop_turn`. A
        message that no turn has received is taken back.
        """
        await self.client.cancel_work(self.id)

    def events(self) -> AsyncIterator[WorkUpdate]:
        """Follow the work: yield it as it is, then after each change of its status, turn or progress, until its end or
        its reply. A message to a live task is the turn that receives it.

        Changes in quick succession may be one. Nothing is read while nothing changes. Raises NotFound when no row of it
        is kept, StillWaiting when the engine of this process ends first.
        """
        return self.client.follow_work(self.id)

    def stream(self, name: str = "answer", *, after: int = 0) -> AsyncIterator[StreamChunk]:
        """Follow a stream that the task writes with `ctx.stream(name)`: yield its chunks on record, then each that
        comes, until the end of the work. A task writes to the same stream in all its turns.

        `after`: the number of the last chunk that the reader has; 0: none. A reader that comes back with it misses
        nothing and gets nothing twice. A chunk with a `cut` withdraws earlier ones: take those numbers away. Raises
        InvalidInput for an invalid name or number, and on a cluster. Raises NotFound when no row of the work is kept,
        DatabaseInvalid for damaged chunks, StillWaiting when the engine of this process ends first.
        """
        return self.client.follow_stream(self.id, *check_stream(name, after))


class BlockingHandle(Generic[T]):
    """Emitted work, as Handle has it, for programs without an event loop. Each method blocks its thread."""

    __slots__ = ()
    id: str
    client: BlockingClient

    @overload
    def result(self, type: None = None, *, timeout: Duration | None = None) -> T: ...

    @overload
    def result(self, type: type[V], *, timeout: Duration | None = None) -> V: ...

    @overload
    def result(self, type: UnionType, *, timeout: Duration | None = None) -> Any: ...

    def result(self, type: Any = None, *, timeout: Duration | None = None) -> Any:
        """Wait for the end, and return the result. Arguments and errors are those of Handle.result."""
        return self.client.run(self.client.calls.result_of(self.id, type, timeout))

    def state(self) -> Task | Trigger:
        """Return the task as it is now, or the trigger while it has created no task. Raises NotFound."""
        return self.client.run(self.client.calls.state_of(self.id))

    def cancel(self) -> None:
        """Cancel the work, as Handle.cancel does."""
        self.client.run(self.client.calls.cancel_work(self.id))

    def events(self) -> Iterator[WorkUpdate]:
        """Follow the work, as Handle.events does, at most ten times a second."""
        return iterate(self.client.run, self.client.calls.follow_work(self.id))

    def stream(self, name: str = "answer", *, after: int = 0) -> Iterator[StreamChunk]:
        """Follow a stream of the task, as Handle.stream does, at most ten times a second."""
        return iterate(self.client.run, self.client.calls.follow_stream(self.id, *check_stream(name, after)))


@dataclass(frozen=True, slots=True)
class KnownHandle(Handle[T]):
    """A handle of work of which only the id is known."""

    id: str
    client: WorkClient = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class KnownBlockingHandle(BlockingHandle[T]):
    """A blocking handle of work of which only the id is known."""

    id: str
    client: BlockingClient = field(repr=False, compare=False)


class EmittedHandle(Emitted, Handle[T]):
    """The result of an emit, with the calls of a handle. `asdict` gives the answer without the `client`."""

    __slots__ = ("client",)
    client: WorkClient

    def __init__(self, client: WorkClient, emitted: Emitted | NewTrigger) -> None:
        _answer(self, client, emitted)


class EmittedBlockingHandle(Emitted, BlockingHandle[T]):
    """The result of an emit, with the calls of a blocking handle."""

    __slots__ = ("client",)
    client: BlockingClient

    def __init__(self, client: BlockingClient, emitted: Emitted | NewTrigger) -> None:
        _answer(self, client, emitted)


def _answer(
    handle: Emitted, client: object, emitted: Emitted | NewTrigger, put: Callable[..., None] = object.__setattr__
) -> None:
    """Give a handle the fields of an answer, or those of an inserted row, one by one: every emit makes a handle, and a
    generic copy takes twice as long."""
    put(handle, "client", client)
    put(handle, "id", emitted.id)
    put(handle, "due_at", emitted.due_at)
    if isinstance(emitted, NewTrigger):
        put(handle, "created", True)
        put(handle, "status", PENDING)
        put(handle, "payload_differs", False)
        put(handle, "dedup_scope", None if emitted.dedup_scope is None else DedupScope(emitted.dedup_scope))
        put(handle, "held", None)
        return
    put(handle, "created", emitted.created)
    put(handle, "status", emitted.status)
    put(handle, "payload_differs", emitted.payload_differs)
    put(handle, "dedup_scope", emitted.dedup_scope)
    put(handle, "held", emitted.held)


def check_stream(name: object, after: object) -> tuple[str, int]:
    """Return the name of a stream and the number of a chunk. Raises InvalidInput."""
    return require_name("stream name", name), require_whole_number("stream: after", after, 0, MAX_NUMBER, InvalidInput)


MAX_NUMBER = (1 << 63) - 1
"""The greatest number that the database holds."""

WITH_A_DAEMON = "it goes on while a daemon runs: craftcore status"
"""The words of a producer, whose work another process runs."""


def timeout_seconds(timeout: Duration | None) -> float | None:
    """Return the timeout in seconds; None: no limit. Raises InvalidInput."""
    return None if timeout is None else seconds("timeout", timeout, InvalidInput, most=LONGEST_WAIT)


def timeout_error(id: str, timeout: float | None, goes_on: str) -> TimeoutError:
    """Return the error of a caller that waited in vain. The work is left alone: `goes_on` says when it goes on."""
    return TimeoutError(f"{id} has not ended within {timeout} seconds; {goes_on}")
