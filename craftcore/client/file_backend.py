"""The calls on the work in a database file. Each is one rule in one transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

from craftcore.activities.model import Decision
from craftcore.client.backend import Capability
from craftcore.results.handle import EmittedHandle
from craftcore.schedules.calls import Schedules
from craftcore.serialization.arguments import Duration
from craftcore.services import Services
from craftcore.storage.damaged_rows import omit_damaged
from craftcore.storage.transaction import Reader, Transaction
from craftcore.tasks.all_work import CancelledWork
from craftcore.tasks.listing_store import TaskLists
from craftcore.tasks.model import Question, Task
from craftcore.tasks.session_message import StoredMessage
from craftcore.tasks.session_message_store import SessionMessageStore
from craftcore.tasks.stream_chunks import StreamChunk
from craftcore.tasks.work_store import WorkFilter, WorkUpdate
from craftcore.triggers.listing_store import TriggerLists
from craftcore.triggers.model import NewTrigger, Trigger, TriggerSpec
from craftcore.triggers.start_holds import HoldTarget, release

P = ParamSpec("P")
R = TypeVar("R")


class FileBackend(ABC):
    """The calls that an engine and a producer make alike. A subclass has the ways to the file.

    holder    the maker of a hold, as lists show it
    schedules the calls on schedules
    """

    lacks: ClassVar[Mapping[Capability, str]] = {}
    holder: ClassVar[str]
    schedules: Schedules

    def __init__(self, services: Services) -> None:
        self.services = services

    @abstractmethod
    async def commit(self, rule: Callable[Concatenate[Transaction, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a rule in a transaction. When this returns it is on disk, and the engine looks at what has changed."""

    @abstractmethod
    async def look(self, rule: Callable[Concatenate[Reader, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return what a rule reads that writes nothing. It sees every commit that has returned."""

    @abstractmethod
    async def read(self, call: Callable[..., R], *args: Any) -> R:
        """Return `call(reader, *args)`, read beside the writer."""

    @abstractmethod
    def accept(self, spec: TriggerSpec) -> NewTrigger:
        """Return the row of a spec, before anything is written. Raises InvalidInput."""

    @abstractmethod
    async def emit(self, spec: TriggerSpec) -> EmittedHandle[Any]: ...

    @abstractmethod
    async def emit_many(self, specs: Sequence[TriggerSpec]) -> list[EmittedHandle[Any]]: ...

    @abstractmethod
    async def result_of(self, id: str, type: Any, timeout: Duration | None) -> Any: ...

    @abstractmethod
    async def transaction(self, fn: Callable[..., R], args: tuple[Any, ...]) -> R: ...

    @abstractmethod
    def follow_work(self, id: str) -> AsyncGenerator[WorkUpdate, None]: ...

    @abstractmethod
    def follow_stream(self, id: str, name: str, after: int) -> AsyncGenerator[StreamChunk, None]: ...

    def find_maker(self) -> str | None:
        """Return the id of the task or trigger whose code calls this. None: other code."""
        return None

    def signal_or_start(
        self, tx: Transaction, /, task_id: str | None, event: str, payload: Any, **details: Any
    ) -> bool:
        """Signal a task, as `Services.signal` does."""
        return self.services.signal(tx, task_id, event, payload, **details)

    async def write(self, name: str, kind: Any, call: Callable[..., R], *args: Any) -> R:
        """Commit a call on schedules. `name` and `kind` of its result are for a turn, which records it."""
        return await self.commit(call, *args)

    async def signal(
        self,
        task_id: str | None,
        event: str,
        payload: Any = None,
        *,
        sent_by: str | None = None,
        start: TriggerSpec | None = None,
    ) -> bool:
        row = None if start is None else self.accept(start)
        return await self.commit(
            self.signal_or_start, task_id, event, payload, sent_by=sent_by, start=row, maker_id=self.find_maker()
        )

    async def answer(
        self, question_id: str, choice: str, *, note: str | None, reference: str | None, answered_by: str
    ) -> None:
        await self.commit(
            self.services.tasks.answer, question_id, choice, note=note, reference=reference, answered_by=answered_by
        )

    async def decide(
        self, activity_key: str, decision: Decision, *, note: str | None, reference: str | None, decided_by: str
    ) -> None:
        await self.commit(
            self.services.activity_decisions.decide,
            activity_key,
            decision,
            note=note,
            reference=reference,
            decided_by=decided_by,
        )

    async def cancel(self, trigger_id: str) -> None:
        await self.commit(self.services.triggers.cancel, trigger_id)

    async def cancel_task(self, task_id: str) -> None:
        await self.commit(self.services.tasks.cancel, task_id)

    async def cancel_work(self, id: str) -> None:
        await self.commit(self.services.cancel_work, id)

    async def cancel_all(self, reason: str, *, with_schedules: bool) -> CancelledWork:
        return await self.commit(self.services.cancel_all, reason, with_schedules=with_schedules)

    async def stop_turn(self, task_id: str) -> None:
        await self.commit(self.services.tasks.stop_turn, task_id)

    async def retry_task(self, task_id: str) -> None:
        await self.commit(self.services.tasks.retry, task_id)

    async def hold(self, target: HoldTarget, reason: str | None) -> bool:
        return await self.commit(self.services.hold, target, self.holder, reason)

    async def release(self, target: HoldTarget) -> bool:
        return bool(await self.commit(release, target))

    async def requeue(self, trigger_id: str) -> None:
        await self.commit(self.services.triggers.requeue, trigger_id)

    async def task(self, task_id: str) -> Task | None:
        return await self.look(self.services.tasks.find, task_id)

    async def state_of(self, id: str) -> Task | Trigger:
        return await self.look(self.services.state_of_work, id)

    async def questions(self, limit: int) -> list[Question]:
        return await self.look(self.services.tasks.questions, limit)

    async def tasks(self, status: str | None, workflow: str | None, session_id: str | None, limit: int) -> list[Task]:
        def list_tasks(reader: Reader) -> list[Task]:
            found = TaskLists().list_newest(
                reader, status=status, workflow=workflow, session_id=session_id, limit=limit
            )
            return omit_damaged(found)

        return await self.read(list_tasks)

    async def history(self, session_id: str, limit: int, after: int, before: int | None) -> list[StoredMessage]:
        return omit_damaged(await self.read(SessionMessageStore().list_newest, session_id, limit, after, before))

    async def forget_history(self, session_id: str) -> int:
        return await self.commit(SessionMessageStore().remove_all, session_id)

    async def dead_letters(self, limit: int) -> list[Trigger]:
        return omit_damaged(await self.read(TriggerLists().list_dead, limit))

    async def find_ids(self, filter: WorkFilter, limit: int) -> list[str]:
        return await self.read(self.services.find_work, filter, limit)
