"""Emitting, and speaking to tasks on a cluster, from any program, synchronously: a script, a web handler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping
from dataclasses import replace
from threading import Thread
from types import TracebackType
from typing import Any, TypeVar, Unpack

from craftcore.results.handle import BlockingHandle, EmittedBlockingHandle, KnownBlockingHandle
from craftcore.serialization.arguments import Duration
from craftcore.storage.transaction import get_single_result
from craftcore.tasks.model import Question, Task
from craftcore.tasks.work_store import WorkFilter, WorkUpdate
from craftcore.temporal.cluster_connection import connect
from craftcore.temporal.cluster_requests import ClusterRequests
from craftcore.temporal.settings import TemporalSettings
from craftcore.triggers.model import EmitOptions, Trigger, TriggerSpec

T = TypeVar("T")


class ClusterWork:
    """The calls behind the handles of a producer, on an event loop in a thread of its own."""

    def __init__(self, settings: TemporalSettings) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="craftcore-temporal", daemon=True)
        try:
            self._thread.start()
        except BaseException:  # the system gives no thread
            self._loop.close()
            raise
        try:
            self.requests = ClusterRequests(self.run(connect(settings)), None, settings)
        except BaseException:
            self.close()
            raise

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Return what the call returns, on the loop of the producer."""
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def result_of(self, id: str, type: Any, timeout: Duration | None) -> Any:
        """Wait for the end, and return the result as `type`; None: as plain JSON values."""
        return self.run(self.requests.result_of(id, type, timeout))

    def state_of(self, id: str) -> Task | Trigger:
        """Return the task."""
        return self.run(self.requests.state_of(id))

    def cancel_work(self, id: str) -> None:
        """Ask the task to end."""
        self.run(self.requests.cancel(id))

    def follow_work(self, id: str) -> Iterator[WorkUpdate]:
        """Yield the task as it is, and after each change, until its end."""
        updates = self.requests.follow_work(id)
        while True:
            try:
                yield self.run(_take_next(updates))
            except StopAsyncIteration:
                return

    def close(self) -> None:
        """End what still waits, and stop the loop and its thread."""
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class TemporalProducer:
    """Writes to an app on a cluster, with or without a worker. May be shared by threads.

        with TemporalProducer("host:7233", namespace="ns", app="my-agent") as producer:
            producer.emit("order", {"what": "lamp"}, dedup_key="order:lamp")

    `app` is the name of the app, unless `settings` has a task queue. `settings` has TLS, key and data converter; None:
    the defaults. The payload is not checked against the workflow. Raises ClusterUnavailable when nothing answers.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        namespace: str | None = None,
        app: str | None = None,
        settings: TemporalSettings | None = None,
    ) -> None:
        settings = settings or TemporalSettings()
        self._work = ClusterWork(
            replace(
                settings,
                address=address or settings.address,
                namespace=namespace or settings.namespace,
                task_queue=app or settings.task_queue,
            )
        )

    def __enter__(self) -> TemporalProducer:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def emit(
        self, workflow: str | None, payload: Mapping[str, Any] | None = None, **options: Unpack[EmitOptions]
    ) -> EmittedBlockingHandle[Any]:
        """Start a task: it is on record when this returns. Arguments and errors are those of Producer.emit."""
        spec = TriggerSpec(workflow=workflow, payload={} if payload is None else payload, **options)
        return get_single_result(self.emit_many([spec]))

    def emit_many(self, specs: Iterable[TriggerSpec]) -> list[EmittedBlockingHandle[Any]]:
        """Start tasks one after the other, not in one commit. The first refusal stops it; its `details` have `emitted`,
        how many were started before."""
        answers = self._work.run(self._work.requests.emit_specs(list(specs)))
        return [EmittedBlockingHandle(self._work, answer) for answer in answers]

    def handle(self, id: str) -> BlockingHandle[Any]:
        """Return the handle of a task by its id. Nothing is read until one of its methods is called."""
        return KnownBlockingHandle(id, self._work)

    def find(
        self,
        *,
        workflow: str | None = None,
        session_id: str | None = None,
        dedup_key: str | None = None,
        status: str | None = None,
        limit: int = 100,
    ) -> list[BlockingHandle[Any]]:
        """Return the newest tasks that match all that is given, newest first. They may lag by a second."""
        those = WorkFilter(workflow, session_id, dedup_key, status)
        return [self.handle(id) for id in self._work.run(self._work.requests.find_ids(those, limit))]

    def signal(self, task_id: str, event: str, payload: Any = None, *, sent_by: str | None = None) -> bool:
        """Tell a live task that something happened. True when it waited for just that a moment earlier. Raises
        NotFound."""
        return self._work.run(self._work.requests.signal(task_id, event, payload, sent_by=sent_by))

    def answer(
        self,
        question_id: str,
        choice: str,
        *,
        note: str | None = None,
        reference: str | None = None,
        answered_by: str,
    ) -> None:
        """Answer a question, once. Needs a worker. Raises StateRefused: too late; StillWaiting without a worker."""
        self._work.run(
            self._work.requests.answer(question_id, choice, note=note, reference=reference, answered_by=answered_by)
        )

    def task(self, task_id: str) -> Task | None:
        """Return a task as its history has it; None when there is none, or no worker has taken it yet."""
        return self._work.run(self._work.requests.task(task_id))

    def questions(self, limit: int = 100) -> list[Question]:
        """Return what waits for an answer. It may lag by a second."""
        return self._work.run(self._work.requests.questions(limit))

    def cancel_task(self, task_id: str) -> None:
        """Ask a live task to end. Raises NotFound or StateRefused."""
        self._work.run(self._work.requests.cancel(task_id))

    def close(self) -> None:
        """Close the connection."""
        self._work.close()


async def _take_next(updates: AsyncIterator[T]) -> T:
    return await anext(updates)


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
