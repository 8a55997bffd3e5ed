"""The interface to the place where the work of an app lives: a database file, or a cluster.

`WorkCalls` has the public calls over it, with the promises and errors of each. The methods here have the same names.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from craftcore.activities.model import Decision
from craftcore.errors import InvalidInput
from craftcore.results.handle import EmittedHandle
from craftcore.schedules.calls import Schedules
from craftcore.serialization.arguments import Duration
from craftcore.tasks.all_work import CancelledWork
from craftcore.tasks.model import Question, Task
from craftcore.tasks.session_message import StoredMessage
from craftcore.tasks.stream_chunks import StreamChunk
from craftcore.tasks.work_store import WorkFilter, WorkUpdate
from craftcore.triggers.model import Trigger, TriggerSpec
from craftcore.triggers.start_holds import HoldTarget

T = TypeVar("T")


class Capability(StrEnum):
    """A call, or a form of a call, that a backend may lack."""

    SCHEDULES = "schedules"
    SIGNAL_OR_START = "signal_or_start"
    STOP_TURN = "stop_turn"
    CANCEL_ALL = "cancel_all"
    HOLD = "hold"
    DEAD_LETTERS = "dead_letters"
    TRANSACTION = "transaction"
    REPLY = "reply"
    HISTORY = "history"
    STREAMS = "streams"


class Backend(Protocol):
    """The calls that `WorkCalls` makes. `lacks`: each capability that is missing, and the advice for its caller."""

    @property
    def lacks(self) -> Mapping[Capability, str]: ...

    @property
    def schedules(self) -> Schedules: ...

    async def emit(self, spec: TriggerSpec) -> EmittedHandle[Any]: ...

    async def emit_many(self, specs: Sequence[TriggerSpec]) -> list[EmittedHandle[Any]]: ...

    async def find_ids(self, filter: WorkFilter, limit: int) -> list[str]: ...

    async def cancel(self, trigger_id: str) -> None: ...

    async def cancel_all(self, reason: str, *, with_schedules: bool) -> CancelledWork: ...

    async def signal(
        self,
        task_id: str | None,
        event: str,
        payload: Any = None,
        *,
        sent_by: str | None = None,
        start: TriggerSpec | None = None,
    ) -> bool: ...

    async def answer(
        self, question_id: str, choice: str, *, note: str | None, reference: str | None, answered_by: str
    ) -> None: ...

    async def decide(
        self, activity_key: str, decision: Decision, *, note: str | None, reference: str | None, decided_by: str
    ) -> None: ...

    async def cancel_task(self, task_id: str) -> None: ...

    async def stop_turn(self, task_id: str) -> None: ...

    async def retry_task(self, task_id: str) -> None: ...

    async def hold(self, target: HoldTarget, reason: str | None) -> bool: ...

    async def release(self, target: HoldTarget) -> bool: ...

    async def task(self, task_id: str) -> Task | None: ...

    async def tasks(
        self, status: str | None, workflow: str | None, session_id: str | None, limit: int
    ) -> list[Task]: ...

    async def questions(self, limit: int) -> list[Question]: ...

    async def history(self, session_id: str, limit: int, after: int, before: int | None) -> list[StoredMessage]: ...

    async def forget_history(self, session_id: str) -> int: ...

    async def dead_letters(self, limit: int) -> list[Trigger]: ...

    async def requeue(self, trigger_id: str) -> None: ...

    async def result_of(self, id: str, type: Any, timeout: Duration | None) -> Any: ...

    async def state_of(self, id: str) -> Task | Trigger: ...

    async def cancel_work(self, id: str) -> None: ...

    async def transaction(self, fn: Callable[..., T], args: tuple[Any, ...]) -> T: ...

    def follow_work(self, id: str) -> AsyncGenerator[WorkUpdate, None]: ...

    def follow_stream(self, id: str, name: str, after: int) -> AsyncGenerator[StreamChunk, None]: ...


def make_refusal(backend: Backend, capability: Capability) -> InvalidInput:
    """Return the error of a call that needs a capability which the backend lacks. It says what to do instead."""
    return InvalidInput(backend.lacks[capability], capability=capability.value)
