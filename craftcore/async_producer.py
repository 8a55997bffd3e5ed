"""The calls of a Producer for programs with an event loop: a web handler, a bot, an agent in a process of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, Unpack

import anyio

from craftcore.config import Config
from craftcore.errors import CraftcoreError, InvalidInput
from craftcore.producer import ProducedWork, Producer
from craftcore.results.handle import (
    WITH_A_DAEMON,
    EmittedHandle,
    Handle,
    KnownHandle,
    timeout_error,
    timeout_seconds,
)
from craftcore.results.result_value import require_result
from craftcore.schedules.calls import Schedules
from craftcore.serialization.arguments import Duration
from craftcore.storage.event_loop import get_current_loop
from craftcore.tasks.all_work import CancelledWork
from craftcore.tasks.model import Task
from craftcore.tasks.work_store import WorkResult, WorkUpdate
from craftcore.triggers.model import EmitOptions, Trigger, TriggerSpec

T = TypeVar("T")


class AsyncProducer:
    """Writes into a database that a daemon runs, now or later, on asyncio or trio.

        async with AsyncProducer("agent.db") as producer:
            greeting = await producer.emit("greet", {"name": "Ada"})
            print(await greeting.result(timeout=60))

    Each call runs in a worker thread; waiting for results takes one thread for all callers. The file is made when it
    is missing. Entering raises a StorageError when it cannot be opened; every other method raises InvalidInput outside
    of the block.
    """

    def __init__(self, path: str | Path, *, config: Config | str | Path | None = None) -> None:
        self._open = partial(Producer, path, config=config)
        self._opened: Producer | None = None

    async def __aenter__(self) -> AsyncProducer:
        self._opened = await anyio.to_thread.run_sync(self._open)
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        producer, self._opened = self._producer, None
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(producer.close)

    async def emit(
        self, workflow: str | None, payload: Mapping[str, Any] | None = None, **options: Unpack[EmitOptions]
    ) -> EmittedHandle[Any]:
        """Accept a trigger, as Producer.emit does. A caller that is cancelled does not know whether it was accepted:
        give an `id` or a `dedup_key` to emit it again."""
        spec = TriggerSpec(workflow=workflow, payload={} if payload is None else payload, **options)
        return (await self.emit_many([spec]))[0]

    async def emit_many(self, specs: Iterable[TriggerSpec]) -> list[EmittedHandle[Any]]:
        """Accept many in one commit: all or, when one is refused, none."""
        work = _AwaitableWork(self._producer.work)
        emitted = await _run_in_thread(self._producer.emit_many, list(specs))
        return [EmittedHandle(work, answer) for answer in emitted]

    def handle(self, id: str) -> Handle[Any]:
        """Return the handle of emitted work by its id. Nothing is read until one of its methods is called."""
        return KnownHandle(id, _AwaitableWork(self._producer.work))

    async def find(
        self,
        *,
        workflow: str | None = None,
        session_id: str | None = None,
        dedup_key: str | None = None,
        status: str | None = None,
        limit: int = 100,
    ) -> list[Handle[Any]]:
        """Return the newest work that matches all that is given, newest first. The arguments are those of App.find."""
        found = await _run_in_thread(
            self._producer.find,
            workflow=workflow,
            session_id=session_id,
            dedup_key=dedup_key,
            status=status,
            limit=limit,
        )
        return [self.handle(work.id) for work in found]

    @property
    def schedules(self) -> Schedules:
        """The calls on schedules."""
        return Schedules(self._producer.schedules.rules, _AwaitableWork(self._producer.work))

    async def signal(
        self,
        task_id: str | None,
        event: str,
        payload: Any = None,
        *,
        sent_by: str | None = None,
        start: TriggerSpec | None = None,
    ) -> bool:
        """Tell a live task that something happened, as Producer.signal does."""
        return await _run_in_thread(self._producer.signal, task_id, event, payload, sent_by=sent_by, start=start)

    async def answer(
        self,
        question_id: str,
        choice: str,
        *,
        note: str | None = None,
        reference: str | None = None,
        answered_by: str,
    ) -> None:
        """Answer a question, once, as Producer.answer does."""
        await _run_in_thread(
            self._producer.answer, question_id, choice, note=note, reference=reference, answered_by=answered_by
        )

    async def cancel_task(self, task_id: str) -> None:
        """Cancel a live task, as Producer.cancel_task does."""
        await _run_in_thread(self._producer.cancel_task, task_id)

    async def stop_turn(self, task_id: str) -> None:
        """Stop the turn of a live task, as Producer.stop_turn does."""
        await _run_in_thread(self._producer.stop_turn, task_id)

    async def cancel_all(self, reason: str = "cancelled", *, with_schedules: bool = True) -> CancelledWork:
        """Cancel all work in one commit, as Producer.cancel_all does."""
        return await _run_in_thread(self._producer.cancel_all, reason, with_schedules=with_schedules)

    async def hold(
        self,
        *,
        workflow: str | None = None,
        source: str | None = None,
        schedule: str | None = None,
        reason: str | None = None,
    ) -> bool:
        """Keep work from starting until `release`, as Producer.hold does."""
        return await _run_in_thread(
            self._producer.hold, workflow=workflow, source=source, schedule=schedule, reason=reason
        )

    async def release(
        self, *, workflow: str | None = None, source: str | None = None, schedule: str | None = None
    ) -> bool:
        """Let held work start again, as Producer.release does."""
        return await _run_in_thread(self._producer.release, workflow=workflow, source=source, schedule=schedule)

    @property
    def _producer(self) -> Producer:
        if self._opened is None:
            raise InvalidInput("the producer is not open: use it inside `async with AsyncProducer(...) as producer:`")
        return self._opened


class _AwaitableWork:
    """The calls behind the handles of an AsyncProducer."""

    def __init__(self, work: ProducedWork) -> None:
        self._work = work

    async def result_of(self, id: str, type: Any, timeout: Duration | None) -> Any:
        """Wait for the end, and return the result as `type`; None: as plain JSON values."""
        limit = timeout_seconds(timeout)
        self._work.refuse_own_wait(limit, "result")
        end = await _run_in_thread(self._work.watch.look, id)
        return require_result(end or await self._end_of(id, limit), type)

    async def _end_of(self, id: str, limit: float | None) -> WorkResult:
        loop = get_current_loop()
        waiter = loop.create_waiter()
        answers: list[WorkResult | CraftcoreError] = []

        def on_ended(answer: WorkResult | CraftcoreError) -> None:
            answers.append(answer)
            with suppress(RuntimeError):  # the event loop has ended, and its caller with it
                loop.call_soon(lambda: loop.wake(waiter))

        withdraw = self._work.watch.add(id, on_ended)
        try:
            with anyio.move_on_after(limit):
                await loop.wait(waiter)
        finally:
            withdraw()
        if not answers:
            raise timeout_error(id, limit, WITH_A_DAEMON)
        if isinstance(answers[0], CraftcoreError):
            raise answers[0]
        return answers[0]

    async def write(self, name: str, kind: Any, call: Callable[..., T], *args: Any) -> T:
        """Commit `call(tx, *args)`, and let the daemon know."""
        return await _run_in_thread(self._work.write, name, kind, call, *args)

    async def read(self, call: Callable[..., T], *args: Any) -> T:
        """Return `call(reader, *args)`."""
        return await _run_in_thread(self._work.read, call, *args)

    async def state_of(self, id: str) -> Task | Trigger:
        """Return the task, or the trigger that has created none."""
        return await _run_in_thread(self._work.state_of, id)

    def follow_work(self, id: str) -> AsyncIterator[WorkUpdate]:
        """Yield the work as it is, and after each change, until its end."""
        return self._work.follow_from_loop(id)

    async def cancel_work(self, id: str) -> None:
        """Cancel the work, and let the daemon know."""
        await _run_in_thread(self._work.cancel_work, id)


async def _run_in_thread(call: Callable[..., T], *args: Any, **options: Any) -> T:
    return await anyio.to_thread.run_sync(partial(call, *args, **options))
